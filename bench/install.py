"""Size of an installation, and CPU time and memory of a command: `python -m bench.install [EXTRA]`.

Installs this checkout into a new virtual environment with pip, which needs a package index: without EXTRA
what a user of kubectl installs, with `server` everything.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROUNDS = 10
COMMANDS = (
    ["kubectl-plimsoll", "top", "--help"],
    ["plimsoll", "top", "-f", str(ROOT / "examples" / "what-if" / "cluster.yaml")],
)


def main() -> None:
    """Print the figures of one installation."""
    extra = f"[{sys.argv[1]}]" if len(sys.argv) > 1 else ""
    with tempfile.TemporaryDirectory() as directory:
        venv.create(directory, with_pip=True)
        programs = Path(directory) / "bin"
        pip = [str(programs / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
        subprocess.run([*pip, "install", f"{ROOT}{extra}"], check=True)
        subprocess.run([*pip, "uninstall", "--yes", "pip", "setuptools"], check=True)
        files = [path for path in Path(directory, "lib").rglob("*") if path.is_file()]
        packages = len([path for path in files if path.name == "METADATA"])
        source = sum(path.stat().st_size for path in files if path.suffix != ".pyc")
        compiled = sum(path.stat().st_size for path in files if path.suffix == ".pyc")
        print(f"{packages} packages, {source / 1e6:.1f} MB and {compiled / 1e6:.1f} MB of compiled modules")
        for program, *arguments in COMMANDS:
            timed = [measure([str(programs / program), *arguments]) for _ in range(ROUNDS)]
            seconds, memory = (statistics.median(values) for values in zip(*timed, strict=True))
            shown = Path(program).name + " " + " ".join(Path(each).name for each in arguments)
            print(f"{shown}: {seconds * 1000:.0f} ms of CPU, {memory / 1024:.0f} MiB (median of {ROUNDS})")


def measure(command: list[str]) -> tuple[float, int]:
    """Run a command; return its CPU seconds and its largest memory in KiB."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss


if __name__ == "__main__":
    main()
