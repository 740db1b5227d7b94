"""`python -m bigbatch`, and `torchrun ... -m bigbatch` across machines."""

from bigbatch.cli import main

if __name__ == "__main__":  # worker processes import this file too
    main()
