"""A few real steps of each engine, recorded by the torch profiler on every rank and by Horovod's own timeline.

trace.py          records the steps
spans.py          reads what the profilers wrote
chrome_trace.py   all of it as one Chrome trace
traced_step.py    one step in numbers
report.py         the table, figures and files
"""
