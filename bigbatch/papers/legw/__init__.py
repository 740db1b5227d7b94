"""LEGW: Large-batch training for LSTM and beyond (You et al. 2018, UCB/EECS-2018-138)."""
