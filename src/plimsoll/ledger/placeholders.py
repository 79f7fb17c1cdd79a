"""Placeholder pods: charges of claims as the requests of pods that every component understands.

An API server without the alpha fields (DRANodeAllocatableResources) keeps no charges, so that kube-scheduler,
kubelets and autoscalers see only the requests in pod specs. There a second pod on the node requests what the
claims of a pod take beyond that pod's own requests. Amounts of a claim that several pods may share stand in a
placeholder of the claim, which stays as long as one of its pods does; everything else, also claims generated
from a template of the pod, stands in a placeholder of the pod. A placeholder is never changed.

Placeholders are recognized by their namespace, in which only the scheduler creates pods. A ledger counts both
the charges of a pod and the requests of its placeholders, less what is in both (`NodeLedger.covered`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from hashlib import sha256

from msgspec import Struct

from plimsoll.api.core import Container, Node, Pod, PodSpec, ResourceRequirements
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.entries import compute_node_amounts
from plimsoll.ledger.policy import is_claim_level
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.requests import PodResourcesOptions, pod_requests, without_status
from plimsoll.ledger.units import CPU, MEMORY, Units, add_units, from_units, is_accounted, to_unit, to_units

NAMESPACE = "plimsoll-placeholders"
PRIORITY_CLASS = "plimsoll-placeholder"
#: Value of the class: above every pod of users, so that no scheduler preempts a placeholder.
PRIORITY = 1_000_000_000
#: Label with the UID of the pod that a placeholder stands for. Recorded charges do not have those of claims.
OWNER_LABEL = "plimsoll.dev/stands-for"
#: Annotations with the namespaced name of the pod, or of the claim, that it stands for.
POD_KEY = "plimsoll.dev/pod"
CLAIM_KEY = "plimsoll.dev/claim"
#: Annotation with the names of the claims that it requests resources for.
CLAIMS_KEY = "plimsoll.dev/claims"
#: Annotation with the amounts that it requests for them.
AMOUNTS_KEY = "plimsoll.dev/amounts"
#: Without it Cluster Autoscaler never removes a node that has a placeholder: with its default
#: --skip-nodes-with-custom-controller-pods, a pod that no Job, ReplicaSet or StatefulSet controls stays.
SAFE_TO_EVICT = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}
#: Keys of the taints of nodes that Cluster Autoscaler and Karpenter drain; Karpenter does not cordon them.
DRAIN_TAINTS = frozenset({"ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"})

_NAME_MAX = 63
_SUFFIX_LENGTH = 8


class OwnerKind(Enum):
    """Kind of object that a placeholder stands for."""

    POD = "Pod"
    CLAIM = "ResourceClaim"


class PlaceholderOwner(Struct, frozen=True):
    """Pod or shared claim that a placeholder stands for."""

    kind: OwnerKind
    namespace: str
    name: str
    uid: str = ""

    @property
    def key(self) -> str:
        """Key in a ledger: that of the pod, or `claim_key`."""
        if self.kind is OwnerKind.CLAIM:
            return claim_key(self.namespace, self.name)
        return self.uid or f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"{'pod' if self.kind is OwnerKind.POD else 'claim'} {self.namespace}/{self.name}"


def claim_key(namespace: str, name: str) -> str:
    """Return the key of a claim that has a placeholder; a recorded charge may not have the claim's UID."""
    return f"{OwnerKind.CLAIM.value} {namespace}/{name}"


class Placeholder(Struct, frozen=True):
    """Amounts that a placeholder requests, in units, and the claims that they are for."""

    owner: PlaceholderOwner
    units: Units
    claims: tuple[str, ...] = ()


def is_placeholder(pod: Pod) -> bool:
    """Return whether a pod is a placeholder."""
    return placeholder_owner(pod) is not None


def placeholder_owner(pod: Pod) -> PlaceholderOwner | None:
    """Return the pod or claim that a pod stands for; None if it is no placeholder."""
    if pod.metadata.namespace != NAMESPACE:
        return None
    annotations, uid = pod.metadata.annotations, pod.metadata.labels.get(OWNER_LABEL, "")
    for kind, key in ((OwnerKind.POD, POD_KEY), (OwnerKind.CLAIM, CLAIM_KEY)):
        namespace, _, name = annotations.get(key, "").partition("/")
        if namespace and name:
            return PlaceholderOwner(kind, namespace, name, uid)
    return None


