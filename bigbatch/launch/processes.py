"""Ranks as processes of this machine, under torchrun or horovodrun: start them, wait, pass signals on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bigbatch.engines import RESTARTS, env_rank, horovod
from bigbatch.errors import DONE, FAILED, Problem
from bigbatch.launch.parent import MESSAGES, PARENT, wait_for_orphans
from bigbatch.launch.signals import handle_signals

MAX_RESTARTS = 3
_SECONDS_TO_STOP = 60.0

Process = subprocess.Popen[bytes]


def rank_command(
    engine: str, ranks: int, module: str, arguments: Sequence[str], *, max_restarts: int = MAX_RESTARTS
) -> list[str]:
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
    restarts = f"--max-restarts={max_restarts}"
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

    Ranks that die are restarted, all together. Signals to this process are handled by `on_signal`. Ranks end with
    their launcher, and that with this process.
    """
    command = rank_command(engine, ranks, "bigbatch", arguments)
    with tempfile.TemporaryDirectory() as messages_folder:
        restarts = MAX_RESTARTS if engine == "horovod" else 0  # torchrun restarts ranks by itself
        for restart in range(restarts + 1):
            environment = rank_environment(ranks) | {MESSAGES: messages_folder, RESTARTS: str(restart)}
            environment[PARENT] = str(os.getpid())
            code, signalled = _wait_for(command, environment, on_signal)
            if code < 0 and not signalled:
                name = signal.Signals(-code).name
                print(f"bigbatch: the launcher of the ranks was killed by {name}: they stop", file=sys.stderr)
                wait_for_orphans(Path(messages_folder), _SECONDS_TO_STOP)
            messages = sorted({path.read_text() for path in Path(messages_folder).glob("rank-*")})
            if code <= 0 or signalled or messages:
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


def run_concurrently(
    commands: Sequence[Sequence[str]], environment: dict[str, str], folder: Path, timeout_seconds: float
) -> list[str]:
    """Run commands at the same time and return the output of each, errors included. Logs are written to `folder`.

    When one fails, or this process is interrupted, all are terminated with the processes that they started.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    logs = [folder / f"output-{number}.log" for number in range(len(commands))]
    running: list[Process] = []
    with handle_signals(interrupt, signal.SIGTERM, signal.SIGHUP):
        try:
            for command, log in zip(commands, logs, strict=True):
                with log.open("wb") as output:
                    running.append(
                        subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
                    )
            _wait_for_all_or_first_failure(running, timeout_seconds)
        except FileNotFoundError as error:
            raise Problem(f"'{error.filename}', which starts ranks, is not installed: install it") from error
        finally:
            for process in running:
                _terminate_session(process)
    return [log.read_text(errors="replace") for log in logs]


def _wait_for_all_or_first_failure(running: Sequence[Process], timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while alive := [process for process in running if process.poll() is None]:
        if any(process.returncode for process in running):
            return  # the others would wait for it
        if time.monotonic() > deadline:
            raise Problem(f"ranks did not end within {timeout_seconds:g} s: use fewer --steps or a smaller --batch")
        with suppress(subprocess.TimeoutExpired):
            alive[0].wait(timeout=0.2)


def _terminate_session(process: Process) -> None:
    """torchrun and horovodrun end their ranks on SIGTERM; what does not react is killed with its whole session."""
    if process.poll() is None:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


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
    with suppress(OSError):  # nobody reads it any more
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
