"""A training under way, in this process or on several ranks under torchrun or horovodrun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from bigbatch import trackers
from bigbatch.artifacts.folder import Folder
from bigbatch.engines import RESTARTS, env_rank, env_world_size, horovod
from bigbatch.errors import DIVERGED, DONE, FAILED, STOPPED, Problem
from bigbatch.output.progress import describe
from bigbatch.run import Run

_RESTARTS = 3
POST_BOX = "BIGBATCH_POST_BOX"


def run_here_or_on_ranks(
    run: Run,
    folder: Folder,
    ranks: int,
    data_dir: Path | None,
    checkpoint_minutes: float,
    fresh: bool,
    quiet: bool,
    track: Sequence[str] = (),
) -> int:
    """Train, say how it ended, and give the exit code that says the same."""
    trackers.check(track)
    if ranks > 1 and env_world_size() == 1:
        return _on_ranks(run, folder, ranks, data_dir, checkpoint_minutes, fresh, quiet, track)
    from bigbatch.training.loop import train

    finished_before = folder.status in ("done", "diverged") and not fresh
    summary = train(
        run,
        folder=folder,
        data_dir=data_dir,
        checkpoint_minutes=checkpoint_minutes,
        fresh=fresh,
        quiet=quiet,
        track=track,
    )
    if env_rank() == 0:
        print(outcome(folder, summary) + (" (finished before; --fresh runs it again)" if finished_before else ""))
    if summary["diverged_at_step"] is None or POST_BOX in os.environ:
        return DONE  # our own launcher reads the run's status, and would only start the ranks again
    return DIVERGED


def outcome(folder: Folder, summary: dict[str, Any]) -> str:
    if summary["diverged_at_step"] is not None:
        return f"{folder.path}: diverged, the loss was not finite at step {summary['diverged_at_step']}; try a lower lr"
    return (
        f"{folder.path}: {describe(summary)}, train loss {summary['train_loss']:.4f}, "
        f"{summary['seconds']:.1f} s, {summary['samples_per_second']:,.0f} samples/s"
    )


def _on_ranks(
    run: Run,
    folder: Folder,
    ranks: int,
    data_dir: Path | None,
    checkpoint_minutes: float,
    fresh: bool,
    quiet: bool,
    track: Sequence[str],
) -> int:
    """Start the ranks and wait. One that dies takes all back to the last checkpoint, from where they go on together."""
    if isinstance(run.engine, horovod.Config):
        horovod.check(run.engine)
    with folder.lock():
        pass  # somebody who trains here is to be found out before anything is moved
    with folder.move_aside() if fresh else nullcontext():
        with folder.lock():
            folder.create(run)
        return _wait_for_ranks(run.engine.name, folder, ranks, data_dir, checkpoint_minutes, quiet, track)


def _wait_for_ranks(
    engine: str,
    folder: Folder,
    ranks: int,
    data_dir: Path | None,
    checkpoint_minutes: float,
    quiet: bool,
    track: Sequence[str],
) -> int:
    asked = False

    def pass_on(process: subprocess.Popen[bytes], number: int) -> None:
        """The first signal goes to a rank, whose wish to stop is everybody's; the next ends all."""
        nonlocal asked
        trainer = folder.lock_holder_pid()
        if trainer is None or asked:
            process.terminate()
        else:
            os.kill(trainer, signal.SIGTERM)
        asked = True

    arguments = [
        *("resume", str(folder.path), "--checkpoint-minutes", str(checkpoint_minutes)),
        *(("--data-dir", str(data_dir)) if data_dir else ()),
        *(("--quiet",) if quiet else ()),
        *(f"--track={name}" for name in track),
    ]
    _, sentences = _ranks_of(engine, arguments, ranks, pass_on)
    if folder.status == "failed" and sentences:
        raise Problem("; ".join(sentences))
    for sentence in sentences:
        print(f"bigbatch: {sentence}", file=sys.stderr)
    return {"done": DONE, "diverged": DIVERGED, "stopped": STOPPED}.get(folder.status or "", FAILED)


