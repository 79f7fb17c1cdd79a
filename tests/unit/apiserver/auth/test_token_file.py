"""Static token files."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest

from plimsoll.apiserver.auth.token_file import (
    StaticTokens,
    hash_token,
    load_or_create_admin_token,
    read_token_file,
)
from plimsoll.apiserver.auth.users import ADMIN, ALL_AUTHENTICATED, User
from plimsoll.errors import ConfigError

FILE = 'secret1,alice,1,"team,dev"\nsecret2,bob,2\n\nsecret3,"odd, name",3,\n'


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_admin_token_is_made_once_and_is_private(tmp_path: Path) -> None:
    token = load_or_create_admin_token(tmp_path)
    assert len(token) >= 32
    assert load_or_create_admin_token(tmp_path) == token
    path = tmp_path / "admin.token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    assert load_or_create_admin_token(tmp_path) == token
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["admin.token"]


def test_an_invalid_admin_token_is_reported(tmp_path: Path) -> None:
    (tmp_path / "admin.token").write_text("\n")
    with pytest.raises(ConfigError, match="contains no token"):
        load_or_create_admin_token(tmp_path)
    with pytest.raises(ConfigError, match="cannot be written"):
        load_or_create_admin_token(Path("/proc/nowhere"))


def test_a_token_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tokens.csv"
    path.write_text(FILE)
    tokens = StaticTokens(path, admin="the admin's")
    assert tokens.find("secret1") == User("alice", "1", ("team", "dev", ALL_AUTHENTICATED))
    assert tokens.find("secret2") == User("bob", "2", (ALL_AUTHENTICATED,))
    assert tokens.find("secret3") == User("odd, name", "3", (ALL_AUTHENTICATED,))
    assert tokens.find("the admin's") == ADMIN
    assert tokens.find("secret") is None
    assert tokens.find("") is None
    tokens.add("for now", User("carol"))
    assert tokens.find("for now") == User("carol", groups=(ALL_AUTHENTICATED,))


def test_a_token_file_is_read_again_when_it_changes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, clock = tmp_path / "tokens.csv", Clock()
    path.write_text(FILE)
    tokens = StaticTokens(path, clock=clock)
    path.write_text("fresh,alice,1\n")
    assert tokens.find("fresh") is None  # not looked at again within the second
    clock.now += 2
    assert tokens.find("fresh") is not None
    assert tokens.find("secret1") is None
    path.write_text("broken\n")
    clock.now += 2
    with caplog.at_level(logging.WARNING):
        assert tokens.find("fresh") is not None
    assert "broken" not in caplog.text
    assert "the previous tokens remain valid" in caplog.text
    path.unlink()
    clock.now += 2
    assert tokens.find("fresh") is not None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"only-a-token\n", ":1: expected token,user,uid"),
        (b"a,b,c\na,b\n", ":2: expected token,user,uid"),
        (b",b,c\n", ":1: token and user must not be empty"),
        (b"a,,c\n", ":1: token and user must not be empty"),
        (b'a,b,c,"open\n', "is not a token file"),
        (b"\xff\xfe", "is not UTF-8"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, content: bytes, why: str) -> None:
    path = tmp_path / "tokens.csv"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        StaticTokens(path)
    assert why in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        list(read_token_file(tmp_path / "none"))


def test_tokens_are_kept_as_hashes() -> None:
    tokens = StaticTokens(admin="the admin's")
    assert "the admin's" not in repr(vars(tokens))
    assert len(hash_token("x")) == 32
    assert hash_token("\udc80") != hash_token("?")
