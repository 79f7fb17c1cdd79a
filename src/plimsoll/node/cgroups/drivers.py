"""Cgroup drivers: names of cgroups as directories, and who creates them.

`CgroupfsDriver` uses plain directories. `SystemdDriver` uses slices of systemd, named as the kubelet names
them, because on a machine with systemd only systemd may change the cgroup tree outside of delegated parts:

   plimsoll.slice/plimsoll-burstable.slice/plimsoll-burstable-podUID.slice/cri-containerd-ID.scope

Dashes separate the levels of a slice, so those of names become underscores. Containers are scopes, which the
container runtime creates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from plimsoll.node.cgroups.systemd import SystemdBus, slice_properties
from plimsoll.node.cgroups.writes import CgroupWrite

SLICE, SCOPE = ".slice", ".scope"
_RUNTIME_PREFIX = "cri-containerd-"


class CgroupDriver(Protocol):
    """Names and creation of cgroups. Methods that can fail return the error, "" for success."""

    name: str
    #: Controllers that the driver enables, with a file that shows it, "" if it does so later.
    controllers: Mapping[str, str]

    def path(self, parts: Sequence[str]) -> str:
        """Return the directory of a cgroup, below the mount point, by the names of its levels."""
        ...

    def part(self, directory: str) -> str:
        """Return the name of a level by that of its directory; "" for others."""
        ...

    def container(self, id: str, list_names: Callable[[], Iterable[str]]) -> str:
        """Return the directory of a container in its pod; `list_names` returns the pod's directories."""
        ...

    def container_id(self, directory: str) -> str:
        """Return the ID of a container by its directory; "" for others."""
        ...

    def make(self, path: str) -> str:
        """Create a cgroup if a directory is not enough."""
        ...

    def stop(self, path: str) -> str:
        """Prepare the removal of a cgroup without processes."""
        ...

    def set_values(self, path: str, writes: Iterable[CgroupWrite]) -> str:
        """Announce values that are about to be written."""
        ...


class CgroupfsDriver:
    """Directories with the names of their levels."""

    name = "cgroupfs"
    controllers: Mapping[str, str] = MappingProxyType({})

    def path(self, parts: Sequence[str]) -> str:
        return "/".join(parts)

    def part(self, directory: str) -> str:
        return directory

    def container(self, id: str, list_names: Callable[[], Iterable[str]]) -> str:
        return id

    def container_id(self, directory: str) -> str:
        return directory

    def make(self, path: str) -> str:
        return ""

    def stop(self, path: str) -> str:
        return ""

    def set_values(self, path: str, writes: Iterable[CgroupWrite]) -> str:
        return ""


class SystemdDriver:
    """Slices of systemd, for cgroup v2.

    systemd applies the properties of a unit again whenever it is reloaded, so values of slices are set as
    properties first, and written then: properties are less precise, and do not exist for all files. It also
    disables controllers that no unit needs, so it must be the one to enable them: that of cpusets with the
    first container, whose scope is delegated.
    """

    name = "systemd"
    controllers: Mapping[str, str] = MappingProxyType(
        {"cpu": "cpu.weight", "memory": "memory.max", "pids": "pids.max", "cpuset": ""}
    )

    def __init__(self, bus: SystemdBus) -> None:
        self._bus = bus
        #: Properties that were set, by slice.
        self._properties: dict[str, dict[str, tuple[str, str]]] = {}

    def path(self, parts: Sequence[str]) -> str:
        escaped = [part.replace("-", "_") for part in parts]
        return "/".join("-".join(escaped[: depth + 1]) + SLICE for depth in range(len(escaped)))

    def part(self, directory: str) -> str:
        if not directory.endswith(SLICE):
            return ""
        return directory.removesuffix(SLICE).rpartition("-")[2].replace("_", "-")

    def container(self, id: str, list_names: Callable[[], Iterable[str]]) -> str:
        found = [name for name in list_names() if self.container_id(name) == id]
        return found[0] if found else f"{_RUNTIME_PREFIX}{id}{SCOPE}"

    def container_id(self, directory: str) -> str:
        if not directory.endswith(SCOPE):
            return ""
        return directory.removesuffix(SCOPE).rpartition("-")[2]

    def make(self, path: str) -> str:
        unit = path.rpartition("/")[2]
        self._properties.pop(unit, None)
        return self._bus.start_slice(unit)

    def stop(self, path: str) -> str:
        unit = path.rpartition("/")[2]
        self._properties.pop(unit, None)
        return self._bus.stop_unit(unit) if unit.endswith(SLICE) else ""

    def set_values(self, path: str, writes: Iterable[CgroupWrite]) -> str:
        unit = path.rpartition("/")[2]
        if not unit.endswith(SLICE):
            return ""
        properties = slice_properties({write.file: write.value for write in writes if not write.error})
        known = self._properties.get(unit, {})
        changed = {name: value for name, value in properties.items() if known.get(name) != value}
        if not changed:
            return ""
        problem = self._bus.set_properties(unit, changed)
        if not problem:
            self._properties[unit] = {**known, **changed}
        return problem
