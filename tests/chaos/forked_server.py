"""A server that starts in a moment, because it is forked from a process that has read all the code already.

As a module it is that process: it forks a `plimsoll server` for every line it reads. `ForkedServer` is the
test's side of it.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from plimsoll.cluster.client import ClientConfig
from plimsoll.cluster.kubeconfig import find_config

_SECONDS = 30.0


class ForkedServer:
    """One server over one data folder and port, to be killed and started again at any moment."""

    def __init__(self, folder: Path) -> None:
        self.kubeconfig = folder / "kubeconfig"
        self.log = folder / "server.log"
        self._folder = folder
        self._port = 0
        self._pid = 0
        self._text = b""
        with self.log.open("ab") as log:
            self._mother = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.forked_server"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=Path(__file__).parents[2],
            )

    def config(self) -> ClientConfig:
        return find_config(self.kubeconfig)

    def launch(self) -> None:
        """Start without waiting."""
        assert self._mother.stdin is not None
        line = f"server --data {self._folder / 'data'} --listen 127.0.0.1:{self._port}"
        self._mother.stdin.write(f"{line} --kubeconfig-out {self.kubeconfig}\n".encode())
        self._mother.stdin.flush()
        self._pid = int(self._read(rb"pid (\d+)\n"))

    def await_ready(self) -> None:
        self._port = int(self._read(rb"serving the Kubernetes API at https://127\.0\.0\.1:(\d+)\n"))

    def start(self) -> None:
        self.launch()
        self.await_ready()

    def kill(self) -> None:
        """kill -9."""
        if not self._pid:
            return
        os.kill(self._pid, signal.SIGKILL)
        while Path(f"/proc/{self._pid}").exists():
            time.sleep(0.001)
        self._pid = 0
        self._text = b""

    def close(self) -> None:
        self.kill()
        assert self._mother.stdin is not None
        self._mother.stdin.close()
        self._mother.wait(_SECONDS)
        assert self._mother.stdout is not None
        self._mother.stdout.close()

    def _read(self, pattern: bytes) -> bytes:
        assert self._mother.stdout is not None
        descriptor = self._mother.stdout.fileno()
        deadline = time.monotonic() + _SECONDS
        while (found := re.search(pattern, self._text)) is None:
            ready = select.select([descriptor], [], [], max(deadline - time.monotonic(), 0))[0]
            piece = os.read(descriptor, 4096) if ready else b""
            if not piece:
                raise AssertionError(f"the server did not start:\n{self.log.read_text()[-4000:]}")
            self._text += piece
        self._text = self._text[found.end() :]
        return found[1]


def main() -> None:
    """Fork a server for every line of arguments; end when there are no more."""
    import plimsoll.run.server  # noqa: PLC0415, F401 - read once, for all children
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
