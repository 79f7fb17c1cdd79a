"""Reader of text files: plain, compressed, or in tar and zip archives.

Guarantees: nothing is written to disk, members that are not YAML or JSON are skipped, nested archives are
not opened, and a file that cannot be unpacked is an InputError that names it. A file that expands beyond a
limit is rejected at that point; memory is bounded by the limit.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO, cast

from plimsoll.common.input_limits import Bounds, default_bounds, limit_hint, show_size
from plimsoll.errors import InputError

SUFFIXES = (".yaml", ".yml", ".json")
_PACKED = (".gz", ".xz", ".bz2")
_BLOCK = 1 << 20
#: Byte order marks of UTF-16.
UTF16 = (b"\xff\xfe", b"\xfe\xff")


def is_manifest_file(name: str) -> bool:
    """Return whether a file in a directory or an archive is read: YAML or JSON, possibly compressed."""
    base = name.rpartition("/")[2].lower()
    for suffix in _PACKED:
        base = base.removesuffix(suffix)
    return base.endswith(SUFFIXES) and not base.startswith("._")  # macOS adds "._x" for x


class TextReader:
    """Reader of the texts of several files under common limits."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self._budget = _Budget(bounds or default_bounds())

    def read(self, file: BinaryIO, source: str) -> Iterator[tuple[str, bytes]]:
        """Yield the texts of an open file, each with the name of its source."""
        try:
            yield from _texts(file, source, self._budget)
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, gzip.BadGzipFile) as error:
            raise InputError(f"{source}: cannot be unpacked: {error}") from None
        except EOFError:
            raise InputError(f"{source}: cannot be unpacked: unexpected end of file") from None
        except OSError as error:
            raise InputError(f"{source}: {error.strerror or error}") from None
        except (OverflowError, MemoryError, ValueError):  # sizes in a damaged or hostile header
            raise InputError(f"{source}: cannot be unpacked: invalid header") from None


def _texts(file: BinaryIO, source: str, budget: _Budget) -> Iterator[tuple[str, bytes]]:
    stream = _Peekable(file)
    if stream.peek(4) == b"PK\x03\x04":
        yield from _zip_texts(stream, source, budget)
        return
    stream = _unpacked(stream, source, budget)
    if stream.peek(512)[257:262] == b"ustar":
        yield from _tar_texts(stream, source, budget)
        return
    yield source, budget.read(stream, source)


def _tar_texts(stream: _Peekable, source: str, budget: _Budget) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(fileobj=cast(BinaryIO, stream), mode="r|") as archive:
        for member in archive:
            budget.count_member(source)
            if not member.isfile() or not is_manifest_file(member.name):
                continue
            name = f"{source}: {_printable(member.name)}"
            if member.issparse():
                raise InputError(f"{name}: is a sparse file; pack it with its holes filled")
            content = archive.extractfile(member)
            if content is not None:
                yield name, _inner(cast(BinaryIO, content), name, budget)


def _zip_texts(stream: _Peekable, source: str, budget: _Budget) -> Iterator[tuple[str, bytes]]:
    # A zip file has its directory at the end, so all of it is read first.
    packed = budget.read_archive(stream, source)
    budget.count_member(source, packed.count(b"PK\x01\x02"))  # before zipfile creates an object for each
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        for info in archive.infolist():
            if info.is_dir() or not is_manifest_file(info.filename):
                continue
            name = f"{source}: {_printable(info.filename)}"
            if info.flag_bits & 1:
                raise InputError(f"{name}: is encrypted; give the archive without a password")
            try:
                with archive.open(info) as content:
                    metered = _Metered(
                        cast(BinaryIO, content), name, budget, partial(int, info.compress_size)
                    )
                    yield name, _inner(metered, name, budget)
            except NotImplementedError as error:
                raise InputError(f"{name}: cannot be unpacked: {error}") from None


def _inner(content: BinaryIO | _Metered, name: str, budget: _Budget) -> bytes:
    """Return a member's text; the member itself may be compressed."""
    return budget.read(_unpacked(_Peekable(content), name, budget), name)


