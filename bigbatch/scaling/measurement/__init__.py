"""Steps of data-parallel training, measured: real engines, synthetic samples, one thread per rank."""
