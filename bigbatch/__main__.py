"""`python -m bigbatch`, and `torchrun ... -m bigbatch` across machines."""

import os
import sys

if __name__ == "__main__":  # worker processes import this file too
    if not sys.flags.safe_path and sys.path[:1] == [os.getcwd()]:
        del sys.path[0]  # python -m looks in the current folder first, where anybody's numpy.py may lie

    from bigbatch.cli import main

    main()
