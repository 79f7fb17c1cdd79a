"""`plimsoll server` as a process."""

from __future__ import annotations

import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from plimsoll.cli.main import main
from tests.smoke.process import ServerProcess
from tests.waiting import DEADLINE, wait_until


@contextmanager
def open_files(limit: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_connections_than_the_shell_allows(tmp_path: Path) -> None:
    """The server also stops at once while all of them are open."""
    server = ServerProcess(tmp_path, "--no-controllers", durable=False, forked=False)
    with open_files(128):
        server.start()
    with ExitStack() as stack:
        stack.callback(server.stop)
        for _ in range(200):
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=DEADLINE))
        wait_until(lambda: len(os.listdir(f"/proc/{server.pid}/fd")) > 200)
        server.stop()  # it does not wait for its clients
    assert server.complaints() == ""


def test_one_server_per_directory_and_per_port(
    server: ServerProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*options: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["server", *options])
        assert ended.value.code == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        return captured.err

    assert str(server.data) in refused("--data", str(server.data), "--listen", "127.0.0.1:0")
    taken = f"127.0.0.1:{server.port}"
    assert f"cannot listen on {taken}" in refused("--memory", "--listen", taken)
