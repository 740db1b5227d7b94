"""A few real steps of each engine, recorded by the torch profiler on every rank and by Horovod's own timeline.

    trace.py              records the steps
    profiling_task.py     what each rank does: steps under the profiler (see scaling/worker.py)
    profiler_trace.py     reads what the profiler of one rank wrote
    horovod_timeline.py   reads the file that Horovod wrote
    chrome_trace.py       all of it as one Chrome trace
    traced_step.py        one step in numbers
    report.py             the table, figures and files

One clock: a moment is an integer of nanoseconds since 1970. The profiler's file has a base in such nanoseconds, to
which its microseconds are added. Horovod's timeline counts microseconds from its start, and its first line says when
that was, in microseconds since 1970. Ranks of one machine read the same clock.
"""
