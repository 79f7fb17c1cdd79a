"""Privileges: user and capabilities of the agent.

Examines the running agent, else the doctor itself, assumed to run as the agent will.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from plimsoll.tools.doctor.facts import NodeFacts, PrivilegeFacts
from plimsoll.tools.doctor.files import read_file, user_name
from plimsoll.tools.doctor.findings import finding, note, ok
from plimsoll.tools.findings import Finding, Severity

#: Capability -> its number, and the consequence if it is missing.
NEEDED = {
    "CAP_SYS_RESOURCE": (24, "OOM scores cannot be lowered: Guaranteed pods are not protected"),
    "CAP_SYS_ADMIN": (21, "CDI mounts and cgroup v1 changes are not possible"),
    "CAP_KILL": (5, "containers of other users cannot be stopped"),
    "CAP_MKNOD": (27, "CDI device nodes cannot be created"),
    "CAP_CHOWN": (0, "file ownership cannot be set for containers of other users"),
}


def gather(pid: int | None, proc: Path = Path("/proc")) -> PrivilegeFacts:
    """Read the privileges of a process, or of this one if `pid` is None or not visible."""
    for number in filter(None, (pid, os.getpid())):
        text = read_file(proc / str(number) / "status", 65536)[0].decode(errors="replace")
        user = re.search(r"^Uid:\s+[0-9]+\s+([0-9]+)", text, re.MULTILINE)
        effective = re.search(r"^CapEff:\s+([0-9a-fA-F]{1,16})$", text, re.MULTILINE)
        if user is not None:
            mask = int(effective[1], 16) if effective is not None else None
            return PrivilegeFacts(pid=number, uid=int(user[1]), capabilities=mask)
    return PrivilegeFacts(pid=os.getpid(), uid=os.geteuid())


def check(facts: NodeFacts) -> Iterator[Finding]:
    if facts.is_kubelet:
        return
    found = facts.privileges
    whose = f"process {found.pid}" if facts.running else "this command"
    # Simulated containers need no privileges.
    severity = Severity.WARNING if facts.runtime == "process" else Severity.INFO
    if found.uid == 0:
        yield ok("privileges.user", whose, "runs as root")
    else:
        fix = "run it as root: sockets and cgroups must be owned by root"
        yield finding("privileges.user", severity, whose, f"runs as {user_name(found.uid)}", fix)
    if found.capabilities is None:
        yield note("privileges.capability", whose, "its capabilities cannot be read")
        return
    missing = [name for name, (bit, _) in NEEDED.items() if not found.capabilities >> bit & 1]
    for name in missing:
        fix = "grant it to the agent (in a container: securityContext.capabilities, or privileged)"
        yield finding("privileges.capability", severity, name, f"missing: {NEEDED[name][1]}", fix)
    if not missing:
        yield ok("privileges.capability", whose, f"has {', '.join(NEEDED)}")
