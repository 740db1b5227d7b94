"""Steps of data-parallel training, measured: real engines, synthetic samples, one thread per rank.

request.py       which configurations a user asks for
rounds.py        every configuration once per round, its ranks started anew
calibration.py   this machine, described for the simulator
measurement.py   all of it in order: step times, phases, efficiencies or why there are none, simulated steps beside them
report.py        tables, figures and files
"""
