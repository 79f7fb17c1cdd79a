"""NodeRestriction admission: limits what nodes and drivers write.

The authorizer knows only names, so the contents of objects are checked here. A node writes its own Node,
lease, CSINode and slices, and what concerns pods bound to it; it must not attract pods by labels or taints.
`restrict_driver` limits DRA drivers to their own slices. Violations are ApiError 403.

DIFF: Kubernetes leaves the restriction of drivers to policies that administrators write; see
test_drivers_write_their_own_slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from plimsoll.apiserver import status
from plimsoll.apiserver.admission.node_write import NodeWrite
from plimsoll.apiserver.admission.pod_restriction import check_pod
from plimsoll.apiserver.auth.attributes import Attributes, StoreReader
from plimsoll.apiserver.auth.node_authorizer import LEASE_NAMESPACE
from plimsoll.apiserver.auth.pod_references import is_mirror
from plimsoll.apiserver.auth.users import User, driver_name_of, node_name_of
from plimsoll.apiserver.json_values import items, mapping, text

#: Labels of Kubernetes' own domains that a node may set on itself, in addition to `_NODE_DOMAINS`.
_NODE_LABELS = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/arch",
        "kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    }
)
_NODE_DOMAINS = ("kubelet.kubernetes.io", "node.kubernetes.io")
_RESTRICTED_DOMAIN = ("node-restriction.kubernetes.io",)
_KUBERNETES_DOMAINS = ("kubernetes.io", "k8s.io")

#: Status fields of a volume claim that a node may change.
_CLAIM_FIELDS = ("capacity", "conditions", "allocatedResources", "allocatedResourceStatuses")


def _deny_all(attributes: Attributes) -> bool:
    return False


def restrict_node(
    user: User,
    verb: str,
    resource_key: str,
    subresource: str,
    tree: Any,
    old: Any,
    reader: StoreReader,
    *,
    namespace: str = "",
    name: str = "",
    allows: Callable[[Attributes], bool] = _deny_all,
) -> None:
    """Reject writes that a node is not allowed to make; other users pass.

    `tree` is the object to be stored (for `eviction` and `token` the posted one), `old` the existing one;
    None if there is none. A deletion of a collection calls this for each object, with `old`. Namespace and
    name are those of the path; by default those of the objects. `allows` decides whether the node may request
    tokens for audiences that none of its pods needs.
    """
    node = node_name_of(user)
    if node is None:
        return
    new, before = mapping(tree), mapping(old)
    metadata = mapping((before or new).get("metadata"))
    write = NodeWrite(
        user,
        node,
        {"patch": "update", "deletecollection": "delete"}.get(verb, verb),
        resource_key,
        subresource,
        namespace or text(metadata.get("namespace")),
        name or text(metadata.get("name")),
        new,
        before,
        reader,
        allows,
    )
    if not node:
        raise write.refusal(f'could not determine node from user "{user.name}"')
    check = _CHECKS.get(resource_key)
    if check is not None:
        check(write)


def restrict_driver(user: User, resource_key: str, tree: Any, old: Any) -> None:
    """Reject writes of a DRA driver to slices of other drivers; other users pass."""
    driver = driver_name_of(user)
    if driver is None or resource_key != "resourceslices.resource.k8s.io":
        return
    for published in (old, tree):
        if published is not None and mapping(mapping(published).get("spec")).get("driver") != driver:
            name = text(mapping(mapping(published).get("metadata")).get("name"))
            why = f'driver "{driver}" can only write ResourceSlices with spec.driver set to itself'
            raise status.forbidden("resource.k8s.io", "resourceslices", name, why)


def _check_node(write: NodeWrite) -> None:
    node, new, old = write.node, write.tree, write.old
    if write.name != node:
        raise write.refusal(f'node "{node}" is not allowed to modify node "{write.name}"')
    spec, before = mapping(new.get("spec")), mapping(old.get("spec"))
    if write.operation == "create":
        if spec.get("configSource") is not None:
            raise write.refusal(f'node "{node}" is not allowed to create pods with a non-nil configSource')
        labels = _refused_labels(_labels(new), {})
        if labels:
            shown = ", ".join(labels)
            raise write.refusal(f'node "{node}" is not allowed to set the following labels: {shown}')
    if write.operation == "update":
        source = spec.get("configSource")
        if source is not None and source != before.get("configSource"):
            why = f'node "{node}" is not allowed to update configSource to a new non-nil configSource'
            raise write.refusal(why)
        if (spec.get("taints") or []) != (before.get("taints") or []):
            raise write.refusal(f'node "{node}" is not allowed to modify taints')
        if _owners(new) != _owners(old):
            raise write.refusal(f'node "{node}" is not allowed to modify ownerReferences')
        labels = _refused_labels(_labels(new), _labels(old))
        if labels:
            raise write.refusal(f"is not allowed to modify labels: {', '.join(labels)}")


def _labels(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping(mapping(tree.get("metadata")).get("labels"))


def _owners(tree: Mapping[str, Any]) -> Any:
    return mapping(tree.get("metadata")).get("ownerReferences") or []


def _refused_labels(new: Mapping[str, Any], old: Mapping[str, Any]) -> list[str]:
    """Return the changed labels that a node must not set, change or remove."""
    both = new.keys() & old.keys()
    changed = (new.keys() ^ old.keys()) | {key for key in both if new[key] != old[key]}
    return sorted(key for key in changed if not may_set_label(key))


def may_set_label(key: str) -> bool:
    """Return whether a node may set a label on itself; labels of Kubernetes' own domains that steer pods
    are excluded, with a few exceptions.
    """
    domain = key.partition("/")[0] if "/" in key else ""
    if _within(domain, _RESTRICTED_DOMAIN):
        return False
    return not _within(domain, _KUBERNETES_DOMAINS) or key in _NODE_LABELS or _within(domain, _NODE_DOMAINS)


def _within(domain: str, parents: tuple[str, ...]) -> bool:
    return any(domain == parent or domain.endswith("." + parent) for parent in parents)


def _check_volume_claim(write: NodeWrite) -> None:
    if write.subresource != "status":
        raise write.refusal("may only update PVC status")
    if write.operation != "update":
        raise write.unexpected()
    if _rest_of_claim(write.tree) != _rest_of_claim(write.old):
        why = "is not allowed to update fields other than status.quantity and status.conditions"
        raise write.refusal(f'node "{write.node}" {why}')


def _rest_of_claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    """Return a volume claim without the fields that a node may change and those that every write changes."""
    metadata, state = mapping(claim.get("metadata")), mapping(claim.get("status"))
    kept = {key: value for key, value in metadata.items() if key not in ("resourceVersion", "managedFields")}
    rest = {key: value for key, value in state.items() if key not in _CLAIM_FIELDS}
    return {**claim, "metadata": kept, "status": rest}


def _check_account(write: NodeWrite) -> None:
    """Check a token request: only for a pod of the node, and for audiences that the pod needs."""
    if write.operation != "create" or write.subresource != "token":
        return
    spec = mapping(write.tree.get("spec"))
    bound = mapping(spec.get("boundObjectRef"))
    name, uid = text(bound.get("name")), text(bound.get("uid"))
    if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod") or not name:
        raise write.refusal("node requested token not bound to a pod")
    if not uid:
        raise write.refusal("node requested token with a pod binding without a uid")
    pod = write.require("pods", write.namespace, name)
    if uid != mapping(pod.get("metadata")).get("uid"):
        why = "does not match the UID in record. The object might have been deleted and then recreated"
        raise write.refusal(f"the UID in the bound object reference ({uid}) {why}")
    if mapping(pod.get("spec")).get("nodeName") != write.node:
        raise write.refusal("node requested token bound to a pod scheduled on a different node")
    _check_audience(write, spec.get("audiences") or [""], pod)


def _check_audience(write: NodeWrite, audiences: Any, pod: Mapping[str, Any]) -> None:
    if not isinstance(audiences, list) or len(audiences) > 1:
        raise write.refusal("node may only request 0 or 1 audiences")
    audience = text(audiences[0])
    if audience in _audiences_of(write, pod):
        return
    attributes = Attributes(
        write.user,
        "request-serviceaccounts-token-audience",
        version="v1",
        resource=audience,
        namespace=write.namespace,
        name=write.name,
    )
    if not write.allows(attributes):
        who = f"{write.user.name} is not authorized to request tokens for this audience"
        raise write.refusal(f'audience "{audience}" not found in pod spec volume, {who}')


def _audiences_of(write: NodeWrite, pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield the audiences that volumes of a pod need tokens for, including those of CSI drivers."""
    name = text(mapping(pod.get("metadata")).get("name"))
    for volume in items(mapping(pod.get("spec")).get("volumes")):
        for source in items(mapping(volume.get("projected")).get("sources")):
            token = source.get("serviceAccountToken")
            if isinstance(token, dict):
                yield text(token.get("audience"))
        claim = text(mapping(volume.get("persistentVolumeClaim")).get("claimName"))
        if isinstance(volume.get("ephemeral"), dict):
            claim = f"{name}-{text(volume.get('name'))}"
        driver = text(mapping(volume.get("csi")).get("driver"))
        if claim:
            found = write.find("persistentvolumeclaims", write.namespace, claim) or {}
            bound = text(mapping(found.get("spec")).get("volumeName"))
            persistent = write.find("persistentvolumes", "", bound) or {}
            driver = text(mapping(mapping(persistent.get("spec")).get("csi")).get("driver"))
        if driver:
            known = write.find("csidrivers.storage.k8s.io", "", driver) or {}
            for request in items(mapping(known.get("spec")).get("tokenRequests")):
                yield text(request.get("audience"))


