"""What objects count for in a ResourceQuota.

Owns the measure of each kind (upstream's quota evaluators): pods by their requests and limits, claims by
the most devices of each class they may get, volume claims by their size, services by their ports, and any
kind by number. Sums of what pods and claims really take from their nodes are `ledger.quota`'s.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from plimsoll.api.core import Pod
from plimsoll.api.quantity import Format, Quantity
from plimsoll.api.resource import DeviceClass, ResourceClaim
from plimsoll.cluster.controllers.plans.moments import read_moment
from plimsoll.cluster.controllers.plans.pods import is_finished, owning_pod
from plimsoll.cluster.controllers.plans.views import Service, VolumeClaim
from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.quota import COUNT_PODS, DEVICES_OF_CLASS, claim_usage
from plimsoll.ledger.requests import Options, pod_limits, pod_requests
from plimsoll.ledger.units import PLAIN, is_extended

ONE = Quantity.of(1, Format.DECIMAL_SI)
NONE = Quantity.of(0, Format.DECIMAL_SI)
REQUESTS, LIMITS = "requests.", "limits."
#: How a pod asks for devices of a class without naming a claim.
CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
EXTENDED_CLAIM = "resource.kubernetes.io/extended-resource-claim"
STORAGE = "requests.storage"
VOLUME_CLAIMS = "persistentvolumeclaims"
OF_STORAGE_CLASS = ".storageclass.storage.k8s.io/"

_SIZES = Options(use_status=True, in_place_pod_level=False)


# -- pods


def is_counted(pod: Pod, now: float) -> bool:
    """Whether a pod counts for more than its being there: it is neither finished nor past its time."""
    if is_finished(pod):
        return False
    deleted = read_moment(pod.metadata.deletion_timestamp)
    grace = pod.metadata.deletion_grace_period_seconds
    return deleted is None or grace is None or now <= deleted + grace


def pod_usage(pod: Pod, now: float) -> dict[str, Quantity]:
    usage = {COUNT_PODS: ONE}
    if not is_counted(pod, now):
        return usage
    usage["pods"] = ONE
    for name, amount in pod_requests(pod, _SIZES).items():
        if name in PLAIN or is_huge_page(name):
            usage[name] = usage[REQUESTS + name] = amount
        elif is_extended(name) or name.startswith(CLASS_PREFIX):
            usage[REQUESTS + name] = amount
    limits = pod_limits(pod, _SIZES)
    usage.update({LIMITS + name: limits[name] for name in PLAIN if name in limits})
    return usage


# -- claims


@dataclass(frozen=True, slots=True)
class ExtendedNames:
    """The names under which pods ask for devices of a class, and back."""

    names: Mapping[str, str] = field(default_factory=dict)  #: class -> extended resource
    classes: Mapping[str, str] = field(default_factory=dict)  #: extended resource -> class

    @staticmethod
    def of(classes: Iterable[DeviceClass]) -> ExtendedNames:
        """If several classes have one name, the newest counts, and of those the first by name."""
        named = [item for item in classes if item.spec.extended_resource_name]
        named.sort(key=lambda item: item.metadata.name, reverse=True)
        named.sort(key=lambda item: item.metadata.creation_timestamp or "")
        names = {item.metadata.name: item.spec.extended_resource_name or "" for item in named}
        return ExtendedNames(names, {name: of for of, name in names.items()})


def usage_of_claim(
    claim: ResourceClaim,
    extended: ExtendedNames,
    pods: Mapping[str, Pod],
    claims: Iterable[ResourceClaim],
    now: float,
) -> dict[str, Quantity]:
    """What a claim counts for; devices that its pod counts for already are not counted twice.

    `pods` and `claims` are those of the namespace.
    """
    usage = claim_usage(claim)
    paid = _paid_by_pod(claim, pods, claims, now)
    for name, amount in list(usage.items()):
        of = name.removesuffix(DEVICES_OF_CLASS)
        if of == name or not of:
            continue
        others = [REQUESTS + CLASS_PREFIX + of]
        if of in extended.names:
            others.append(REQUESTS + extended.names[of])
        for other in others:
            rest = amount - paid[other] if other in paid else amount
            if rest > NONE:
                usage[other] = rest
    return usage


def _paid_by_pod(
    claim: ResourceClaim, pods: Mapping[str, Pod], claims: Iterable[ResourceClaim], now: float
) -> dict[str, Quantity]:
    """What the pod counts for whose extended resources a claim stands for."""
    uid = _asking_pod(claim)
    pod = next((pod for pod in pods.values() if uid and pod.metadata.uid == uid), None)
    if pod is None:
        return {}
    status = pod.status.extended_resource_claim_status
    if status is not None:
        chosen = status.resource_claim_name
    else:  # not told yet: it will be the first that was made
        made = (item.metadata for item in claims if _asking_pod(item) == uid)
        chosen = min((item.creation_timestamp or "", item.name) for item in made)[1]
    return pod_usage(pod, now) if chosen == claim.metadata.name else {}


def _asking_pod(claim: ResourceClaim) -> str | None:
    """The UID of the pod whose extended resources a claim was made for."""
    owner = owning_pod(claim)
    if owner is None or claim.metadata.annotations.get(EXTENDED_CLAIM) != "true":
        return None
    return owner[1]


# -- volumes and services


def volume_claim_usage(claim: VolumeClaim) -> dict[str, Quantity]:
    usage = {VOLUME_CLAIMS: ONE, f"count/{VOLUME_CLAIMS}": ONE}
    of = claim.metadata.annotations.get("volume.beta.kubernetes.io/storage-class")
    of = claim.spec.storage_class_name or "" if of is None else of
    if of:
        usage[of + OF_STORAGE_CLASS + VOLUME_CLAIMS] = ONE
    size = claim.spec.resources.requests.get("storage")
    if size is not None:
        allocated = claim.status.allocated_resources.get("storage")
        if allocated is not None and allocated > size:
            size = allocated
        usage[STORAGE] = size = _whole(size)
        if of:
            usage[of + OF_STORAGE_CLASS + STORAGE] = size
    return usage


def _whole(size: Quantity) -> Quantity:
    """Storage is counted in whole bytes."""
    whole = Quantity.of(size.value(), size.format)
    return size if size == whole else whole


def service_usage(service: Service) -> dict[str, Quantity]:
    ports = len(service.spec.ports)
    balanced = service.spec.type == "LoadBalancer"
    if service.spec.type not in ("NodePort", "LoadBalancer"):
        ports = 0
    elif balanced and service.spec.allocate_load_balancer_node_ports is False:
        ports = sum(1 for port in service.spec.ports if port.node_port)
    return {
        "count/services": ONE,
        "services": ONE,
        "services.loadbalancers": ONE if balanced else NONE,
        "services.nodeports": Quantity.of(ports, Format.DECIMAL_SI),
    }