def _unpacked(stream: _Peekable, source: str, budget: _Budget) -> _Peekable:
    magic = stream.peek(6)
    packed = cast(BinaryIO, stream)
    opened: object
    if magic.startswith(b"\x1f\x8b"):
        opened = gzip.GzipFile(fileobj=packed)
    elif magic.startswith(b"\xfd7zXZ\x00"):
        opened = lzma.LZMAFile(packed)  # noqa: SIM115 - the stream is read to its end by the caller
    elif magic.startswith(b"BZh"):
        opened = bz2.BZ2File(packed)
    elif magic.startswith(b"\x28\xb5\x2f\xfd"):
        raise InputError(f"{source}: is compressed with zstd, which is not supported; unpack it with unzstd")
    else:
        return stream
    return _Peekable(_Metered(cast(BinaryIO, opened), source, budget, lambda: stream.taken))


class _Budget:
    """Remaining budget of bytes to unpack and read."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.unpacked = 0
        self._read = 0
        self._members = 0

    def count_unpacked(self, size: int, source: str) -> None:
        self.unpacked += size
        limit = self.bounds.unpacked
        if self.unpacked > limit:
            raise InputError(
                f"{source}: unpacks to more than {show_size(limit)}, the limit for this machine's memory; "
                + limit_hint("unpack what is needed and give that")
            )

    def count_member(self, source: str, number: int = 1) -> None:
        self._members += number
        if self._members > self.bounds.members:
            raise InputError(
                f"{source}: has more than {self.bounds.members:,} files; unpack what is needed and give that"
            )

    def read(self, stream: _Peekable, name: str) -> bytes:
        """Return a complete text, within the limits."""
        head = stream.peek(4096)
        if b"\0" in head and not head.startswith(UTF16):
            raise InputError(
                f"{name}: is not a text file; YAML and JSON are read, plain, compressed or in an archive"
            )
        left = self.bounds.text - self._read
        content = stream.read(left + 1)
        if len(content) > left:
            raise self._too_large(name)
        self._read += len(content)
        return content

    def read_archive(self, stream: _Peekable, name: str) -> bytes:
        """Return a complete archive that has its directory at the end."""
        content = stream.read(self.bounds.text + 1)
        if len(content) > self.bounds.text:
            raise self._too_large(name)
        return content

    def _too_large(self, name: str) -> InputError:
        size = show_size(self.bounds.text) + (" including the files before it" if self._read else "")
        return InputError(
            f"{name}: has more than {size}, the limit for this machine's memory; " + limit_hint("split it")
        )


class _Peekable:
    """File that can be inspected before it is read, without seeking."""

    def __init__(self, file: BinaryIO | _Metered) -> None:
        self._file = file
        self._ahead = b""
        self.taken = 0  #: bytes read from the file

    def peek(self, size: int) -> bytes:
        while len(self._ahead) < size and (chunk := self._file.read(size - len(self._ahead))):
            self._ahead += chunk
            self.taken += len(chunk)
        return self._ahead[:size]

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            size = 1 << 62
        first, self._ahead = self._ahead[:size], self._ahead[size:]
        left = size - len(first)
        if not left or not (chunk := self._next(left)):
            return first
        whole = io.BytesIO()  # returns its content without a copy
        whole.write(first)
        while chunk:
            whole.write(chunk)
            left -= len(chunk)
            chunk = self._next(left) if left else b""
        return whole.getvalue()

    def _next(self, most: int) -> bytes:
        chunk = self._file.read(min(most, _BLOCK))
        self.taken += len(chunk)
        return chunk


class _Metered:
    """Decompressed stream, counted and compared with the compressed input."""

    def __init__(self, file: BinaryIO, source: str, budget: _Budget, taken: Callable[[], int]) -> None:
        self._file = file
        self._source = source
        self._budget = budget
        self._taken = taken
        self._given = 0

    def read(self, size: int) -> bytes:
        chunk = self._file.read(size)
        self._given += len(chunk)
        self._budget.count_unpacked(len(chunk), self._source)
        bounds = self._budget.bounds
        excessive = self._given > max(_BLOCK, bounds.ratio * self._taken())
        if excessive and self._budget.unpacked > bounds.ratio_from:  # sum over all streams
            raise InputError(
                f"{self._source}: expands to more than {bounds.ratio} times its size "
                f"({show_size(bounds.ratio_from)} and more), the limit for a compressed file; "
                + limit_hint("unpack it and give the unpacked file")
            )
        return chunk


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)
