"""Steps of data-parallel training, measured here: real engines, made-up samples, one thread a rank.

asked.py         what a user asks for, checked
cases.py         what is measured: engine, ranks, batch, settings
stepper.py       one training step, built of the parts and the engine that train
notes.py         what happened when within a step: passes, all-reduces, waiting
rank_program.py  what every rank runs (`python -m`): warm-up, timed steps, steps with notes, one JSON
interface.py, hosts.py, starts.py   the network to use, ranks on other machines, starting and ending ranks
rounds.py        every case once a round, in turn
horovods_notes.py   what Horovod's timeline adds to the notes
timings.py       best and median, phases, efficiencies or why there are none
calibration_program.py, calibration.py, predicted.py   this machine for the simulator, and its steps beside ours
measurement.py   all of it in order
shown.py, drawn.py, written.py   what is printed, drawn and written
"""
