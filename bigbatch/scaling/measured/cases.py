"""What is measured: an engine on some ranks with some batch a rank, and which of these answer which question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bigbatch.run import Run
from bigbatch.scaling.measured.stepper import run_of

MIB = 2**20
CYCLES_MS = (1.0, 2.5, 5.0, 10.0, 20.0)
_SHARES_OF_MODEL = (1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16)


@dataclass(frozen=True)
class Subject:
    """The model whose steps are taken, and the options of the engines that take them."""

    model: str
    model_options: Mapping[str, Any]
    sample_shape: tuple[int, ...]
    classes: int
    engine_options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def run(self, case: Case, **more: Any) -> Run:
        """`more` are options of the engine that are no part of the case."""
        engine = {"name": case.engine, **self.engine_options.get(case.engine, {}), **dict(case.settings), **more}
        return run_of(
            {"name": self.model, **self.model_options},
            engine,
            ranks=case.ranks,
            rank_batch=case.rank_batch,
            sample_shape=self.sample_shape,
            classes=self.classes,
        )


@dataclass(frozen=True)
class Case:
    """One configuration. `settings` are options of its engine beside those of the subject."""

    engine: str
    ranks: int
    rank_batch: int
    settings: tuple[tuple[str, float], ...] = ()

    @property
    def label(self) -> str:
        options = "".join(f" {name}={value:g}" for name, value in self.settings)
        return f"{self.engine}{options} {self.ranks}x{self.rank_batch}"


@dataclass(frozen=True)
class Comparison:
    """A case beside the one process that does the same work (strong) or one rank's share of it (weak)."""

    scaling: str
    alone: Case
    ranks: Case


@dataclass(frozen=True)
class Sweep:
    """Cases that differ in one setting of an engine."""

    engine: str
    setting: str
    cases: tuple[Case, ...]


def comparisons(engines: Sequence[str], ranks: Sequence[int], rank_batch: int) -> list[Comparison]:
    """Weak: `rank_batch` on every rank. Strong: rank_batch x the most ranks, divided."""
    several = [name for name in engines if name != "local"]
    global_batch = rank_batch * max(ranks)
    found = []
    for count in (count for count in ranks if count > 1):
        for engine in several:
            found.append(Comparison("weak", Case("local", 1, rank_batch), Case(engine, count, rank_batch)))
    for count in (count for count in ranks if count > 1 and global_batch % count == 0):
        for engine in several:
            alone = Case("local", 1, global_batch)
            found.append(Comparison("strong", alone, Case(engine, count, global_batch // count)))
    return found


def sweeps(engines: Sequence[str], ranks: int, rank_batch: int, model_bytes: int) -> list[Sweep]:
    """DDP's bucket cap by shares of the model; Horovod's cycle, and its fusion buffer from none to the whole model."""
    model_mb = model_bytes / MIB
    shares_mb = tuple(_rounded(share * model_mb) for share in _SHARES_OF_MODEL)
    asked: list[tuple[str, str, tuple[float, ...]]] = []
    if "ddp" in engines:
        asked.append(("ddp", "bucket_mb", tuple(reversed(shares_mb))))
    if "horovod" in engines:
        asked.append(("horovod", "cycle_ms", CYCLES_MS))
        asked.append(("horovod", "fusion_mb", (0.0, shares_mb[3], shares_mb[1], _rounded(1.1 * model_mb))))
    return [
        Sweep(engine, setting, tuple(Case(engine, ranks, rank_batch, ((setting, value),)) for value in values))
        for engine, setting, values in asked
    ]


def _rounded(mb: float) -> float:
    return float(f"{mb:.3g}")


def distinct(wanted: Sequence[Case]) -> list[Case]:
    return list(dict.fromkeys(wanted))
