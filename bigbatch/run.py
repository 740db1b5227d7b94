"""One training, described completely by one frozen value. Its hash names its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PositiveFloat,
    PositiveInt,
    SerializeAsAny,
    ValidationError,
    model_validator,
)

from bigbatch import parts, settings
from bigbatch.errors import Problem
from bigbatch.trust import trust_typed

_LARGEST_LR = 1e30  # float32 ends at 3e38
_ABSENT = object()
# fields that version 0.1 does not have, with their defaults
_LATER_FIELDS = {
    "loss": {"name": "cross_entropy", "label_smoothing": 0.0},
    "clip_norm": None,
    "ema_decay": None,
    "sam_radius": None,
    "evaluations_per_epoch": 1,
    "reduction": "float",
}

# what other tools call fields of a run
USUAL_NAMES = {
    **dict.fromkeys(("batch", "batch_size", "bs", "train_batch_size"), "--set global_batch=512"),
    **dict.fromkeys(("lr", "learning_rate", "rate"), "--set optimizer.lr=0.1"),
    **dict.fromkeys(("gpus", "nproc", "nproc_per_node", "num_processes", "world_size"), "--ranks 2"),
    **dict.fromkeys(("max_epochs", "num_epochs", "num_train_epochs"), "--set epochs=10"),
    "accumulation": "--set micro_batch=64: a global batch is split into as many as it takes",
    "clip": "--set clip_norm=1.0",
    "ema": "--set ema_decay=0.999",
    "label_smoothing": "--set loss.label_smoothing=0.1",
    "max_steps": "--set steps=1000",
    "momentum": "--set optimizer.momentum=0.9",
    "optim": "--set optimizer=lars",
    "scheduler": "--set schedule=legw",
    "weight_decay": "--set optimizer.weight_decay=0.0005",
}


def _part(kind: str) -> Callable[[Any], Any]:
    return lambda value: parts.configure(kind, value)


def _brief_batch_size(config: parts.Config) -> Any:
    """A constant batch is written as its number."""
    options = config.model_dump(mode="json")
    return options["global_batch"] if config.name == "constant" else options


def _filter(value: Any) -> Any:
    """A file name is short for the filter that reads it."""
    if isinstance(value, str) and value.endswith(".npz"):
        value = {"name": "kept", "path": value}
    return value if value is None else parts.configure("filters", value)


class Change(NamedTuple):
    """A field of a run that changes with its batch."""

    field: str  # as in --set
    before: Any
    after: Any
    why: str


class Run(BaseModel):
    """Everything that decides how a training goes, and nothing else.

    The global batch is the setting; micro-batches, ranks and accumulation are derived from it. Where the model has
    BatchNorm, statistics are taken over groups of `batchnorm_group` samples, which are then the micro-batches.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field(
        "run", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", description="begins the name of the folder; not in the hash"
    )
    dataset: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("datasets"))] = Field(
        description="training and test samples"
    )
    filter: Annotated[SerializeAsAny[parts.Config] | None, BeforeValidator(_filter)] = Field(
        None, description="which training samples are kept: a filter, or the kept.npz that one wrote; null keeps all"
    )
    model: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("models"))] = Field(description="the network")
    global_batch: Annotated[parts.Config, BeforeValidator(_part("batch_sizes")), PlainSerializer(_brief_batch_size)] = (
        Field(description="samples per optimizer step, over all ranks and micro-batches: a number, or how it changes")
    )
    micro_batch: Literal["auto"] | PositiveInt = Field(
        "auto", description="samples per forward pass; changes rounding and speed only; auto times a few sizes"
    )
    batchnorm_group: Literal["auto"] | PositiveInt = Field(
        "auto", description="samples that BatchNorm normalises over; auto: the smaller of 128 and those of a rank"
    )
    optimizer: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("optim"))] = Field(
        description="from gradients to steps; optimizer.lr is the learning rate"
    )
    schedule: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("schedules"))] = Field(
        "constant", validate_default=True, description="the learning rate over the epochs: warm-up, scaling, decay"
    )
    selector: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("selectors"))] = Field(
        "all", validate_default=True, description="which samples of a batch are learned from"
    )
    epochs: PositiveFloat | None = Field(None, description="passes over the training samples; or set steps")
    steps: PositiveInt | None = Field(None, description="optimizer steps; or set epochs")
    seed: int = Field(0, ge=0, lt=2**63, description="of initial weights, sample order, augmentation and dropout")
    dtype: Literal["float32", "bfloat16", "float64"] = Field(
        "float32", description="of the arithmetic; bfloat16 is autocast with float32 weights"
    )
    engine: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("engines"))] = Field(
        "local", validate_default=True, description="how gradients are summed over ranks; --ranks chooses ddp"
    )
    probes: tuple[Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("probes"))], ...] = Field(
        (), description="what is measured during the training, without changing it"
    )
    loss: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("losses"))] = Field(
        "cross_entropy", validate_default=True, description="what is minimised, per sample"
    )
    clip_norm: PositiveFloat | None = Field(None, description="the largest norm of the global gradient; null: any")
    ema_decay: float | None = Field(
        None, gt=0, lt=1, description="per step, of an average of the weights that is evaluated beside them; null: none"
    )
    sam_radius: PositiveFloat | None = Field(
        None, description="ρ of sharpness-aware minimisation, which takes two gradients per step; null: without"
    )
    evaluations_per_epoch: PositiveInt = Field(1, description="evaluations on the test set, equally far apart")
    reduction: Literal["float", "exact"] = Field(
        "float",
        description="exact: sums of gradients do not depend on their order, so that 1, 2 or 4 ranks give the same bits",
    )

    def __init__(self, /, **fields: Any) -> None:
        """Build the run that a user typed in Python. What a file says goes through `from_fields`."""
        trust_typed(fields)
        self._validate(fields)

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Run:
        """Build a run from fields that may come from a file: names of code in them must be trusted."""
        run = cls.__new__(cls)
        run._validate(fields)
        return run

    def _validate(self, fields: Mapping[str, Any]) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            first = error.errors()[0]
            usual = str(first["loc"][0]) if first["loc"] else ""
            if first["type"] == "extra_forbidden" and usual in USUAL_NAMES:
                raise Problem(f"a run has no '{usual}': use {USUAL_NAMES[usual]}") from error
            raise Problem(parts.explain_validation_error(error, "a run", Run)) from error

    @model_validator(mode="after")
    def _one_budget(self) -> Run:
        if (self.epochs is None) == (self.steps is None):
            raise Problem(f"a run ends after epochs or after steps; got {self.epochs=}, {self.steps=}: set one of them")
        return self

    @model_validator(mode="after")
    def _parts_fit(self) -> Run:
        if not hasattr(self.optimizer, "lr"):
            raise Problem(f"optimizer '{self.optimizer.name}' has no lr for the schedule to set: use optimizer.lr=0.1")
        lr: Any = self.optimizer.lr
        if isinstance(lr, int | float) and abs(lr) > _LARGEST_LR:
            raise Problem(f"optimizer.lr is {lr:g}, which no weight survives: use a smaller one")
        probe = self.global_batch.needs_probe
        if probe and probe not in [config.name for config in self.probes]:
            raise Problem(
                f"global_batch '{self.global_batch.name}' goes by what the probe '{probe}' measures: "
                f"""add it with --set 'probes=[{{"name": "{probe}"}}]'"""
            )
        return self

    def on_ranks(self, world_size: int, default_engine: str = "ddp") -> Run:
        """The same run on this many ranks: `local` is the engine of one, the default of several unless one is named."""
        if world_size < 1:
            raise Problem(f"--ranks must be at least 1, got {world_size}: use 1 or more")
        if world_size > 1 and self.engine.name == "local":
            return self.with_settings([f"engine={default_engine}"])
        if world_size == 1 and self.engine.name != "local":
            return self.with_settings(["engine=local"])
        return self

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON has them. Later fields at their defaults are left out: earlier runs keep their hashes."""
        fields = self.model_dump(mode="json")
        return {name: value for name, value in fields.items() if _LATER_FIELDS.get(name, _ABSENT) != value}

    @classmethod
    def from_json(cls, text: str) -> Run:
        return cls.from_fields(json.loads(text))

    @property
    def hash(self) -> str:
        """Ten hex digits over all fields but the name: a stable identity across processes and machines."""
        return fingerprint(self.to_dict())

    @property
    def folder_name(self) -> str:
        return f"{self.name}-{self.hash}"

    def with_settings(self, assignments: Iterable[str], *, typed: bool = True) -> Run:
        """A copy with `optimizer.lr=3.2`, `optimizer=adam`, `epochs=2` ... applied in turn.

        Code that they name is trusted if the user `typed` them, and not if they come from a file.
        `scale_batch=64`, with `scaling_rule=linear` if it is not to be the optimizer's, comes last, wherever it stands:
        the other settings describe the run that is scaled.
        """
        fields, (others, scaling) = self.model_dump(mode="json"), split_scaling(assignments)
        for setting in others:
            path, value = settings.parse(setting, example="optimizer.lr=3.2")
            settings.assign(fields, path, value)
            if typed:
                trust_typed(value)
        if typed:
            trust_typed(scaling)
        run = Run.from_fields(fields)
        if not scaling:
            return run
        k = scaling.get("scale_batch")
        if isinstance(k, bool) or not isinstance(k, int | float) or not 0 < k < inf:
            raise Problem(f"scale_batch is {k!r}: give how many times the batch, like scale_batch=64")
        return run.at_batch(round(k * run._constant_batch()), scaling.get("scaling_rule"))

    def at_batch(self, global_batch: int, rule: Any = None) -> Run:
        """The same training at another batch, with the options that a scaling rule gives it.

        `rule` is a name like "legw" or has one, like {"name": "muon", "lr_exponent": 0.25}; None is the optimizer's.
        """
        fields = self.model_dump(mode="json")
        for change in self.changes_at_batch(global_batch, rule):
            settings.assign(fields, change.field, change.after)
        return Run.from_fields(fields)

    def changes_at_batch(self, global_batch: int, rule: Any = None) -> list[Change]:
        """What `at_batch` changes: fields, values before and after, and why."""
        if isinstance(rule, dict):
            rule = {"name": self.optimizer.scaling_rule} | rule
        config = parts.configure("scaling_rules", rule or self.optimizer.scaling_rule)
        before = self._constant_batch()
        if global_batch < 1:
            raise Problem(f"global_batch must be at least 1, got {global_batch}: use a larger one")
        k = global_batch / before
        changes = [Change("global_batch", before, global_batch, f"{k:g} times")]
        if self.steps:
            changes.append(Change("steps", self.steps, max(round(self.steps / k), 1), "as many samples"))
        changes += parts.find("scaling_rules", config.name).rescale(self, k, config)
        return [change for change in changes if k != 1 and change.before != change.after]

    def _constant_batch(self) -> int:
        if self.global_batch.name != "constant":
            raise Problem(
                f"global_batch '{self.global_batch.name}' changes during the training, and scaling rules are for "
                "one batch: use --set global_batch=... with a number"
            )
        global_batch: int = self.global_batch.global_batch  # type: ignore[attr-defined]
        return global_batch


def split_scaling(assignments: Iterable[str]) -> tuple[list[str], dict[str, Any]]:
    """Separate `scale_batch` and `scaling_rule` from the settings that are fields of a run."""
    others: list[str] = []
    scaling: dict[str, Any] = {}
    for setting in assignments:
        if setting.startswith(("scale_batch=", "scaling_rule=", "scaling_rule.")):
            settings.assign(scaling, *settings.parse(setting, example="scale_batch=64"))
        else:
            others.append(setting)
    return others, scaling


def fingerprint(fields: dict[str, Any]) -> str:
    """The hash of a run from its fields as JSON has them."""
    canonical = json.dumps({name: value for name, value in fields.items() if name != "name"}, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:10]
