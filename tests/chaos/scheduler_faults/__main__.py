"""Run the chaos test by hand: `python -m tests.chaos.scheduler_faults --seed 1 --faults 200 [--real]`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.chaos.scheduler_faults.chaos import run_chaos
from tests.chaos.scheduler_faults.servers import run_embedded_server, run_real_server


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.scheduler_faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of all random choices")
    parser.add_argument("--faults", type=int, default=200, help="number of faults to inject at least")
    parser.add_argument("--real", action="store_true", help="use the binaries in KUBEBUILDER_ASSETS")
    parser.add_argument("--keep", metavar="DIR", help="directory for logs; default: a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(given.keep or temporary)
        directory.mkdir(parents=True, exist_ok=True)
        running = run_embedded_server(directory)
        if given.real:
            running = run_real_server(Path(os.environ["KUBEBUILDER_ASSETS"]), directory)
        with running as server:
            report = asyncio.run(run_chaos(server, directory, seed=given.seed, faults=given.faults))
    sys.stdout.write("\n".join(report.lines()) + "\n")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
