"""What probes share: their contract, samples, the loss as a function of the weights, and leaving a model unchanged."""
