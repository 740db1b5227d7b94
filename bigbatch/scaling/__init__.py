"""How a data-parallel step grows with the number of ranks: measured on those that there are, computed for more.

    measured/      real steps of real engines, this machine's calibration, simulated steps beside measured ones

    profile.py     what one rank does in a step: layers with their times and the gradients they bring
    shapes.py      a model part as layers with FLOPs and bytes
    elsewhere.py   the same for networks that published measurements used and bigbatch has no part for
    timing.py      a model part as layers with times measured on this machine
    machine.py     nodes, links, devices, jitter: a description, shipped or read from a file
    allreduce.py   what one all-reduce costs (NCCL's ring and tree, or a measured table)
    ddp.py, horovod.py   which gradients are sent together, and when
    cores.py       computing and sending on the same cores
    step.py        one step: a compute stream and a communication stream
    curve.py       many numbers of ranks, the band of the jitter, and which term bends the curve
    published.py   what others measured, against what this says
    finish.py      the number of ranks that ends a training first
    trace/         real steps of real engines, seen by profilers: one trace, one picture of a step
    pictures.py, report.py, published_report.py, finish_report.py   what is drawn, printed and written

All but shapes.py and timing.py are plain Python. Times are microseconds, sizes bytes.
"""
