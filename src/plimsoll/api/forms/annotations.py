"""Node-allocatable data in annotations, for clusters that drop the fields.

An API server without the alpha gates drops the fields of all forms. There the annotation of a DeviceClass
defines the charges of its devices, with the fields of a device and of a class, and a pod carries its claim
charges in an annotation, with the fields of its status:

    DeviceClass   plimsoll.dev/node-allocatable   a JSON object: nodeAllocatableResourceMappings (or the
                                                  mappings of another form), managesNodeAllocatableResources,
                                                  nodeAllocatableResourceAccountingPolicies
    Pod           plimsoll.dev/claim-charges      a JSON list of nodeAllocatableResourceClaimStatuses

A server may also keep some fields and drop others; a pod's annotation then completes its status (`read_pod`).
An invalid annotation is reported as a problem that names the field, never as an exception; fields, where a
cluster keeps them, take precedence over annotations. Class annotations are parsed strictly, because a
misspelled field would charge the wrong amount. KEP-5517, "Alternatives".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from msgspec.structs import replace as with_fields

from plimsoll.api.codec import convert, decode, decode_tree, encode
from plimsoll.api.core import MappedQuantity, NodeAllocatableClaimStatus, OverheadQuantity, Pod
from plimsoll.api.forms.classes import read_class
from plimsoll.api.forms.devices import device_forms, read_device
from plimsoll.api.forms.internal import POLICIES, ClaimCharge, ClassPolicy, DeviceRule, ResourceCharge
from plimsoll.api.forms.statuses import read_entry, read_status
from plimsoll.api.meta import Wire
from plimsoll.api.pod_claims import uses_claims
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import (
    Device,
    DeviceClass,
    DeviceClassSpec,
    NativeResourceMapping,
    NodeAllocatableResource,
    NodeAllocatableResourceMapping,
    QuantitySource,
    ResourceMapping,
    ResourceOverhead,
)
from plimsoll.errors import DecodeError

CLASS_KEY = "plimsoll.dev/node-allocatable"
POD_KEY = "plimsoll.dev/claim-charges"


@dataclass(frozen=True, slots=True)
class AnnotationProblem:
    """An invalid annotation: the field and the error."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


def _undecodable(error: DecodeError) -> AnnotationProblem:
    return AnnotationProblem(error.field, str(error).removeprefix(f"{error.field}: "))


# -- classes


class ClassAnnotation(Wire, frozen=True):
    """Fields of a class annotation."""

    node_allocatable_resource_mappings: dict[str, NodeAllocatableResourceMapping] = {}
    node_allocatable_resources: dict[str, NodeAllocatableResource] = {}
    native_resource_mappings: dict[str, NativeResourceMapping] = {}
    manages_node_allocatable_resources: bool | None = None
    node_allocatable_resource_accounting_policies: dict[str, str] = {}
    manages_native_resources: bool | None = None
    native_resource_accounting_policies: dict[str, str] = {}


#: Accounting of classes by identity; an entry keeps its class alive, so that its identity is not reused.
_policies: dict[int, tuple[DeviceClass, ClassPolicy]] = {}
_POLICIES_MAX = 1024


def read_device_class(device_class: DeviceClass) -> ClassPolicy:
    """Read the accounting of a class from its fields and its annotation; fields take precedence."""
    known = _policies.get(id(device_class))
    if known is None:
        if len(_policies) >= _POLICIES_MAX:
            _policies.clear()
        known = _policies[id(device_class)] = device_class, _read_device_class(device_class)
    return known[1]


def _read_device_class(device_class: DeviceClass) -> ClassPolicy:
    policy = read_class(device_class.spec)
    text = device_class.metadata.annotations.get(CLASS_KEY)
    if text is None:
        return policy
    annotated = read_class_annotation(text)
    if isinstance(annotated, AnnotationProblem):
        name = device_class.metadata.name
        return replace(policy, problem=f"device class {name}, annotation {CLASS_KEY}: {annotated}")
    if not policy.manages and not policy.policies:
        return annotated
    return ClassPolicy(
        policy.manages or annotated.manages, policy.policies or annotated.policies, annotated.rules
    )


@lru_cache(maxsize=1024)
def read_class_annotation(text: str) -> ClassPolicy | AnnotationProblem:
    """Parse the annotation of a class."""
    try:
        tree = decode_tree(text)
        annotation = convert(tree, ClassAnnotation)
    except DecodeError as error:
        return _undecodable(error)
    problem = next(_unknown_fields(tree, "", ClassAnnotation), None)
    if problem is None:
        problem = next(_class_problems(annotation), None)
    if problem is not None:
        return problem
    policy = read_class(
        DeviceClassSpec(
            manages_node_allocatable_resources=annotation.manages_node_allocatable_resources,
            manages_native_resources=annotation.manages_native_resources,
            node_allocatable_resource_accounting_policies=annotation.node_allocatable_resource_accounting_policies,
            native_resource_accounting_policies=annotation.native_resource_accounting_policies,
        )
    )
    return replace(policy, rules=read_device(_as_device(annotation)))


