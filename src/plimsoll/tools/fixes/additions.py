"""Steps that add devices or nodes: copies of what the cluster has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from plimsoll.allocator import AllocationFault, Refusal
from plimsoll.allocator.devices.node_devices import bit_numbers
from plimsoll.api.core import Node, NodeStatus
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.pod_claims import device_requests
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import Device, ResourceClaim, ResourcePool, ResourceSlice, ResourceSliceSpec
from plimsoll.api.storage import CSINode
from plimsoll.ledger.units import PODS, from_units, is_extended_resource
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.tools.amounts import format_exact
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.objects import ClusterObjects
from plimsoll.tools.fixes.device_steps import expressions_of
from plimsoll.tools.fixes.fix import FixKind, FixStep, FixTarget
from plimsoll.tools.fixes.trial import FixTrial

HOSTNAME = "kubernetes.io/hostname"
#: Kinds of existing nodes of which one more is tried.
_MAX_SHAPES = 6
#: Harm of adding devices to a node that has none of their driver: it would be another machine.
_OTHER_MACHINE = 40


# -- devices


def propose_devices(trial: FixTrial, reasons: Sequence[NodeReason]) -> Iterator[FixStep]:
    """Yield the steps that add devices like existing ones for the requests that a node cannot serve."""
    claims = {claim.metadata.full_name: claim for claim in trial.pod_info.at_node(trial.node).claims}
    for reason in reasons:
        if not isinstance(reason.cause, Refusal):
            continue
        for request in reason.cause.requests:
            claim = claims.get(request.claim)
            body = dict(device_requests(claim)).get(request.request) if claim is not None else None
            found = trial.snapshot.classes.get(body.device_class_name) if body is not None else None
            if body is None or found is None or (request.served and not reason.cause.together):
                continue
            like = _find_device(trial, expressions_of(found.spec.selectors), expressions_of(body.selectors))
            if like is None:
                continue
            device, slice = like
            yield from _restart_steps(trial, slice)
            for count in sorted({max(request.wanted - request.left, 1), max(request.wanted, 1)}):
                yield _add_step(trial, device, slice, count)


def _find_device(
    trial: FixTrial, class_selectors: tuple[str, ...], selectors: tuple[str, ...]
) -> tuple[Device, ResourceSlice] | None:
    """Return a device that matches, of the same node if possible."""
    for row in (trial.row, *trial.snapshot.rows()):
        devices = trial.snapshot.inventory.devices_for(trial.snapshot.node(row))
        if isinstance(devices, AllocationFault):
            continue
        for number in bit_numbers(devices.select(class_selectors, selectors).mask)[:1]:
            entry = devices.entries[number]
            return entry.device, entry.view.slice
    return None


def _add_step(trial: FixTrial, device: Device, slice: ResourceSlice, count: int) -> FixStep:
    node, driver = trial.name, slice.spec.driver
    has_driver = any(pool.id.driver == driver for pool in _pools(trial))
    # A partition comes with the device that it is part of.
    whole = bool(device.consumes_counters) and bool(slice.spec.node_name)
    shown = f"pool {slice.spec.pool.name}" if whole else device.name
    facts = {
        "count": "devices" if whole else f"{count} device{'s' if count > 1 else ''}",
        "device": f"{driver}/{shown}",
        "node": node,
    }
    change = partial(_copy_pool, slice, node) if whole else partial(_add_devices, device, slice, node, count)
    more = (0 if has_driver else _OTHER_MACHINE) + (8 if whole else min(count, 8))
    return FixStep(FixKind.ADD_DEVICES, facts, change, more, node)


def _pools(trial: FixTrial) -> Sequence[Any]:
    devices = trial.snapshot.inventory.devices_for(trial.node)
    return () if isinstance(devices, AllocationFault) else devices.pools


def _add_devices(device: Device, like: ResourceSlice, node: str, count: int, target: FixTarget) -> None:
    plain = replace(
        device, taints=(), node_name=None, node_selector=None, all_nodes=None, consumes_counters=()
    )
    name = f"{node}-added-{like.spec.driver}"
    spec = ResourceSliceSpec(
        driver=like.spec.driver,
        pool=ResourcePool(name=name, generation=1, resource_slice_count=1),
        node_name=node,
        devices=tuple(replace(plain, name=f"added-{number}") for number in range(count)),
    )
    target.changes.set(ResourceSlice(like.api_version, like.kind, ObjectMeta(name=name), spec))


def _restart_steps(trial: FixTrial, like: ResourceSlice) -> Iterator[FixStep]:
    """Propose to restart a driver that has devices allocated on the node and publishes none."""
    driver, node = like.spec.driver, trial.name
    if not like.spec.node_name or any(pool.id.driver == driver for pool in _pools(trial)):
        return
    results = (result for claim in trial.snapshot.all(ResourceClaim) for result in claim.allocation_results)
    if any((result.driver, result.pool) == (driver, node) for result in results):
        facts = {"driver": driver, "node": node}
        yield FixStep(FixKind.RESTART_DRIVER, facts, partial(_copy_pool, like, node), node=node)


def _copy_pool(like: ResourceSlice, node: str, target: FixTarget) -> None:
    """Copy the slices of a node's pool to another node, where the pool is named after it."""
    pool, old = like.spec.pool, like.spec.node_name or ""
    for slice in list(target.changes.cluster_state.objects.all(ResourceSlice)):
        if (slice.spec.driver, slice.spec.pool.name) == (like.spec.driver, pool.name):
            target.changes.set(copy_slice(slice, old, node))


