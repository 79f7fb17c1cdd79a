"""Port allocation, and its persistence."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from plimsoll.client.http import is_loopback
from plimsoll.errors import ConfigError
from plimsoll.up import ports
from plimsoll.up.ports import API, Ports, find_obstacle
from plimsoll.up.settings import name_for

HOST = "127.0.0.1"


@pytest.fixture
def free() -> int:
    with socket.create_server((HOST, 0)) as taken:
        port: int = taken.getsockname()[1]
    return port


def test_the_default_port_or_any(tmp_path: Path, free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ports.DEFAULT_PORTS, API, free)
    mine = Ports(tmp_path / "ports")
    assert mine.choose(API, HOST, None) == free
    assert mine.choose(API, HOST, 0) == 0
    with socket.create_server((HOST, free)):
        assert mine.choose(API, HOST, None) == 0
        assert mine.choose(API, HOST, free) == free  # an explicit request for it is refused
        assert isinstance(find_obstacle(HOST, free), OSError)


def test_the_last_port_is_preferred(tmp_path: Path, free: int) -> None:
    Ports(tmp_path / "ports").keep(API, free)
    again = Ports(tmp_path / "ports")
    assert again.choose(API, HOST, None) == free
    assert again.choose(API, HOST, 0) == free
    with socket.create_server((HOST, free)):
        assert again.choose(API, HOST, 0) == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"api": "6443"}', '{"api": 99999}', '{"api": true}'])
def test_a_foreign_port_file_is_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / "ports").write_text(text)
    assert Ports(tmp_path / "ports").choose(API, HOST, 0) == 0


def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="ports: not writable"):
        Ports(tmp_path / "nowhere" / "ports").keep(API, 1)


def test_listening_addresses() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "localhost", "::1")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "10.0.0.1", "host", "127.example.com")))


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("my_host", "my-host"),
        ("Host.Local", "host.local"),
        ("-x-", "x"),
        ("___", "node"),
        ("a" * 80, "a" * 63),
    ],
)
def test_host_names_never_equal_node_names(host: str, name: str) -> None:
    assert name_for(host) == name
