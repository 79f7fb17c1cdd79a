"""Linux resources of a container or a pod, in one form for cgroups, runtimes and NRI.

None, an empty string and an empty mapping all mean: not set, leave unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from plimsoll.node.cgroup_plans.containers import RuntimeResources


@dataclass(frozen=True, slots=True, kw_only=True)
class LinuxResources:
    """Amounts and sets in the kernel's units."""

    cpu_shares: int | None = None
    cpu_quota: int | None = None
    cpu_period: int | None = None
    cpus: str = ""
    mems: str = ""
    memory_limit: int | None = None
    #: Bytes by page size in the kernel's notation (2MB).
    huge_pages: Mapping[str, int] = field(default_factory=dict)
    unified: Mapping[str, str] = field(default_factory=dict)
    pids: int | None = None

    def merged(self, over: LinuxResources) -> LinuxResources:
        """Return these resources with everything that `over` sets replaced."""
        changes: dict[str, Any] = {}
        for name in ("cpu_shares", "cpu_quota", "cpu_period", "memory_limit", "pids"):
            if getattr(over, name) is not None:
                changes[name] = getattr(over, name)
        for name in ("cpus", "mems"):
            if getattr(over, name):
                changes[name] = getattr(over, name)
        for name in ("huge_pages", "unified"):
            if getattr(over, name):
                changes[name] = {**getattr(self, name), **getattr(over, name)}
        return replace(self, **changes)


def resources_from_plan(plan: RuntimeResources) -> LinuxResources:
    """Convert planned resources to the kernel's units."""
    return LinuxResources(
        cpu_shares=plan.cpu_shares or None,
        cpu_quota=plan.cpu_quota or None,
        cpu_period=plan.cpu_period or None,
        memory_limit=plan.memory_limit or None,
        huge_pages=plan.huge_pages,
        unified=plan.unified,
    )
