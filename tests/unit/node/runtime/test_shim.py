"""Functions of the shim: logs, lines and error names."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.node.runtime import confinement, container_log, container_mounts, shim, shims
from tests.directories import short_directory
from tests.sizes import examples

#: Modules of the shim next to it.
_MODULES = ("confinement", "console", "container_log", "container_mounts")
_CONFINEMENT = "plimsoll.node.runtime.confinement"


def naive_log(data: bytes) -> list[tuple[bytes, bytes]]:
    """Split output byte by byte into (tag, text)."""
    result, line = [], b""
    for at in range(len(data)):
        byte = data[at : at + 1]
        if byte == b"\n":
            result.append((b"F", line))
            line = b""
            continue
        if len(line) == container_log.LINE_MAX:
            result.append((b"P", line))
            line = b""
        line += byte
    if line:
        result.append((b"P", line))
    return result


_chunks = st.lists(
    st.one_of(
        st.binary(max_size=20),
        st.sampled_from([b"\n", b"\n\n", b"x" * 16384, b"y" * 16383, b"z" * 40000, b"end\n"]),
    ),
    max_size=8,
)


@settings(max_examples=examples(60))
@given(_chunks)
def test_log_lines_do_not_depend_on_chunk_boundaries(chunks: list[bytes]) -> None:
    with short_directory() as directory:
        log = container_log.ContainerLog(str(directory / "log"), 1 << 30, 1)
        for chunk in chunks:
            log.feed(b"stdout", chunk)
        log.close()
        written = (directory / "log").read_bytes()
    text = b"".join(chunks)
    parts = [line.split(b" ", 3) for line in written.split(b"\n")[:-1]]
    assert [(mark, text) for _, _, mark, text in parts] == naive_log(text)
    assert {stream for _, stream, _, _ in parts} <= {b"stdout"}


@given(st.lists(st.integers(1, 400), max_size=30), st.integers(100, 500), st.integers(1, 4))
def test_logs_are_bounded(sizes: list[int], limit: int, files: int) -> None:
    with short_directory() as directory:
        log = container_log.ContainerLog(str(directory / "log"), limit, files)
        written = []
        for number, size in enumerate(sizes):
            line = (b"%d-" % number).ljust(size, b"x")
            written.append(line)
            log.feed(b"stderr", line + b"\n")
        log.close()
        found = sorted(directory.glob("log*"), key=lambda path: path.name, reverse=True)
        assert len(found) <= files
        assert all(path.stat().st_size <= max(limit, 500) for path in found)
        kept = [line.split(b" ", 3)[3] for path in found for line in path.read_bytes().splitlines()]
    # the newest, in order, without holes
    assert kept == written[len(written) - len(kept) :]
    assert kept or not written


def test_a_full_disk_does_not_stop_the_container(tmp_path: Path) -> None:
    log = container_log.ContainerLog(str(tmp_path / "absent" / "log"), 1000, 2)
    log.feed(b"stdout", b"lost\n")
    log.close()
    assert log.lost > 0


def test_the_shim_imports_few_modules() -> None:
    for source, beside in (
        (
            shims.SOURCE,
            {f"{prefix}{name}" for prefix in ("", "plimsoll.node.runtime.") for name in _MODULES},
        ),
        *((shims.SOURCE.with_name(f"{name}.py"), {_CONFINEMENT}) for name in _MODULES),
    ):
        tree = ast.parse(source.read_text())
        names = {
            alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        }
        names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        # The name in the package is for type checkers only; what is really imported is seen below.
        assert names <= {*sys.stdlib_module_names} | beside


def test_it_needs_nothing_but_the_standard_library(tmp_path: Path) -> None:
    program = shims.compile_shim(tmp_path)
    assert program == tmp_path / "shim.pyc"
    code = (
        "import sys, runpy; runpy.run_path(sys.argv[1], run_name='shim');"
        "print(*sorted(n for n in sys.modules if n.split('.')[0] not in sys.stdlib_module_names))"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(program)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["__main__", *_MODULES]
    (tmp_path / "file").write_text("")
    assert shims.compile_shim(tmp_path / "file") == shims.SOURCE


@pytest.mark.parametrize(
    ("options", "flags"),
    [(["ro"], 1), (["rbind"], 4096 | 16384), (["bind", "nosuid", "nodev", "noexec"], 4096 | 14)],
)
def test_mount_options(options: list[str], flags: int, tmp_path: Path) -> None:
    calls: list[tuple[object, ...]] = []

    class Recording(confinement.SystemCalls):
        def mount(self, source: str, target: str, kind: str, flags: int, data: str = "") -> None:
            calls.append((source, target, kind, flags, data))

    container_mounts.mount_one(
        {"source": "/src", "target": str(tmp_path), "type": "tmpfs", "options": [*options, "size=1m", "rw"]},
        Recording(),
    )
    bind = bool(flags & 4096)
    if not bind:
        assert calls == [("/src", str(tmp_path), "tmpfs", flags, "size=1m")]
        return
    assert calls[0] == ("/src", str(tmp_path), "", 4096 | (flags & 16384), "")
    more = flags & ~(4096 | 16384)
    assert calls[1:] == ([("none", str(tmp_path), "", 32 | 4096 | more, "")] if more else [])


def test_a_missing_mount_permission_is_reported(tmp_path: Path) -> None:
    class Refusing(confinement.SystemCalls):
        def call(self, name: str, *args: object) -> None:
            raise PermissionError(1, "Operation not permitted")

    (tmp_path / "node").write_text("")
    writable, locked = ({"read_only_root": value} for value in (False, True))
    spec: dict[str, Any] = {
        "credentials": writable,
        "mounts": [{"source": "/a", "target": "/b", "type": "", "options": []}],
        "devices": [
            {"path": "/dev/null", "host_path": ""},
            {"path": str(tmp_path / "node"), "host_path": "/dev/null"},
            {"path": "/dev/absent", "host_path": ""},
        ],
    }
    assert container_mounts.mount_all(spec, Refusing()) == [
        "device /dev/absent: /dev/absent does not exist on this machine",
        f"nothing can be mounted at /b, {tmp_path}/node: Operation not permitted",
    ]
    unchanged = {"credentials": writable, "devices": spec["devices"][:1]}
    assert container_mounts.mount_all(unchanged, Refusing()) == []
    # A container runs without the file of its message, not without its volumes.
    message = {"source": "/m", "target": "/dev/m", "read_only": False, "optional": True}
    assert container_mounts.mount_all({"credentials": writable, "volumes": [message]}, Refusing()) == [
        "nothing can be mounted at /dev/m: Operation not permitted"
    ]
    volume = {"source": "/v", "target": "/data", "read_only": False}
    with pytest.raises(RuntimeError, match="volumes cannot be mounted at /data: Operation not permitted"):
        container_mounts.mount_all({"credentials": writable, "volumes": [volume, message]}, Refusing())
    # A container that asked for it does not run on a file system that it can write to.
    with pytest.raises(RuntimeError, match="cannot be made read-only: Operation not permitted"):
        container_mounts.mount_all({"credentials": locked}, Refusing())


def test_oom_kills_are_read_from_the_cgroup(tmp_path: Path) -> None:
    for version, name, other in (
        ("v1", "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\n"),
        ("v2", "memory.events", "low 0\noom 1\n"),
    ):
        directory = tmp_path / version
        directory.mkdir()
        join = [str(tmp_path / "cpu" / "cgroup.procs"), str(directory / "cgroup.procs")]
        assert not shim.out_of_memory(join)
        (directory / name).write_text(other + "oom_kill 0\n")
        assert not shim.out_of_memory(join)
        (directory / name).write_text(other + "oom_kill 2\n")
        assert shim.out_of_memory(join)
