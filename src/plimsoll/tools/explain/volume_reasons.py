"""Explanations of volume claims for which a node has no volume: the claim, and what it lacks there."""

from __future__ import annotations

from plimsoll.api.core import Node
from plimsoll.api.label_selection import SelectorProblem
from plimsoll.api.storage import PersistentVolumeClaim
from plimsoll.api.volume_matching import find_matching_volumes
from plimsoll.scheduler.filters.volume_binding import VolumeBindingMessage
from plimsoll.scheduler.filters.volume_provisioning import Provisioning, StorageIndex
from plimsoll.scheduler.reasons import ReasonMessage
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.explain.text import StatementKind
from plimsoll.tools.explain.tree import Statement


def explain_unbound(
    claim: PersistentVolumeClaim, message: ReasonMessage, node: Node, snapshot: Snapshot
) -> Statement:
    """Explain why a node has no volume for a claim that waits for its first consumer."""
    facts = {
        "claim": claim.metadata.name,
        "size": str(claim.size),
        "storage_class": claim.storage_class,
        "why": _why(claim, message, node, snapshot),
    }
    return Statement(StatementKind.VOLUME_UNBOUND, facts)


def _why(claim: PersistentVolumeClaim, message: ReasonMessage, node: Node, snapshot: Snapshot) -> str:
    provisioning = Provisioning(claim, snapshot)
    storage_class = provisioning.storage_class
    driver = "" if storage_class is None else storage_class.provisioner
    if message is VolumeBindingMessage.NO_CAPACITY:
        return f"driver {driver} publishes no storage capacity of that size for the node"
    if claim.selected_node is not None and claim.selected_node != node.metadata.name:
        return f"its volume is provisioned for node {claim.selected_node}"
    volumes = snapshot.index(StorageIndex).volumes(claim.storage_class)
    matching = find_matching_volumes(claim, map(snapshot.assumed_volumes.volume, volumes))
    own = () if isinstance(matching, SelectorProblem) else matching.prebound
    if own:
        return f"volume {own[0].metadata.name}, which refers to it, cannot be reached from the node"
    lacks = "no available volume that matches it can be reached from the node"
    if storage_class is None or not provisioning.is_supported:
        return f"{lacks}, and its class has no provisioner"
    wanted = " or ".join(
        ", ".join(f"{each.key} in ({', '.join(each.values)})" for each in term.match_label_expressions)
        for term in storage_class.allowed_topologies
    )
    return f"{lacks}, and its class provisions volumes only for nodes with {wanted}"
