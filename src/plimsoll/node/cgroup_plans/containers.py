"""Container resources in the form of CRI's LinuxContainerResources.

A container's own limit applies, plus the amounts of its claims; without one the pod-level limit applies,
which already covers claims (docs/spec/accounting.md, "Kubelet" and "Changes in 1.37").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from plimsoll.api.core import Container, Pod
from plimsoll.api.forms import ClaimCharge
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.amounts import Amounts, is_huge_page
from plimsoll.ledger.charges import read_charges
from plimsoll.ledger.claim_shares import NO_SHARES, ClaimShares, compute_claim_shares
from plimsoll.ledger.containers import ContainerRole, is_sidecar
from plimsoll.ledger.requests import has_pod_level_resources
from plimsoll.node.cgroup_plans.conversions import (
    UNLIMITED,
    format_page_size,
    milli_cpu_to_quota,
    milli_cpu_to_shares,
    parse_page_size,
)
from plimsoll.node.cgroup_plans.memory import OOM_GROUP, container_memory
from plimsoll.node.cgroup_plans.oom import oom_score_adj
from plimsoll.node.cgroup_plans.settings import CgroupSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeResources:
    """Resources for a container runtime; zero means not set."""

    cpu_shares: int = 0
    cpu_quota: int = 0  #: microseconds in each period; -1 is unlimited
    cpu_period: int = 0
    memory_limit: int = 0  #: bytes
    huge_pages: Mapping[str, int] = field(default_factory=dict)  #: bytes by page size (2MB)
    unified: Mapping[str, str] = field(default_factory=dict)  #: cgroup v2 files


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPlan(RuntimeResources):
    """Resources that a node sets for one container."""

    name: str
    role: ContainerRole
    oom_score_adj: int


def plan_containers(
    pod: Pod,
    settings: CgroupSettings,
    charges: Iterable[ClaimCharge] | None = None,
    exclusive: Collection[str] = (),
) -> tuple[ContainerPlan, ...]:
    """Plan the resources of a pod's init containers, then of its regular and its ephemeral containers.

    `charges` defaults to those in the pod's status; `exclusive` names the containers with exclusive CPUs, for
    which no CPU quota is set.
    """
    shares = read_claim_shares(pod, settings, charges)
    init = [
        (c, ContainerRole.SIDECAR if is_sidecar(c) else ContainerRole.INIT) for c in pod.spec.init_containers
    ]
    regular = [(c, ContainerRole.REGULAR) for c in pod.spec.containers]
    ephemeral = [(c, ContainerRole.EPHEMERAL) for c in pod.spec.ephemeral_containers]
    return tuple(
        plan_container(pod, container, role, settings, shares, exclusive=container.name in exclusive)
        for container, role in (*init, *regular, *ephemeral)
    )


def read_claim_shares(
    pod: Pod, settings: CgroupSettings, charges: Iterable[ClaimCharge] | None
) -> ClaimShares:
    """Return the amounts that claims add on this node; none if the node does not count claims."""
    if not settings.claims_count:
        return NO_SHARES
    return compute_claim_shares(pod, read_charges(pod) if charges is None else charges)


def plan_container(
    pod: Pod,
    container: Container,
    role: ContainerRole,
    settings: CgroupSettings,
    shares: ClaimShares = NO_SHARES,
    *,
    exclusive: bool = False,
) -> ContainerPlan:
    """Plan the resources of one container; `shares` are the amounts that claims add."""
    extra = shares.of(container.name)
    runtime = runtime_resources(
        settings,
        cpu_request=_cpu_request(pod, container, extra, settings),
        cpu_limit=_limit(pod, container, "cpu", extra, settings),
        memory_limit=_limit(pod, container, "memory", extra, settings),
        unlimited=exclusive,
    )
    return ContainerPlan(
        name=container.name,
        role=role,
        cpu_shares=runtime.cpu_shares,
        cpu_quota=runtime.cpu_quota,
        cpu_period=runtime.cpu_period,
        memory_limit=runtime.memory_limit,
        unified={**runtime.unified, **container_memory(pod, container, shares, settings)},
        oom_score_adj=oom_score_adj(pod, container, settings, shares),
        huge_pages=_huge_pages(pod, container, extra, settings),
    )


def runtime_resources(
    settings: CgroupSettings,
    *,
    cpu_request: Quantity,
    cpu_limit: Quantity,
    memory_limit: Quantity,
    unlimited: bool,
) -> RuntimeResources:
    """Convert amounts to runtime resources; `unlimited` removes the CPU quota."""
    quota = period = 0
    if settings.cfs_quota:
        period = settings.cfs_period
        quota = UNLIMITED if unlimited else milli_cpu_to_quota(cpu_limit.milli(), period)
    together = settings.cgroup_version == 2 and not settings.single_process_oom_kill
    return RuntimeResources(
        cpu_shares=milli_cpu_to_shares(cpu_request.milli()),
        cpu_quota=quota,
        cpu_period=period,
        memory_limit=memory_limit.value(),
        unified={OOM_GROUP: "1"} if together else {},
    )


def _cpu_request(pod: Pod, container: Container, extra: Amounts, settings: CgroupSettings) -> Quantity:
    """Return the CPU request that determines the weight of a container.

    DIFF: with DRANodeAllocatableResourcesQoS the CPUs of its claims count, as in the cgroup of its pod;
    upstream weighs containers by their spec alone (test_claims_count_in_the_weight_of_their_containers).
    """
    claimed = extra.get("cpu", ZERO) if settings.claims_raise_qos else ZERO
    own = container.resources
    if "cpu" in own.requests:
        return own.requests["cpu"] + claimed
    # Without a request the limit stands for it. A pod-level limit covers the claims already.
    limit = _limit(pod, container, "cpu", {}, settings)
    return limit if limit and not own.limits.get("cpu", ZERO) else limit + claimed


def _limit(pod: Pod, container: Container, name: str, extra: Amounts, settings: CgroupSettings) -> Quantity:
    own = container.resources.limits.get(name, ZERO)
    if own:
        return own + extra.get(name, ZERO)
    return _whole_limits(pod, settings).get(name, ZERO)


def _whole_limits(pod: Pod, settings: CgroupSettings) -> Amounts:
    """Return the pod-level limits, if the pod has pod-level resources."""
    if not settings.pod_level or not has_pod_level_resources(pod):
        return {}
    assert pod.spec.resources is not None
    return pod.spec.resources.limits


def _huge_pages(pod: Pod, container: Container, extra: Amounts, settings: CgroupSettings) -> dict[str, int]:
    """Return the limits by page size: zero unless the container, its claims or the pod level sets one."""
    own, whole = container.resources.limits, _whole_limits(pod, settings)
    limits: dict[str, int] = dict.fromkeys(settings.huge_page_sizes, 0)
    for name in dict.fromkeys((*whole, *own, *extra)):
        if not is_huge_page(name):
            continue
        size = parse_page_size(name)
        text = None if size is None else format_page_size(size)
        if text not in limits:
            continue
        if name in own:
            amount = own[name].value() + extra.get(name, ZERO).value()
        else:
            amount = (whole if name in whole else extra)[name].value()
        limits[text] = amount
    return limits
