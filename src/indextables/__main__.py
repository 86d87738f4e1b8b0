"""`python -m indextables`: the command line."""

from indextables.cli import main

main()
