"""Weights & Biases: a run in the project `bigbatch`; WANDB_MODE=offline keeps it on this machine."""

from __future__ import annotations

import uuid

from bigbatch import parts
from bigbatch.trackers import TrackedRun

NEEDS = "wandb"


class Config(parts.Config):
    project: str = "bigbatch"


class WandbRun:
    def __init__(self, config: Config, place: TrackedRun) -> None:
        import wandb

        run_id = place.kept.setdefault("run_id", uuid.uuid4().hex[:12])
        self._run = wandb.init(
            project=config.project,
            id=run_id,
            name=place.name,
            config=place.run,
            dir=str(place.files),
            resume="allow",
            settings=wandb.Settings(console="off", silent=True, x_disable_stats=True, disable_git=True),
        )

    def add(self, step: int, values: dict[str, float]) -> None:
        self._run.log(values, step=step)  # the numbers of one step join, however many calls they come in

    def flush(self) -> None:
        pass  # it sends by itself

    def close(self, status: str) -> None:
        self._run.finish(exit_code=0 if status == "done" else 1)


start = WandbRun
