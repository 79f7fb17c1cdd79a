"""`find_targets`: objects named as KIND/NAMESPACE/NAME.

A workload selects its pods. An unknown name raises InputError with similar names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.controllers.workloads.ownership import controller_of
from plimsoll.errors import InputError
from plimsoll.tools.cluster_state.kinds import KINDS
from plimsoll.tools.cluster_state.objects import ClusterObjects
from plimsoll.tools.workload_pods import find_pods

_SHORT: Mapping[str, str] = {"po": "pods", "no": "nodes", "ns": "namespaces", "pdb": "poddisruptionbudgets"}
_KINDS = {word: kind for kind in KINDS for word in (kind.endpoint.kind.lower(), kind.endpoint.plural)}
_WORKLOADS = {
    word: kind
    for kind in ("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "ReplicationController")
    for word in (kind.lower(), f"{kind.lower()}s")
}


def find_targets(objects: ClusterObjects, text: str, namespace: str = "default") -> list[Any]:
    """Return the objects that a reference names: `Pod/team-a/web-0`, `node/n1`, `deployment/web`."""
    parts = text.split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise InputError(f"{text!r}: must be KIND/NAMESPACE/NAME or KIND/NAME")
    word, name = parts[0].lower(), parts[-1]
    if len(parts) == 3:
        namespace = parts[1]
    if word in _WORKLOADS:
        return _pods_of(objects, _WORKLOADS[word], namespace, name)
    kind = _KINDS.get(_SHORT.get(word, word))
    if kind is None:
        known = sorted({*(each.endpoint.kind for each in KINDS), *_WORKLOADS.values()})
        raise InputError(f"{text}: unknown kind {parts[0]}; valid kinds: {', '.join(known)}")
    if not kind.endpoint.namespaced:
        if len(parts) == 3:
            raise InputError(f"{text}: a {kind.endpoint.kind} is cluster-scoped: write {parts[0]}/{name}")
        namespace = ""
    found: Any = objects.find(kind.view, namespace, name)
    if found is None:
        names = [
            each.metadata.name for each in objects.all(kind.view) if each.metadata.namespace == namespace
        ]
        raise InputError(f"{text}: {kind.endpoint.kind} not found" + _suggest(name, names))
    return [found]


def _pods_of(objects: ClusterObjects, kind: str, namespace: str, name: str) -> list[Any]:
    found = find_pods(objects, kind, namespace, name)
    if not found:
        owners = (
            controller_of(pod.metadata) for pod in objects.all(Pod) if pod.metadata.namespace == namespace
        )
        names = {each.name if each.kind == kind else each.name.rpartition("-")[0] for each in owners if each}
        raise InputError(f"{kind}/{namespace}/{name}: no pods found" + _suggest(name, names))
    return found


def _suggest(name: str, names: Iterable[str]) -> str:
    near = get_close_matches(name, list(names), n=3)
    return f"; did you mean {' or '.join(near)}?" if near else ""
