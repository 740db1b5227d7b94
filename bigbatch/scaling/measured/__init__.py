"""Steps of data-parallel training, measured here: real engines, made-up samples, one thread a rank.

made_up.py       samples that only have a shape
stepper.py       one training step, built of the parts and the engine that train
notes.py         what happened when within a step: passes, all-reduces, waiting
rank_program.py  what every rank runs (`python -m`): warm-up, timed steps, steps with notes, one JSON
"""
