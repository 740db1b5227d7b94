"""bigbatch: train neural networks at very large batch sizes without losing accuracy."""

__version__ = "0.1.0"
