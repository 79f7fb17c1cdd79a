"""Rights of the agent: the upper bound for the processes it starts."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from plimsoll.node.security.capabilities import SWITCH_USER


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentRights:
    """Credentials of an agent, and the kernel that it runs on."""

    uid: int = 0
    gid: int = 0
    groups: tuple[int, ...] = ()
    #: Capabilities that are effective and in the bounding set.
    capabilities: int = 0
    release: tuple[int, int] = (6, 0)  #: of the kernel
    machine: str = "x86_64"

    @property
    def can_switch_user(self) -> bool:
        """True if processes of other users can be started, stopped, and given fewer capabilities."""
        return self.capabilities & SWITCH_USER == SWITCH_USER


def read_rights(status: Path = Path("/proc/self/status")) -> AgentRights:
    """Read the rights of this process; without /proc it has no capabilities."""
    try:
        text = status.read_text()
    except OSError:
        text = ""
    system = os.uname()
    return AgentRights(
        uid=os.geteuid(),
        gid=os.getegid(),
        groups=tuple(sorted(os.getgroups())),
        capabilities=_mask(text, "CapEff") & _mask(text, "CapBnd"),
        release=_release(system.release),
        machine=system.machine,
    )


def _mask(status: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+([0-9a-f]{{1,16}})$", status, re.MULTILINE)
    return int(found[1], 16) if found else 0


def _release(text: str) -> tuple[int, int]:
    found = re.match(r"([0-9]{1,5})\.([0-9]{1,5})", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
