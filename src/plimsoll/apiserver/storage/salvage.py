"""Salvage: reads the rows of a damaged SQLite file.

Needs neither the schema nor an intact tree: it reads every leaf page of the file and of its write-ahead log,
and accepts a row if its checksum matches. Every complete row is found. For each row it records whether it is
on a page in use or on a free page (see https://www.sqlite.org/fileformat2.html).
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from plimsoll.apiserver.storage.log import PAGE_SIZE, TYPES, CompactionState, Row, checksum, state_checksum

_LEAF = 13
_WAL_HEADER = 32
_FRAME_HEADER = 24
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}


class SalvagedRows:
    """Rows that are left in a file."""

    def __init__(self, path: Path) -> None:
        self.rows: dict[int, Row] = {}
        self.current: set[int] = set()  # the revisions of rows on pages in use
        self.state: CompactionState | None = None
        self.damaged: list[str] = []  # descriptions of damaged rows
        self.unreadable = 0  # damaged rows without a readable key
        self.free_known = False
        with _Pages(path) as pages:
            self._scan(pages)

    def _scan(self, pages: _Pages) -> None:
        free = pages.free()
        self.free_known = free is not None
        for number, data, newest in pages.all():
            in_use = newest and (free is None or number not in free)
            for values in _leaf_records(pages, number, data):
                self._add_record(values, in_use)

    def _add_record(self, values: list[Any] | None, in_use: bool) -> None:
        if values is None:
            self.unreadable += in_use
            return
        if len(values) == 6:
            state = _state(values)
            self.state = state if state and in_use else self.state
            return
        if len(values) != 10:
            return
        # The revision is the row ID and not stored as a column.
        columns = [values[0], *values[2:9]]
        row = _row(columns)
        if row and checksum(row) == values[9]:
            self.rows[row[0]] = row
            if in_use:
                self.current.add(row[0])
        elif in_use and all(isinstance(text, str) for text in columns[4:7]):
            resource, namespace, name = columns[4:7]
            where = f"{namespace}/{name}" if namespace else name
            self.damaged.append(f"revision {values[0]}, {resource} {where}")
        elif in_use:
            self.unreadable += 1


class _Pages:
    """Pages of a file and of its write-ahead log."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDONLY)
        wal = path.with_name(path.name + "-wal")
        self._wal = os.open(wal, os.O_RDONLY) if wal.exists() else -1
        # All store files have the same page size; a damaged header cannot be trusted.
        self.size = PAGE_SIZE
        self.count = os.fstat(self._file).st_size // self.size
        self._frames = self._find_frames()
        self._newest = dict(self._frames)
        self.size_bytes = (self.count + len(self._frames)) * self.size

    def __enter__(self) -> _Pages:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)
        if self._wal >= 0:
            os.close(self._wal)

    def page(self, number: int) -> bytes:
        """Return the newest version of a page; empty if there is no such page."""
        offset = self._newest.get(number)
        if offset is not None:
            return os.pread(self._wal, self.size, offset)
        return os.pread(self._file, self.size, (number - 1) * self.size) if number > 0 else b""

    def all(self) -> Iterator[tuple[int, bytes, bool]]:
        """Yield every version of every page, and whether it is the newest."""
        for number in range(1, self.count + 1):
            data = os.pread(self._file, self.size, (number - 1) * self.size)
            yield number, data, number not in self._newest
        for number, offset in self._frames:
            yield number, os.pread(self._wal, self.size, offset), self._newest[number] == offset

    def free(self) -> set[int] | None:
        """Return the free pages, or None if their list is damaged."""
        header = self.page(1)[:100]
        if len(header) < 100:
            return None
        trunk, expected = struct.unpack(">32xII60x", header)
        free: set[int] = set()
        while trunk:
            data = self.page(trunk)
            if trunk in free or len(data) < self.size:
                return None
            free.add(trunk)
            trunk, count = struct.unpack_from(">II", data)
            if count > self.size // 4 - 2:
                return None
            free.update(struct.unpack_from(f">{count}I", data, 8))
        return free if len(free) == expected else None

    def _find_frames(self) -> list[tuple[int, int]]:
        """Return page number and offset of all frames since the write-ahead log was last restarted."""
        if self._wal < 0:
            return []
        step = _FRAME_HEADER + self.size
        frames = []
        salt = os.pread(self._wal, 8, 16)
        for offset in range(_WAL_HEADER, os.fstat(self._wal).st_size - step + 1, step):
            header = os.pread(self._wal, _FRAME_HEADER, offset)
            if header[8:16] == salt:
                frames.append((int.from_bytes(header[:4]), offset + _FRAME_HEADER))
        return frames


def _leaf_records(pages: _Pages, number: int, data: bytes) -> Iterator[list[Any] | None]:
    """Yield the records on a leaf page, each led by its row number; None for an unreadable one."""
    start = 100 if number == 1 else 0
    if len(data) < pages.size or data[start] != _LEAF:
        return
    count = int.from_bytes(data[start + 3 : start + 5])
    if start + 8 + 2 * count > pages.size:
        return
    for offset in struct.unpack_from(f">{count}H", data, start + 8):
        try:
            yield _record(pages, data, offset)
        except (IndexError, UnicodeDecodeError):
            yield None


def _record(pages: _Pages, data: bytes, offset: int) -> list[Any]:
    """Decode one record; IndexError if it is truncated."""
    length, offset = _varint(data, offset)
    number, offset = _varint(data, offset)
    payload = _payload(pages, data, offset, length)
    end, position = _varint(payload, 0)
    kinds = []
    while position < end:
        kind, position = _varint(payload, position)
        kinds.append(kind)
    values: list[Any] = [number]
    for kind in kinds:
        size = _INTEGERS.get(kind, 0) if kind < 12 else (kind - 12) // 2
        part = payload[position : position + size]
        if len(part) < size:
            raise IndexError
        position += size
        if kind >= 12:
            values.append(part.decode() if kind % 2 else part)
        elif kind in (8, 9):
            values.append(kind - 8)
        else:
            values.append(int.from_bytes(part, signed=True) if part else None)
    return values


def _payload(pages: _Pages, data: bytes, offset: int, length: int) -> bytes:
    """Return the bytes of a record: those on its own page and on its overflow pages."""
    usable = pages.size
    local = length
    if length > usable - 35:
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = local if local <= usable - 35 else least
    payload = data[offset : offset + local]
    following = int.from_bytes(data[offset + local : offset + local + 4])
    parts = [payload]
    left = length - local
    if left > pages.size_bytes:
        raise IndexError
    while left > 0:
        page = pages.page(following)
        if len(page) < usable:
            raise IndexError
        parts.append(page[4 : 4 + left])
        left -= usable - 4
        following = int.from_bytes(page[:4])
    return b"".join(parts)


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    value = 0
    for _ in range(8):
        byte = data[offset]
        offset += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, offset
    return value << 8 | data[offset], offset + 1


def _state(values: list[Any]) -> CompactionState | None:
    """Return the columns as a state if they are valid."""
    _, _, floor, rows, total, crc = values
    if not all(isinstance(number, int) for number in values[2:]):
        return None
    state = CompactionState(floor, rows, total)
    return state if state_checksum(state) == crc else None


def _row(values: list[Any]) -> Row | None:
    """Return the columns as a row if their types are valid."""
    revision, previous, code, created, resource, namespace, name, value = values
    if not (all(isinstance(number, int) for number in values[:4]) and 0 <= code < len(TYPES)):
        return None
    if not (all(isinstance(text, str) for text in values[4:7]) and isinstance(value, bytes)):
        return None
    return revision, previous, code, created, resource, namespace, name, value
