"""The program of every rank that is timed, calibrated or profiled: `python -m bigbatch.scaling.worker TASK [FOLDER]`.

TASK is the JSON of a task. A rank writes its result to FOLDER/rank-N.json, or prints it where ranks share no folder.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Annotated

import torch
from pydantic import Field, TypeAdapter

from bigbatch import engines
from bigbatch.artifacts import atomic
from bigbatch.errors import DONE, FAILED, Problem
from bigbatch.launch import processes
from bigbatch.run import Run
from bigbatch.scaling import hosts
from bigbatch.scaling.measurement.calibration_task import CalibrationTask
from bigbatch.scaling.measurement.timing_task import TimingTask
from bigbatch.scaling.ranks import RESULT_PREFIX
from bigbatch.scaling.stepper import barrier
from bigbatch.scaling.tracing.profiling_task import ProfilingTask

Task = Annotated[TimingTask | CalibrationTask | ProfilingTask, Field(discriminator="kind")]


def perform_task(task: Task, folder: Path | None) -> None:
    run = Run(**task.run)
    hosts.choose_interface()
    engine = engines.start(run.engine)
    try:
        torch.set_num_threads(1)
        result = task.perform(run, engine)
        if folder is not None:
            atomic.write_text(folder / f"rank-{engine.rank}.json", result)
        for rank in range(engine.world_size if folder is None else 0):
            if rank == engine.rank:  # in turn: long lines of several ranks would be mixed
                print(f"{RESULT_PREFIX}{rank} {result}", flush=True)
            barrier(engine)
        barrier(engine)  # Horovod ends for all ranks when one leaves
    finally:
        engine.stop()


def main() -> None:
    code = DONE
    try:
        task: Task = TypeAdapter(Task).validate_json(sys.argv[1])
        perform_task(task, Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    except Exception as error:
        code = FAILED
        if not (isinstance(error, Problem) and processes.leave_message(str(error))):
            traceback.print_exc()
    processes.exit_process(code)


if __name__ == "__main__":
    main()
