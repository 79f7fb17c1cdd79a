"""`plimsoll server` as a process that tests start, kill and restart."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

from plimsoll.client import ClientConfig
from plimsoll.client.kubeconfig import find_config
from tests.fork_server import ForkedProcess, start_forked
from tests.waiting import DEADLINE

_READY = re.compile(rb"serving the Kubernetes API at https://127\.0\.0\.1:(\d+)")


class ServerProcess:
    """Server on one data directory; it keeps its port across restarts."""

    def __init__(self, directory: Path, *options: str, durable: bool = True, forked: bool = True) -> None:
        """Create a server; it inherits limits and descriptors of this process unless it is `forked`."""
        self.directory = directory
        self.data = directory / "data"
        self.kubeconfig = directory / "kubeconfig"
        self.log = directory / "server.log"
        self.port = 0
        self._where = ("--data", str(self.data)) if durable else ("--memory",)
        self._options = options
        self._forked = forked
        self._process: subprocess.Popen[bytes] | ForkedProcess | None = None

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def config(self) -> ClientConfig:
        return find_config(self.kubeconfig)

    def start(self) -> None:
        """Start and wait until the server responds; AssertionError with its log if it does not."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start without waiting."""
        command = ["server", *self._where, *self._options]
        command += ["--listen", f"127.0.0.1:{self.port}", "--kubeconfig-out", str(self.kubeconfig)]
        with self.log.open("ab") as log:
            if self._forked:
                self._process = start_forked(command, stderr=log)
            else:
                command = [sys.executable, "-m", "plimsoll.cli.main", *command]
                self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)

    def await_ready(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        text, deadline = b"", time.monotonic() + DEADLINE
        while (found := _READY.search(text)) is None:
            left = deadline - time.monotonic()
            ready = select.select([descriptor], [], [], max(left, 0))[0]
            piece = os.read(descriptor, 4096) if ready else b""
            if not piece:
                raise AssertionError(f"the server did not start:\n{self.complaints()}")
            text += piece
        self.port = int(found[1])

    def stop(self) -> None:
        """Stop the server with a signal and wait for its exit."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill the server with SIGKILL."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(DEADLINE)
            raise AssertionError(f"the server did not stop:\n{self.complaints()}") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def complaints(self) -> str:
        """Return the server's log."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""