def _as_device(annotation: ClassAnnotation) -> Device:
    """Return a device with the mappings that a class defines for its devices."""
    return Device(
        node_allocatable_resource_mappings=annotation.node_allocatable_resource_mappings,
        node_allocatable_resources=annotation.node_allocatable_resources,
        native_resource_mappings=annotation.native_resource_mappings,
    )


#: Types below a field: of an object, or (True) of objects by name.
_BELOW: Mapping[tuple[type[Wire], str], tuple[type[Wire], bool]] = {
    (ClassAnnotation, "nodeAllocatableResourceMappings"): (NodeAllocatableResourceMapping, True),
    (ClassAnnotation, "nodeAllocatableResources"): (NodeAllocatableResource, True),
    (ClassAnnotation, "nativeResourceMappings"): (NativeResourceMapping, True),
    (NodeAllocatableResource, "mapping"): (ResourceMapping, False),
    (NodeAllocatableResource, "overhead"): (ResourceOverhead, False),
    (NativeResourceMapping, "quantityFrom"): (QuantitySource, False),
}


def _unknown_fields(tree: Any, path: str, view: type[Wire]) -> Iterator[AnnotationProblem]:
    """Yield unknown fields; the tree is known to match the view otherwise."""
    for key, value in (tree or {}).items():
        at = f"{path}.{key}" if path else key
        if key not in view.__struct_encode_fields__:
            known = ", ".join(view.__struct_encode_fields__)
            yield AnnotationProblem(at, f"unknown field; valid fields: {known}")
        below, by_name = _BELOW.get((view, key), (None, False))
        if below is None:
            continue
        parts = {f"{at}[{name}]": part for name, part in (value or {}).items()} if by_name else {at: value}
        for part_path, part in parts.items():
            yield from _unknown_fields(part, part_path, below)


def _class_problems(annotation: ClassAnnotation) -> Iterator[AnnotationProblem]:
    device = _as_device(annotation)
    if len(device_forms(device)) > 1:
        message = (
            "must have only one of nodeAllocatableResourceMappings, nodeAllocatableResources "
            "and nativeResourceMappings"
        )
        yield AnnotationProblem("", message)
    fields = {
        "nodeAllocatableResources": annotation.node_allocatable_resources,
        "nodeAllocatableResourceMappings": annotation.node_allocatable_resource_mappings,
        "nativeResourceMappings": annotation.native_resource_mappings,
    }
    form = next((name for name, value in fields.items() if value), "")
    for resource, newer in annotation.node_allocatable_resources.items():
        mapping = newer.mapping
        if mapping is not None and mapping.capacity_key is not None and mapping.device_multiplier is not None:
            message = "must not have deviceMultiplier along with capacityKey"
            yield AnnotationProblem(f"{form}[{resource}].mapping", message)
    for resource, native in annotation.native_resource_mappings.items():
        source = native.quantity_from
        if source is not None and source.capacity is not None and source.per_instance_quantity is not None:
            message = "must have only one of perInstanceQuantity and capacity"
            yield AnnotationProblem(f"{form}[{resource}].quantityFrom", message)
    for resource, rule in read_device(device).items():
        yield from _rule_problems(resource, rule, f"{form}[{resource}]")
    for field, policies in (
        (
            "nodeAllocatableResourceAccountingPolicies",
            annotation.node_allocatable_resource_accounting_policies,
        ),
        ("nativeResourceAccountingPolicies", annotation.native_resource_accounting_policies),
    ):
        for resource, policy in policies.items():
            if policy not in POLICIES:
                yield AnnotationProblem(f"{field}[{resource}]", _one_of_policies(policy))


def _rule_problems(resource: str, rule: DeviceRule, at: str) -> Iterator[AnnotationProblem]:
    if "/" in resource and "kubernetes.io/" not in resource:
        yield AnnotationProblem(at, "must be a resource of the node, such as cpu, memory or hugepages-2Mi")
    if rule.mapped and rule.capacity_key is None and rule.multiplier is None:
        yield AnnotationProblem(at, "needs a capacity, a multiplier, or both")
    if rule.capacity_key == "":
        yield AnnotationProblem(at, "the capacity must not be empty; leave it out instead")
    if rule.multiplier is not None and rule.multiplier.sign() <= 0:
        yield AnnotationProblem(at, f"the multiplier must be larger than zero, it is {rule.multiplier}")
    if not rule.mapped and rule.per_pod is None and rule.per_container is None:
        yield AnnotationProblem(at, "must have a mapping or overhead")
    for amount in (rule.per_pod, rule.per_container):
        if amount is not None and amount.sign() < 0:
            yield AnnotationProblem(at, f"overhead must not be negative, it is {amount}")
    if rule.policy and rule.policy not in POLICIES:
        yield AnnotationProblem(f"{at}.accountingPolicy", _one_of_policies(rule.policy))


def _one_of_policies(policy: str) -> str:
    return f"must be one of {', '.join(POLICIES)}, not {policy!r}"


