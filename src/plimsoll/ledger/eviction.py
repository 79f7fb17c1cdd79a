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
from plimsoll.ledger.cgroups.shares import share_claims
from plimsoll.ledger.charges import read_charges
from plimsoll.ledger.requests import Options, pod_level_resources_set, pod_requests

PIDS = "pids"


@dataclass(frozen=True, slots=True)
class Usage:
    """What a pod uses of the resource that is short; None where it was not measured."""

    pod: Pod
    used: Quantity | None


@dataclass(frozen=True, slots=True)
class Standing:
    """A pod in the order of eviction, with the numbers its place follows from."""

    pod: Pod
    used: Quantity | None
    requested: Quantity

    @property
    def exceeds(self) -> bool:
        """Whether the pod is known to use more than it requested."""
        return self.used is not None and self.used > self.requested


def rank(
    usages: Iterable[Usage],
    resource: str,
    *,
    count_claims: bool = True,
    charges: Callable[[Pod], Iterable[ClaimCharge]] = read_charges,
) -> list[Standing]:
    """The pods in the order in which they are evicted for want of a resource, first the first to go.

    `charges` looks up what a pod's claims charge; it is not asked where claims do not count.
    """
    standings = []
    for usage in usages:
        given = share_claims(usage.pod, charges(usage.pod)).charges() if count_claims else ()
        requested = eviction_request(usage.pod, resource, given)
        standings.append(Standing(usage.pod, usage.used, requested))
    return sorted(standings, key=_pid_place if resource == PIDS else _place)


def _place(standing: Standing) -> tuple[bool, bool, int, int]:
    used = standing.used
    beyond = 0 if used is None else used.nano - standing.requested.nano
    return (used is not None, not standing.exceeds, standing.pod.spec.priority or 0, -beyond)


def _pid_place(standing: Standing) -> tuple[int, bool, int]:
    used = standing.used
    return (standing.pod.spec.priority or 0, used is not None, 0 if used is None else -used.nano)


def eviction_request(pod: Pod, resource: str, charges: Iterable[ClaimCharge] = ()) -> Quantity:
    """What a pod requests of a resource where eviction is concerned.

    If the pod as a whole has resources they alone count. Overhead is added to a request that is not zero.
    """
    options = Options(
        form=Form.V1_37,
        count_claims=True,
        exclude_overhead=True,
        skip_containers=pod_level_resources_set(pod),
    )
    requested = pod_requests(pod, options, charges).get(resource, ZERO)
    return requested + pod.spec.overhead.get(resource, ZERO) if requested else requested
