"""Recipes: complete trainings, ready to run. A part offers `run() -> Run`; `--set` changes any field of it."""
