"""Steps that add devices or nodes: copies of what the cluster has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from plimsoll.allocator import AllocationFault, Refusal
from plimsoll.allocator.devices.node_devices import DeviceEntry
from plimsoll.api.core import Node, NodeStatus
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import (
    ResourceClaim,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from plimsoll.api.storage import CSINode
from plimsoll.ledger.units import PODS, from_units, is_dra_extended_resource
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.tools.amounts import format_exact
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.objects import ClusterObjects
from plimsoll.tools.columns import format_count
from plimsoll.tools.fixes.edits import create
from plimsoll.tools.fixes.fix import FixKind, FixStep
from plimsoll.tools.fixes.trial import FixTrial

HOSTNAME = "kubernetes.io/hostname"
#: Kinds of existing nodes of which one more is tried.
_MAX_SHAPES = 6


# -- devices


def propose_devices(trial: FixTrial, reasons: Sequence[NodeReason]) -> Iterator[FixStep]:
    """Yield the steps that add devices like existing ones for the requests that a node cannot serve."""
    for refusal in (reason.cause for reason in reasons):
        for request, _, body in trial.unserved(refusal) if isinstance(refusal, Refusal) else ():
            found = trial.snapshot.classes.get(body.device_class_name)
            like = trial.find_device(found, *body.selectors) if found is not None else None
            if like is None:
                continue
            slice, pools = like.view.slice, trial.devices.pools if trial.devices is not None else ()
            if not any(pool.id.driver == slice.spec.driver for pool in pools):
                yield from _restart_steps(trial, slice)
            elif not like.device.consumes_counters:  # a partition comes with its device
                for count in sorted({max(request.wanted - request.left, 1), max(request.wanted, 1)}):
                    yield _add_step(trial, like, count)


def _add_step(trial: FixTrial, like: DeviceEntry, count: int) -> FixStep:
    node, slice = trial.name, like.view.slice
    plain = replace(like.device, taints=(), node_name=None, node_selector=None, all_nodes=None)
    name = f"{node}-added-{slice.spec.driver}"
    spec = ResourceSliceSpec(
        driver=slice.spec.driver,
        pool=ResourcePool(name=name, generation=1, resource_slice_count=1),
        node_name=node,
        devices=tuple(replace(plain, name=f"added-{number}") for number in range(count)),
    )
    added = ResourceSlice(slice.api_version, slice.kind, ObjectMeta(name=name), spec)
    facts = {
        "count": format_count(count, "device"),
        "device": f"{slice.spec.driver}/{like.device.name}",
        "node": node,
    }
    return FixStep(FixKind.ADD_DEVICES, facts, (create(added),), min(count, 8), node)


def _restart_steps(trial: FixTrial, like: ResourceSlice) -> Iterator[FixStep]:
    """Propose to restart a driver that has devices allocated on the node and publishes none."""
    driver, node, old = like.spec.driver, trial.name, like.spec.node_name
    results = (result for claim in trial.snapshot.all(ResourceClaim) for result in claim.allocation_results)
    if old and any((result.driver, result.pool) == (driver, node) for result in results):
        edits = tuple(
            create(copy_slice(slice, old, node), like=slice.metadata.name)
            for slice in trial.snapshot.all(ResourceSlice)
            if (slice.spec.driver, slice.spec.pool.name) == (driver, like.spec.pool.name)
        )
        yield FixStep(FixKind.RESTART_DRIVER, {"driver": driver, "node": node}, edits, node=node)


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
        old, name = node.metadata.name, new_node_name(node.metadata.name)
        edit = create(*copy_node(cluster_state.objects, node, name), like=old)
        yield FixStep(FixKind.ADD_NODE, {"node": old}, (edit,), number, name)
    if not pod_info.unallocated_claims and not any(map(is_dra_extended_resource, pod_info.requests)):
        yield _sized_step(pod_info)


def new_node_name(like: str) -> str:
    return f"{like}-added"


def _size(node: Node) -> int:
    amount = node.status.allocatable.get("cpu")
    return amount.nano if amount is not None else 0


def _sized_step(pod_info: PodInfo) -> FixStep:
    """Return the step that adds a node with what the pod requests: amounts, labels and other domains."""
    spec, name = pod_info.pod.spec, "new-node"
    amounts = {name: amount for name, amount in pod_info.requests.items() if amount > 0}
    apart = spec.affinity.pod_anti_affinity if spec.affinity is not None else None
    keys = {term.topology_key for term in (apart.required if apart is not None else ())}
    keys |= {each.topology_key for each in spec.topology_spread_constraints}
    new = keys - {HOSTNAME} - set(spec.node_selector)
    labels = {HOSTNAME: name, **dict.fromkeys(new, name), **spec.node_selector}
    texts = [f"{format_exact(name, amount)} {name}" for name, amount in sorted(amounts.items())]
    texts += [f"label {key}={value}" for key, value in sorted(spec.node_selector.items())]
    texts += [f"another {key} than all nodes" for key in sorted(new)]
    line = {name: from_units(name, amount) for name, amount in amounts.items()} | {PODS: Quantity.of(110)}
    status = NodeStatus(allocatable=line, capacity=line)
    metadata = ObjectMeta(name=name, uid="fix/Node", labels=labels)
    node = Node(api_version="v1", kind="Node", metadata=metadata, status=status)
    facts = {"amounts": tuple(texts) or ("room for a pod",)}
    return FixStep(FixKind.ADD_SIZED_NODE, facts, (create(node),), node=name)
