"""What an object counts for in the terms of a ResourceQuota.

Owns the usage of every kind of object and which resources of a quota it is about. Objects are settled trees;
resources are named as in storage (`pods`, `resourceclaims.resource.k8s.io`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.resource import ResourceClaim
from plimsoll.errors import QuantityError
from plimsoll.ledger.qos import BEST_EFFORT, pod_qos
from plimsoll.ledger.quota import DEVICE_CLASS, DEVICES_OF_CLASS, claim_usage, pod_usage
from plimsoll.ledger.units import PLAIN
from plimsoll.validate.job import look
from plimsoll.validate.trees import Tree, part
from plimsoll.validate.views import ScopeRequirement

PODS = "pods"
CLAIMS = "resourceclaims.resource.k8s.io"
VOLUME_CLAIMS = "persistentvolumeclaims"
SERVICES = "services"

_ONE = Quantity.of(1)
_FOR_POD = "resource.kubernetes.io/extended-resource-claim"
_OLD_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
_STORAGE_CLASS = ".storageclass.storage.k8s.io/"
_OF_VOLUMES = ("persistentvolumeclaims", "requests.storage")
_OF_PODS = frozenset(
    (
        "pods",
        "count/pods",
        *PLAIN,
        *(f"{side}.{name}" for side in ("requests", "limits") for name in PLAIN),
    )
)

#: Objects that are counted under their plain name too.
_PLAIN_COUNTS = ("configmaps", "resourcequotas", "replicationcontrollers", "secrets")

#: Objects that are never counted.
UNCOUNTED = frozenset(("bindings", "componentstatuses", "events", "events.events.k8s.io"))


def usage_of(
    resource: str, tree: Tree, now: datetime, gates: Gates, extended: Mapping[str, str]
) -> dict[str, Quantity]:
    """What one object counts for; `extended` are names of extended resources by device class."""
    if resource == PODS:
        level = gates.enabled("PodLevelResources")
        return pod_usage(look(tree, Pod), pod_level=level, over=_is_overdue(tree, now))
    if resource == CLAIMS:
        return _claim_usage(tree, extended)
    usage = {f"count/{resource}": _ONE}
    if resource == VOLUME_CLAIMS:
        return usage | _volume_usage(tree)
    if resource == SERVICES:
        return usage | _service_usage(tree)
    return usage | ({resource: _ONE} if resource in _PLAIN_COUNTS else {})


def _is_overdue(pod: Tree, now: datetime) -> bool:
    """Whether a pod should have been gone by now."""
    meta = part(pod, "metadata")
    end, grace = meta.get("deletionTimestamp"), meta.get("deletionGracePeriodSeconds")
    if not end or grace is None:
        return False
    moment = datetime.fromisoformat(end).astimezone(UTC)
    return now > moment + timedelta(seconds=max(0, min(grace, 10**9)))


def _claim_usage(tree: Tree, extended: Mapping[str, str]) -> dict[str, Quantity]:
    """Devices count as extended resources too, unless the pod that asked for them so counts already."""
    usage = claim_usage(look(tree, ResourceClaim))
    if part(tree, "metadata", "annotations").get(_FOR_POD) == "true":
        return usage
    for name, amount in list(usage.items()):
        of = name.removesuffix(DEVICES_OF_CLASS)
        if of not in ("", name):
            usage[f"requests.{DEVICE_CLASS}{of}"] = amount
            if extended.get(of):
                usage[f"requests.{extended[of]}"] = amount
    return usage


def _volume_usage(claim: Tree) -> dict[str, Quantity]:
    usage = {"persistentvolumeclaims": _ONE}
    try:
        storage = Quantity.from_json(part(claim, "spec", "resources", "requests").get("storage"))
    except QuantityError:
        storage = ZERO
    if storage:
        usage["requests.storage"] = Quantity.of(storage.value(), storage.format)
    storage_class = part(claim, "metadata", "annotations").get(_OLD_STORAGE_CLASS)
    if storage_class is None:
        storage_class = part(claim, "spec").get("storageClassName")
    if storage_class:
        usage |= {f"{storage_class}{_STORAGE_CLASS}{name}": amount for name, amount in usage.items()}
    return usage


def _service_usage(service: Tree) -> dict[str, Quantity]:
    spec = part(service, "spec")
    kind, ports = spec.get("type"), spec.get("ports") or ()
    usage = {"services": _ONE, "services.loadbalancers": ZERO, "services.nodeports": ZERO}
    if kind == "LoadBalancer":
        usage["services.loadbalancers"] = _ONE
        if spec.get("allocateLoadBalancerNodePorts") is False:
            ports = [port for port in ports if isinstance(port, dict) and port.get("nodePort")]
    if kind in ("NodePort", "LoadBalancer"):
        usage["services.nodeports"] = Quantity.of(len(ports))
    return usage


# -- which quotas an object falls under


def concerns(resource: str, name: str, extended: Mapping[str, str]) -> bool:
    """Whether a resource of a quota is about objects of this kind."""
    if resource == PODS:
        pages = name.startswith(("hugepages-", "requests.hugepages-"))
        return name in _OF_PODS or pages or _is_extended(name)
    if name == f"count/{resource}":
        return True
    if resource == CLAIMS:
        if name.startswith(f"requests.{DEVICE_CLASS}"):
            return name.removeprefix(f"requests.{DEVICE_CLASS}") in extended
        asked = _is_extended(name) and name.removeprefix("requests.") in extended.values()
        return asked or name.endswith(DEVICES_OF_CLASS)
    if resource == VOLUME_CLAIMS:
        return name in _OF_VOLUMES or any(name.endswith(_STORAGE_CLASS + each) for each in _OF_VOLUMES)
    if resource == SERVICES:
        return name in ("services", "services.loadbalancers", "services.nodeports")
    return resource in _PLAIN_COUNTS and name == resource


def _is_extended(name: str) -> bool:
    foreign = "/" in name and "kubernetes.io/" not in name
    return name.startswith("requests.") and (foreign or name.startswith(f"requests.{DEVICE_CLASS}"))


def in_scopes(resource: str, tree: Tree, requirements: Iterable[ScopeRequirement]) -> bool:
    """Whether an object is in all of these scopes; only pods and volumes can be in any."""
    return all(_in_scope(resource, tree, requirement) for requirement in requirements)


def _in_scope(resource: str, tree: Tree, requirement: ScopeRequirement) -> bool:
    spec, scope = part(tree, "spec"), requirement.scope_name
    if resource == VOLUME_CLAIMS:
        return scope == "VolumeAttributesClass" and _selects(
            requirement, spec.get("volumeAttributesClassName") or ""
        )
    if resource != PODS:
        return False
    if scope in ("Terminating", "NotTerminating"):
        return (spec.get("activeDeadlineSeconds") is not None) == (scope == "Terminating")
    if scope in ("BestEffort", "NotBestEffort"):
        return (pod_qos(look(tree, Pod)) == BEST_EFFORT) == (scope == "BestEffort")
    if scope == "PriorityClass":
        return _selects(requirement, spec.get("priorityClassName") or "")
    return scope == "CrossNamespacePodAffinity" and _reaches_out(part(spec, "affinity"))


def _selects(requirement: ScopeRequirement, name: str) -> bool:
    if requirement.operator == "In":
        return name in requirement.values
    if requirement.operator == "NotIn":
        return name not in requirement.values
    return bool(name) == (requirement.operator == "Exists")


def _reaches_out(affinity: Tree) -> bool:
    """Whether a pod wants to be near pods of other namespaces, or away from them."""
    for side in ("podAffinity", "podAntiAffinity"):
        rules = part(affinity, side)
        terms = [
            *rules.get("requiredDuringSchedulingIgnoredDuringExecution", ()),
            *(
                part(weighted, "podAffinityTerm")
                for weighted in rules.get("preferredDuringSchedulingIgnoredDuringExecution", ())
            ),
        ]
        if any(term.get("namespaces") or "namespaceSelector" in term for term in terms):
            return True
    return False
