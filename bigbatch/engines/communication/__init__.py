"""What engines share: process groups, replicas of a model, and the compression of gradients."""
