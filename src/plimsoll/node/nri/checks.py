"""Validation of plugin requests: nothing a plugin sends may harm the runtime. Pure.

Checks strings and numbers from plugins, and lists the requested fields that are not supported.

DIFF: upstream passes on whatever a plugin requests; here invalid sets, names, paths and numbers fail the
container (test_harmful_adjustments_are_refused).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from plimsoll.protocols.messages import nri

#: More than any kernel has CPUs or memory nodes.
MAX_CPUS = 65536
_MOST = 2**63 - 1
_RANGES = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", re.ASCII)
_PAGE_SIZE = re.compile(r"[1-9]\d{0,9}[KMG]B", re.ASCII)
#: Name of a cgroup file: never a path.
_CGROUP_FILE = re.compile(r"[a-z0-9_]+(\.[A-Za-z0-9_-]+)+", re.ASCII)


def resources_fault(resources: nri.LinuxResources) -> str | None:
    """Return the first problem of resources."""
    return next(_resources_faults(resources), None)


def _resources_faults(resources: nri.LinuxResources) -> Iterator[str]:
    cpu, memory = resources.cpu, resources.memory
    for name, text in (("cpus", cpu.cpus), ("mems", cpu.mems)):
        if text and not is_set(text):
            yield f"{name}: {_show(text)} is not a list of numbers and ranges"
    for name, number, least in (
        ("shares", cpu.shares.value, 0),
        ("quota", cpu.quota.value, -1),
        ("period", cpu.period.value, 0),
        ("memory limit", memory.limit.value, -1),
        ("pids limit", resources.pids.limit, -1),
    ):
        if not least <= number <= _MOST:
            yield f"{name}: {number} is out of range"
    for limit in resources.hugepage_limits:
        if not _PAGE_SIZE.fullmatch(limit.page_size):
            yield f"huge pages: {_show(limit.page_size)} is not a page size"
        if limit.limit > _MOST:
            yield f"huge pages: {limit.limit} is out of range"
    for key, value in resources.unified.items():
        if not _CGROUP_FILE.fullmatch(key):
            yield f"unified: {_show(key)} is not a cgroup file"
        if "\0" in value or len(value) > 4096:
            yield f"unified: the value of {key} cannot be written"


def is_set(text: str) -> bool:
    """Return whether a string is a set of CPUs or memory nodes in the kernel's notation."""
    if not _RANGES.fullmatch(text):
        return False
    for part in text.split(","):
        first, _, last = part.partition("-")
        if int(first) > int(last or first) or int(last or first) >= MAX_CPUS:
            return False
    return True


def adjustment_fault(adjust: nri.ContainerAdjustment) -> str | None:
    """Return the first problem of an adjustment."""
    return next(_adjustment_faults(adjust), None)


def _adjustment_faults(adjust: nri.ContainerAdjustment) -> Iterator[str]:
    for variable in adjust.env:
        key = variable.key.removeprefix("-")
        if not key or "=" in key or "\0" in key or "\0" in variable.value:
            yield f"env: {_show(variable.key)} cannot be set"
    if any("\0" in argument for argument in adjust.args):
        yield "args: an argument cannot contain a zero byte"
    for mount in adjust.mounts:
        if (
            not mount.destination.removeprefix("-").startswith("/")
            or "\0" in mount.destination + mount.source
        ):
            yield f"mounts: {_show(mount.destination)} is not a path inside a container"
    for device in adjust.linux.devices:
        if not device.path.removeprefix("-").startswith("/") or "\0" in device.path:
            yield f"devices: {_show(device.path)} is not a path inside a container"
    if not -1000 <= adjust.linux.oom_score_adj.value <= 1000:
        yield f"oom_score_adj: {adjust.linux.oom_score_adj.value} is out of range"
    yield from _resources_faults(adjust.linux.resources)


def _show(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


_UNSUPPORTED = {
    "": ("hooks", "rlimits"),
    "linux": (
        "cgroups_path",
        "io_priority",
        "seccomp_policy",
        "namespaces",
        "sysctl",
        "net_devices",
        "scheduler",
        "rdt",
        "memory_policy",
    ),
}
_UNSUPPORTED_RESOURCES = {
    "": ("blockio_class", "rdt_class", "devices"),
    "memory": (
        "reservation",
        "swap",
        "kernel",
        "kernel_tcp",
        "swappiness",
        "disable_oom_killer",
        "use_hierarchy",
    ),
    "cpu": ("realtime_runtime", "realtime_period"),
}


def unsupported_fields(adjust: nri.ContainerAdjustment) -> tuple[str, ...]:
    """Return the requested fields of an adjustment that are not supported."""
    return (*_set_fields(adjust, _UNSUPPORTED), *unsupported_resources(adjust.linux.resources))


def unsupported_resources(resources: nri.LinuxResources) -> tuple[str, ...]:
    return tuple(_set_fields(resources, _UNSUPPORTED_RESOURCES))


def _set_fields(
    message: nri.ContainerAdjustment | nri.LinuxResources, table: dict[str, tuple[str, ...]]
) -> Iterator[str]:
    for part, names in table.items():
        held = getattr(message, part) if part else message
        for field, _ in held.ListFields():
            if field.name in names:
                yield f"{part}.{field.name}" if part else str(field.name)
