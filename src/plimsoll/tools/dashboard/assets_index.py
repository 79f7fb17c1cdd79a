"""`Assets`: the files of the page, read once from the package. Only files found then are served."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable

_KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file."""

    body: bytes
    kind: str
    tag: str
    packed: bytes | None


class Assets:
    """Files by path below `/assets/`; the page is `index.html`."""

    def __init__(self, found: dict[str, Asset]) -> None:
        self._found = found

    @staticmethod
    @lru_cache(maxsize=1)
    def load() -> Assets:
        """Read all files of this installation."""
        return Assets(dict(_read(files("plimsoll.tools.dashboard") / "assets", "")))

    def find(self, path: str) -> Asset | None:
        if path == "favicon.ico":
            path = "favicon.svg"
        return self._found.get(path or "index.html")


def _read(directory: Traversable, prefix: str) -> Iterator[tuple[str, Asset]]:
    if not directory.is_dir():
        return
    for entry in directory.iterdir():
        path = f"{prefix}{entry.name}"
        ending = entry.name.rpartition(".")[2]
        if entry.is_dir():
            yield from _read(entry, path + "/")
        elif ending in _KINDS:
            body = entry.read_bytes()
            packed = gzip.compress(body, 9) if len(body) > 1000 else None
            yield path, Asset(body, _KINDS[ending], f'"{hashlib.sha256(body).hexdigest()[:16]}"', packed)
