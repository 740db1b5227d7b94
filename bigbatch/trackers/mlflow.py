"""MLflow: a run in the experiment `bigbatch`, wherever MLFLOW_TRACKING_URI points."""

from __future__ import annotations

import json
import time
from typing import Any

from bigbatch import parts
from bigbatch.trackers import TrackedRun

NEEDS = "mlflow"
_MOST_AT_ONCE = 1000  # metrics in one request: the server's own bound
_LONGEST_VALUE = 500  # characters of a parameter: the smallest bound of its stores
_ENDINGS = {"done": "FINISHED", "diverged": "FAILED", "failed": "FAILED", "stopped": "KILLED"}


class Config(parts.Config):
    experiment: str = "bigbatch"


class MlflowRun:
    def __init__(self, config: Config, place: TrackedRun) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient()
        if "run_id" not in place.kept:
            place.kept["run_id"] = self._create(config.experiment, place)
        self._run_id: str = place.kept["run_id"]
        self._client.update_run(self._run_id, status="RUNNING")
        self._waiting: list[Any] = []

    def _create(self, experiment: str, place: TrackedRun) -> str:
        from mlflow.entities import Param

        found = self._client.get_experiment_by_name(experiment)
        experiment_id = found.experiment_id if found else self._client.create_experiment(experiment)
        run_id = self._client.create_run(experiment_id, run_name=place.name).info.run_id
        texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in place.run.items()}
        self._client.log_batch(run_id, params=[Param(name, text[:_LONGEST_VALUE]) for name, text in texts.items()])
        return str(run_id)

    def add(self, step: int, values: dict[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(1000 * time.time())
        self._waiting += [Metric(name, value, now, step) for name, value in values.items()]

    def flush(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
            self._client.log_batch(self._run_id, metrics=batch)

    def close(self, status: str) -> None:
        self.flush()
        self._client.set_terminated(self._run_id, _ENDINGS.get(status, "KILLED"))


start = MlflowRun
