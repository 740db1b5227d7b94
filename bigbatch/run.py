"""One training, described completely by one frozen value. Its hash names its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Annotated, Any, Literal

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

_ABSENT = object()
# fields that version 0.1 does not have, with their defaults
_LATER_FIELDS = {
    "loss": {"name": "cross_entropy", "label_smoothing": 0.0},
    "clip_norm": None,
    "ema_decay": None,
    "sam_radius": None,
    "evaluations_per_epoch": 1,
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


class Run(BaseModel):
    """Everything that decides how a training goes, and nothing else.

    The global batch is the setting; micro-batches, ranks and accumulation are derived from it. Where the model has
    BatchNorm, statistics are taken over groups of `batchnorm_group` samples, which are then the micro-batches.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: str = Field("run", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    dataset: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("datasets"))]
    filter: Annotated[SerializeAsAny[parts.Config] | None, BeforeValidator(_filter)] = None
    model: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("models"))]
    global_batch: Annotated[parts.Config, BeforeValidator(_part("batch_sizes")), PlainSerializer(_brief_batch_size)]
    micro_batch: Literal["auto"] | PositiveInt = "auto"
    batchnorm_group: Literal["auto"] | PositiveInt = "auto"
    optimizer: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("optim"))]
    schedule: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("schedules"))] = Field(
        "constant", validate_default=True
    )
    selector: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("selectors"))] = Field(
        "all", validate_default=True
    )
    epochs: PositiveFloat | None = None
    steps: PositiveInt | None = None
    seed: int = Field(0, ge=0, lt=2**63)
    dtype: Literal["float32", "bfloat16", "float64"] = "float32"
    engine: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("engines"))] = Field(
        "local", validate_default=True
    )
    probes: tuple[Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("probes"))], ...] = ()
    loss: Annotated[SerializeAsAny[parts.Config], BeforeValidator(_part("losses"))] = Field(
        "cross_entropy", validate_default=True
    )
    clip_norm: PositiveFloat | None = None  # largest norm of the global gradient
    ema_decay: float | None = Field(None, gt=0, lt=1)  # per step, of an average of the weights that is evaluated too
    sam_radius: PositiveFloat | None = None  # ρ of sharpness-aware minimisation
    evaluations_per_epoch: PositiveInt = 1

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
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
        return cls(**json.loads(text))

    @property
    def hash(self) -> str:
        """Ten hex digits over all fields but the name: a stable identity across processes and machines."""
        return fingerprint(self.to_dict())

    @property
    def folder_name(self) -> str:
        return f"{self.name}-{self.hash}"

    def with_settings(self, assignments: Iterable[str]) -> Run:
        """A copy with `optimizer.lr=3.2`, `optimizer=adam`, `epochs=2` ... applied in turn."""
        fields = self.model_dump(mode="json")
        for setting in assignments:
            path, value = settings.parse(setting, example="optimizer.lr=3.2")
            settings.assign(fields, path, value)
        return Run(**fields)


def fingerprint(fields: dict[str, Any]) -> str:
    """The hash of a run from its fields as JSON has them."""
    canonical = json.dumps({name: value for name, value in fields.items() if name != "name"}, sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:10]
