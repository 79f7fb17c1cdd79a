"""Node object and Lease, as an agent writes them.

Builds what is created and what is patched, and detects whether a patch is needed. Pure: times are arguments.
Reasons and messages of conditions are the kubelet's. What others wrote (labels, taints, other conditions,
extended resources) is preserved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import NodeAddress, ResourceList, Taint
from plimsoll.api.quantity import Quantity
from plimsoll.api.timestamps import format_micro_time, format_time
from plimsoll.common.json_tree import branch
from plimsoll.errors import InputError
from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.units import is_extended_resource
from plimsoll.node.machine.machine import Machine

NODE_LEASE_NAMESPACE = "kube-node-lease"
READY, MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE = "Ready", "MemoryPressure", "DiskPressure", "PIDPressure"
#: All conditions an agent reports, in the kubelet's order.
CONDITIONS = (MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE, READY)
#: Condition -> status -> reason and message.
_CONDITION_TEXTS = {
    MEMORY_PRESSURE: {
        True: ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        False: ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    },
    DISK_PRESSURE: {
        True: ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        False: ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    },
    PID_PRESSURE: {
        True: ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        False: ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    },
    READY: {
        True: ("KubeletReady", "kubelet is posting ready status"),
        False: ("KubeletNotReady", "container runtime is down"),
    },
}
#: Labels that are updated on an existing Node; others are set at creation only.
_UPDATED_LABELS = (
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
    "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/instance-type",
)


@dataclass(frozen=True, slots=True)
class ConditionState:
    """State of a condition, with its own message if given."""

    holds: bool
    message: str = ""


def condition_text(type: str, condition_state: ConditionState) -> tuple[str, str]:
    """Return reason and message of a condition."""
    reason, message = _CONDITION_TEXTS.get(type, {}).get(condition_state.holds, ("", ""))
    return reason, condition_state.message or message


def condition_event(type: str, holds: bool) -> str:
    """Return the kubelet's event reason for a change of a condition."""
    if type == READY:
        return "NodeReady" if holds else "NodeNotReady"
    return _CONDITION_TEXTS[type][holds][0].replace("Kubelet", "Node", 1) if type in _CONDITION_TEXTS else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDescription:
    """Everything an agent reports about its node, except conditions."""

    name: str
    machine: Machine
    allocatable_amounts: ResourceList  #: allocatable to pods
    #: Capacity and allocatable number of the extended resources of device plugins.
    plugin_resources: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    runtime: str = "none://1"
    version: str = ""
    features: tuple[str, ...] = ()
    port: int = 0  #: port of the kubelet API; 0: none


def labels_of(facts: NodeDescription) -> dict[str, str]:
    """Return the labels a Node is created with; settings take precedence over the machine file."""
    machine = facts.machine
    # Several agents on one machine are distinguished by name; a label holds at most 63 characters.
    host = facts.name if len(facts.name) <= 63 else machine.hostname[:63]
    found = {
        "kubernetes.io/hostname": host,
        "kubernetes.io/os": machine.os,
        "kubernetes.io/arch": machine.arch,
        "beta.kubernetes.io/os": machine.os,
        "beta.kubernetes.io/arch": machine.arch,
    }
    return {**found, **machine.labels, **facts.labels}


def new_node(facts: NodeDescription, conditions: Mapping[str, ConditionState], now: float) -> dict[str, Any]:
    """Return the Node to create."""
    taints = [codec.to_tree(taint) for taint in dict.fromkeys((*facts.taints, *facts.machine.taints))]
    tree: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": facts.name, "labels": labels_of(facts)},
        "spec": {"taints": taints} if taints else {},
        "status": desired_status(facts, conditions, {}, now),
    }
    return tree


