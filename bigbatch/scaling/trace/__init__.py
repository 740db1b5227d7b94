"""A few real steps of each engine, seen by the torch profiler on every rank and by Horovod's own timeline.

    rank.py       what every rank runs: a few training steps under the torch profiler, with marks at their phases
    ranks.py      starts the ranks of one engine and gives back what they left
    profiler.py   reads the file that the profiler of one rank wrote
    timeline.py   reads the file that Horovod wrote
    merge.py      all of it as one Chrome trace
    seen.py       one step in numbers: phases, messages, what was hidden and what was waited for
    panels.py     one step as a picture, in the manner of Gahlot et al. 2020, Fig. 8 a-c
    report.py     what is printed and written

One clock: a moment is an integer of nanoseconds since 1970. The profiler's file has a base in such nanoseconds, to
which its microseconds are added. Horovod's timeline counts microseconds from its start, and its first line says when
that was, in microseconds since 1970. Ranks of one machine read the same clock.
"""
