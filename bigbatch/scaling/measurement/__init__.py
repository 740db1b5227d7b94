"""Steps of data-parallel training, measured: real engines, synthetic samples, one thread per rank.

request.py       which configurations a user asks for
rounds.py        every configuration once per round, its ranks started anew
timings.py       best and median step, phases, efficiencies or why there are none
calibration.py   this machine, described for the simulator
prediction.py    simulated steps beside the measured ones
measurement.py   all of it in order
report.py        tables, figures and files
timing_task.py, calibration_task.py   what each rank does (see scaling/worker.py)
"""
