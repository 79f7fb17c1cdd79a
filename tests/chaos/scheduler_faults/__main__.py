"""Play a case of the simulator with real processes: `python -m tests.chaos.scheduler_faults --seed 1`."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.chaos.scheduler_faults.player import play, record_script
from tests.chaos.scheduler_faults.servers import run_embedded_server, run_real_server
from tests.simulation.script import read_script, write_script


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.scheduler_faults", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="seed of the case")
    parser.add_argument("--seconds", type=float, default=25.0, help="time with faults")
    parser.add_argument("--script", type=Path, help="play this script, not one that is simulated first")
    parser.add_argument("--real", action="store_true", help="use the binaries in KUBEBUILDER_ASSETS")
    parser.add_argument("--keep", metavar="DIR", help="directory for logs; default: a temporary one")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(given.keep or temporary)
        directory.mkdir(parents=True, exist_ok=True)
        if given.script:
            script = read_script(given.script.read_text())
        else:
            script = record_script(given.seed, given.seconds)
        (directory / "script.jsonl").write_text(write_script(script))
        running = run_embedded_server(directory)
        if given.real:
            running = run_real_server(Path(os.environ["KUBEBUILDER_ASSETS"]), directory)
        with running as server:
            report = asyncio.run(play(server, directory, script))
    sys.stdout.write("\n".join(report.lines()) + "\n")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
