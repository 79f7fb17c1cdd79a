"""`python -m bench.scheduler`: see the package."""

from bench.scheduler.command import main

main()
