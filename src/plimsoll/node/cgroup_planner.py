"""Cgroup settings of the pods of one node.

`CgroupPlanner` computes the plans of `cgroup_plans/` (docs/spec/accounting.md, "Kubelet", "Changes in 1.37"
and "Accounting policies"). Claim charges are read from the pod's status in whatever form it is written, or
from the annotation that replaces it on stock clusters. Nothing is applied here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from plimsoll.api.core import Pod, ResourceList
from plimsoll.api.quantity import ZERO
from plimsoll.ledger.charges import read_charges
from plimsoll.node.cgroup_plans import (
    CgroupSettings,
    ContainerPlan,
    PodPlan,
    QosCgroupPlan,
    SandboxPlan,
    plan_containers,
    plan_pod,
    plan_qos_cgroups,
    plan_sandbox,
)
from plimsoll.node.cgroup_plans.conversions import format_page_size, milli_cpu_to_shares, sum_huge_pages
from plimsoll.node.resources import LinuxResources


@dataclass(frozen=True, slots=True)
class PodCgroupPlans:
    """Cgroup plans of one pod; `containers` lists init containers first, ephemeral ones last."""

    qos: str
    pod: PodPlan
    sandbox: SandboxPlan
    containers: Mapping[str, ContainerPlan]


def _none(pod: Pod) -> Collection[str]:
    return ()


class CgroupPlanner:
    """Planner of cgroup settings on one node.

    `exclusive` names the containers of a pod that have exclusive CPUs: a quota would only throttle them, so
    it is removed from them and from their pod.

    DIFF: the kubelet knows the CPUs of its own CPU manager only; here those of claims are exclusive too
    (test_the_quota_is_lifted_once_a_container_has_exclusive_cpus).
    """

    def __init__(
        self, settings: CgroupSettings, *, exclusive: Callable[[Pod], Collection[str]] = _none
    ) -> None:
        self.settings = settings
        self._exclusive = exclusive

    def plan(self, pod: Pod) -> PodCgroupPlans:
        """Plan the cgroups of a pod and its containers."""
        charges = read_charges(pod)
        exclusive = self._exclusive(pod)
        containers = plan_containers(pod, self.settings, charges, exclusive)
        return PodCgroupPlans(
            qos=self.settings.qos_of(pod, charges),
            pod=plan_pod(pod, self.settings, charges, exclusive),
            sandbox=plan_sandbox(pod, self.settings, charges, exclusive),
            containers={plan.name: plan for plan in containers},
        )

    def tiers(self, pods: Iterable[Pod]) -> QosCgroupPlan:
        """Plan the QoS cgroups above the given running pods."""
        return plan_qos_cgroups(pods, self.settings)

    def root(self, available: ResourceList) -> LinuxResources:
        """Return the limits of all pods together: the machine's capacity less its reservations."""
        sizes = {format_page_size(size): amount for size, amount in sum_huge_pages(available).items()}
        pids = available.get("pid", ZERO).value()
        return LinuxResources(
            cpu_shares=milli_cpu_to_shares(available.get("cpu", ZERO).milli()),
            memory_limit=available.get("memory", ZERO).value() or None,
            huge_pages={
                text: amount for text, amount in sizes.items() if text in self.settings.huge_page_sizes
            },
            pids=pids or None,
        )
