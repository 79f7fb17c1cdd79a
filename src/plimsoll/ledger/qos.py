"""QoS class of a pod, computed from its spec and, if asked for, its claims.

A pod is Guaranteed if every container (or the pod level) limits cpu and memory and requests equal limits,
BestEffort if nothing is requested or limited, and Burstable otherwise. Pod-level resources, if present,
replace those of containers: in 1.36 even empty ones, since 1.37 only if they contain a supported pod-level
resource (docs/spec/accounting.md, "Kubelet" and "Changes in 1.37").

With the gate DRANodeAllocatableResourcesQoS the cpu and memory of claims count as requested (KEP-5517,
"Kubelet QoS and Cgroup Management"). A claim adds the same amount to the limits that exist and creates none,
as in the 1.37 cgroups, so that it never makes requests and limits differ and never makes them equal: it only
turns BestEffort into Burstable.

DIFF: upstream computes the class from the spec alone (test_claims_make_a_best_effort_pod_burstable).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll.api.core import Pod, PodSpec, ResourceList, ResourceRequirements
from plimsoll.api.forms import ClaimCharge, Form
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.ledger.charges import read_charges
from plimsoll.ledger.claim_shares import compute_claim_shares
from plimsoll.ledger.requests import is_pod_level_resource

GUARANTEED = "Guaranteed"
BURSTABLE = "Burstable"
BEST_EFFORT = "BestEffort"

_CLASSES = (GUARANTEED, BURSTABLE, BEST_EFFORT)
_COMPUTE = ("cpu", "memory")


def qos_class(spec: PodSpec, form: Form = Form.V1_36, *, pod_level: bool = True) -> str:
    """Return Guaranteed, Burstable or BestEffort; `pod_level` is the gate PodLevelResources."""
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    limited = True
    for resources in _list_resources(spec, form, pod_level):
        _add(requests, resources.requests)
        _add(limits, resources.limits)
        limited = limited and all(resources.limits.get(name, ZERO) > ZERO for name in _COMPUTE)
    if not requests and not limits:
        return BEST_EFFORT
    if limited and requests == limits:
        return GUARANTEED
    return BURSTABLE


def pod_qos(
    pod: Pod,
    form: Form = Form.V1_36,
    *,
    pod_level: bool = True,
    claims: bool = False,
    charges: Iterable[ClaimCharge] | None = None,
) -> str:
    """Return the class in the status, or else the one computed from the spec.

    With `claims`, the pod's charges count too: an API server that computes the class from the spec alone
    never changes it, and its BestEffort may be a pod that runs on claims. `charges` defaults to those the pod
    carries.
    """
    found = pod.status.qos_class
    if found not in _CLASSES:
        found = qos_class(pod.spec, form, pod_level=pod_level)
    if not claims or found != BEST_EFFORT:
        return found
    return claimed_qos(pod, charges)


def claimed_qos(pod: Pod, charges: Iterable[ClaimCharge] | None = None) -> str:
    """Return the class of a pod that is BestEffort by its spec: Burstable if claims give it cpu or memory."""
    shares = compute_claim_shares(pod, read_charges(pod) if charges is None else charges)
    return BURSTABLE if any(shares.pod.get(name, ZERO) > ZERO for name in _COMPUTE) else BEST_EFFORT


def _list_resources(spec: PodSpec, form: Form, pod_level: bool) -> Sequence[ResourceRequirements]:
    whole = spec.resources
    if whole is not None and pod_level:
        names = (*whole.requests, *whole.limits)
        if form is Form.V1_36 or any(map(is_pod_level_resource, names)):
            return (whole,)
    return [container.resources for container in (*spec.containers, *spec.init_containers)]


def _add(total: dict[str, Quantity], resources: ResourceList) -> None:
    for name in _COMPUTE:
        amount = resources.get(name, ZERO)
        if amount > ZERO:
            total[name] = total[name] + amount if name in total else amount
