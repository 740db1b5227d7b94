"""The curves that schedules are made of: scaling rules, warm-ups and decays, and the plan of a run."""
