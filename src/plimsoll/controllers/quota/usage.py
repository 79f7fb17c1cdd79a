"""Quota usage of one object.

Implements upstream's quota evaluators: pods by requests and limits, claims by the maximum number of devices
per class, volume claims by size, services by ports, and any kind by number. Used by both admission and the
quota controller. `scopes` selects the quotas; `ledger_usage` computes the usage of
namespaces from the ledgers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.kept import is_kept
from plimsoll.api.meta import Wire
from plimsoll.api.pod_claims import DEVICE_CLASS_RESOURCE, find_requesting_pod
from plimsoll.api.quantity import ZERO, Format, Quantity
from plimsoll.api.quota import CountedService, CountedVolumeClaim
from plimsoll.api.resource import (
    ALL,
    EXACT_COUNT,
    MAX_ALLOCATION_RESULTS,
    DeviceClass,
    DeviceRequest,
    ResourceClaim,
)
from plimsoll.api.timestamps import parse_datetime
from plimsoll.controllers.quota.claim_charges import PodAmounts, list_shared_claims, sum_with_claims
from plimsoll.ledger.amounts import Amounts, add_amounts, is_huge_page, raise_amounts
from plimsoll.ledger.claims import ChargedClaim, read_charged_claims
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.requests import PodResourcesOptions, pod_limits, pod_requests
from plimsoll.ledger.units import STANDARD_RESOURCES, is_dra_extended_resource

PODS = "pods"
CLAIMS = "resourceclaims.resource.k8s.io"
VOLUME_CLAIMS = "persistentvolumeclaims"
SERVICES = "services"
#: Kinds with usage other than their number, and their views. Kinds are named as in quotas, `plural.group`;
#: for all others the metadata suffices.
VIEW_TYPES: Mapping[str, type[Wire]] = {
    PODS: Pod,
    CLAIMS: ResourceClaim,
    VOLUME_CLAIMS: CountedVolumeClaim,
    SERVICES: CountedService,
}

COUNT = "count/"
COUNT_PODS, COUNT_CLAIMS = COUNT + PODS, COUNT + CLAIMS
REQUESTS, LIMITS = "requests.", "limits."
#: Prefix of the implicit extended resources of device classes.
DEVICES_OF_CLASS = ".deviceclass.resource.k8s.io/devices"
STORAGE = "requests.storage"
OF_STORAGE_CLASS = ".storageclass.storage.k8s.io/"
#: Kinds that are also counted under their bare name.
BARE = frozenset(("configmaps", "resourcequotas", "replicationcontrollers", "secrets"))

ONE = Quantity.of(1, Format.DECIMAL_SI)
NONE = Quantity.of(0, Format.DECIMAL_SI)
_ALL_ON = Gates.default()
_OLD_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
_LONGEST = 10**12  # seconds: beyond any timestamp


# -- inputs of the evaluation other than the object


@dataclass(frozen=True, slots=True)
class ExtendedResourceNames:
    """Device classes with the extended resource that pods request them by ("" if none).

    Several classes may share a name: devices of all of them count under it.
    """

    names: Mapping[str, str] = field(default_factory=dict)

    @staticmethod
    def of(classes: Iterable[DeviceClass]) -> ExtendedResourceNames:
        return ExtendedResourceNames(
            {item.metadata.name: item.spec.extended_resource_name or "" for item in classes}
        )

    def serve(self, resource: str) -> bool:
        """Return whether an extended resource is backed by an existing device class."""
        if resource.startswith(DEVICE_CLASS_RESOURCE):
            return resource.removeprefix(DEVICE_CLASS_RESOURCE) in self.names
        return bool(resource) and resource in self.names.values()


def _find_no_pod(name: str) -> Pod | None:
    return None


def _find_no_claims(uid: str) -> Iterable[ResourceClaim]:
    return ()


def _find_no_pods(pod: Pod, claim: str) -> Iterable[Pod]:
    return ()


def _expect_nothing(pod: Pod) -> Sequence[ChargedClaim]:
    return ()


@dataclass(frozen=True, slots=True)
class QuotaContext:
    """Inputs of the evaluation: time, feature gates, device classes, and lookups in the namespace."""

    now: datetime
    gates: Gates = _ALL_ON
    extended: ExtendedResourceNames = field(default_factory=ExtendedResourceNames)
    find_pod: Callable[[str], Pod | None] = _find_no_pod  #: by name
    #: Claims created for the extended resources of a pod, by its UID (`find_requesting_pod`).
    find_claims: Callable[[str], Iterable[ResourceClaim]] = _find_no_claims
    #: Pods that already count for a claim of a pod, by the pod and the name of the claim.
    find_consumers: Callable[[Pod, str], Iterable[Pod]] = _find_no_pods
    #: Charges that a new pod will have because its claims are allocated already.
    expected_claims: Callable[[Pod], Sequence[ChargedClaim]] = _expect_nothing

    @property
    def serves_extended(self) -> bool:
        return self.gates.enabled("DRAExtendedResource")

    @property
    def counts_claims(self) -> bool:
        return self.gates.enabled("DRANodeAllocatableResourcesQuota")


def compute_usage(resource: str, item: Wire, context: QuotaContext) -> dict[str, Quantity]:
    """Return the quota usage of one object of a kind, given as the view in `VIEW_TYPES`."""
    if isinstance(item, Pod):
        return pod_usage_with_claims(item, context)
    if isinstance(item, ResourceClaim):
        return claim_usage(item) | _extended_usage(item, context)
    if isinstance(item, CountedVolumeClaim):
        return volume_claim_usage(item)
    if isinstance(item, CountedService):
        return service_usage(item)
    return count_usage(resource)


def count_usage(resource: str, number: int = 1) -> dict[str, Quantity]:
    """Return the quota usage by object count."""
    amount = Quantity.of(number, Format.DECIMAL_SI)
    return {COUNT + resource: amount} | ({resource: amount} if resource in BARE else {})


# -- pods


def pod_usage(pod: Pod, now: datetime, gates: Gates = _ALL_ON) -> dict[str, Quantity]:
    """Return the quota usage of a pod by spec and status, without claims.

    A pod that is terminal, or overdue for deletion, counts as an object only.
    """
    if is_over(pod, now):
        return {COUNT_PODS: ONE}
    options = PodResourcesOptions(
        use_status=gates.enabled("InPlacePodVerticalScaling"),
        skip_pod_level=not gates.enabled("PodLevelResources"),
    )
    return _format_usage(PodAmounts(pod_requests(pod, options), pod_limits(pod, options)))


def pod_usage_with_claims(
    pod: Pod, context: QuotaContext, charged_claims: Sequence[ChargedClaim] | None = None
) -> dict[str, Quantity]:
    """Return the quota usage of a pod with what its claims charge; `charged_claims` defaults to its status.

    DIFF: upstream counts the spec only (test_quotas_count_what_claims_charge).
    """
    if charged_claims is None:
        profile = AccountingProfile.for_gates(context.gates)
        charged_claims = read_charged_claims(pod, profile) if context.counts_claims else ()
    if not charged_claims or is_over(pod, context.now):
        return pod_usage(pod, context.now, context.gates)
    others = [
        other
        for claim in list_shared_claims(charged_claims, context.gates)
        for other in context.find_consumers(pod, claim)
        if not is_over(other, context.now)
    ]
    return _format_usage(sum_with_claims(pod, charged_claims, others, context.gates))


def is_over(pod: Pod, now: datetime) -> bool:
    """Return whether a pod counts as an object only: it is terminal, or overdue for deletion."""
    return pod.status.phase in ("Failed", "Succeeded") or is_overdue(pod, now)


def _format_usage(amounts: PodAmounts) -> dict[str, Quantity]:
    """Return the usage of a running pod under the names that quotas have for it."""
    usage = {COUNT_PODS: ONE, PODS: ONE}
    for name, amount in amounts.requests.items():
        if name in STANDARD_RESOURCES or is_huge_page(name):
            usage[name] = usage[REQUESTS + name] = amount
        elif is_dra_extended_resource(name):
            usage[REQUESTS + name] = amount
    limits = amounts.limits
    return usage | {LIMITS + name: limits[name] for name in STANDARD_RESOURCES if name in limits}


def is_overdue(pod: Pod, now: datetime) -> bool:
    """Return whether the deletion grace period of a pod has passed, since its node may be lost."""
    text, grace = pod.metadata.deletion_timestamp, pod.metadata.deletion_grace_period_seconds
    deleted = parse_datetime(text)
    if deleted is None or grace is None or is_kept(pod.metadata):
        return False
    return now - deleted > timedelta(seconds=max(-_LONGEST, min(grace, _LONGEST)))


# -- claims


def claim_usage(claim: ResourceClaim) -> dict[str, Quantity]:
    """Return the quota usage of a claim: one claim, and the maximum number of devices per class."""
    usage = {COUNT_CLAIMS: ONE}
    for request in claim.spec.devices.requests:
        for name, count in _devices(request).items():
            add_amounts(usage, {name + DEVICES_OF_CLASS: Quantity.of(count)})
    return usage


def _devices(request: DeviceRequest) -> dict[str, int]:
    """Return the maximum number of devices per class; alternatives are not added up."""
    most: dict[str, int] = {}
    if request.first_available:
        for sub in request.first_available:
            count = _count(sub.allocation_mode, sub.count)
            most[sub.device_class_name] = max(most.get(sub.device_class_name, 0), count)
    elif request.exactly is not None:
        exactly = request.exactly
        most[exactly.device_class_name] = _count(exactly.allocation_mode, exactly.count)
    return most


def _count(mode: str, count: int) -> int:
    """Return the maximum device count; allocation mode All counts as the limit of a claim."""
    return {EXACT_COUNT: count, ALL: MAX_ALLOCATION_RESULTS}.get(mode, 0)


def _extended_usage(claim: ResourceClaim, context: QuotaContext) -> dict[str, Quantity]:
    """Return devices as extended resources, without those already counted for their pod.

    DIFF: of several classes with one extended resource in one claim, the largest amount counts; upstream
    counts an arbitrary one (test_a_claim_for_two_classes_of_one_name).
    """
    if not context.serves_extended:
        return {}
    usage: dict[str, Quantity] = {}
    for name, amount in claim_usage(claim).items():
        class_name = name.removesuffix(DEVICES_OF_CLASS)
        if class_name in ("", name):
            continue
        extended = context.extended.names.get(class_name)
        raise_amounts(usage, {REQUESTS + DEVICE_CLASS_RESOURCE + class_name: amount})
        raise_amounts(usage, {REQUESTS + extended: amount} if extended else {})
    counted = _counted_for_pod(claim, context)
    rest = {name: amount - counted.get(name, ZERO) for name, amount in usage.items()}
    return {name: amount for name, amount in rest.items() if amount.sign() > 0}


def _counted_for_pod(claim: ResourceClaim, context: QuotaContext) -> Amounts:
    """Return the usage already counted for the pod whose extended resources a claim backs."""
    owner = find_requesting_pod(claim)
    pod = context.find_pod(owner.name) if owner is not None else None
    if pod is None or owner is None or pod.metadata.uid != owner.uid:
        return {}
    status = pod.status.extended_resource_claim_status
    if status is not None:
        is_chosen = status.resource_claim_name == claim.metadata.name
    else:  # not set yet: it will be the oldest one
        is_chosen = all(
            _creation_order(claim) <= _creation_order(other) for other in context.find_claims(owner.uid)
        )
    return pod_usage_with_claims(pod, context) if is_chosen else {}


def _creation_order(claim: ResourceClaim) -> tuple[str, str]:
    return claim.metadata.creation_timestamp or "", claim.metadata.name


# -- volumes and services


def volume_claim_usage(claim: CountedVolumeClaim) -> dict[str, Quantity]:
    """Return the quota usage of a volume claim: the requested size, or the allocated one if larger."""
    usage = {VOLUME_CLAIMS: ONE}
    size = claim.spec.resources.requests.get("storage")
    if size is not None:
        allocated = claim.status.allocated_resources.get("storage", ZERO)
        usage[STORAGE] = _round_to_bytes(allocated if allocated > _round_to_bytes(size) else size)
    storage_class = claim.metadata.annotations.get(_OLD_STORAGE_CLASS)
    storage_class = claim.spec.storage_class_name if storage_class is None else storage_class
    if storage_class:
        usage |= {storage_class + OF_STORAGE_CLASS + name: amount for name, amount in usage.items()}
    return usage | count_usage(VOLUME_CLAIMS)


def _round_to_bytes(size: Quantity) -> Quantity:
    """Round storage up to bytes."""
    whole = Quantity.of(size.value(), size.format)
    return size if size == whole else whole


def service_usage(service: CountedService) -> dict[str, Quantity]:
    ports = len(service.spec.ports)
    balanced = service.spec.type == "LoadBalancer"
    if service.spec.type not in ("NodePort", "LoadBalancer"):
        ports = 0
    elif balanced and service.spec.allocate_load_balancer_node_ports is False:
        ports = sum(1 for port in service.spec.ports if port.node_port)
    return {
        **count_usage(SERVICES),
        "services": ONE,
        "services.loadbalancers": ONE if balanced else NONE,
        "services.nodeports": Quantity.of(ports, Format.DECIMAL_SI),
    }
