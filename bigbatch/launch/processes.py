"""Ranks as processes of this machine, under torchrun or horovodrun: start them, wait, pass signals on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bigbatch.engines import RESTARTS, env_rank, horovod
from bigbatch.errors import DONE, FAILED, Problem
from bigbatch.launch.signals import handle_signals

MAX_RESTARTS = 3
MESSAGES = "BIGBATCH_RANK_MESSAGES"  # a folder where ranks leave their error messages for the launcher

Process = subprocess.Popen[bytes]


def rank_command(engine: str, ranks: int, module: str, arguments: Sequence[str]) -> list[str]:
    """The command line that starts `python -m MODULE ARGUMENTS` on ranks of this machine, with this Python.

    It needs `rank_environment`. No port is fixed: torchrun and horovodrun each take a free one.
    """
    program = ["-m", module, *arguments]
    if engine == "local":
        return [sys.executable, *program]
    if engine == "horovod":
        horovod.check_installed()
        loopback = "lo0" if sys.platform == "darwin" else "lo"
        launcher = ["-m", "bigbatch.launch.horovodrun", "--gloo", "-np", str(ranks), "--network-interface", loopback]
        return [sys.executable, *launcher, sys.executable, *program]
    restarts = f"--max-restarts={MAX_RESTARTS}"
    launcher = ["-m", "bigbatch.launch.torchrun", "--standalone", f"--nproc-per-node={ranks}", restarts]
    return [sys.executable, *launcher, *program]


def rank_environment(ranks: int) -> dict[str, str]:
    """This process's environment and what ranks need besides: cores divided between them."""
    return os.environ | {
        # restarted ranks would find the store of the dead ones: 0 of 5 recovered without this, 3 of 3 with it
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // ranks))),
    }


def run_ranks(
    engine: str, arguments: Sequence[str], ranks: int, on_signal: Callable[[Process, int], None]
) -> tuple[int, list[str]]:
    """Run `bigbatch ARGUMENTS` on ranks and return their exit code and their distinct error messages.

    Ranks that die are restarted, all together. Signals to this process are handled by `on_signal`.
    """
    command = rank_command(engine, ranks, "bigbatch", arguments)
    with tempfile.TemporaryDirectory() as messages_folder:
        restarts = MAX_RESTARTS if engine == "horovod" else 0  # torchrun restarts ranks by itself
        for restart in range(restarts + 1):
            environment = rank_environment(ranks) | {MESSAGES: messages_folder, RESTARTS: str(restart)}
            code, signalled = _wait_for(command, environment, on_signal)
            messages = sorted({path.read_text() for path in Path(messages_folder).iterdir()})
            if code == 0 or signalled or messages:
                break
            if restart < restarts:
                print("bigbatch: a rank died (see above): all continue from the last checkpoint", file=sys.stderr)
        return code, messages


def run_command_on_ranks(arguments: Sequence[str], ranks: int) -> int:
    """Run `bigbatch ARGUMENTS`, a command that is not a training, on DDP ranks. Ctrl-C and SIGTERM end all of them."""
    received: list[int] = []

    def terminate(process: Process, number: int) -> None:
        received.append(number)
        process.terminate()

    code, messages = run_ranks("ddp", arguments, ranks, terminate)
    if received:
        if signal.SIGINT in received:
            raise KeyboardInterrupt
        return 128 + received[0]
    if messages:
        raise Problem("; ".join(messages))
    if code != 0:
        print("bigbatch: a rank died (see above): the same command continues from what is done", file=sys.stderr)
    return DONE if code == 0 else FAILED


def _wait_for(
    command: list[str], environment: dict[str, str], on_signal: Callable[[Process, int], None]
) -> tuple[int, bool]:
    """Return the exit code of a command, and whether a signal was passed on to it."""
    received: list[int] = []
    # in a session of its own, so that Ctrl-C reaches the ranks through this process alone
    with subprocess.Popen(command, env=environment, start_new_session=True) as process:

        def pass_on(number: int, _: FrameType | None) -> None:
            received.append(number)
            on_signal(process, number)

        with handle_signals(pass_on, signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            code = process.wait()
    return code, bool(received)


def leave_message(message: str) -> bool:
    """Leave an error message to our launcher, which prints it once. Return False where there is none."""
    folder = os.environ.get(MESSAGES)
    if folder is None:
        return False
    (Path(folder) / f"rank-{env_rank()}").write_text(message)
    return True


def started_by_launcher() -> bool:
    """Whether our own launcher started this process as a rank."""
    return MESSAGES in os.environ


def exit_process(code: int) -> NoReturn:
    """End this process at once, without the interpreter's own clean-up.

    torch's threads are sometimes (1 of 6 under load) not ready for the interpreter to end: the process would abort,
    and a launcher would start a finished training again.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
