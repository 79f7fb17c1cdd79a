"""Simulate clusters: `python -m tests.simulation --seed N --cases M`."""

from __future__ import annotations

import os
import sys


def main() -> int:
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of strings is part of a history.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    from tests.simulation import clocks  # noqa: PLC0415

    clocks.install()
    from tests.simulation.command import run  # noqa: PLC0415

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
