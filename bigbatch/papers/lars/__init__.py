"""LARS: Large batch training of convolutional networks with layer-wise adaptive rate scaling (You et al. 2017)."""
