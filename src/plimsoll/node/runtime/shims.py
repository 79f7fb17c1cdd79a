"""Shims and their processes, as the agent sees them.

Starts shims, detects whether one is alive, and sends signals that reach exactly the intended process: a
process is a pid together with its start time, and a signal is sent through a pidfd, which was checked after
it was opened.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import py_compile
import signal
import sys
from collections.abc import Iterable
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.py")
#: Modules of the shim; the first also runs commands in running containers.
_MODULES = ("confinement", "console", "container_log", "container_mounts")


def compile_shim(directory: Path) -> Path:
    """Compile the shim so that it starts fast; return its source if that fails."""
    target = directory / "shim.pyc"
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for name in (*_MODULES, SOURCE.stem):
            source, compiled = SOURCE.with_name(f"{name}.py"), target.with_name(f"{name}.pyc")
            py_compile.compile(str(source), cfile=str(compiled), doraise=True)
    except (OSError, py_compile.PyCompileError):
        return SOURCE
    return target


def confinement_path(shim: Path) -> Path:
    """Return the path of the confinement module of a shim, in the same directory."""
    return shim.with_name(f"{_MODULES[0]}{shim.suffix}")


def spawn(program: Path, spec: Path, lock: Path, stderr: Path) -> tuple[int, int]:
    """Start a shim; return its pid, and the descriptor on which it will report. Raise OSError on failure."""
    read_fd, write_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    held = -1
    try:
        os.set_blocking(write_fd, True)
        held = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        # The lock belongs to the open file, which the shim shares: it is held there without a gap.
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        spare = max(write_fd, held, 4) + 1
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-S", "-X", "utf8", str(program), str(spec)],
            {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ},
            file_actions=[
                # By way of spare numbers: one of the two may already be 3 or 4.
                (os.POSIX_SPAWN_DUP2, write_fd, spare),
                (os.POSIX_SPAWN_DUP2, held, spare + 1),
                (os.POSIX_SPAWN_DUP2, spare, 3),
                (os.POSIX_SPAWN_DUP2, spare + 1, 4),
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(stderr), flags, 0o600),
            ],
            setsid=True,
        )
    except BaseException:
        os.close(read_fd)
        raise
    finally:
        os.close(write_fd)
        if held >= 0:
            os.close(held)
    return pid, read_fd


def is_locked(lock: Path) -> bool:
    """Return whether the shim that holds this lock is alive."""
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def start_time(pid: int) -> int | None:
    """Return the start time of a process in ticks since boot; None if there is none."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def open_process(pid: int, start: int) -> int | None:
    """Open a pidfd of exactly this process, even if it is a zombie; None if it is gone."""
    try:
        fd = os.pidfd_open(pid)
    except (OSError, OverflowError, ValueError):
        return None
    if start_time(pid) != start:
        os.close(fd)
        return None
    return fd


def send(pid: int, start: int, number: int) -> bool:
    """Send a signal to exactly this process; return False if it is gone."""
    fd = open_process(pid, start)
    if fd is None:
        return False
    try:
        signal.pidfd_send_signal(fd, number)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def collect(pid: int) -> None:
    """Reap an exited shim, if it is a child."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def kill_session(leader: int, start: int) -> None:
    """Kill what is left of the session that a container's first process led."""
    found = start_time(leader)
    if found is not None and found != start:
        return  # the pid was reused, so no process of the session is left
    for pid in _pids():
        fields = _stat(pid)
        if fields and int(fields[3]) == leader and int(fields[19]) >= start:
            send(pid, int(fields[19]), signal.SIGKILL)


def find_shims(spec: Path) -> list[tuple[int, int]]:
    """Return the shims that were started for a container, as (pid, start time), by their command line."""
    wanted = os.fsencode(spec)
    found = []
    for pid in _pids():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read(65536).split(b"\0")
            started = start_time(pid)
            if wanted in words and b"-I" in words and started is not None:
                found.append((pid, started))
    return found


def descendants(pid: int) -> list[int]:
    """Return a process and its visible descendants."""
    parents: dict[int, list[int]] = {}
    for other in _pids():
        fields = _stat(other)
        if fields:
            parents.setdefault(int(fields[1]), []).append(other)
    found, queue = [], [pid]
    while queue:
        found.append(queue.pop())
        queue += parents.pop(found[-1], [])
    return found


def join(pid: int, files: Iterable[Path]) -> str:
    """Move a process and its descendants into a cgroup; return an error message, or "".

    Processes started meanwhile by a moved process are inside already, so that this terminates.
    """
    wanted, moved = list(files), set[int]()
    while new := [each for each in descendants(pid) if each not in moved]:
        for each in new:
            moved.add(each)
            for file in wanted:
                try:
                    file.write_text(str(each))
                except ProcessLookupError:
                    break  # it has exited
                except OSError as error:
                    return f"{file}: {error.strerror or error}"
    return ""


def set_affinity(pids: Iterable[int], cpus: set[int]) -> str:
    """Pin all threads of processes to these CPUs; return the last problem, if any."""
    problem = ""
    for pid in pids:
        with contextlib.suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/task"):
                try:
                    os.sched_setaffinity(int(name), cpus)
                except ProcessLookupError:
                    continue
                except (OSError, ValueError, OverflowError) as error:
                    problem = str(error)
    return problem


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _stat(pid: int) -> list[bytes]:
    """Return the fields after the name: state, parent, group, session, ...; the 20th is the start time."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()
    except OSError:
        return []
