"""torchrun without its traceback when it is told to stop: `python -m bigbatch.launch.torchrun ARGUMENTS`."""

from __future__ import annotations

import logging
import sys

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.run import main

if __name__ == "__main__":
    # that it ends its ranks is what it was told
    logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.ERROR)
    logging.getLogger("torch.distributed.elastic.agent.server.api").setLevel(logging.ERROR)
    try:
        main()
    except SignalException as ending:
        sys.exit(128 + ending.sigval)
