"""The quality-of-service class of a pod, from its spec alone.

A pod is Guaranteed when every container (or the pod as a whole) limits cpu and memory and requests what
it limits, BestEffort when nothing is requested or limited, and Burstable otherwise. Claims never change
the class. Where the pod has resources of its own, even empty ones, they alone count, as in Kubernetes 1.36
(section 5 of the accounting semantics).
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.core import PodSpec, ResourceList, ResourceRequirements
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import ZERO, Quantity

_COMPUTE = ("cpu", "memory")


def qos_class(spec: PodSpec, gates: Gates) -> str:
    """Guaranteed, Burstable or BestEffort."""
    if spec.resources is not None and gates.enabled("PodLevelResources"):
        claimants: Sequence[ResourceRequirements] = (spec.resources,)
    else:
        claimants = [c.resources for c in (*spec.containers, *spec.init_containers)]
    requests: dict[str, Quantity] = {}
    limits: dict[str, Quantity] = {}
    limited = True
    for resources in claimants:
        _add(requests, resources.requests)
        _add(limits, resources.limits)
        limited = limited and all(_amount(resources.limits, name) > ZERO for name in _COMPUTE)
    if not requests and not limits:
        return "BestEffort"
    if limited and requests == limits:
        return "Guaranteed"
    return "Burstable"


def _amount(resources: ResourceList, name: str) -> Quantity:
    return resources.get(name, ZERO)


def _add(total: dict[str, Quantity], resources: ResourceList) -> None:
    for name in _COMPUTE:
        amount = _amount(resources, name)
        if amount > ZERO:
            total[name] = total[name] + amount if name in total else amount