# -- pods


def read_pod(pod: Pod) -> tuple[ClaimCharge, ...]:
    """Read the claim charges of a pod from its status, completed by its annotation.

    The annotation adds what the API server dropped or rejected: claims, resources, policies, draws and
    overhead that the status does not have. An invalid annotation counts as absent, so that the charges are
    computed anew; `find_pod_problem` returns the error. It is read only if the pod has claims.
    """
    charges = read_status(pod.status)
    if not pod.metadata.annotations or not uses_claims(pod):
        return charges
    text = pod.metadata.annotations.get(POD_KEY)
    annotated = None if text is None else read_charges_annotation(text)
    if not isinstance(annotated, tuple) or not annotated:
        return charges
    return _complete(charges, annotated) if charges else annotated


def _complete(charges: Iterable[ClaimCharge], annotated: Iterable[ClaimCharge]) -> tuple[ClaimCharge, ...]:
    """Return the charges of a status and what an annotation has in addition, sorted by claim."""
    combined = {charge.claim: charge for charge in charges}
    for extra in annotated:
        charge = combined.get(extra.claim, ClaimCharge(extra.claim))
        resources = dict(charge.resources)
        for name, amount in extra.resources.items():
            resources[name] = _complete_resource(resources.get(name, ResourceCharge()), amount)
        combined[extra.claim] = with_fields(
            charge,
            containers=charge.containers or extra.containers,
            resources=dict(sorted(resources.items())),
            reference=charge.reference or extra.reference,
        )
    return tuple(charge for _, charge in sorted(combined.items()))


def _complete_resource(amount: ResourceCharge, extra: ResourceCharge) -> ResourceCharge:
    return ResourceCharge(
        extra.quantity if amount.quantity is None else amount.quantity,
        extra.per_pod if amount.per_pod is None else amount.per_pod,
        extra.per_container if amount.per_container is None else amount.per_container,
        amount.policy or extra.policy,
        extra.drawn if amount.drawn is None else amount.drawn,
    )


def find_pod_problem(pod: Pod) -> AnnotationProblem | None:
    """Return the error in the annotation of a pod."""
    text = pod.metadata.annotations.get(POD_KEY)
    found = None if text is None else read_charges_annotation(text)
    return found if isinstance(found, AnnotationProblem) else None


def read_charges_annotation(text: str) -> tuple[ClaimCharge, ...] | AnnotationProblem:
    """Parse the charges in the annotation of a pod."""
    try:
        entries: tuple[NodeAllocatableClaimStatus, ...] = decode(text, _ENTRIES)
    except DecodeError as error:
        return _undecodable(error)
    charges = tuple(map(read_entry, entries))
    return next(_charge_problems(charges), charges)


_ENTRIES: Any = tuple[NodeAllocatableClaimStatus, ...]


def _charge_problems(charges: Iterable[ClaimCharge]) -> Iterator[AnnotationProblem]:
    """Yield errors in the charges: a pod annotation is untrusted input."""
    seen = set()
    for index, charge in enumerate(charges):
        if not charge.claim:
            yield AnnotationProblem(f"[{index}].resourceClaimName", "is missing")
        if charge.claim in seen:
            yield AnnotationProblem(f"[{index}].resourceClaimName", f"{charge.claim} is listed twice")
        seen.add(charge.claim)
        for name, resource in charge.resources.items():
            amounts = (resource.quantity, resource.per_pod, resource.per_container, resource.drawn)
            if any(amount is not None and amount.sign() < 0 for amount in amounts):
                yield AnnotationProblem(f"[{index}], claim {charge.claim}", f"{name} must not be negative")


def format_charges_annotation(entries: Iterable[ClaimCharge]) -> str:
    """Format claim charges as an annotation, without loss."""
    return encode([_write_entry(charge) for charge in entries]).decode()


def _write_entry(charge: ClaimCharge) -> NodeAllocatableClaimStatus:
    """Return an entry with the fields of 1.36, plus those of 1.37 for what 1.36 cannot express."""
    resources: dict[str, Quantity] = {}
    bare, overhead = [], []
    for name, amount in charge.resources.items():
        if amount.quantity is not None:
            resources[name] = amount.quantity
        elif amount.policy or amount.drawn is not None:
            bare.append(MappedQuantity(name=name, accounting_policy=amount.policy, drawn=amount.drawn))
        if amount.per_pod is not None or amount.per_container is not None:
            cost = OverheadQuantity(name=name, per_pod=amount.per_pod, per_container=amount.per_container)
            overhead.append(cost)
    kept = {name: charge.resources[name] for name in resources}
    return NodeAllocatableClaimStatus(
        resource_claim_name=charge.claim,
        containers=charge.containers,
        resources=resources,
        accounting_policies={name: amount.policy for name, amount in kept.items() if amount.policy},
        drawn={name: amount.drawn for name, amount in kept.items() if amount.drawn is not None},
        mapping=tuple(bare),
        overhead=tuple(overhead),
    )
