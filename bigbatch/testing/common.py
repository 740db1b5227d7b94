"""What holds for every part, whatever its kind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bigbatch import parts
from bigbatch.errors import Problem
from bigbatch.trust import trust_typed


@dataclass(frozen=True)
class CheckedPart:
    """A part under test, with the options that it needs."""

    kind: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        trust_typed([self.name, self.options])

    def configure(self, **options: Any) -> parts.Config:
        """Its Config, with these options besides the needed ones."""
        return parts.configure(self.kind, {"name": self.name, **self.options, **options})

    @property
    def module(self) -> Any:
        return parts.find(self.kind, self.name)


def check_docstring(part: CheckedPart) -> None:
    """One sentence, which `bigbatch list` shows."""
    line = (part.module.__doc__ or "").partition("\n")[0]
    assert 20 < len(line) <= 120, f"the first line of {part.name}'s docstring has {len(line)} characters: {line!r}"
    assert line.endswith("."), f"the first line of {part.name}'s docstring is not a sentence: {line!r}"


def check_config(part: CheckedPart) -> None:
    """Options survive JSON, are frozen, and unknown ones are refused."""
    if part.kind == "recipes":
        return
    assert issubclass(part.module.Config, parts.Config), f"{part.name}.Config is not a bigbatch.parts.Config"
    config = part.configure()
    assert config.name == part.name
    assert type(config).model_validate_json(config.model_dump_json()) == config, "options do not survive JSON"
    assert raises(ValueError, lambda: setattr(config, "name", "other")), "options can be changed"
    assert raises(Problem, lambda: part.configure(no_such_option=1)), "an unknown option is not refused"


def raises(error: type[Exception], action: Any) -> bool:
    """Whether calling `action` raises this error."""
    try:
        action()
    except error:
        return True
    return False
