"""A few real steps, recorded by the torch profiler and by Horovod's timeline."""
