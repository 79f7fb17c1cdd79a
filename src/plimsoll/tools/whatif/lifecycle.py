"""Pod and claim lifecycle as pure functions: created, bound, evicted.

Produces the objects that controllers and the scheduler would write: claims from templates, a binding, and its
reversal. The rules are those of the `controllers` package and of `scheduler/binding`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from msgspec.structs import replace

from plimsoll.api.core import Pod, PodResourceClaimStatus
from plimsoll.api.forms import POD_KEY, Form
from plimsoll.api.meta import ObjectMeta, OwnerReference
from plimsoll.api.pod_claims import claim_for_entry, is_group_entry, is_owned_by
from plimsoll.api.resource import (
    AllocationResult,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
    ResourceClaimTemplate,
)
from plimsoll.api.scheduling import PodGroup, PodGroupResourceClaimStatus
from plimsoll.client.endpoints import POD_GROUPS, PODS, Endpoint
from plimsoll.controllers.pod_utils import POD_CLAIM_ANNOTATION
from plimsoll.controllers.resource_claim.template_claims import generate_name_prefix
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.status import write_charges
from plimsoll.scheduler.extended_resources import is_in_memory, rename_charges
from plimsoll.scheduler.result import Placement


def make_claims(
    pod: Pod,
    group: PodGroup | None,
    find: Callable[[str], ResourceClaimTemplate | None],
    create: Callable[[ResourceClaim], bool],
) -> tuple[Pod, PodGroup | None]:
    """Generate the claims of a pod, and once those of its group; return both with the names of their claims.

    `find` returns the templates of the namespace, `create` stores a claim or refuses it. An entry whose
    template is missing, or whose claim is refused, is left as is: the pod stays pending, as in a cluster.
    """
    statuses = {status.name: status for status in pod.status.resource_claim_statuses}
    shared = {} if group is None else {each.name: each for each in group.status.resource_claim_statuses}
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_template_name is None or claim_for_entry(pod, entry).known:
            continue
        is_shared = is_group_entry(entry, group)
        if is_shared and entry.name in shared:
            name = shared[entry.name].resource_claim_name
            statuses[entry.name] = PodResourceClaimStatus(entry.name, name)
            continue
        template = find(entry.resource_claim_template_name)
        if template is None:
            continue
        owner = (POD_GROUPS, group.metadata) if is_shared and group is not None else (PODS, pod.metadata)
        claim = _generate(*owner, entry.name, template)
        if not create(claim):
            continue
        if is_shared:
            shared[entry.name] = PodGroupResourceClaimStatus(entry.name, claim.metadata.name)
        statuses[entry.name] = PodResourceClaimStatus(entry.name, claim.metadata.name)
    if len(statuses) == len(pod.status.resource_claim_statuses):
        return pod, group
    pod = replace(pod, status=replace(pod.status, resource_claim_statuses=tuple(statuses.values())))
    if group is not None and len(shared) > len(group.status.resource_claim_statuses):
        group = replace(group, status=replace(group.status, resource_claim_statuses=tuple(shared.values())))
    return pod, group


def _generate(
    endpoint: Endpoint, meta: ObjectMeta, entry: str, template: ResourceClaimTemplate
) -> ResourceClaim:
    name = generate_name_prefix(meta.name, entry).rstrip("-") + "-whatif"
    given = template.spec.metadata
    owner = OwnerReference(
        api_version=endpoint.api_version, kind=endpoint.kind, name=meta.name, uid=meta.uid, controller=True
    )
    metadata = ObjectMeta(
        name=name,
        namespace=meta.namespace,
        uid=f"whatif/claim/{meta.uid}/{entry}",
        creation_timestamp=meta.creation_timestamp,
        labels=given.labels,
        annotations={**given.annotations, POD_CLAIM_ANNOTATION: entry},
        owner_references=(owner,),
    )
    return ResourceClaim("resource.k8s.io/v1", "ResourceClaim", metadata, template.spec.spec)


# -- bound


def bind(
    placement: Placement,
    profile: AccountingProfile,
    find: Callable[[str], ResourceClaim | None] = lambda name: None,
    group_consumers: Mapping[str, ResourceClaimConsumerReference] = MappingProxyType({}),
) -> tuple[Pod, list[ResourceClaim]]:
    """Return the bound pod and its allocated and reserved claims.

    `find` returns the claims of the namespace as they are now, if they may have changed since the attempt:
    other pods of a group may have allocated and reserved them. `group_consumers` are the groups for which
    claims are reserved, by UID.
    """
    pod, charged, claims = placement.pod_info.pod, placement.charged_claims, []
    for claim in placement.pod_info.claims:
        allocation = placement.allocations.get(claim.metadata.name) or claim.status.allocation
        if is_in_memory(claim):
            pod, created = _create_extended(claim, pod)
            charged, claim = rename_charges(charged, claim, created.metadata.name), created
        own = ResourceClaimConsumerReference(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid)
        consumer = group_consumers.get(claim.metadata.uid, own)
        claims.append(_reserved(find(claim.metadata.name) or claim, consumer, allocation))
    bound = replace(pod, spec=replace(pod.spec, node_name=placement.node))
    if charged or bound.status.node_allocatable_resource_claim_statuses:
        # The 1.37 form can represent everything that our own rules write.
        form = profile.form if profile.name != "default" else Form.V1_37
        bound = write_charges(bound, charged, form).view
    return replace(bound, status=replace(bound.status, phase="Running", nominated_node_name="")), claims


def _create_extended(claim: ResourceClaim, pod: Pod) -> tuple[Pod, ResourceClaim]:
    """Return a pod and the claim for its extended resources as the API server would create it."""
    built = pod.status.extended_resource_claim_status
    assert built is not None, "a pod with such a claim has its mappings"
    uid = f"whatif/claim/{pod.metadata.uid}/extended-resources"
    name = claim.metadata.generate_name + "whatif"
    created_at = pod.metadata.creation_timestamp
    metadata = replace(claim.metadata, name=name, uid=uid, creation_timestamp=created_at)
    status = replace(built, resource_claim_name=name)
    pod = replace(pod, status=replace(pod.status, extended_resource_claim_status=status))
    return pod, replace(claim, metadata=metadata)


def _reserved(
    claim: ResourceClaim, consumer: ResourceClaimConsumerReference, allocation: AllocationResult | None
) -> ResourceClaim:
    status, users = claim.status, claim.status.reserved_for
    if all(user.uid != consumer.uid for user in users):
        users = (*users, consumer)
    given = status.allocation or allocation
    return replace(claim, status=replace(status, allocation=given, reserved_for=users))


# -- evicted


def unbind(pod: Pod) -> Pod:
    """Return the pod as its controller would recreate it, without a node."""
    status = replace(
        pod.status,
        phase="Pending",
        nominated_node_name="",
        conditions=(),
        container_statuses=(),
        init_container_statuses=(),
        node_allocatable_resource_claim_statuses=(),
        native_resource_claim_status=(),
        extended_resource_claim_status=None,
        start_time=None,
    )
    annotations = {k: v for k, v in pod.metadata.annotations.items() if k != POD_KEY}
    metadata = replace(pod.metadata, deletion_timestamp=None, annotations=annotations)
    return replace(pod, metadata=metadata, spec=replace(pod.spec, node_name=""), status=status)


def copy_pod(pod: Pod, name: str) -> Pod:
    """Return a new pending pod like another one, without its claims."""
    made = unbind(pod)
    metadata = replace(made.metadata, name=name, uid=f"whatif/{pod.metadata.namespace}/{name}")
    return replace(made, metadata=metadata, status=replace(made.status, resource_claim_statuses=()))


def release_claim(claim: ResourceClaim, consumer: Pod | PodGroup) -> ResourceClaim:
    """Return the claim without the reservation of a pod or group; the last one's release deallocates it."""
    users = tuple(user for user in claim.status.reserved_for if user.uid != consumer.metadata.uid)
    if len(users) == len(claim.status.reserved_for):
        return claim  # it was not reserved
    if users:
        return replace(claim, status=replace(claim.status, reserved_for=users))
    return replace(claim, status=ResourceClaimStatus())


