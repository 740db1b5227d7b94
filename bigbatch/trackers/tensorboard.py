"""TensorBoard event files inside the run's folder: `tensorboard --logdir runs` shows them."""

from __future__ import annotations

import time

from bigbatch import parts
from bigbatch.trackers import TrackedRun

NEEDS = "tensorboard"


class Config(parts.Config):
    pass


class EventFile:
    """TensorBoard's own writer; torch's would bring torch into a process that has no other use for it."""

    def __init__(self, config: Config, place: TrackedRun) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._writer = EventFileWriter(str(place.files), flush_secs=3600)  # flushed when we say so

    def add(self, step: int, values: dict[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=tag(name), simple_value=value) for name, value in values.items()])
        self._writer.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    def flush(self) -> None:
        self._writer.flush()

    def close(self, status: str) -> None:
        self._writer.close()


def tag(name: str) -> str:
    """Return TensorBoard's name of a metric: `train/loss` for `train_loss`, `train/lr` for `lr`."""
    if name == "lr":
        return "train/lr"
    phase, _, metric = name.partition("_")
    return f"{phase}/{metric}" if phase in ("train", "test") and metric else name


start = EventFile
