"""Root directory: owner, running agent, free space.

The lock file remains after its agent has ended; only the kernel's lock on it shows that an agent runs.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from plimsoll.node.layout import Layout
from plimsoll.tools.doctor.facts import LockState, NodeFacts, RootFacts
from plimsoll.tools.doctor.files import list_dir, read_file, reason, size_text, stat_entry, user_name
from plimsoll.tools.doctor.findings import command, error, move_away, note, ok, warning
from plimsoll.tools.doctor.processes import list_pids
from plimsoll.tools.findings import Finding

#: Free space in bytes and as a share below which it is low, and below which nothing can be saved.
_SPACE, _SHARE, _FULL = 256 << 20, 0.05, 1 << 20
_OTHERS_WRITE = 0o022


def read_lock(path: Path) -> LockState:
    """Inspect the lock of a directory, in shared mode, so that two doctors do not conflict."""
    entry = stat_entry(path)
    if entry.kind != "file":
        return LockState(entry)
    text = read_file(path, 100)[0].strip()
    pid = int(text) if text.isdigit() and len(text) < 10 else None
    held = False
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as problem:
        return LockState(entry, False, pid, reason(problem))
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        held = True
    except OSError:
        pass
    finally:
        os.close(fd)
    return LockState(entry, held, pid)


def is_kubelets(layout: Layout) -> bool:
    """Return whether a directory belongs to a kubelet: it has kubelet files and none of ours.

    An agent takes its lock first, so pods in a directory without our files are not ours and are not touched.
    A quarantined kubelet checkpoint still identifies the owner.
    """
    ours = (layout.claims, layout.admitted, layout.lock)
    if any(stat_entry(path).exists for path in ours):
        return False
    theirs = (layout.kubelet_claims, layout.root / "cpu_manager_state", layout.root / "device-plugins")
    aside = list_dir(layout.quarantine).entries
    return any(stat_entry(path).exists for path in (*theirs, layout.pods)) or any(
        entry.path.name.startswith(layout.kubelet_claims.name) for entry in aside
    )


def kubelet_pids(proc: Path = Path("/proc")) -> tuple[int, ...]:
    """Return the PIDs of kubelets on this machine, by process name."""
    return tuple(
        pid for pid in list_pids(proc) if read_file(proc / str(pid) / "comm", 64)[0].strip() == b"kubelet"
    )


def gather(layout: Layout, held: LockState) -> RootFacts:
    space = None
    with suppress(OSError, ValueError):
        space = os.statvfs(_existing(layout.root))
    agents = []
    if not held.entry.exists:
        for entry in list_dir(layout.root).entries:
            if entry.kind == "directory" and stat_entry(Layout(entry.path).lock).kind == "file":
                agents.append(entry.path.name)
    return RootFacts(entry=stat_entry(layout.root), space=space, lock=held, agents=tuple(agents))


def check(facts: NodeFacts) -> Iterator[Finding]:
    yield from _check_directory(facts)
    yield from _check_agent(facts)
    yield from _check_space(facts)


def _check_directory(facts: NodeFacts) -> Iterator[Finding]:
    entry, subject = facts.root.entry, str(facts.layout.root)
    if entry.kind == "absent":
        fix = "the agent creates it; or pass another one with --root"
        yield note("root.directory", subject, "does not exist yet", fix)
        return
    if entry.kind != "directory":
        fix = "pass the directory itself with --root, or move this away"
        yield error("root.directory", subject, f"it is a {entry.kind}, not a directory", fix)
        return
    owner, mode = user_name(entry.uid), f"{entry.mode:04o}"
    if entry.uid not in (0, facts.uid):
        fix = f"its owner can create sockets and records in it: {command('chown', facts.uid, entry.path)}"
        yield error("root.owner", subject, f"it belongs to {owner}", fix)
    if entry.mode & _OTHERS_WRITE:
        fix = f"other users can create sockets and records in it: {command('chmod', 'go-w', entry.path)}"
        yield error("root.mode", subject, f"its mode is {mode}", fix)
    if facts.root.agents:
        names = ", ".join(facts.root.agents[:5])
        count = len(facts.root.agents)
        fix = "examine one of them with --root"
        yield note("root.agents", subject, f"{count} agent directories below it: {names}", fix)
    yield ok("root.directory", subject, f"used by {facts.whose}; owner {owner}, mode {mode}")


def _check_agent(facts: NodeFacts) -> Iterator[Finding]:
    root, subject = facts.root, str(facts.layout.lock)
    if facts.is_kubelet:
        text = f"process {facts.pid}" if facts.pid else "it serves its socket"
        yield ok("root.agent", "kubelet", f"running: {text}" if facts.running else "not running")
        return
    lock = root.lock.entry
    if lock.exists and lock.kind != "file":
        fix = f"no agent can start here: {move_away(lock.path, facts.layout.quarantine)}"
        yield error("root.lock", subject, f"it is a {lock.kind}, not a file", fix)
    elif facts.running:
        yield ok("root.agent", subject, f"agent running: process {facts.pid or 'unknown'}")
    elif root.lock.pid is not None:
        yield ok("root.agent", subject, f"no agent running; the last one was process {root.lock.pid}")
    else:
        yield ok("root.agent", subject, "no agent running")


def _check_space(facts: NodeFacts) -> Iterator[Finding]:
    space, subject = facts.root.space, str(facts.layout.root)
    if space is None:
        return
    total, free = space.f_blocks * space.f_frsize, space.f_bavail * space.f_frsize
    share = free / total if total else 1.0
    inodes = space.f_favail / space.f_files if space.f_files else 1.0
    text = f"{size_text(free)} of {size_text(total)} free ({share:.0%}); {inodes:.0%} of inodes"
    fix = "free space on its file system: records of claims and pods are stored there"
    if free < _FULL or not inodes:
        yield error("root.space", subject, text, fix)
    elif free < _SPACE or share < _SHARE or inodes < _SHARE:
        yield warning("root.space", subject, text, fix)
    else:
        yield ok("root.space", subject, text)


def _existing(path: Path) -> Path:
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    return path
