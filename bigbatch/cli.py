"""The command line: every file of commands/ is a command. Problems end in one sentence and an exit code."""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from typing import Annotated, Any

from cyclopts import App, CycloptsError, Parameter

from bigbatch import __version__, commands
from bigbatch.errors import BROKEN_PIPE, DONE, FAILED, INTERRUPTED, STOPPED, WRONG_INPUT, Notice, Problem, Stopped
from bigbatch.launch.parent import MESSAGES, end_with_parent
from bigbatch.output.terminal import guard_stderr
from bigbatch.trust import trust_modules

_LOST_RANK = re.compile(r"Connection (closed|reset) by peer|Broken pipe|remote process exited")  # gloo, NCCL
_SECONDS_BEFORE_ITS_LAUNCHER_KNOWS = 10.0
_LIST_OPTIONS = ("--grid", "--option", "--search", "--set", "--slurm", "--target")  # of NAME=VALUE
_PYTHONS_SHOW_WARNING = warnings.showwarning
AS_A_FUNCTION: dict[str, Any] = {"result_action": "return_value", "print_error": False, "exit_on_error": False}

app = App(
    name="bigbatch",
    version=__version__,
    help="Train neural networks at very large batch sizes without losing accuracy.",
    suppress_keyboard_interrupt=False,  # an interrupted command prints that it was
)

for name, command in commands.find_all().items():
    app.command(command, name=name)


@app.meta.default
def _trust_and_run(
    *tokens: Annotated[str, Parameter(show=False, allow_leading_hyphen=True)],
    trust: Annotated[
        list[str] | None,
        Parameter(negative="", help="with any command: a module like mypkg.mod, whose code a file may name"),
    ] = None,
) -> Any:
    trust_modules(trust or [])
    return app(tokens, **AS_A_FUNCTION)


def main(arguments: list[str] | None = None) -> None:
    """Run the `bigbatch` command: a Problem ends in one sentence, not in a traceback."""
    os.environ["PYTHONSAFEPATH"] = "1"  # no process that we start looks for packages in the current folder first
    end_with_parent()
    guard_stderr()
    warnings.showwarning = _show_warning  # type: ignore[assignment]
    code = _exit_code(arguments)
    if "TORCHELASTIC_RUN_ID" in os.environ or "HOROVOD_RANK" in os.environ:
        from bigbatch.launch.processes import exit_process

        exit_process(code)
    sys.exit(code)


def _show_warning(message: Warning | str, *details: Any) -> None:
    if isinstance(message, Notice):
        print(f"bigbatch: {message}", file=sys.stderr)
    else:
        _PYTHONS_SHOW_WARNING(message, *details)


def _exit_code(arguments: list[str] | None) -> Any:
    try:
        return app.meta(_repeat_options(sys.argv[1:] if arguments is None else arguments), **AS_A_FUNCTION)
    except CycloptsError as error:
        return _report(Problem(_explain_usage(" ".join(str(error).split()))))
    except (Problem, Stopped) as ending:
        return _report(ending)
    except KeyboardInterrupt:
        print("bigbatch: interrupted", file=sys.stderr)
        return INTERRUPTED
    except RuntimeError as error:
        lost = _LOST_RANK.search(str(error))
        if MESSAGES not in os.environ or not lost:
            raise
        print(f"bigbatch: the connection to another rank was lost ({lost[0]})", file=sys.stderr)
        time.sleep(_SECONDS_BEFORE_ITS_LAUNCHER_KNOWS)  # ended meanwhile, so that not this rank is named as the first
        return FAILED
    except BrokenPipeError:  # the reader of our output closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE if MESSAGES in os.environ else BROKEN_PIPE  # our launcher would restart ranks that failed


def _repeat_options(tokens: list[str]) -> list[str]:
    """`--set a=1 b=2` becomes `--set a=1 --set b=2`."""
    found: list[str] = []
    option = None
    for token in tokens:
        if option and found[-1] != option and "=" in token and not token.startswith("-"):
            found.append(option)
        elif token in _LIST_OPTIONS or not option or found[-1] != option:
            option = token if token in _LIST_OPTIONS else None
        found.append(token)
    return found


def _explain_usage(problem: str) -> str:
    """Name the setting where an unknown option is a field of a run, or what other tools call one."""
    from bigbatch.run import USUAL_NAMES, Run

    unknown = re.search(r'Unknown option: "?--([\w-]+)', problem)
    name = unknown[1].replace("-", "_") if unknown else ""
    if name in USUAL_NAMES:
        return f"{problem} Use {USUAL_NAMES[name]}"
    return f"{problem} Use --set {name}=..." if name in Run.model_fields else problem


def _report(ending: Problem | Stopped) -> int:
    from bigbatch.launch.processes import leave_message

    if leave_message(str(ending)):
        return DONE  # another code would make the launcher restart the ranks; it reads the run's status instead
    print(f"bigbatch: {ending}", file=sys.stderr)
    return STOPPED if isinstance(ending, Stopped) else WRONG_INPUT
