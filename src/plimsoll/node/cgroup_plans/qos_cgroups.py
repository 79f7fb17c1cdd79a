"""Cgroups of the QoS classes: Burstable, BestEffort, and their parent.

Computes their CPU shares and memory protection from the running pods (docs/spec/accounting.md, "Kubelet" and
"Changes in 1.37"). Guaranteed pods are direct children of the parent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, Form
from plimsoll.api.quantity import ZERO
from plimsoll.ledger.qos import BEST_EFFORT, BURSTABLE, GUARANTEED
from plimsoll.ledger.requests import pod_requests
from plimsoll.node.cgroup_plans import memory
from plimsoll.node.cgroup_plans.containers import read_claim_shares
from plimsoll.node.cgroup_plans.conversions import MIN_SHARES, milli_cpu_to_shares
from plimsoll.node.cgroup_plans.settings import CgroupSettings, MemoryReservationPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class QosCgroupPlan:
    """Values that a node sets on the cgroups of the QoS classes."""

    burstable_shares: int
    best_effort_shares: int = MIN_SHARES
    memory_requests: Mapping[str, int] = field(default_factory=dict)  #: bytes by class
    root_unified: Mapping[str, str] = field(default_factory=dict)
    burstable_unified: Mapping[str, str] = field(default_factory=dict)


def plan_qos_cgroups(
    pods: Iterable[Pod],
    settings: CgroupSettings,
    charges: Callable[[Pod], Iterable[ClaimCharge]] | None = None,
) -> QosCgroupPlan:
    """Plan the QoS cgroups for the running pods; `charges` looks up a pod's charges if not in its status."""
    cpu = 0
    requested = {GUARANTEED: 0, BURSTABLE: 0}
    for pod in pods:
        given = read_claim_shares(pod, settings, charges(pod) if charges else None).charges()
        qos = settings.qos_of(pod, given)
        if qos == BEST_EFFORT:
            continue
        if qos == BURSTABLE:
            cpu += pod_requests(pod, settings.options, given).get("cpu", ZERO).milli()
        # Memory counts pod-level resources regardless of the gate, as upstream does.
        whole = pod_requests(pod, replace(settings.options, skip_pod_level=False), given)
        requested[qos] += whole.get("memory", ZERO).value()
    root, burstable = _unified(requested, settings)
    return QosCgroupPlan(
        burstable_shares=milli_cpu_to_shares(cpu),
        memory_requests=requested,
        root_unified=root,
        burstable_unified=burstable,
    )


def _unified(requested: Mapping[str, int], settings: CgroupSettings) -> tuple[dict[str, str], dict[str, str]]:
    """Return the memory protection of the parents, without which that of the pods has no effect."""
    later = settings.form is not Form.V1_36
    # Since 1.37 an earlier protection is taken back where the feature was switched off.
    if settings.cgroup_version != 2 or not (settings.memory_qos or later):
        return {}, {}
    burstable = total = 0
    if settings.memory_qos and settings.reservation is MemoryReservationPolicy.TIERED:
        burstable = requested[BURSTABLE]
        total = burstable + requested[GUARANTEED]
    root = {memory.MIN: str(total)}
    if later:
        root[memory.LOW] = str(burstable)
    return root, {memory.LOW: str(burstable)}
