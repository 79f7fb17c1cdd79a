"""From a pod to everything a node sets for it.

Owns `Enforcement`: the plans of `ledger.cgroups` (sections 5 and 6 of the accounting semantics, P28 for
accounting policies) for the pods of one node. What claims charge is read from the pod's status in whichever
form it is written, or else from the annotation that takes its place on stock clusters. Nothing is applied
here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from plimsoll.api.core import Pod, ResourceList
from plimsoll.api.quantity import ZERO
from plimsoll.ledger.cgroups import (
    ContainerPlan,
    PodPlan,
    SandboxPlan,
    Settings,
    TierPlan,
    plan_containers,
    plan_pod,
    plan_sandbox,
    plan_tiers,
)
from plimsoll.ledger.cgroups.conversions import huge_pages_of, page_size_text, shares_of
from plimsoll.ledger.charges import read_charges
from plimsoll.ledger.qos import pod_qos
from plimsoll.node.resources import LinuxResources


@dataclass(frozen=True, slots=True)
class Enforced:
    """All that is set for one pod; `containers` has init containers first, as they are in the spec."""

    qos: str
    pod: PodPlan
    sandbox: SandboxPlan
    containers: Mapping[str, ContainerPlan]


def _nobody(pod: Pod) -> Collection[str]:
    return ()


class Enforcement:
    """The plans of one node.

    `exclusive` names the containers of a pod that have CPUs to themselves: a quota would only throttle them,
    so theirs and their pod's is lifted.
    """

    def __init__(self, settings: Settings, *, exclusive: Callable[[Pod], Collection[str]] = _nobody) -> None:
        self.settings = settings
        self._exclusive = exclusive

    def plan(self, pod: Pod) -> Enforced:
        """What is to be set for a pod."""
        charges = read_charges(pod)
        alone = self._exclusive(pod)
        containers = plan_containers(pod, self.settings, charges, alone)
        return Enforced(
            qos=pod_qos(pod, self.settings.form, pod_level=self.settings.pod_level),
            pod=plan_pod(pod, self.settings, charges, alone),
            sandbox=plan_sandbox(pod, self.settings, charges, alone),
            containers={plan.name: plan for plan in containers},
        )

    def tiers(self, pods: Iterable[Pod]) -> TierPlan:
        """What is to be set above these pods, which are those that run."""
        return plan_tiers(pods, self.settings)

    def root(self, available: ResourceList) -> LinuxResources:
        """The limits of all pods together: what the machine has less what is reserved for others."""
        sizes = {page_size_text(size): amount for size, amount in huge_pages_of(available).items()}
        pids = available.get("pid", ZERO).value()
        return LinuxResources(
            cpu_shares=shares_of(available.get("cpu", ZERO).milli()),
            memory_limit=available.get("memory", ZERO).value() or None,
            huge_pages={
                text: amount for text, amount in sizes.items() if text in self.settings.huge_page_sizes
            },
            pids=pids or None,
        )