# -- nodes


def copy_node(objects: ClusterObjects, node: Node, name: str) -> Iterator[Any]:
    """Yield a copy of a node with its devices and drivers; pools shared by several nodes are not copied."""
    old = node.metadata.name
    labels = dict(node.metadata.labels)
    if labels.get(HOSTNAME) == old:
        labels[HOSTNAME] = name
    metadata = replace(node.metadata, name=name, uid=f"whatif/Node/{name}", labels=labels)
    yield replace(node, metadata=metadata, spec=replace(node.spec, unschedulable=False, provider_id=""))
    for slice in list(objects.all(ResourceSlice)):
        if slice.spec.node_name == old:
            yield copy_slice(slice, old, name)
    csi = objects.find(CSINode, "", old)
    if csi is not None:
        yield replace(csi, metadata=replace(csi.metadata, name=name, uid=f"whatif/CSINode/{name}"))


def copy_slice(slice: ResourceSlice, old: str, new: str) -> ResourceSlice:
    """Return the slice of a node as another node would publish it."""
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


def propose_nodes(cluster_state: ClusterState, pod_info: PodInfo) -> Iterator[FixStep]:
    """Yield one more node of each existing shape, smallest first, and one that is just large enough."""
    snapshot, shapes = cluster_state.snapshot, dict[object, Node]()
    for row in snapshot.rows():
        node = snapshot.node(row)
        devices = snapshot.inventory.devices_for(node)
        signature = () if isinstance(devices, AllocationFault) else devices.signature
        labels = frozenset(each for each in node.metadata.labels.items() if each[0] != HOSTNAME)
        shapes.setdefault((str(node.status.allocatable), labels, node.spec.taints, signature), node)
    ordered = sorted(
        shapes.values(), key=lambda node: (len(node.spec.taints), _size(node), node.metadata.name)
    )
    for number, node in enumerate(ordered[:_MAX_SHAPES]):
        name = new_node_name(node.metadata.name)
        change = partial(_add_copy, node, name)
        yield FixStep(FixKind.ADD_NODE, {"node": node.metadata.name}, change, number, name)
    if not pod_info.unallocated_claims and not any(map(is_extended_resource, pod_info.requests)):
        yield _sized_step(pod_info)


def new_node_name(like: str) -> str:
    return f"{like}-added"


def _size(node: Node) -> int:
    amount = node.status.allocatable.get("cpu")
    return amount.nano if amount is not None else 0


def _add_copy(node: Node, name: str, target: FixTarget) -> None:
    for thing in copy_node(target.changes.cluster_state.objects, node, name):
        target.changes.set(thing)


def _sized_step(pod_info: PodInfo) -> FixStep:
    """Return the step that adds a node with what the pod requests, and the labels that it selects."""
    amounts = {name: amount for name, amount in pod_info.requests.items() if amount > 0}
    selector = dict(pod_info.pod.spec.node_selector)
    texts = [f"{format_exact(name, amount)} {name}" for name, amount in sorted(amounts.items())]
    texts += [f"label {key}={value}" for key, value in sorted(selector.items())]
    line = {name: from_units(name, amount) for name, amount in amounts.items()} | {PODS: Quantity.of(110)}
    status = NodeStatus(allocatable=line, capacity=line)
    node = Node(metadata=ObjectMeta(name="new-node", uid="fix/Node", labels=selector), status=status)
    facts = {"amounts": tuple(texts) or ("room for a pod",)}
    return FixStep(FixKind.ADD_SIZED_NODE, facts, partial(_add_copy, node, "new-node"), node="new-node")
