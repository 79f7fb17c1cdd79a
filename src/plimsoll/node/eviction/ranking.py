"""Eviction order of pods under node pressure.

The kubelet's order as a function of measured usage: pods without metrics, then pods above their requests
before pods within them, then lower priority, then the largest excess over the request. For process IDs, which
have no requests, priority comes first and then their number. The order is stable.

DIFF: what claims charge counts as requested, unless switched off; upstream ranks a pod that uses the memory
of its claims as if it were above its request (test_claims_protect_from_eviction).

DIFF: inodes are ranked by inodes; upstream subtracts the request for ephemeral storage from their number
(test_inodes_are_ranked_by_inodes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, Form
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.charges import read_charges
from plimsoll.ledger.claim_shares import compute_claim_shares
from plimsoll.ledger.requests import PodResourcesOptions, has_pod_level_resources, pod_requests

PIDS = "pids"


@dataclass(frozen=True, slots=True)
class PodResourceUsage:
    """A pod's usage of the resource under pressure; None if it was not measured."""

    pod: Pod
    used: Quantity | None


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    """A pod in the eviction order, with the numbers that determine its rank."""

    pod: Pod
    used: Quantity | None
    requested: Quantity

    @property
    def exceeds_request(self) -> bool:
        """True if the pod is known to use more than it requested."""
        return self.used is not None and self.used > self.requested


def rank_pods(
    usages: Iterable[PodResourceUsage],
    resource: str,
    *,
    count_claims: bool = True,
    charges: Callable[[Pod], Iterable[ClaimCharge]] = read_charges,
) -> list[EvictionCandidate]:
    """Sort pods in the order of eviction for a resource, first victim first.

    `charges` looks up the claim charges of a pod; it is not called if claims do not count.
    """
    candidates = []
    for usage in usages:
        given = compute_claim_shares(usage.pod, charges(usage.pod)).charges() if count_claims else ()
        requested = eviction_request(usage.pod, resource, given)
        candidates.append(EvictionCandidate(usage.pod, usage.used, requested))
    return sorted(candidates, key=_pid_eviction_key if resource == PIDS else _eviction_key)


def _eviction_key(candidate: EvictionCandidate) -> tuple[bool, bool, int, int]:
    used = candidate.used
    beyond = 0 if used is None else used.nano - candidate.requested.nano
    return (used is not None, not candidate.exceeds_request, candidate.pod.spec.priority or 0, -beyond)


def _pid_eviction_key(candidate: EvictionCandidate) -> tuple[int, bool, int]:
    used = candidate.used
    return (candidate.pod.spec.priority or 0, used is not None, 0 if used is None else -used.nano)


def eviction_request(pod: Pod, resource: str, charges: Iterable[ClaimCharge] = ()) -> Quantity:
    """Return a pod's request of a resource for ranking.

    Pod-level resources replace those of the containers. Overhead is added to a nonzero request.
    """
    options = PodResourcesOptions(
        form=Form.V1_37,
        count_claims=True,
        exclude_overhead=True,
        skip_containers=has_pod_level_resources(pod),
    )
    requested = pod_requests(pod, options, charges).get(resource, ZERO)
    return requested + pod.spec.overhead.get(resource, ZERO) if requested else requested
