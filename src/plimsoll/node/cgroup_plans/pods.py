"""Cgroup of a pod, and the resources of its sandbox.

The values that the kubelet sets on the pod's cgroup (docs/spec/accounting.md, "Kubelet" and "Changes in
1.37"): shares for its requests, quota and memory for its limits if every container declares one, huge pages
as requested, and memory protection. A BestEffort pod gets the minimum shares and no limits, regardless of
claims, unless they make it Burstable (`ledger/qos.py`).

DIFF: memory.high of a pod counts what claims give, as that of containers does; upstream throttles such a pod
below its limit (test_pod_memory_high_counts_claims).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, Form
from plimsoll.api.quantity import ZERO
from plimsoll.ledger.amounts import Amounts
from plimsoll.ledger.qos import BEST_EFFORT, GUARANTEED
from plimsoll.ledger.requests import (
    has_pod_level_resources,
    list_limit_uses,
    pod_limits,
    pod_requests,
)
from plimsoll.node.cgroup_plans import memory
from plimsoll.node.cgroup_plans.containers import RuntimeResources, read_claim_shares, runtime_resources
from plimsoll.node.cgroup_plans.conversions import (
    MIN_SHARES,
    UNLIMITED,
    milli_cpu_to_quota,
    milli_cpu_to_shares,
    sum_huge_pages,
)
from plimsoll.node.cgroup_plans.settings import CgroupSettings, MemoryReservationPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """Values that a node sets on a pod's cgroup; None means not set."""

    cpu_shares: int
    cpu_quota: int | None = None  #: microseconds in each period; -1 is unlimited
    cpu_period: int | None = None
    memory: int | None = None  #: bytes
    huge_pages: Mapping[int, int] = field(default_factory=dict)  #: bytes by page size in bytes
    unified: Mapping[str, str] = field(default_factory=dict)  #: cgroup v2 files
    memory_high: int | None = None  #: bytes; set for pods with pod-level resources


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxPlan:
    """Resources passed to the runtime when it creates a pod's sandbox."""

    resources: RuntimeResources
    overhead: RuntimeResources | None = None  #: None where the pod has no overhead


def plan_pod(
    pod: Pod,
    settings: CgroupSettings,
    charges: Iterable[ClaimCharge] | None = None,
    exclusive: Collection[str] = (),
) -> PodPlan:
    """Plan a pod's cgroup; no CPU quota is enforced if a container has exclusive CPUs."""
    given = read_claim_shares(pod, settings, charges).charges()
    requests = pod_requests(pod, settings.options, given)
    limits = pod_limits(pod, settings.options, given)
    qos = settings.qos_of(pod, given)
    quota: int | None = milli_cpu_to_quota(limits.get("cpu", ZERO).milli(), settings.cfs_period)
    if not settings.cfs_quota or exclusive:
        quota = UNLIMITED
    enforced = qos == GUARANTEED
    cpu_declared = qos != BEST_EFFORT and (enforced or _is_declared(pod, "cpu", settings))
    memory_declared = qos != BEST_EFFORT and (enforced or _is_declared(pod, "memory", settings))
    return PodPlan(
        cpu_shares=MIN_SHARES
        if qos == BEST_EFFORT
        else milli_cpu_to_shares(requests.get("cpu", ZERO).milli()),
        cpu_quota=quota if cpu_declared else None,
        cpu_period=settings.cfs_period if cpu_declared else None,
        memory=limits.get("memory", ZERO).value() if memory_declared else None,
        huge_pages=sum_huge_pages(requests),
        unified=_protect(pod, requests, settings),
        memory_high=_throttle(pod, requests, limits, settings),
    )


def _is_declared(pod: Pod, name: str, settings: CgroupSettings) -> bool:
    """Return whether every container, or the pod level, has a limit."""
    if settings.pod_level and has_pod_level_resources(pod):
        assert pod.spec.resources is not None
        if pod.spec.resources.limits.get(name, ZERO):
            return True
    if settings.form is Form.V1_36:
        # In 1.36 an init container without a limit is covered by sidecars started before it.
        return all(use.amounts.get(name, ZERO) for use in list_limit_uses(pod, settings.options))
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return all(container.resources.limits.get(name, ZERO) for container in containers)


def _protect(pod: Pod, requests: Amounts, settings: CgroupSettings) -> dict[str, str]:
    request = requests.get("memory", ZERO).value()
    tiered = settings.enforces_memory_qos and settings.reservation is MemoryReservationPolicy.TIERED
    return memory.protect_memory(pod, request, settings) if tiered and request > 0 else {}


def _throttle(pod: Pod, requests: Amounts, limits: Amounts, settings: CgroupSettings) -> int | None:
    """Return memory.high of a pod with pod-level resources (since 1.37)."""
    if settings.form is Form.V1_36 or not settings.enforces_memory_qos or settings.throttling is None:
        return None
    if not settings.pod_level or not has_pod_level_resources(pod):
        return None
    if not _is_declared(pod, "memory", settings):
        return None
    request, limit = requests.get("memory", ZERO).value(), limits.get("memory", ZERO).value()
    if not limit or request == limit:
        return None
    return memory.compute_memory_high(request, limit, settings.throttling, settings.page_size)


# -- the sandbox


def plan_sandbox(
    pod: Pod,
    settings: CgroupSettings,
    charges: Iterable[ClaimCharge] | None = None,
    exclusive: Collection[str] = (),
) -> SandboxPlan:
    """Plan a pod's sandbox: its requests and limits without overhead, and the overhead."""
    given = read_claim_shares(pod, settings, charges).charges()
    options = replace(settings.options, exclude_overhead=True)
    requests, limits = pod_requests(pod, options, given), pod_limits(pod, options, given)
    resources = runtime_resources(
        settings,
        cpu_request=requests.get("cpu", limits.get("cpu", ZERO)),
        cpu_limit=limits.get("cpu", ZERO),
        memory_limit=limits.get("memory", ZERO),
        unlimited=bool(exclusive),
    )
    return SandboxPlan(resources=resources, overhead=plan_overhead(pod, settings))


def plan_overhead(pod: Pod, settings: CgroupSettings) -> RuntimeResources | None:
    """Convert the overhead of a pod to runtime resources, as request and limit."""
    if not pod.spec.overhead:
        return None
    cpu, memory_limit = (pod.spec.overhead.get(name, ZERO) for name in ("cpu", "memory"))
    return runtime_resources(
        settings, cpu_request=cpu, cpu_limit=cpu, memory_limit=memory_limit, unlimited=False
    )
