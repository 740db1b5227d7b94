"""torchrun that says in a sentence how a rank ended: `python -m bigbatch.launch.torchrun ARGUMENTS`."""

from __future__ import annotations

import logging
import signal
import sys

from bigbatch.launch.parent import end_with_parent


class _RankFailures(logging.Filter):
    """Prints a sentence in the place of torch's log line about a rank that died."""

    def __init__(self, max_restarts: int) -> None:
        super().__init__()
        self.restarts_left = max_restarts

    def filter(self, record: logging.LogRecord) -> bool:
        if not str(record.msg).startswith("failed (exitcode") or not isinstance(record.args, tuple):
            return True
        code, rank = int(str(record.args[0])), record.args[1]
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code} (see above)"
        then = ": all ranks are restarted from the last checkpoint" if self.restarts_left > 0 else ""
        print(f"bigbatch: rank {rank} {how}{then}", file=sys.stderr, flush=True)
        self.restarts_left -= 1
        return False


def main() -> int:
    """Return torchrun's exit code, without its tracebacks: a rank has printed its own."""
    end_with_parent(as_launcher=True)
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main as run

    restarts = [int(word.partition("=")[2]) for word in sys.argv if word.startswith("--max-restarts=")]
    failures = logging.getLogger("torch.distributed.elastic.multiprocessing.api")
    failures.addFilter(_RankFailures(*restarts or [0]))
    # that it ends its ranks is what it was told
    failures.setLevel(logging.ERROR)
    logging.getLogger("torch.distributed.elastic.agent.server.api").setLevel(logging.ERROR)
    try:
        run()
    except SignalException as ending:
        return 128 + int(ending.sigval)
    except ChildFailedError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
