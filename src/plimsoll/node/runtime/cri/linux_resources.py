"""Planned resources in the form of CRI's LinuxContainerResources. Pure."""

from __future__ import annotations

from plimsoll.node.cgroup_plans.containers import ContainerPlan, RuntimeResources
from plimsoll.protocols.messages import cri


def runtime_resources(plan: RuntimeResources) -> cri.LinuxContainerResources:
    """Convert planned resources; zero means not set, as in the plan."""
    return cri.LinuxContainerResources(
        cpu_period=plan.cpu_period,
        cpu_quota=plan.cpu_quota,
        cpu_shares=plan.cpu_shares,
        memory_limit_in_bytes=plan.memory_limit,
        hugepage_limits=[
            cri.HugepageLimit(page_size=size, limit=limit) for size, limit in sorted(plan.huge_pages.items())
        ],
        unified=dict(plan.unified),
    )


def container_resources(plan: ContainerPlan) -> cri.LinuxContainerResources:
    """Convert the plan of a container."""
    resources = runtime_resources(plan)
    resources.oom_score_adj = plan.oom_score_adj
    return resources