def claims_used_by(
    pod: Pod, find: Callable[[str], ResourceClaim | None]
) -> Iterator[tuple[ResourceClaim, bool]]:
    """Yield the claims of a pod and whether each was generated for it; `find` looks them up in its
    namespace.
    """
    seen: set[str] = set()
    for entry in pod.spec.resource_claims:
        named = claim_for_entry(pod, entry)
        claim = find(named.name) if named.name else None
        if claim is not None and claim.metadata.name not in seen:
            seen.add(claim.metadata.name)
            yield claim, named.generated and is_owned_by(claim, pod)
    extended = pod.status.extended_resource_claim_status
    claim = find(extended.resource_claim_name) if extended is not None else None
    if claim is not None:
        yield claim, is_owned_by(claim, pod)


def controller_of(pod: Pod) -> OwnerReference | None:
    """Return the owner that recreates a deleted pod."""
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def is_gone_for_good(pod: Pod) -> bool:
    """Return whether a pod is being deleted and does not come back: its controller has replaced it already;
    only a StatefulSet waits until it is gone.
    """
    owner = controller_of(pod)
    is_awaited = owner is not None and owner.kind == "StatefulSet"
    return pod.metadata.deletion_timestamp is not None and not is_awaited


def stays_on_node(pod: Pod) -> bool:
    """Return whether a drain ignores a pod: DaemonSet pods and mirror pods."""
    owner = controller_of(pod)
    mirror = "kubernetes.io/config.mirror" in pod.metadata.annotations
    return mirror or (owner is not None and owner.kind in ("DaemonSet", "Node"))
