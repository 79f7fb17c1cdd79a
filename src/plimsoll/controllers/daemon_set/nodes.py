"""Nodes of a DaemonSet: where its pods should run, and pods that are pinned to a node."""

from __future__ import annotations

from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod, PodSpec
from plimsoll.api.node_selection import NAME_FIELD, filter_valid_terms, term_matches
from plimsoll.api.tolerations import is_tolerated
from plimsoll.client.endpoints import DAEMON_SETS
from plimsoll.controllers.actions import CreateAction
from plimsoll.controllers.workload_views import DaemonSetView
from plimsoll.controllers.workloads.revisions import REVISION_LABEL
from plimsoll.controllers.workloads.templates import create_pod

#: Taints that pods of a DaemonSet tolerate, and the one for pods in the host's network.
_TOLERATED = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_HOST_NETWORK_TOLERATED = ("node.kubernetes.io/network-unavailable", "NoSchedule")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def add_tolerations(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tolerations of a pod of a DaemonSet: those of its template and the built-in ones."""
    wanted = [*_TOLERATED, *((_HOST_NETWORK_TOLERATED,) if spec.get("hostNetwork") else ())]
    found = list(spec.get("tolerations") or ())
    for key, effect in wanted:
        toleration = {"key": key, "operator": "Exists", "effect": effect}
        if toleration not in found:
            found.append(toleration)
    return found


def pin_to_node(affinity: dict[str, Any] | None, node: str) -> dict[str, Any]:
    """Return an affinity that only one node satisfies; the other terms are kept."""
    pin = {"key": NAME_FIELD, "operator": "In", "values": [node]}
    affinity = dict(affinity or {})
    nodes = dict(affinity.get("nodeAffinity") or {})
    terms = (nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    nodes[_REQUIRED] = {"nodeSelectorTerms": [{**term, "matchFields": [pin]} for term in terms]}
    affinity["nodeAffinity"] = nodes
    return affinity


def node_of(pod: Pod) -> str:
    """Return the node of a pod: where it runs, or the one that it is pinned to."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity
    required = affinity.node_affinity.required if affinity is not None and affinity.node_affinity else None
    for term in required.node_selector_terms if required is not None else ():
        for field in term.match_fields:
            if field.key == NAME_FIELD and field.operator == "In" and len(field.values) == 1:
                return field.values[0]
    return ""


def make_pod(owner: DaemonSetView, node: str, hash: str) -> CreateAction:
    """Build the creation of the pod of a node."""
    template = owner.spec.template
    spec = template.get("spec") or {}
    pinned = {
        "affinity": pin_to_node(spec.get("affinity"), node),
        "tolerations": add_tolerations(spec),
    }
    labels = {REVISION_LABEL: hash}
    return create_pod(owner.metadata, DAEMON_SETS, template, labels=labels, spec=pinned)


class NodeMatcher:
    """Compiled rules of one template: on which nodes its pods should run and may continue to run."""

    def __init__(self, owner: DaemonSetView) -> None:
        tree = (owner.spec.template or {}).get("spec") or {}
        self._spec = codec.convert({"nodeSelector": {}, **tree, "volumes": []}, PodSpec)
        self._tolerations = codec.convert({"tolerations": add_tolerations(tree)}, PodSpec).tolerations

    def should_run(self, node: Node) -> tuple[bool, bool]:
        """Return whether a pod should run on a node, and whether one that runs there may stay."""
        if not self._matches(node):
            return False, False
        untolerated = [taint for taint in node.spec.taints if not is_tolerated(self._tolerations, taint)]
        runs = not any(taint.effect in ("NoSchedule", "NoExecute") for taint in untolerated)
        return runs, not any(taint.effect == "NoExecute" for taint in untolerated)

    def _matches(self, node: Node) -> bool:
        spec = self._spec
        if spec.node_name and spec.node_name != node.metadata.name:
            return False
        if not spec.node_selector.items() <= node.metadata.labels.items():
            return False
        affinity = spec.affinity
        required = (
            affinity.node_affinity.required if affinity is not None and affinity.node_affinity else None
        )
        if required is None:
            return True
        terms = filter_valid_terms(required.node_selector_terms)
        return any(term_matches(term, node) for term in terms)
