"""Texts out of files: plain, compressed, or packed into tarballs and zip files.

Owns telling them apart (by content, not by name), unpacking in memory, and the bounds that keep a small file
from unpacking into a huge one. Promises: nothing is written to disk, members that are no YAML or JSON are
passed over, nested archives are not opened, and what cannot be unpacked is an InputError that names the file.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

from plimsoll.errors import InputError

SUFFIXES = (".yaml", ".yml", ".json")
_PACKED = (".gz", ".xz", ".bz2")
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is unpacked before it is taken for an attack or a mistake."""

    member: int = 1 << 30
    total: int = 8 << 30
    members: int = 200_000


def is_wanted(name: str) -> bool:
    """Whether a file in a folder or an archive is read: YAML or JSON, perhaps compressed."""
    base = name.rpartition("/")[2].lower()
    for suffix in _PACKED:
        base = base.removesuffix(suffix)
    return base.endswith(SUFFIXES) and not base.startswith("._")  # "._x" is what macOS adds beside x


def read_texts(file: BinaryIO, source: str, bounds: Bounds = Bounds()) -> Iterator[tuple[str, bytes]]:  # noqa: B008
    """The texts of an open file, each with the name of its source."""
    budget = _Budget(bounds, source)
    try:
        yield from _texts(file, source, budget)
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError) as error:
        raise InputError(f"{source}: cannot be unpacked: {error}") from None
    except EOFError:
        raise InputError(f"{source}: cannot be unpacked: it ends too early") from None
    except gzip.BadGzipFile as error:
        raise InputError(f"{source}: cannot be unpacked: {error}") from None
    except OSError as error:
        raise InputError(f"{source}: {error.strerror or error}") from None


def _texts(file: BinaryIO, source: str, budget: _Budget) -> Iterator[tuple[str, bytes]]:
    stream = _Peekable(file)
    if stream.peek(4) == b"PK\x03\x04":
        yield from _zip_texts(stream, source, budget)
        return
    stream = _unpacked(stream, budget)
    if stream.peek(512)[257:262] == b"ustar":
        yield from _tar_texts(stream, source, budget)
        return
    yield source, budget.read(stream, source)


def _tar_texts(stream: _Peekable, source: str, budget: _Budget) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=cast(BinaryIO, stream), mode="r|") as archive:
        for member in archive:
            budget.count_member()
            if not member.isfile() or not is_wanted(member.name):
                continue
            content = archive.extractfile(member)
            if content is not None:
                name = f"{source}: {_printable(member.name)}"
                yield name, _inner(cast(BinaryIO, content), name, budget)


def _zip_texts(stream: _Peekable, source: str, budget: _Budget) -> Iterator[tuple[str, bytes]]:
    # A zip file has its table at the end, so all of it is needed first.
    packed = io.BytesIO(budget.read(stream, source))
    with zipfile.ZipFile(packed) as archive:
        for info in archive.infolist():
            budget.count_member()
            if info.is_dir() or not is_wanted(info.filename):
                continue
            name = f"{source}: {_printable(info.filename)}"
            if info.flag_bits & 1:
                raise InputError(f"{name}: is encrypted; give the archive without a password")
            try:
                with archive.open(info) as content:
                    yield name, _inner(cast(BinaryIO, content), name, budget)
            except NotImplementedError as error:
                raise InputError(f"{name}: cannot be unpacked: {error}") from None


def _inner(content: BinaryIO, name: str, budget: _Budget) -> bytes:
    """A member's text; a member may be compressed once more."""
    return budget.read(_unpacked(_Peekable(content), budget), name)


def _unpacked(stream: _Peekable, budget: _Budget) -> _Peekable:
    magic = stream.peek(6)
    source = cast(BinaryIO, stream)
    if magic.startswith(b"\x1f\x8b"):
        return _Peekable(_Metered(cast(BinaryIO, gzip.GzipFile(fileobj=source)), budget))
    if magic.startswith(b"\xfd7zXZ\x00"):
        return _Peekable(_Metered(cast(BinaryIO, lzma.LZMAFile(source)), budget))
    if magic.startswith(b"BZh"):
        return _Peekable(_Metered(cast(BinaryIO, bz2.BZ2File(source)), budget))
    return stream


class _Budget:
    """What may still be unpacked from one file."""

    def __init__(self, bounds: Bounds, source: str) -> None:
        self._bounds = bounds
        self._source = source
        self._bytes = 0
        self._members = 0

    def spend(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self._bounds.total:
            raise InputError(f"{self._source}: unpacks to more than {_size(self._bounds.total)}; split it")

    def count_member(self) -> None:
        self._members += 1
        if self._members > self._bounds.members:
            raise InputError(f"{self._source}: has more than {self._bounds.members:,} files; split it")

    def read(self, stream: _Peekable, name: str) -> bytes:
        """All of a text, within bounds."""
        most = self._bounds.member
        content = stream.read(most + 1)
        if len(content) > most:
            raise InputError(f"{name}: is larger than {_size(most)}; split it")
        return content


class _Peekable:
    """A file that can be looked at before it is read; the file itself need not be able to go back."""

    def __init__(self, file: BinaryIO | _Metered) -> None:
        self._file = file
        self._ahead = b""

    def peek(self, size: int) -> bytes:
        while len(self._ahead) < size and (chunk := self._file.read(size - len(self._ahead))):
            self._ahead += chunk
        return self._ahead[:size]

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            size = 1 << 62
        parts = [self._ahead[:size]]
        self._ahead = self._ahead[size:]
        left = size - len(parts[0])
        while left > 0 and (chunk := self._file.read(min(left, _BLOCK))):
            parts.append(chunk)
            left -= len(chunk)
        return b"".join(parts)


class _Metered:
    """What comes out of a decompressor, counted."""

    def __init__(self, file: BinaryIO, budget: _Budget) -> None:
        self._file = file
        self._budget = budget

    def read(self, size: int) -> bytes:
        chunk = self._file.read(size)
        self._budget.spend(len(chunk))
        return chunk


def _size(octets: int) -> str:
    return (
        f"{octets >> 30} GiB"
        if octets >= 1 << 30
        else f"{octets >> 20} MiB"
        if octets >= 1 << 20
        else f"{octets} B"
    )


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)
