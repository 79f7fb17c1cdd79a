"""Who has to go first when a node runs short of something.

Owns the kubelet's order of eviction as a function of measured usage: pods nobody has figures of, then pods
above their requests before pods within them, then lower priority, then the most above the request. For
process ids, which nobody requests, priority comes first and then their number. Pods that are equal in all of
this keep the order they came in.

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
from plimsoll.ledger.cgroups.shares import compute_claim_shares
from plimsoll.ledger.charges import read_charges
from plimsoll.ledger.requests import PodResourcesOptions, has_pod_level_resources, pod_requests

PIDS = "pids"


@dataclass(frozen=True, slots=True)
class PodUsage:
    """What a pod uses of the resource that is short; None where it was not measured."""

    pod: Pod
    used: Quantity | None


@dataclass(frozen=True, slots=True)
class EvictionCandidate:
    """A pod in the order of eviction, with the numbers its place follows from."""

    pod: Pod
    used: Quantity | None
    requested: Quantity

    @property
    def exceeds_request(self) -> bool:
        """Whether the pod is known to use more than it requested."""
        return self.used is not None and self.used > self.requested


def rank_pods(
    usages: Iterable[PodUsage],
    resource: str,
    *,
    count_claims: bool = True,
    charges: Callable[[Pod], Iterable[ClaimCharge]] = read_charges,
) -> list[EvictionCandidate]:
    """The pods in the order in which they are evicted for want of a resource, first the first to go.

    `charges` looks up what a pod's claims charge; it is not asked where claims do not count.
    """
    candidates = []
    for usage in usages:
        given = compute_claim_shares(usage.pod, charges(usage.pod)).charges() if count_claims else ()
        requested = eviction_request(usage.pod, resource, given)
        candidates.append(EvictionCandidate(usage.pod, usage.used, requested))
    return sorted(candidates, key=_pid_place if resource == PIDS else _place)


def _place(candidate: EvictionCandidate) -> tuple[bool, bool, int, int]:
    used = candidate.used
    beyond = 0 if used is None else used.nano - candidate.requested.nano
    return (used is not None, not candidate.exceeds_request, candidate.pod.spec.priority or 0, -beyond)


def _pid_place(candidate: EvictionCandidate) -> tuple[int, bool, int]:
    used = candidate.used
    return (candidate.pod.spec.priority or 0, used is not None, 0 if used is None else -used.nano)


def eviction_request(pod: Pod, resource: str, charges: Iterable[ClaimCharge] = ()) -> Quantity:
    """What a pod requests of a resource where eviction is concerned.

    If the pod as a whole has resources they alone count. Overhead is added to a request that is not zero.
    """
    options = PodResourcesOptions(
        form=Form.V1_37,
        count_claims=True,
        exclude_overhead=True,
        skip_containers=has_pod_level_resources(pod),
    )
    requested = pod_requests(pod, options, charges).get(resource, ZERO)
    return requested + pod.spec.overhead.get(resource, ZERO) if requested else requested