def make_pod(placeholder: Placeholder, node: str) -> Pod:
    """Make the pod of a placeholder on a node: its metadata, and its requests.

    Huge pages need limits, and a request for CPU or memory as well.
    """
    owner = placeholder.owner
    annotations = {
        POD_KEY if owner.kind is OwnerKind.POD else CLAIM_KEY: f"{owner.namespace}/{owner.name}",
        CLAIMS_KEY: ",".join(placeholder.claims),
        **SAFE_TO_EVICT,
    }
    requests = {name: from_units(name, amount) for name, amount in placeholder.units.items()}
    annotations[AMOUNTS_KEY] = ",".join(f"{name}={amount}" for name, amount in sorted(requests.items()))
    limits = {name: amount for name, amount in requests.items() if is_huge_page(name)}
    if limits and not requests.keys() & {CPU, MEMORY}:
        requests[CPU] = from_units(CPU, 0)
    meta = ObjectMeta(
        name=placeholder_name(owner, node),
        namespace=NAMESPACE,
        labels={OWNER_LABEL: owner.uid} if owner.uid else {},
        annotations=annotations,
    )
    container = Container(
        name="placeholder", resources=ResourceRequirements(requests=requests, limits=limits)
    )
    return Pod(metadata=meta, spec=PodSpec(node_name=node, containers=(container,), priority=PRIORITY))


def placeholder_name(owner: PlaceholderOwner, node: str) -> str:
    """Return the name of the only placeholder that an owner has on a node: a DNS label."""
    suffix = sha256(f"{owner.kind.value} {owner.key} {node}".encode()).hexdigest()[:_SUFFIX_LENGTH]
    prefix = owner.name.replace(".", "-")[: _NAME_MAX - _SUFFIX_LENGTH - 1].rstrip("-")
    return f"{prefix}-{suffix}"


def is_draining(node: Node) -> bool:
    """Return whether a node's pods are being evicted, so that a placeholder must not come back.

    Cluster Autoscaler waits until no pod of an evicted pod's name is on the node, whatever its UID.
    """
    return node.spec.unschedulable or any(taint.key in DRAIN_TAINTS for taint in node.spec.taints)


def plan_placeholders(
    pod: Pod,
    charged_claims: Sequence[ChargedClaim],
    options: PodResourcesOptions,
    profile: AccountingProfile,
) -> tuple[Placeholder, ...]:
    """Return the placeholders that a pod needs: its own first, then those of claims that it may share."""
    if not charged_claims or not options.count_claims:
        return ()
    of_claims = tuple(_plan_for_claims(pod, charged_claims, profile))
    own = find_own_charge(pod, charged_claims, options, profile)
    if not own:
        return of_claims
    meta = pod.metadata
    owner = PlaceholderOwner(OwnerKind.POD, meta.namespace, meta.name, meta.uid)
    claims = tuple(charged_claim.claim for charged_claim in charged_claims)
    return (Placeholder(owner, own, claims), *of_claims)


def find_own_charge(
    pod: Pod,
    charged_claims: Sequence[ChargedClaim],
    options: PodResourcesOptions,
    profile: AccountingProfile,
) -> Units:
    """Return what a pod is charged beyond its requests, without claims that it may share."""
    options = without_status(options)
    shown = to_units(pod_requests(pod, options, ()))
    charged = to_units(compute_node_amounts(pod, charged_claims, options, profile))
    shareable = find_shareable_claims(pod)
    for charged_claim in charged_claims:
        if charged_claim.claim not in shareable:
            add_units(charged, _claim_level_units(charged_claim, profile))
    own = {name: amount - shown.get(name, 0) for name, amount in charged.items()}
    return {name: amount for name, amount in own.items() if amount > 0}


def _plan_for_claims(
    pod: Pod, charged_claims: Sequence[ChargedClaim], profile: AccountingProfile
) -> Iterator[Placeholder]:
    shareable = find_shareable_claims(pod)
    for charged_claim in charged_claims:
        units = _claim_level_units(charged_claim, profile) if charged_claim.claim in shareable else {}
        if units:
            namespace, name = pod.metadata.namespace, charged_claim.claim
            yield Placeholder(PlaceholderOwner(OwnerKind.CLAIM, namespace, name), units, (name,))


def find_shareable_claims(pod: Pod) -> frozenset[str]:
    """Return the claims that a pod refers to by name; those generated from a template are its own."""
    named = {each.resource_claim_name for each in pod.spec.resource_claims if each.resource_claim_name}
    return frozenset(named & set(resolve_claim_names(pod).values()))


def _claim_level_units(charged_claim: ChargedClaim, profile: AccountingProfile) -> dict[str, int]:
    """Return what the node is charged once for a claim, however many pods use it."""
    return {
        name: to_unit(name, charge.quantity)
        for name, charge in charged_claim.charge.resources.items()
        if charge.quantity is not None and is_accounted(name) and is_claim_level(charge, profile)
    }
