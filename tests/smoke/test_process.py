"""`plimsoll server` as a process among others."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.smoke.process import ServerProcess


@contextmanager
def open_files(limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_connections_than_the_shell_allows(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "--no-controllers", durable=False)
    with open_files(128):
        server.start()
    try:
        limits = Path(f"/proc/{server.pid}/limits").read_text()
        assert "Max open files            128 " not in limits
        with ExitStack() as stack:
            for _ in range(200):
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=5))
            again = socket.create_connection(("127.0.0.1", server.port), timeout=5)
            stack.enter_context(again)
            time.sleep(0.2)
            assert len(list(Path(f"/proc/{server.pid}/fd").iterdir())) > 200
    finally:
        server.stop()
    assert server.complaints() == ""


def test_one_server_per_folder_and_per_port(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path, "--no-controllers")
    server.start()
    try:
        command = [sys.executable, "-m", "plimsoll.cli.main", "server", "--listen"]
        where = ["--data", str(server.data)]
        second = subprocess.run(
            [*command, "127.0.0.1:0", *where], capture_output=True, text=True, timeout=30, check=False
        )
        assert second.returncode == 2
        assert "Traceback" not in second.stderr
        assert str(server.data) in second.stderr
        third = subprocess.run(
            [*command, f"127.0.0.1:{server.port}", "--memory"],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert (third.returncode, third.stdout) == (2, "")
        assert f"cannot listen on 127.0.0.1:{server.port}" in third.stderr
    finally:
        server.stop()


def test_it_stops_at_once_although_clients_watch(tmp_path: Path) -> None:
    server = ServerProcess(tmp_path)
    server.start()
    with ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 5
    assert "Traceback" not in server.complaints()
