"""A folder is a registry: "lars" among `optim` means optim/lars.py.

Two kinds of dotted names reach outside of bigbatch: "mypkg.mod" is a module that follows the same contract as a
file in the folder, "mypkg.mod:Thing" a class or function that is called with the part's options.
Nothing is registered, and nothing is imported before it is used.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from bigbatch.errors import Problem, did_you_mean
from bigbatch.trust import check_trusted

HERE = Path(__file__).parent

# the folder, and the word for one part in it
KINDS = {
    "datasets": "dataset",
    "filters": "filter",
    "models": "model",
    "losses": "loss",
    "batch_sizes": "batch size",
    "optim": "optimizer",
    "schedules": "schedule",
    "scaling_rules": "scaling rule",
    "selectors": "selector",
    "engines": "engine",
    "probes": "probe",
    "trackers": "tracker",
    "recipes": "recipe",
}

# the field of a run that names a part of a kind
RUN_FIELDS = {
    "datasets": "dataset",
    "filters": "filter",
    "models": "model",
    "losses": "loss",
    "optim": "optimizer",
    "schedules": "schedule",
    "selectors": "selector",
    "engines": "engine",
}

# names in files of earlier versions
RENAMED = {
    ("datasets", "bigbatch.filters._held_out:held_out"): "held_out",
    ("datasets", "bigbatch.scaling.measured.made_up:dataset"): "synthetic",
    ("datasets", "bigbatch.viewer.features_file:dataset"): "arrays",
    ("filters", "bigbatch.viewer.on_map"): "on_map",
}

# kinds for which a class or function suffices; the others have more than one function
CALLABLE_KINDS = ("datasets", "models", "optim", "recipes")


_TYPES = ("int", "float", "str", "constrained-int", "constrained-float")  # pydantic's names for branches of a union
_MAX_VALUE_CHARACTERS = 200  # longer values would hide the sentence


class FrozenModel(BaseModel):
    """A pydantic model that is frozen, has finite numbers and refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
    # fields that version 0.1 does not have: left out of files at their defaults, so that hashes of its runs hold
    later_fields: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _omit_later_defaults(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        defaults = {name: type(self).model_fields[name].default for name in self.later_fields}
        fields = serialize(self)
        return {name: v for name, v in fields.items() if name not in defaults or getattr(self, name) != defaults[name]}


# flags of a part that version 0.1 read from its module
_MOVED_FLAGS = {
    "NEEDS_MICRO_GRADIENTS": "needs_micro_gradients",
    "NEEDS_PROBE": "needs_probe",
    "WEIGHS_SAMPLES": "weights_samples",
}


class Config(FrozenModel):
    """The options of one part. Each part's file has its own subclass."""

    # What a part can do beyond the functions of its kind: its own Config overrides these.
    scaling_rule: ClassVar[str] = "legw"  # optimizer: how its options follow the batch
    decouples_weight_decay: ClassVar[bool] = False  # optimizer: a step shrinks weights by lr·weight_decay
    takes_model: ClassVar[bool] = False  # optimizer: its `build` takes the model in the place of its named parameters
    needs_probe: ClassVar[str | None] = None  # batch size: the probe whose measurements it follows
    sets_lr: ClassVar[bool] = False  # batch size: it has lr(position, run), used in place of the schedule's
    weights_samples: ClassVar[bool] = True  # selector: samples may differ in weight
    reads_losses: ClassVar[bool] = True  # selector: its weights depend on the losses
    is_random: ClassVar[bool] = False  # selector: its weights depend on a sample's place in the batch, any sign allowed
    edits_gradients: ClassVar[bool] = False  # selector: it has edit_gradients(parameters, config)
    selects_in_one_pass: ClassVar[bool] = False  # selector: the graphs of all losses are kept until it has selected
    selects_per_rank: ClassVar[bool] = False  # selector: by the losses of each rank, not of the global batch
    needs_micro_gradients: ClassVar[bool] = False  # probe: it reads the gradient of each micro-batch
    name: str

    @model_validator(mode="before")
    @classmethod
    def _name_after_file(cls, options: Any) -> Any:
        if isinstance(options, dict) and "name" not in options:
            return {"name": cls.__module__.rpartition(".")[2], **options}
        return options


class OpenConfig(Config):
    """The options of a class outside of bigbatch: whatever its constructor takes."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class AdamFamilyConfig(OpenConfig):
    """The options of an optimizer outside of bigbatch that has Adam in its name or in that of a base class."""

    scaling_rule: ClassVar[str] = "adam_sde"


class AdamWFamilyConfig(AdamFamilyConfig):
    """The same with AdamW in its name."""

    decouples_weight_decay: ClassVar[bool] = True


class ExternalPart:
    """`mypkg.mod:Thing` with the functions of its kind: `load`, `build` or `run` calls Thing with the options."""

    def __init__(self, kind: str, path: str, thing: Callable[..., Any]) -> None:
        self.kind, self.path, self.thing = kind, path, thing
        classes = getattr(thing, "__mro__", (thing,))
        lineage = " ".join(getattr(base, "__name__", "").lower() for base in classes) if kind == "optim" else ""
        adam_config = AdamWFamilyConfig if "adamw" in lineage else AdamFamilyConfig
        self.Config = adam_config if "adam" in lineage else OpenConfig

    def load(self, config: OpenConfig) -> Any:
        """Load a dataset."""
        return self._call_thing(**config.options)

    def build(self, config: OpenConfig, context: Any) -> Any:
        """Build a model from its options, or an optimizer from the named parameters and its options."""
        return self._call_thing(*([context] if self.kind == "optim" else []), **config.options)

    def run(self) -> Any:
        """Return the run of a recipe."""
        return self._call_thing()

    def _call_thing(self, *arguments: Any, **options: Any) -> Any:
        try:
            inspect.signature(self.thing).bind(*arguments, **options)
        except TypeError as error:
            raise Problem(
                f"{KINDS[self.kind]} '{self.path}' does not take these options ({error}): change them"
            ) from error
        except ValueError:
            pass  # written in C, it has no signature and checks its arguments itself
        return self.thing(*arguments, **options)


def names(kind: str) -> list[str]:
    """Return the names of all parts of a kind: the files of its folder."""
    return sorted(path.stem for path in (HERE / kind).glob("*.py") if not path.stem.startswith("_"))


def summary(kind: str, name: str) -> str:
    """Return the first line of a part's docstring, read without importing it."""
    tree = ast.parse((HERE / kind / f"{name}.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def current_name(kind: str, name: str) -> str:
    """Return today's name of a part, which files of earlier versions may call by another."""
    return RENAMED.get((kind, name), name)


def find(kind: str, name: str) -> Any:
    """Return the module or `ExternalPart` that a name stands for. Code outside of bigbatch must be trusted."""
    if "." in name or ":" in name:
        check_trusted(name, KINDS[kind])
    return _find(kind, name)


@cache
def _find(kind: str, name: str) -> Any:
    if name in names(kind):
        return importlib.import_module(f"bigbatch.{kind}.{name}")
    if "." in name or ":" in name:
        return _import_external_part(kind, name)
    if other := next((other for other in RUN_FIELDS if name in names(other)), None):
        raise Problem(
            f"'{name}' is of the kind {KINDS[other]}, not {KINDS[kind]}: use --set {RUN_FIELDS[other]}={name}"
        )
    raise Problem(f"no {KINDS[kind]} called '{name}'{did_you_mean(name, names(kind))} 'bigbatch list {kind}' shows all")


def _import_external_part(kind: str, path: str) -> Any:
    module_name, colon, thing_name = path.partition(":")
    try:
        module = _import_module(module_name)
    except (ImportError, TypeError, ValueError) as error:
        raise Problem(f"{KINDS[kind]} '{path}' cannot be imported ({error}): check the name and PYTHONPATH") from error
    if not colon:
        if not hasattr(module, "Config") and kind != "recipes":
            raise Problem(
                f"module {path} is not a {KINDS[kind]}, because it has no Config: name a class in it, like {path}:Thing"
            )
        for old, flag in _MOVED_FLAGS.items():
            if hasattr(module, old):
                raise Problem(f"{KINDS[kind]} '{path}' sets {old}, which is not read: set {flag} in its Config instead")
        return module
    if kind not in CALLABLE_KINDS:
        raise Problem(f"a {KINDS[kind]} of your own must be a module, got a name in one: use '{module_name}'")
    if not hasattr(module, thing_name):
        raise Problem(f"module {module_name} has no '{thing_name}'{did_you_mean(thing_name, dir(module))}")
    return ExternalPart(kind, path, getattr(module, thing_name))


def _import_module(name: str) -> ModuleType:
    """Import a module; the current folder comes last, so that nothing in it can replace an installed package."""
    here = os.getcwd()
    sys.path.append(here)
    try:
        module = importlib.import_module(name)
    except BaseException:
        sys.path.remove(here)
        raise
    if not (getattr(module, "__file__", None) or "").startswith(os.path.join(here, "")):
        sys.path.remove(here)  # else it stays, for what the module imports later
    return module


def configure(kind: str, value: Any) -> Config:
    """Return the Config of a part from a name, a dict with a name, or a Config; a number is a constant batch size."""
    if isinstance(value, Config):
        return value
    if isinstance(value, str):
        value = {"name": value}
    if kind == "batch_sizes" and isinstance(value, int) and not isinstance(value, bool):
        value = {"name": "constant", "global_batch": value}
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise Problem(f"a {KINDS[kind]} is a name or has a name, like {{'name': '{names(kind)[0]}'}}; got {value!r}")
    value = {**value, "name": current_name(kind, value["name"])}
    config_class: type[Config] = find(kind, value["name"]).Config
    try:
        return config_class.model_validate(value)
    except ValidationError as error:
        raise Problem(explain_validation_error(error, f"{KINDS[kind]} '{value['name']}'", config_class)) from error


def explain_validation_error(error: ValidationError, owner: str, model: type[BaseModel]) -> str:
    """Return the first error as one sentence."""
    # where a field is "auto or a number", the error about the number explains more
    first = next((e for e in error.errors() if e["type"] != "literal_error"), error.errors()[0])
    path = ".".join(str(part) for part in first["loc"] if str(part) not in _TYPES and "[" not in str(part))
    if first["type"] == "extra_forbidden":
        known = [field for field in model.model_fields if field != "name"]
        return f"{owner} has no option '{path}'{did_you_mean(path, known)} It has: {', '.join(known) or 'none'}"
    if first["type"] == "missing":
        return f"{owner} needs '{path}': set it"
    reason = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    got = f"; got {first['input']!r}"
    return (
        f"{owner}: {path} {reason}{got if len(got) <= _MAX_VALUE_CHARACTERS else ''}" if path else f"{owner}: {reason}"
    )
