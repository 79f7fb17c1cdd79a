"""Time and memory that `plimsoll COMMAND -f FILE` takes for hostile files, each in a process of its own.

    python -m bench.hostile_dumps [--command "top nodes"] [--only NAME] [--limit SECONDS]

Each file is small on disk and asks for a lot: compressed bombs, comments, empty documents, brackets, members
without number. Prints the size of the file, wall-clock and CPU seconds, the most memory the process has had
(`ru_maxrss` of `wait4`), the exit code, and the answer's first line. Every one of them should end with exit
code 2 (or 0 for the sound ones), within seconds, and with less memory than an ordinary large dump takes; a
process that has not answered after `--limit` seconds is killed. For scale the last two files are sound dumps.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import io
import json
import lzma
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.dumps import big_cluster

MIB = 1 << 20
HEAD = b'{"apiVersion":"v1","kind":"PodList","items":['


def pack(open_file: Callable[..., io.BufferedIOBase], chunk: bytes, times: int) -> bytes:
    """Return a number of chunks, compressed one at a time."""
    packed = io.BytesIO()
    with open_file(packed, "wb") as file:
        for _ in range(times):
            file.write(chunk)
    return packed.getvalue()


def tarball(members: Iterator[tuple[str, bytes]]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def zip_file(members: Iterator[tuple[str, bytes]]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return packed.getvalue()


def aliases() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(["apiVersion: v1", "kind: Pod", *lines]).encode()


def dump(indent: int | None) -> bytes:
    """Return a valid dump of a cluster."""
    trees = big_cluster(600, pods_per_node=20)
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": trees}, indent=indent).encode()


FILES: dict[str, Callable[[], bytes]] = {
    "zeros.gz": lambda: pack(gzip.open, bytes(MIB), 1500),
    "blanks.gz": lambda: pack(gzip.open, b" " * MIB, 900),
    "comments.gz": lambda: pack(gzip.open, b"# comment\n" * 100_000, 900),
    "comments.xz": lambda: pack(lzma.open, b"# comment\n" * 100_000, 900),
    "comments.bz2": lambda: pack(bz2.open, b"# comment\n" * 100_000, 300),
    "comments.tar.gz": lambda: tarball((f"{n}.yaml", b"# comment\n" * 5_000_000) for n in range(20)),
    "comments.zip": lambda: zip_file((f"{n}.yaml", b"# comment\n" * 5_000_000) for n in range(20)),
    "logs.tar.gz": lambda: tarball((f"{n}.log", b"a line\n" * 7_000_000) for n in range(60)),
    "members.tar.gz": lambda: tarball((f"{n}.txt", b"") for n in range(300_000)),
    "members.zip": lambda: zip_file((f"{n}.txt", b"") for n in range(250_000)),
    "comments.yaml": lambda: b"# comment\n" * 90_000,
    "comments-60MB.yaml": lambda: b"# comment\n" * 6_000_000,
    "items-comments.yaml": lambda: b"items:\n" + b"# c\n" * 2_000_000 + b"- a\nkind: List\n",
    "documents.yaml": lambda: b"---\n" * 2_000_000,
    "objects.yaml": lambda: b"---\nkind: X\n" * 500_000,
    "flow.yaml": lambda: b"kind: Pod\nx: [" + b"{}," * 3_000_000 + b"]\n",
    "aliases.yaml": aliases,
    "items.json": lambda: HEAD + b"{}," * 30_000_000 + b"{}]}",
    "numbers.json": lambda: HEAD + b"0," * 30_000_000 + b"0]}",
    "items.json.gz": lambda: gzip.compress(HEAD + b"{}," * 20_000_000 + b"{}]}"),
    "lists.json": lambda: b"[" + b"[]," * 30_000_000 + b"0]",
    "sound.json": lambda: dump(4),
    "sound.json.gz": lambda: gzip.compress(dump(None)),
}


def ask(words: list[str], path: Path, limit: float) -> str:
    """Run a command on a file and return its row of the table."""
    began = time.monotonic()
    command = [sys.executable, "-m", "plimsoll.cli.main", *words, "-f", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    killer = threading.Timer(limit, process.kill)
    killer.start()
    output = process.stdout.read().decode(errors="replace")
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    killer.cancel()
    first = output.partition("\n")[0].replace(str(path.parent) + "/", "")
    return (
        f"{path.name:20} {path.stat().st_size / 1e6:7.2f} MB {time.monotonic() - began:6.1f} s "
        f"{usage.ru_utime + usage.ru_stime:6.1f} s CPU {usage.ru_maxrss // 1024:6} MiB "
        f"exit {process.returncode:2}  {first[:90]}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Time and memory of hostile files.")
    parser.add_argument("--command", default="top nodes", help="The command to ask.")
    parser.add_argument("--only", default="", help="Only files whose name contains this.")
    parser.add_argument("--limit", type=float, default=120.0, help="Seconds after which a process is killed.")
    parser.add_argument("--make", nargs=2, metavar=("NAME", "PATH"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        Path(options.make[1]).write_bytes(FILES[options.make[0]]())
        return
    with tempfile.TemporaryDirectory() as directory:
        for name in FILES:
            if options.only in name:
                path = Path(directory) / name
                # In another process: the child of a large process starts with its peak memory.
                subprocess.run(
                    [sys.executable, "-m", "bench.hostile_dumps", "--make", name, path], check=True
                )
                print(ask(options.command.split(), path, options.limit), flush=True)
                path.unlink()


if __name__ == "__main__":
    main()
