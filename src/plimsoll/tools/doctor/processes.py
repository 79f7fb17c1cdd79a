"""Processes of this machine, and those that were started for containers of a node."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from plimsoll.node.layout import Layout
from plimsoll.tools.doctor.files import read_file

PROC = Path("/proc")
SPEC = "spec.json"


def list_pids(proc: Path = PROC) -> list[int]:
    """Return the PIDs of all processes."""
    try:
        return sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    except OSError:
        return []


def is_alive(pid: int, start: int, proc: Path = PROC) -> bool:
    """Return whether exactly this process is alive. PID 1 is never a container."""
    fields = read_file(proc / str(pid) / "stat", 4096)[0].rpartition(b")")[2].split()
    return pid > 1 and len(fields) > 19 and fields[0] not in (b"Z", b"X") and int(fields[19]) == start


def find_shims(layout: Layout, proc: Path = PROC) -> Iterator[tuple[str, int]]:
    """Yield the specs of containers of this root and the PIDs of their shims, by command line."""
    heads = tuple({os.fsencode(layout.pods) + b"/", os.fsencode(os.path.realpath(layout.pods)) + b"/"})
    for pid in list_pids(proc):
        words = read_file(proc / str(pid) / "cmdline", 65536)[0].split(b"\0")
        specs = [word for word in words if word.startswith(heads) and word.endswith(b"/" + SPEC.encode())]
        if specs and b"-I" in words:
            yield os.fsdecode(specs[0]), pid
