"""`clone_node`: a new node modeled on an existing one.

It has the same allocatable, labels, taints and devices, and the DaemonSet pods (to be scheduled) and mirror
pods of the original. Device pools shared by several nodes are not cloned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Affinity, Node, Pod
from plimsoll.api.resource import ResourceSlice
from plimsoll.api.storage import CSINode
from plimsoll.tools.cluster_state.objects import ClusterObjects
from plimsoll.tools.whatif.lifecycle import controller_of, stays_on_node, unbind

HOSTNAME = "kubernetes.io/hostname"


def free_names(objects: ClusterObjects, like: str, count: int) -> list[str]:
    """Return names for new nodes that are not in use."""
    taken = {node.metadata.name for node in objects.all(Node)}
    found: list[str] = []
    number = 1
    while len(found) < count:
        name = f"{like}-copy-{number}"
        if name not in taken:
            found.append(name)
        number += 1
    return found


def clone_node(objects: ClusterObjects, node: Node, name: str, pods: Iterable[Pod]) -> Iterator[Any]:
    """Yield a copy of a node and everything that comes with it; `pods` are those on the node."""
    old = node.metadata.name
    labels = dict(node.metadata.labels)
    if labels.get(HOSTNAME) == old:
        labels[HOSTNAME] = name
    metadata = replace(node.metadata, name=name, uid=f"whatif/Node/{name}", labels=labels)
    spec = replace(node.spec, unschedulable=False, provider_id="")
    yield replace(node, metadata=metadata, spec=spec)
    for slice in objects.all(ResourceSlice):
        if slice.spec.node_name == old:
            yield _clone_slice(slice, old, name)
    csi = objects.find(CSINode, "", old)
    if csi is not None:
        yield replace(csi, metadata=replace(csi.metadata, name=name, uid=f"whatif/CSINode/{name}"))
    for pod in pods:
        if stays_on_node(pod):
            yield _clone_pod(pod, old, name)


def _clone_slice(slice: ResourceSlice, old: str, new: str) -> ResourceSlice:
    pool = slice.spec.pool
    # Pools of a node are mostly named after it; those that are not must not become one with the original.
    name = new if pool.name == old else f"{pool.name}-{new}"
    metadata = slice.metadata
    label = metadata.name.replace(old, new) if old in metadata.name else f"{metadata.name}-{new}"
    return replace(
        slice,
        metadata=replace(metadata, name=label, generate_name="", uid=f"whatif/ResourceSlice/{label}"),
        spec=replace(slice.spec, node_name=new, pool=replace(pool, name=name)),
    )


def _clone_pod(pod: Pod, old: str, new: str) -> Pod:
    name = f"{pod.metadata.name}-{new}"
    made = unbind(pod)
    metadata = replace(made.metadata, name=name, uid=f"whatif/{pod.metadata.namespace}/{name}")
    status = replace(made.status, resource_claim_statuses=())
    owner = controller_of(pod)
    if owner is not None and owner.kind == "DaemonSet":
        return replace(made, metadata=metadata, spec=_aimed(made, old, new), status=status)
    return replace(made, metadata=metadata, spec=replace(made.spec, node_name=new), status=status)


def _aimed(pod: Pod, old: str, new: str) -> Any:
    """Return the spec of a DaemonSet pod, targeted at another node."""
    affinity = pod.spec.affinity
    if affinity is None:
        return replace(pod.spec, node_selector={**pod.spec.node_selector, HOSTNAME: new})
    tree = codec.to_tree(affinity)
    _rename(tree, old, new)
    return replace(pod.spec, affinity=codec.convert(tree, Affinity))


def _rename(tree: Any, old: str, new: str) -> None:
    if isinstance(tree, dict):
        if tree.get("key") in ("metadata.name", HOSTNAME) and tree.get("values") == [old]:
            tree["values"] = [new]
        for value in tree.values():
            _rename(value, old, new)
    elif isinstance(tree, list):
        for value in tree:
            _rename(value, old, new)
