"""A scheduler that starts in a moment: like `forked_server`, for `plimsoll scheduler`."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

_SECONDS = 30.0


class ForkedScheduler:
    """One scheduler, to be killed and started again at any moment."""

    def __init__(self, folder: Path, kubeconfig: Path) -> None:
        self.log = folder / "scheduler.log"
        self._kubeconfig = kubeconfig
        self._pid = 0
        with self.log.open("ab") as log:
            self._mother = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.forked_scheduler"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=Path(__file__).parents[2],
            )

    def start(self) -> None:
        """Start, without waiting until it works."""
        assert self._mother.stdin is not None
        line = f"scheduler --kubeconfig {self._kubeconfig} --listen= --binds 16\n"
        self._mother.stdin.write(line.encode())
        self._mother.stdin.flush()
        self._pid = self._read_pid()

    def kill(self) -> None:
        """kill -9."""
        if not self._pid:
            return
        os.kill(self._pid, signal.SIGKILL)
        while Path(f"/proc/{self._pid}").exists():
            time.sleep(0.001)
        self._pid = 0

    def is_running(self) -> bool:
        return bool(self._pid) and Path(f"/proc/{self._pid}").exists()

    def close(self) -> None:
        self.kill()
        assert self._mother.stdin is not None
        assert self._mother.stdout is not None
        self._mother.stdin.close()
        self._mother.wait(_SECONDS)
        self._mother.stdout.close()

    def _read_pid(self) -> int:
        assert self._mother.stdout is not None
        descriptor, text = self._mother.stdout.fileno(), b""
        while (found := re.search(rb"pid (\d+)\n", text)) is None:
            ready = select.select([descriptor], [], [], _SECONDS)[0]
            piece = os.read(descriptor, 4096) if ready else b""
            if not piece:
                raise AssertionError(f"the scheduler did not start:\n{self.log.read_text()[-4000:]}")
            text += piece
        return int(found[1])


def main() -> None:
    """Fork a scheduler for every line of arguments; end when there are no more."""
    import plimsoll.run.scheduler.dry_run  # noqa: PLC0415 - read once, for all children
    import plimsoll.run.scheduler.process  # noqa: PLC0415, F401
    from plimsoll.cli.main import main as run  # noqa: PLC0415

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    for line in sys.stdin:
        child = os.fork()
        if not child:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            sys.stdin.close()
            run(line.split())
            os._exit(1)
        sys.stdout.write(f"pid {child}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