def command_on_ranks(arguments: Sequence[str], ranks: int) -> int:
    """`bigbatch ARGUMENTS` on several ranks, for commands that are no run. Ctrl-C and SIGTERM end all of them."""
    received: list[int] = []

    def end(process: subprocess.Popen[bytes], number: int) -> None:
        received.append(number)
        process.terminate()

    code, sentences = _ranks_of("ddp", arguments, ranks, end)
    if received:
        if signal.SIGINT in received:
            raise KeyboardInterrupt
        return 128 + received[0]
    if sentences:
        raise Problem("; ".join(sentences))
    if code != 0:
        print("bigbatch: a rank died (see above): the same command goes on from what is done", file=sys.stderr)
    return DONE if code == 0 else FAILED


def start_line(engine: str, ranks: int, module: str, arguments: Sequence[str]) -> list[str]:
    """The command line that starts `python -m MODULE ARGUMENTS` on ranks of this machine, with this Python.

    It wants `start_environment`. No port is fixed: torchrun and horovodrun each take one that is free.
    """
    program = ["-m", module, *arguments]
    if engine == "local":
        return [sys.executable, *program]
    if engine == "horovod":
        horovod.check_installed()
        loopback = "lo0" if sys.platform == "darwin" else "lo"
        launcher = [
            "-m",
            "bigbatch.launch.horovodrun",
            "--gloo",
            "-np",
            str(ranks),
            "--network-interface",
            loopback,
        ]
        return [sys.executable, *launcher, sys.executable, *program]
    launcher = [
        "-m",
        "bigbatch.launch.torchrun",
        "--standalone",
        f"--nproc-per-node={ranks}",
        f"--max-restarts={_RESTARTS}",
    ]
    return [sys.executable, *launcher, *program]


def start_environment(ranks: int) -> dict[str, str]:
    """This process's environment and what ranks need besides: cores divided between them."""
    return os.environ | {
        # restarted ranks would meet the dead ones' store otherwise: 0 of 5 recovered without this, 3 of 3 with it
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // ranks))),
    }


def _ranks_of(
    engine: str, arguments: Sequence[str], ranks: int, pass_on: Callable[[subprocess.Popen[bytes], int], None]
) -> tuple[int, list[str]]:
    """Start ranks of `bigbatch ARGUMENTS` and wait: their exit code, and the sentences that they left, each once.

    Ranks that die are started again, all together. Signals are not for this process but for `pass_on`.
    """
    line = start_line(engine, ranks, "bigbatch", arguments)
    with tempfile.TemporaryDirectory() as post_box:
        restarts = _RESTARTS if engine == "horovod" else 0  # torchrun starts ranks again by itself
        for restart in range(restarts + 1):
            environment = start_environment(ranks) | {POST_BOX: post_box, RESTARTS: str(restart)}
            code, signalled = _waited_for(line, environment, pass_on)
            sentences = sorted({path.read_text() for path in Path(post_box).iterdir()})
            if code == 0 or signalled or sentences:
                break
            if restart < restarts:
                print("bigbatch: a rank died (see above): all go on from the last checkpoint", file=sys.stderr)
        return code, sentences


def _waited_for(
    line: list[str], environment: dict[str, str], pass_on: Callable[[subprocess.Popen[bytes], int], None]
) -> tuple[int, bool]:
    """The exit code of a command, and whether a signal was passed on to it."""
    received: list[int] = []
    # in a session of its own, so that Ctrl-C reaches the ranks through us alone and the launcher ends without a fuss
    with subprocess.Popen(line, env=environment, start_new_session=True) as process:

        def receive(number: int, _: Any) -> None:
            received.append(number)
            pass_on(process, number)

        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        previous = {number: signal.signal(number, receive) for number in numbers}
        code = process.wait()
        for number, handler in previous.items():
            signal.signal(number, handler)
    return code, bool(received)


def posted(sentence: str) -> bool:
    """Leave a sentence to whoever started the ranks, who says it once. Not where they were started by hand."""
    post_box = os.environ.get(POST_BOX)
    if post_box is None:
        return False
    (Path(post_box) / f"rank-{env_rank()}").write_text(sentence)
    return True
