"""`python -m bigbatch`, and `torchrun ... -m bigbatch` across machines."""

from bigbatch.cli import main

main()
