"""Cgroups of a node: applied to the kernel, or planned only.

values.py     faults, usage
detect.py     cgroup versions and controllers of the machine
writes.py     conversion of amounts to files and values (pure)
tree.py       `Cgroups`: root, QoS cgroups, pods, containers: names, creation, removal
v1.py, v2.py  specifics of the cgroup versions
drivers.py    cgroup drivers: directories, or slices of systemd
systemd.py    calls of systemd
kernel.py     the system calls
parse.py      numbers in the kernel's files
ownership.py  exclusive use of a root cgroup
watch.py      detection and repair of removed cgroups
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from plimsoll.errors import ConfigError
from plimsoll.node.cgroups.detect import CONTROLLERS, detect
from plimsoll.node.cgroups.drivers import CgroupDriver, SystemdDriver
from plimsoll.node.cgroups.kernel import CgroupKernel, LinuxKernel, NoKernel
from plimsoll.node.cgroups.systemd import Busctl, SystemdBus
from plimsoll.node.cgroups.tree import Cgroups, Hierarchies
from plimsoll.node.cgroups.v1 import V1
from plimsoll.node.cgroups.v2 import V2
from plimsoll.node.cgroups.values import PodUsage

__all__ = [
    "Cgroups",
    "PodUsage",
    "detect",
    "open_cgroups",
    "plan_cgroups",
]

MOUNT = Path("/sys/fs/cgroup")


def open_cgroups(
    root_name: str,
    *,
    mount: Path = MOUNT,
    want: Literal["auto", "v1", "v2", "plan"] = "auto",
    owner: str = "plimsoll",
    kernel: CgroupKernel | None = None,
    timeout: float = 2.0,
    driver: Literal["cgroupfs", "systemd"] = "cgroupfs",
    bus: SystemdBus | None = None,
) -> Cgroups:
    """Return the cgroups below a root of this name; nothing is changed before `set_up`.

    `auto` selects version 2 if the machine has it with useful controllers, else version 1, else a plan (in
    the files of version 2). Requesting a version that the machine does not have raises ConfigError. `owner`
    marks the root: agents with different owners never touch each other's. The systemd driver creates slices
    over `bus`, and requires version 2.
    """
    if want == "plan":
        return plan_cgroups(root_name, owner=owner, note="plan requested")
    kernel_calls = kernel or LinuxKernel()
    found = detect(mount, kernel_calls)
    version = {"v1": 1, "v2": 2}.get(want, found.version)
    note = f"{mount}: {found.note}"
    slices: CgroupDriver | None = SystemdDriver(bus or Busctl()) if driver == "systemd" else None
    if slices is not None and version != 2:
        raise ConfigError(f"the systemd cgroup driver requires cgroup v2: {note}")
    if version == 2 and found.v2_mount is not None and found.v2:
        v2 = V2(found.v2_mount, found.v2, kernel_calls)
        return Cgroups(root_name, v2, kernel_calls, owner=owner, note=note, timeout=timeout, driver=slices)
    if version == 1 and found.v1:
        v1 = V1(found.v1, kernel_calls)
        return Cgroups(root_name, v1, kernel_calls, owner=owner, note=note, timeout=timeout)
    if want in ("v1", "v2"):
        raise ConfigError(f"cgroup {want} cannot be used here: {note}")
    return plan_cgroups(root_name, owner=owner, note=note)


def plan_cgroups(
    root_name: str, *, version: Literal[1, 2] = 2, owner: str = "plimsoll", note: str = ""
) -> Cgroups:
    """Return cgroups that are only planned, in the files of a version, with all controllers."""
    nothing = NoKernel()
    hierarchies: Hierarchies = V2(Path("/"), CONTROLLERS, nothing)
    if version == 1:
        hierarchies = V1({name: Path("/", name) for name in CONTROLLERS}, nothing)
    return Cgroups(root_name, hierarchies, nothing, owner=owner, note=note, plan_only=True)
