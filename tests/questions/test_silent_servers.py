"""Servers that accept connections and never answer: one line within seconds, exit code 2."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.questions.asking import COMMANDS, FEW, FILE_COMMANDS, ask
from tests.questions.servers import write_kubeconfig

ASKED = {
    **{name: COMMANDS[name] for name in FEW},
    **FILE_COMMANDS,
    "top --watch": ("top", "--watch"),
    "dashboard": ("dashboard", "--listen", "127.0.0.1:0"),
}
STALL = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"


class Silent:
    """Server that accepts connections, sends a prefix, and nothing more."""

    def __init__(self, beginning: bytes) -> None:
        self._beginning = beginning
        self._kept: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    @property
    def connections(self) -> int:
        return len(self._kept)

    def _serve(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return
            self._kept.append(accepted)
            if self._beginning:
                accepted.recv(65536)
                accepted.sendall(self._beginning)

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)
        for each in self._kept:
            each.close()


@pytest.fixture(params=["silent", "stalls in the body", "no handshake"])
def server(request: pytest.FixtureRequest) -> Iterator[tuple[Silent, str]]:
    silent = Silent(STALL if request.param == "stalls in the body" else b"")
    scheme = "https" if request.param == "no handshake" else "http"
    yield silent, f"{scheme}://127.0.0.1:{silent.port}"
    silent.close()


@pytest.mark.parametrize("command", ASKED)
def test_timeouts_name_the_server_and_the_option_to_change(
    command: str, server: tuple[Silent, str], tmp_path: Path
) -> None:
    silent, url = server
    config = write_kubeconfig(tmp_path / "config", url)
    answer = ask(*ASKED[command], "--kubeconfig", config, "--request-timeout", "200ms").check()
    assert answer.code == 2, answer
    assert f"{url}/api: no " in answer.err
    assert "--request-timeout" in answer.err
    assert silent.connections <= 1  # retries would multiply the wait


@pytest.mark.parametrize("given", ["soon", "", "-1s", "5x", "1m 30s", "10 s", "1m30"])
def test_invalid_durations(given: str, tmp_path: Path) -> None:
    config = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    answer = ask("top", "--kubeconfig", config, "--request-timeout", given).check()
    assert answer.code == 2
    assert "--request-timeout" in answer.err
    assert "is not a duration: use 30s, 2m or 500ms" in answer.err


@pytest.mark.parametrize("given", ["10", "10s", "0.5s", "1m30s", "1h", "500ms", "0", "0s"])
def test_durations(given: str, tmp_path: Path) -> None:
    config = write_kubeconfig(tmp_path / "config", "http://127.0.0.1:1")
    answer = ask("top", "--kubeconfig", config, "--request-timeout", given).check()
    assert answer.code == 2
    assert "refused" in answer.err