def _check_lease(write: NodeWrite) -> None:
    if write.namespace != LEASE_NAMESPACE:
        raise write.refusal(f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
    if write.name != write.node:
        raise write.refusal("can only access node lease with the same name as the requesting node")


def _check_csi_node(write: NodeWrite) -> None:
    if write.name != write.node:
        raise write.refusal("can only access CSINode with the same name as the requesting node")


def _check_slice(write: NodeWrite) -> None:
    if write.operation in ("create", "delete"):
        published = write.tree if write.operation == "create" else write.old
        if mapping(published.get("spec")).get("nodeName") != write.node:
            why = "ResourceSlice with the same NodeName as the requesting node"
            raise write.refusal(f"can only {write.operation} {why}")


def _check_pod_certificate(write: NodeWrite) -> None:
    if write.operation != "create" or write.subresource:
        raise write.unexpected()
    spec = mapping(write.tree.get("spec"))
    if spec.get("nodeName") != write.node:
        why = (
            f'PodCertificateRequest.Spec.NodeName="{text(spec.get("nodeName"))}", which is not the requesting'
        )
        raise write.refusal(f'{why} node "{write.node}"')
    pod = write.require("pods", write.namespace, text(spec.get("podName")))
    account = text(mapping(pod.get("spec")).get("serviceAccountName"))
    if mapping(pod.get("spec")).get("nodeName") != write.node:
        raise write.refusal(f'the pod of the request is not running on node "{write.node}"')
    if is_mirror(pod):
        raise write.refusal("the pod of the request is a mirror pod")
    if text(spec.get("serviceAccountName")) != account:
        raise write.refusal("the service account of the request differs from that of the pod")
    objects = (
        ("nodeUID", write.require("nodes", "", write.node)),
        ("podUID", pod),
        ("serviceAccountUID", write.require("serviceaccounts", write.namespace, account)),
    )
    for field, tree in objects:
        if spec.get(field) != mapping(tree.get("metadata")).get("uid"):
            raise write.refusal(f"spec.{field} is not the UID of the object there is")


_CHECKS = {
    "pods": check_pod,
    "nodes": _check_node,
    "persistentvolumeclaims": _check_volume_claim,
    "serviceaccounts": _check_account,
    "leases.coordination.k8s.io": _check_lease,
    "csinodes.storage.k8s.io": _check_csi_node,
    "resourceslices.resource.k8s.io": _check_slice,
    "podcertificaterequests.certificates.k8s.io": _check_pod_certificate,
}
