"""`clone_node`: a new node modeled on an existing one.

It has the same allocatable, labels, taints and devices, and the DaemonSet pods (to be scheduled) and mirror
pods of the original. Device pools shared by several nodes are not cloned.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Affinity, Node, Pod
from plimsoll.tools.cluster_state.objects import ClusterObjects
from plimsoll.tools.fixes.additions import HOSTNAME, copy_node
from plimsoll.tools.whatif.lifecycle import controller_of, copy_pod, stays_on_node


def free_names(objects: ClusterObjects, like: str, count: int) -> list[str]:
    """Return names for new nodes that are not in use."""
    taken = {node.metadata.name for node in objects.all(Node)}
    names = (f"{like}-copy-{number}" for number in itertools.count(1))
    return list(itertools.islice((name for name in names if name not in taken), count))


def clone_node(objects: ClusterObjects, node: Node, name: str, pods: Iterable[Pod]) -> Iterator[Any]:
    """Yield a copy of a node and everything that comes with it; `pods` are those on the node."""
    yield from copy_node(objects, node, name)
    old = node.metadata.name
    for pod in pods:
        if stays_on_node(pod):
            yield _clone_pod(pod, old, name)


def _clone_pod(pod: Pod, old: str, new: str) -> Pod:
    made, owner = copy_pod(pod, f"{pod.metadata.name}-{new}"), controller_of(pod)
    if owner is not None and owner.kind == "DaemonSet":
        return replace(made, spec=_aimed(made, old, new))
    return replace(made, spec=replace(made.spec, node_name=new))


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
