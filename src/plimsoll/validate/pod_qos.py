"""The quality-of-service class of a pod, from its spec alone.

A pod is Guaranteed when every container (or the pod as a whole) limits cpu and memory and requests what
it limits, BestEffort when nothing is requested or limited, and Burstable otherwise. Claims never change
the class. Resources of the pod count only where they name something (section 6 of the accounting
semantics).
"""

from __future__ import annotations

from collections.abc import Sequence

from plimsoll.api.core import PodSpec, ResourceList, ResourceRequirements
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import ZERO, Quantity

_COMPUTE = ("cpu", "memory")


def qos_class(spec: PodSpec, gates: Gates) -> str:
    """Guaranteed, Burstable or BestEffort."""
    if _has_pod_resources(spec) and gates.enabled("PodLevelResources") and spec.resources is not None:
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


def _has_pod_resources(spec: PodSpec) -> bool:
    if spec.resources is None:
        return False
    names = (*spec.resources.requests, *spec.resources.limits)
    return any(name in _COMPUTE or name.startswith("hugepages-") for name in names)


def _amount(resources: ResourceList, name: str) -> Quantity:
    return resources.get(name, ZERO)


def _add(total: dict[str, Quantity], resources: ResourceList) -> None:
    for name in _COMPUTE:
        amount = _amount(resources, name)
        if amount > ZERO:
            total[name] = total[name] + amount if name in total else amount
