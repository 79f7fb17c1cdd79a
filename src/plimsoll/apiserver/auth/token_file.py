"""Static bearer tokens: the administrator's token and the token file.

The administrator's token is created once in the data directory. The token file has Kubernetes' format, a line
`token,user,uid,"group1,group2"` for each token, and is read again when it changes. Tokens are looked up by
hash, so that lookup times reveal nothing.

DIFF: Kubernetes reads the file once; see test_a_token_file_is_read_again_when_it_changes.
"""

from __future__ import annotations

import csv
import hashlib
import io
import logging
import secrets
import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from plimsoll.apiserver.auth.secret_files import read_file, read_private, write_private
from plimsoll.apiserver.auth.users import ADMIN, User
from plimsoll.errors import ConfigError

_log = logging.getLogger(__name__)

#: Seconds between two checks of the token file.
_CHECK_INTERVAL_SECONDS = 1.0


@lru_cache(maxsize=256)
def hash_token(token: str) -> bytes:
    """Return the hash of a token, which is stored and compared instead of it."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def load_or_create_admin_token(directory: Path) -> str:
    """Return the administrator's token of a data directory; create it if there is none."""
    path = directory / "admin.token"
    if path.exists():
        token = read_private(path, "the token file").decode("ascii", "replace").strip()
        if len(token) >= 16:
            return token
        raise ConfigError(f"{path} contains no token: delete it, and a new one is created")
    token = secrets.token_urlsafe(32)
    write_private(path, token.encode() + b"\n")
    return token


class StaticTokens:
    """Static tokens: those added and those of a file."""

    def __init__(
        self, file: Path | None = None, *, admin: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._added: dict[bytes, User] = {hash_token(admin): ADMIN} if admin else {}
        self._file = file
        self._clock = clock
        self._checked = clock()
        self._version = _version(file) if file else None
        self._from_file: dict[bytes, User] = dict(read_token_file(file)) if file else {}

    def add(self, token: str, user: User) -> None:
        """Add a token for the lifetime of the process."""
        self._added[hash_token(token)] = user.as_authenticated()

    def find(self, token: str) -> User | None:
        """Return the user of a token, or None."""
        if self._file is not None and self._clock() - self._checked >= _CHECK_INTERVAL_SECONDS:
            self._refresh(self._file)
        key = hash_token(token)
        return self._added.get(key) or self._from_file.get(key)

    def _refresh(self, file: Path) -> None:
        self._checked = self._clock()
        version = _version(file)
        if version == self._version:
            return
        self._version = version
        try:
            self._from_file = dict(read_token_file(file))
        except ConfigError as error:
            # A mistake while editing must not lock out all users: keep the last valid content.
            _log.warning("%s; the previous tokens remain valid", error)


def _version(file: Path) -> tuple[int, ...] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def read_token_file(path: Path) -> Iterator[tuple[bytes, User]]:
    """Yield the tokens of a file, hashed, with their users; ConfigError names the invalid line."""
    content = read_file(path, "the token file")
    try:
        rows = list(csv.reader(io.StringIO(content.decode("utf-8")), strict=True, skipinitialspace=True))
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8") from None
    except csv.Error as error:
        raise ConfigError(f"{path} is not a token file: {error}") from None
    for number, row in enumerate(rows, 1):
        if not row or not any(row):
            continue
        if len(row) < 3:
            raise ConfigError(f'{path}:{number}: expected token,user,uid and optionally "group1,group2"')
        token, name, uid, *rest = row
        if not token or not name:
            raise ConfigError(f"{path}:{number}: token and user must not be empty")
        groups = tuple(group.strip() for group in rest[0].split(",") if group.strip()) if rest else ()
        yield hash_token(token), User(name, uid, groups).as_authenticated()
