"""horovodrun for ranks of this machine: `python -m bigbatch.launch.horovodrun ARGUMENTS`.

Three things are otherwise. Ranks write to the terminal themselves, so that nothing stands before their lines and a
progress bar stays one. They are started without a shell. And the place where they meet listens on loopback alone.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from typing import Any, TypeVar

from bigbatch.launch.parent import end_with_parent

Server = TypeVar("Server")

_SECONDS_TO_END_BY_ITSELF = 5.0  # as long as horovodrun gives
_SECONDS_BETWEEN_LOOKS = 0.1


def main() -> int:
    """Give horovodrun's exit code: 1 when a rank had one."""
    end_with_parent(as_launcher=True)
    from horovod.runner import launch
    from horovod.runner.common.util import safe_shell_exec
    from horovod.runner.http import http_server

    safe_shell_exec.execute = _execute
    http_server.find_port = _on_loopback
    try:
        with redirect_stdout(sys.stderr):  # what horovodrun itself says
            launch.run_commandline()
    except RuntimeError as error:  # it has said which rank
        print(str(error).strip(), file=sys.stderr)
        return 1
    return 0


def _execute(command: str, events: Sequence[threading.Event] = (), **_: Any) -> int:
    """Start a rank and wait for its exit code; end it when one of the events is set."""
    words = shlex.split(command)[1:]  # env NAME=VALUE ... python -m ...
    program = next(number for number, word in enumerate(words) if not re.match(r"[A-Za-z_]\w*=", word))
    environment = os.environ | dict(word.split("=", 1) for word in words[:program])
    with subprocess.Popen(words[program:], env=environment) as rank:
        while True:
            try:
                return _as_in_a_shell(rank.wait(_SECONDS_BETWEEN_LOOKS))
            except subprocess.TimeoutExpired:
                if any(event.is_set() for event in events):
                    return _as_in_a_shell(_ended(rank))


def _ended(rank: subprocess.Popen[bytes]) -> int:
    rank.terminate()
    try:
        return rank.wait(_SECONDS_TO_END_BY_ITSELF)
    except subprocess.TimeoutExpired:  # it waits for a rank that is dead
        rank.kill()
        return rank.wait()


def _as_in_a_shell(code: int) -> int:
    return code if code >= 0 else 128 - code


def _on_loopback(make_server: Callable[[tuple[str, int]], Server]) -> tuple[Server, int]:
    server: Any = make_server(("127.0.0.1", 0))  # the system knows a port that is free
    return server, server.server_address[1]


if __name__ == "__main__":
    sys.exit(main())
