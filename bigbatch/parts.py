"""A folder is a registry: "lars" among `optim` means optim/lars.py.

Two kinds of dotted names reach outside of bigbatch: "mypkg.mod" is a module that follows the same contract as a
file in the folder, "mypkg.mod:Thing" a class or function that is called with the part's options.
Nothing is registered and nothing is imported before it is asked for.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from bigbatch.errors import Problem, did_you_mean

HERE = Path(__file__).parent

# the folder, and what a person calls one thing in it
KINDS = {
    "datasets": "dataset",
    "filters": "filter",
    "models": "model",
    "batch_sizes": "batch size",
    "optim": "optimizer",
    "schedules": "schedule",
    "selectors": "selector",
    "engines": "engine",
    "probes": "probe",
    "trackers": "tracker",
    "recipes": "recipe",
}


# names in files of earlier versions
RENAMED = {
    ("datasets", "bigbatch.filters._held_out:held_out"): "held_out",
    ("datasets", "bigbatch.scaling.measured.made_up:dataset"): "synthetic",
    ("datasets", "bigbatch.viewer.features_file:dataset"): "arrays",
    ("filters", "bigbatch.viewer.on_map"): "on_map",
}

# of these a class or function will do; the others have more than one function
CALLED_FROM_OUTSIDE = ("datasets", "models", "optim", "recipes")


_TYPES = ("int", "float", "str", "constrained-int", "constrained-float")  # pydantic's names for branches of a union
_LONGEST_GOT = 200  # letters: a whole table beside the sentence hides it


class FrozenModel(BaseModel):
    """A pydantic model that is frozen, has finite numbers and refuses unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Config(FrozenModel):
    """The options of one part. Each part's file has its own subclass."""

    # What a part can do beyond the functions of its kind: its own Config overrides these.
    needs_probe: ClassVar[str | None] = None  # batch size: the probe whose measurements it follows
    sets_lr: ClassVar[bool] = False  # batch size: it has lr(position, run), used in place of the schedule's
    weights_samples: ClassVar[bool] = True  # selector: samples may differ in weight
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
    """The options of a class from outside: whatever its constructor takes."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)

    @property
    def options(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Outside:
    """`mypkg.mod:Thing`, dressed as a part: the function of its kind's contract calls Thing with the options."""

    Config = OpenConfig

    def __init__(self, kind: str, path: str, thing: Callable[..., Any]) -> None:
        self.kind, self.path, self.thing = kind, path, thing

    def load(self, config: OpenConfig) -> Any:
        """A dataset."""
        return self._called(**config.options)

    def build(self, config: OpenConfig, context: Any) -> Any:
        """A model is made of its options; an optimizer of the named parameters and its options."""
        return self._called(*([context] if self.kind == "optim" else []), **config.options)

    def run(self) -> Any:
        """A recipe."""
        return self._called()

    def _called(self, *arguments: Any, **options: Any) -> Any:
        try:
            inspect.signature(self.thing).bind(*arguments, **options)
        except TypeError as error:
            raise Problem(
                f"{KINDS[self.kind]} '{self.path}' does not take these options ({error}): check them"
            ) from error
        except ValueError:
            pass  # written in C: it will complain itself
        return self.thing(*arguments, **options)


def names(kind: str) -> list[str]:
    """All parts of a kind, by looking at the folder."""
    return sorted(path.stem for path in (HERE / kind).glob("*.py") if not path.stem.startswith("_"))


def summary(kind: str, name: str) -> str:
    """The first line of a part's docstring, read without importing it."""
    tree = ast.parse((HERE / kind / f"{name}.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def current_name(kind: str, name: str) -> str:
    """The name of a part that a file of an earlier version may call by another one."""
    return RENAMED.get((kind, name), name)


@cache
def find(kind: str, name: str) -> Any:
    """The module (or `Outside`) behind a name."""
    if name in names(kind):
        return importlib.import_module(f"bigbatch.{kind}.{name}")
    if "." in name or ":" in name:
        return _outside(kind, name)
    raise Problem(f"no {KINDS[kind]} called '{name}'{did_you_mean(name, names(kind))} 'bigbatch list {kind}' shows all")


def _outside(kind: str, path: str) -> Any:
    module_name, colon, thing_name = path.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, TypeError, ValueError) as error:
        raise Problem(f"{KINDS[kind]} '{path}' cannot be imported ({error}): check the name and PYTHONPATH") from error
    if not colon:
        if not hasattr(module, "Config") and kind != "recipes":
            raise Problem(
                f"module {path} is no {KINDS[kind]}, as it has no Config: name a thing in it, like {path}:Thing"
            )
        return module
    if kind not in CALLED_FROM_OUTSIDE:
        raise Problem(f"a {KINDS[kind]} of one's own is a module, not a thing in one: name it as '{module_name}'")
    if not hasattr(module, thing_name):
        raise Problem(f"module {module_name} has no '{thing_name}'{did_you_mean(thing_name, dir(module))}")
    return Outside(kind, path, getattr(module, thing_name))


def configure(kind: str, value: Any) -> Config:
    """A name, a dict with a name, or a ready Config becomes the part's Config; a number is a constant batch size."""
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
        raise Problem(explain(error, f"{KINDS[kind]} '{value['name']}'", config_class)) from error


def explain(error: ValidationError, owner: str, model: type[BaseModel]) -> str:
    """The first thing that is wrong, as one sentence."""
    # of "auto or a number" the number is what was meant by a number
    first = next((e for e in error.errors() if e["type"] != "literal_error"), error.errors()[0])
    path = ".".join(str(part) for part in first["loc"] if str(part) not in _TYPES and "[" not in str(part))
    if first["type"] == "extra_forbidden":
        known = [field for field in model.model_fields if field != "name"]
        return f"{owner} has no option '{path}'{did_you_mean(path, known)} It has: {', '.join(known) or 'none'}"
    if first["type"] == "missing":
        return f"{owner} needs '{path}': set it"
    reason = first["msg"].removeprefix("Value error, ").removeprefix("Input ")
    got = f"; got {first['input']!r}"
    return f"{owner}: {path} {reason}{got if len(got) <= _LONGEST_GOT else ''}" if path else f"{owner}: {reason}"
