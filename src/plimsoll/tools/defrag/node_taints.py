"""Node taints of a target: those that its pods tolerate, and the nodes that remain closed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from plimsoll.allocator import AllocationFault
from plimsoll.api.core import Node, Pod, Taint, Toleration
from plimsoll.api.pod_claims import device_requests
from plimsoll.api.resource import DeviceClass, ResourceClaim
from plimsoll.api.tolerations import is_tolerated
from plimsoll.errors import InputError
from plimsoll.scheduler.filters.taint_toleration import HARD_EFFECTS
from plimsoll.tools.availability import select_offered
from plimsoll.tools.availability.node_stock import CORDONED, closed_reason
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.node_terms import taint_text, untolerated_taints
from plimsoll.tools.whatif.lifecycle import claims_used_by, stays_on_node

#: Words by which taints name hardware of any vendor.
_HARDWARE = frozenset({"accelerator", "accelerators", "fpga", "gpu", "gpus", "npu", "tpu"})


def find_nodes_with(state: ClusterState, device_class: DeviceClass) -> Iterator[tuple[Node, frozenset[str]]]:
    """Yield the nodes that can use devices of a class, with the drivers of all of their devices."""
    snapshot = state.snapshot
    for row in snapshot.rows():
        devices = snapshot.inventory.devices_for(snapshot.node(row))
        if not isinstance(devices, AllocationFault) and select_offered(device_class, devices):
            yield snapshot.node(row), frozenset(pool.driver for pool in devices.index)


def infer_tolerations(state: ClusterState, device_class: DeviceClass) -> tuple[Toleration, ...]:
    """Return the tolerations that pods with devices of a class have, as far as the cluster shows.

    Such a pod tolerates a taint if another one that uses the class does, if the taint names hardware of its
    node, or if every node with such devices that takes pods has it.
    """
    used = [each for pod in _users(state, device_class.metadata.name) for each in pod.spec.tolerations]
    known = [each for each in used if each.key]  # one without a key tolerates everything
    nodes = [each for each in find_nodes_with(state, device_class) if not closed_reason(each[0])]
    everywhere = Counter(taint for node, _ in nodes for taint in {*map(_unstamped, _hard_taints(node))})
    names = _words(device_class.metadata.name) | _HARDWARE
    resource = device_class.spec.extended_resource_name
    found = {
        taint
        for node, drivers in nodes
        for taint in map(_unstamped, _hard_taints(node))
        if everywhere[taint] == len(nodes)
        or taint.key == resource
        or is_tolerated(known, taint)
        or (_words(taint.key.rpartition("/")[2]) | _words(taint.value))
        & names.union(*(_words(driver.rpartition(".")[0] or driver) for driver in drivers))
    }
    ordered = sorted(found, key=taint_text)
    return tuple(
        Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
        for taint in ordered
    )


def count_left_out(nodes: Iterable[Node], pods: Sequence[Pod]) -> dict[str, int]:
    """Return why none of these pods can go to nodes, with the number of nodes: cordons and taints."""
    found: Counter[str] = Counter()
    for node in nodes:
        if node.spec.unschedulable:
            found[CORDONED] += 1
            continue
        taints = [untolerated_taints(pod, node) for pod in pods]
        if taints and all(taints):
            fewest = min(taints, key=lambda each: len(each))
            found["with taint " + ", ".join(map(taint_text, fewest))] += 1
    return dict(sorted(found.items()))


def parse_toleration(text: str) -> Toleration:
    """Return the toleration that `KEY[=VALUE][:EFFECT]` stands for."""
    head, colon, effect = text.partition(":")
    key, equals, value = head.partition("=")
    if not key or (colon and effect not in HARD_EFFECTS):
        effects = " or ".join(HARD_EFFECTS)
        raise InputError(f"--toleration {text!r}: must be KEY[=VALUE][:EFFECT], EFFECT {effects}")
    return Toleration(key=key, operator="Equal" if equals else "Exists", value=value, effect=effect)


def _users(state: ClusterState, device_class: str) -> Iterator[Pod]:
    """Yield the pods with claims for a class, except those that run on all nodes."""
    for pod in state.pods:
        if not pod.spec.tolerations or stays_on_node(pod):
            continue
        find = partial(state.objects.find, ResourceClaim, pod.metadata.namespace)
        requests = (each for claim, _ in claims_used_by(pod, find) for _, each in device_requests(claim))
        if any(each.device_class_name == device_class for each in requests):
            yield pod


def _hard_taints(node: Node) -> Iterator[Taint]:
    return (taint for taint in node.spec.taints if taint.effect in HARD_EFFECTS)


def _unstamped(taint: Taint) -> Taint:
    return Taint(key=taint.key, value=taint.value, effect=taint.effect)


def _words(text: str) -> set[str]:
    return {word for word in re.split(r"[^a-z0-9]+", text.lower()) if len(word) > 1}