def label_patch(facts: NodeDescription, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the patch that updates the labels of an existing Node; None if they are up to date."""
    have = branch(known, "metadata", "labels")
    labels = labels_of(facts)
    wrong = {key: labels[key] for key in _UPDATED_LABELS if key in labels and have.get(key) != labels[key]}
    return {"metadata": {"labels": wrong}} if wrong else None


def desired_status(
    facts: NodeDescription, conditions: Mapping[str, ConditionState], known: Mapping[str, Any], now: float
) -> dict[str, Any]:
    """Return the desired status, given the current one."""
    machine = facts.machine
    capacity, allocatable_amounts = _amounts(machine.capacity), _amounts(facts.allocatable_amounts)
    for name, (total, healthy) in facts.plugin_resources.items():
        capacity[name], allocatable_amounts[name] = str(total), str(healthy)
    for name, amount in branch(known, "capacity").items():
        if name not in capacity and is_extended_resource(name):  # added by another component
            allocatable_amounts[name] = amount
    status: dict[str, Any] = {
        "capacity": capacity,
        "allocatable": allocatable_amounts,
        "conditions": _conditions(conditions, known, now),
        "addresses": [{"type": each.type, "address": each.address} for each in addresses_of(facts)],
        "nodeInfo": {
            "machineID": machine.machine_id,
            "systemUUID": machine.system_uuid,
            "bootID": machine.boot_id,
            "kernelVersion": machine.kernel,
            "osImage": machine.os_image,
            "containerRuntimeVersion": facts.runtime,
            "kubeletVersion": facts.version,
            "kubeProxyVersion": "",
            "operatingSystem": machine.os,
            "architecture": machine.arch,
        },
    }
    if machine.swap > 0:
        status["nodeInfo"]["swap"] = {"capacity": machine.swap}
    if facts.features:
        status["declaredFeatures"] = sorted(set(facts.features))
    if facts.port or branch(known, "daemonEndpoints", "kubeletEndpoint").get("Port"):
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": facts.port}}
    return status


def addresses_of(facts: NodeDescription) -> tuple[NodeAddress, ...]:
    """Return the addresses of a node, including its host name."""
    given = dict.fromkeys((*facts.addresses, *facts.machine.addresses))
    if not any(address.type == "Hostname" for address in given):
        name = labels_of(facts)["kubernetes.io/hostname"]
        given[NodeAddress(type="Hostname", address=name)] = None
    return tuple(given)


def status_patch(desired: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return a strategic merge patch from one status to the other; fields of others are preserved."""
    patch = dict(desired)
    for amounts in ("capacity", "allocatable"):
        gone = {name: None for name in branch(known, amounts) if _is_gone(name, desired[amounts])}
        patch[amounts] = {**desired[amounts], **gone}
    # Addresses are merged by type, of which there may be several.
    patch["addresses"] = [{"$patch": "replace"}, *desired["addresses"]]
    if "declaredFeatures" not in desired and known.get("declaredFeatures"):
        patch["declaredFeatures"] = None
    return {"status": patch}


def _is_gone(name: str, desired: Mapping[str, Any]) -> bool:
    return name not in desired and is_huge_page(name)


def has_changed(desired: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Return whether a status differs from the current one in anything but heartbeat times."""
    for name, value in desired.items():
        have = known.get(name)
        if name in ("capacity", "allocatable"):
            have = branch(have)
            wrong = any(not _same_amount(have.get(key), amount) for key, amount in value.items())
            if wrong or any(_is_gone(key, value) for key in have):
                return True
        elif name == "conditions":
            there = {branch(c).get("type"): _without_times(branch(c)) for c in have or ()}
            if any(there.get(condition["type"]) != _without_times(condition) for condition in value):
                return True
        elif name == "nodeInfo":
            # Empty fields may be omitted by the server.
            if any((branch(have).get(key) or "") != (text or "") for key, text in value.items()):
                return True
        elif have != value:
            return True
    return "declaredFeatures" not in desired and bool(known.get("declaredFeatures"))


def new_lease(name: str, uid: str, now: float, seconds: int) -> dict[str, Any]:
    """Return the Lease of a node, owned by the Node."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": NODE_LEASE_NAMESPACE, "ownerReferences": [_owner(name, uid)]},
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": seconds,
            "renewTime": format_micro_time(now),
        },
    }


def renewed_lease(lease: Mapping[str, Any], name: str, uid: str, now: float, seconds: int) -> dict[str, Any]:
    """Return the Lease with a new renew time, owned by this very Node."""
    fresh = new_lease(name, uid, now, seconds)
    metadata = {**branch(lease, "metadata"), "ownerReferences": fresh["metadata"]["ownerReferences"]}
    return {**lease, "metadata": metadata, "spec": {**branch(lease, "spec"), **fresh["spec"]}}


def _owner(name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}


def _amounts(amounts: ResourceList) -> dict[str, Any]:
    return {name: str(amount) for name, amount in amounts.items()}


def _conditions(
    conditions: Mapping[str, ConditionState], known: Mapping[str, Any], now: float
) -> list[dict[str, Any]]:
    before = {branch(c).get("type"): branch(c) for c in known.get("conditions") or ()}
    found = []
    for type in sorted(conditions, key=lambda type: (type == READY, _condition_order(type), type)):
        condition_state = conditions[type]
        status = "True" if condition_state.holds else "False"
        reason, message = condition_text(type, condition_state)
        old = before.get(type, {})
        since = old.get("lastTransitionTime") if old.get("status") == status else None
        found.append(
            {
                "type": type,
                "status": status,
                "reason": reason,
                "message": message,
                "lastHeartbeatTime": format_time(now),
                "lastTransitionTime": since or format_time(now),
            }
        )
    return found


def _condition_order(type: str) -> int:
    return CONDITIONS.index(type) if type in CONDITIONS else len(CONDITIONS)


def _without_times(condition: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(condition.get(name) or "" for name in ("status", "reason", "message"))


def _same_amount(one: Any, other: Any) -> bool:
    if one == other:
        return True
    if one is None or other is None:
        return False
    try:
        return Quantity.from_json(one) == Quantity.from_json(other)
    except InputError:
        return False
