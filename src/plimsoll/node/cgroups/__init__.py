"""The cgroups of a node: applied to the kernel, or shown as a plan.

values.py   what others see: `Cgroups`, faults, usage
detect.py   what the machine has
writes.py   from amounts to files and values (pure)
tree.py     root, tiers, pods, containers: names, making, removing
v1.py       what is particular to cgroup v1
v2.py       and to cgroup v2
kernel.py   the calls that touch the machine
figures.py  numbers in the kernel's files
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from plimsoll.errors import ConfigError
from plimsoll.node.cgroups.detect import CONTROLLERS, Detected, detect
from plimsoll.node.cgroups.kernel import Kernel, LinuxKernel, NoKernel
from plimsoll.node.cgroups.tree import Hierarchies, Tree
from plimsoll.node.cgroups.v1 import V1
from plimsoll.node.cgroups.v2 import V2
from plimsoll.node.cgroups.values import CgroupFault, Cgroups, PodUsage
from plimsoll.node.cgroups.writes import resources_of_pod

__all__ = [
    "CgroupFault",
    "Cgroups",
    "Detected",
    "PodUsage",
    "detect",
    "open_cgroups",
    "plan_cgroups",
    "resources_of_pod",
]

MOUNT = Path("/sys/fs/cgroup")


def open_cgroups(
    root_name: str,
    *,
    mount: Path = MOUNT,
    want: Literal["auto", "v1", "v2", "plan"] = "auto",
    owner: str = "plimsoll",
    kernel: Kernel | None = None,
    patience: float = 2.0,
) -> Cgroups:
    """The cgroups below a root of this name; nothing is touched before `set_up`.

    `auto` takes version 2 if the machine has it with controllers worth having, else version 1, else a plan
    (in the files of version 2). A version asked for by name that the machine does not have is a ConfigError.
    `owner` marks the root: agents with different owners never touch each other's.
    """
    if want == "plan":
        return _plan(root_name, owner, "asked for a plan")
    machine = kernel or LinuxKernel()
    found = detect(mount, machine)
    version = {"v1": 1, "v2": 2}.get(want, found.version)
    note = f"{mount}: {found.note}"
    if version == 2 and found.v2_mount is not None and found.v2:
        v2 = V2(found.v2_mount, found.v2, machine)
        return Tree(root_name, v2, machine, owner=owner, note=note, patience=patience)
    if version == 1 and found.v1:
        v1 = V1(found.v1, machine)
        return Tree(root_name, v1, machine, owner=owner, note=note, patience=patience)
    if want in ("v1", "v2"):
        raise ConfigError(f"cgroup {want} cannot be used here: {note}")
    return _plan(root_name, owner, note)


def _plan(root_name: str, owner: str, note: str) -> Cgroups:
    return plan_cgroups(root_name, owner=owner, note=note)


def plan_cgroups(
    root_name: str, *, version: Literal[1, 2] = 2, owner: str = "plimsoll", note: str = ""
) -> Cgroups:
    """Cgroups that are only a plan, in the files of a version; every controller is there."""
    nothing = NoKernel()
    hierarchies: Hierarchies = V2(Path("/"), CONTROLLERS, nothing)
    if version == 1:
        hierarchies = V1({name: Path("/", name) for name in CONTROLLERS}, nothing)
    return Tree(root_name, hierarchies, nothing, owner=owner, note=note, plan_only=True)
