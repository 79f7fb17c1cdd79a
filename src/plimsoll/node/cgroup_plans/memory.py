"""Memory QoS (cgroup v2): protection from reclaim, and the start of throttling.

Computes the `unified` entries memory.min, memory.low, memory.high and memory.oom.group.

DIFF: memory.high is worked out exactly; upstream's floating point may put it one page lower or higher
(test_memory_high_is_exact).
"""

from __future__ import annotations

from fractions import Fraction

from plimsoll.api.core import Container, Pod
from plimsoll.api.forms import Form
from plimsoll.api.quantity import ZERO
from plimsoll.ledger.claim_shares import ClaimShares
from plimsoll.ledger.qos import GUARANTEED
from plimsoll.ledger.requests import has_pod_level_resources
from plimsoll.node.cgroup_plans.settings import CgroupSettings, MemoryReservationPolicy

MIN = "memory.min"
LOW = "memory.low"
HIGH = "memory.high"
OOM_GROUP = "memory.oom.group"


def compute_memory_high(request: int, limit: int, factor: Fraction, page_size: int) -> int | None:
    """Compute memory.high in pages between request and limit; None if it is not above the request."""
    high = (request + (limit - request) * factor) // page_size * page_size
    return high if high > request and high != 0 else None


def protect_memory(pod: Pod, request: int, settings: CgroupSettings) -> dict[str, str]:
    """Return memory.min for Guaranteed pods, memory.low for others."""
    # Claims never make a pod Guaranteed, so that its charges do not matter here.
    return {MIN if settings.qos_of(pod, ()) == GUARANTEED else LOW: str(request)}


def container_memory(
    pod: Pod, container: Container, shares: ClaimShares, settings: CgroupSettings
) -> dict[str, str]:
    """Return the memory entries of a container; `shares` are the amounts that claims add.

    The request is protected, with the container's part of its claims if they count for QoS. Throttling is
    relative to the limit including claims.
    """
    extra = shares.of(container.name)
    if not settings.enforces_memory_qos:
        # Since 1.37 an earlier throttle is taken back where the feature was switched off.
        later = settings.form is not Form.V1_36 and settings.cgroup_version == 2
        return {HIGH: "max"} if later else {}
    request = container.resources.requests.get("memory", ZERO).value()
    claimed = shares.memory.get(container.name, 0) if settings.claims_raise_qos else 0
    if request + claimed > 0 and settings.reservation is MemoryReservationPolicy.TIERED:
        found = protect_memory(pod, request + claimed, settings)
    else:
        found = {MIN: "0", LOW: "0"}
    limit = container.resources.limits.get("memory", ZERO).value()
    if settings.throttling is not None and _is_throttled(pod, request, limit, settings):
        if limit and "memory" in extra:
            limit = (container.resources.limits["memory"] + extra["memory"]).value()
        high = compute_memory_high(
            request + claimed, limit or settings.allocatable_memory, settings.throttling, settings.page_size
        )
        if high is not None:
            found[HIGH] = str(high)
    return found


def _is_throttled(pod: Pod, request: int, limit: int, settings: CgroupSettings) -> bool:
    """Return whether throttling applies: not if request equals limit, nor (1.37) under a pod-level limit."""
    if not limit and settings.allocatable_memory <= 0:
        return False
    if settings.form is Form.V1_36:
        return request != limit
    if not limit and settings.pod_level and has_pod_level_resources(pod):
        assert pod.spec.resources is not None
        if pod.spec.resources.limits.get("memory", ZERO):
            return False
    return request != limit or request == 0
