"""Conversion of amounts to cgroup files, in both versions.

Pure: the result is to be written in this order into one cgroup. Entries for `unified` files come from plugins
too; only files of resource controllers are allowed, never those that move or kill processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from plimsoll.node.cgroup_plans.conversions import format_page_size, shares_to_weight
from plimsoll.node.cgroup_plans.pods import PodPlan
from plimsoll.node.resources import LinuxResources

PERIOD = 100_000
_PAGE_SIZE = re.compile(r"[0-9]{1,6}[KMGTP]?B")
_UNIFIED = re.compile(r"(cpu|cpuset|memory|hugetlb|pids|io|misc|rdma)(\.[A-Za-z0-9_]+)+")


@dataclass(frozen=True, slots=True)
class CgroupWrite:
    """Value for one file of a controller.

    `optional`: a machine without the file loses nothing. `error`: it cannot be written at all.
    """

    controller: str
    file: str
    value: str
    optional: bool = False
    error: str = ""


def v1_writes(resources: LinuxResources) -> tuple[CgroupWrite, ...]:
    """Return the writes for cgroup v1. Quota and period are adjacent: see `V1` for how they are changed."""
    return tuple(_v1(resources))


def _v1(resources: LinuxResources) -> Iterator[CgroupWrite]:
    if resources.mems:
        yield CgroupWrite("cpuset", "cpuset.mems", resources.mems)
    if resources.cpus:
        yield CgroupWrite("cpuset", "cpuset.cpus", resources.cpus)
    if resources.cpu_shares:
        yield CgroupWrite("cpu", "cpu.shares", str(resources.cpu_shares))
    if resources.cpu_period:
        yield CgroupWrite("cpu", "cpu.cfs_period_us", str(resources.cpu_period))
    if resources.cpu_quota:
        yield CgroupWrite("cpu", "cpu.cfs_quota_us", str(max(resources.cpu_quota, -1)))
    if resources.memory_limit:
        yield CgroupWrite("memory", "memory.limit_in_bytes", str(max(resources.memory_limit, -1)))
    yield from _huge_pages(resources.huge_pages, "limit_in_bytes")
    if resources.pids is not None:
        yield CgroupWrite("pids", "pids.max", str(resources.pids) if resources.pids > 0 else "max")
    for file, value in resources.unified.items():
        yield CgroupWrite("unified", _sanitize(file), value, error="not available in cgroup v1")


def v2_writes(resources: LinuxResources) -> tuple[CgroupWrite, ...]:
    """Return the writes for cgroup v2."""
    return tuple(_v2(resources))


def _v2(resources: LinuxResources) -> Iterator[CgroupWrite]:
    if resources.mems:
        yield CgroupWrite("cpuset", "cpuset.mems", resources.mems)
    if resources.cpus:
        yield CgroupWrite("cpuset", "cpuset.cpus", resources.cpus)
    if resources.cpu_shares:
        yield CgroupWrite("cpu", "cpu.weight", str(shares_to_weight(resources.cpu_shares)))
    if resources.cpu_quota:
        quota = str(resources.cpu_quota) if resources.cpu_quota > 0 else "max"
        yield CgroupWrite("cpu", "cpu.max", f"{quota} {resources.cpu_period or PERIOD}")
    if resources.memory_limit:
        limit = str(resources.memory_limit) if resources.memory_limit > 0 else "max"
        yield CgroupWrite("memory", "memory.max", limit)
    yield from _huge_pages(resources.huge_pages, "max")
    if resources.pids is not None:
        yield CgroupWrite("pids", "pids.max", str(resources.pids) if resources.pids > 0 else "max")
    for file, value in resources.unified.items():
        if _UNIFIED.fullmatch(file) and len(file) <= 100:
            yield CgroupWrite(file.partition(".")[0], file, value)
        else:
            yield CgroupWrite("unified", _sanitize(file), value, error="not a file of a resource controller")


def _sanitize(file: str) -> str:
    """Sanitize a name from an external source for display."""
    return re.sub(r"[^A-Za-z0-9_.]", "?", file[:100])


def _huge_pages(limits: Mapping[str, int], ending: str) -> Iterator[CgroupWrite]:
    """Yield the writes of huge page limits; a limit of 0 matters only if the machine has such pages."""
    for size, amount in sorted(limits.items()):
        if not _PAGE_SIZE.fullmatch(size):
            yield CgroupWrite(
                "hugetlb", f"hugetlb.{_sanitize(size)}.{ending}", str(amount), error="not a page size"
            )
            continue
        value = str(max(amount, 0))
        yield CgroupWrite("hugetlb", f"hugetlb.{size}.{ending}", value, optional=amount <= 0)
        # Reserved pages that are not in use yet; old kernels do not count them.
        yield CgroupWrite("hugetlb", f"hugetlb.{size}.rsvd.{ending}", value, optional=True)


def resources_of_pod(plan: PodPlan) -> LinuxResources:
    """Convert the plan of a pod's cgroup to the kernel's units."""
    unified = dict(plan.unified)
    if plan.memory_high is not None:
        unified["memory.high"] = str(plan.memory_high)
    sizes = {format_page_size(size): amount for size, amount in plan.huge_pages.items()}
    return LinuxResources(
        cpu_shares=plan.cpu_shares or None,
        cpu_quota=plan.cpu_quota or None,
        cpu_period=plan.cpu_period or None,
        memory_limit=plan.memory or None,
        huge_pages={text: amount for text, amount in sizes.items() if text is not None},
        unified=unified,
    )
