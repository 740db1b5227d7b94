"""The command line: every file of commands/ is a command. Problems end in one sentence and an exit code."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

from cyclopts import App

from bigbatch import __version__, commands
from bigbatch.errors import BROKEN_PIPE, DONE, INTERRUPTED, STOPPED, WRONG_INPUT, Notice, Problem, Stopped

_PYTHONS_SHOW_WARNING = warnings.showwarning

app = App(
    name="bigbatch",
    version=__version__,
    help="Train neural networks at very large batch sizes without losing accuracy.",
    suppress_keyboard_interrupt=False,  # an interrupted command says so
)

for name, command in commands.found().items():
    app.command(command, name=name)


def main(arguments: list[str] | None = None) -> None:
    """What the `bigbatch` command runs: problems end in one sentence, not in a traceback."""
    sys.path.insert(0, "")  # a user's own parts are found in the folder at hand, as with python -m
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    code = _exit_code(arguments)
    if "TORCHELASTIC_RUN_ID" in os.environ or "HOROVOD_RANK" in os.environ:
        # a rank has nothing left to do, and torch's threads are sometimes (1 of 6 under load) not ready for the
        # interpreter to go: the process would abort, and the launcher start a finished training again
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _show_warning(message: Warning | str, *details: Any) -> None:
    if isinstance(message, Notice):
        print(f"bigbatch: {message}", file=sys.stderr)
    else:
        _PYTHONS_SHOW_WARNING(message, *details)


def _exit_code(arguments: list[str] | None) -> Any:
    try:
        return app(arguments, result_action="return_value")
    except (Problem, Stopped) as ending:
        return _say(ending)
    except KeyboardInterrupt:
        print("bigbatch: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE


def _say(ending: Problem | Stopped) -> int:
    from bigbatch.launch.processes import posted

    if posted(str(ending)):
        return DONE  # or the ranks were started again; the launcher reads the run's status instead
    print(f"bigbatch: {ending}", file=sys.stderr)
    return STOPPED if isinstance(ending, Stopped) else WRONG_INPUT
