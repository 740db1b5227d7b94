"""Errors that are written for the user (one sentence that ends in an action), and the exit codes that go with them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# the exit codes of the command line; 75 is EX_TEMPFAIL, "try again later"
DONE, FAILED, WRONG_INPUT, DIVERGED, STOPPED, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 75, 130, 141


class Problem(Exception):
    """An error whose message is written for the user, not for the developer."""


class Notice(UserWarning):
    """Something that the user should know, and that does not end anything."""


class Stopped(Exception):
    """SIGTERM or Ctrl-C: a checkpoint was written and the run can be resumed."""


class Diverged(Exception):
    """The loss was not finite at a step: the run ends, its rows stay."""

    def __init__(self, step: int) -> None:
        super().__init__(f"the loss was not finite at step {step}")
        self.step = step


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """`; did you mean 'lars'?`, or nothing where no known name is near."""
    near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.6)
    return f"; did you mean '{near[0]}'?" if near else "."
