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
from plimsoll.tools.cluster_state.objects import ClusterObjects
from plimsoll.tools.fixes.additions import HOSTNAME, copy_node
from plimsoll.tools.whatif.lifecycle import controller_of, stays_on_node, unbind


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
    yield from copy_node(objects, node, name)
    old = node.metadata.name
    for pod in pods:
        if stays_on_node(pod):
            yield _clone_pod(pod, old, name)


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
