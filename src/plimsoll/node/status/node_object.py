"""The Node object and its Lease, as an agent writes them.

Owns the trees: what is created, what is patched, and whether there is anything to patch at all. Pure: times
are arguments. Reasons and messages of conditions are the kubelet's. What others wrote (labels, taints, other
conditions, extended resources that somebody added) stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import NodeAddress, ResourceList, Taint
from plimsoll.api.quantity import Quantity
from plimsoll.errors import InputError
from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.units import is_extended
from plimsoll.node.machine.machine import Machine

LEASES_OF_NODES = "kube-node-lease"
READY, MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE = "Ready", "MemoryPressure", "DiskPressure", "PIDPressure"
#: Every condition an agent tells, in the kubelet's order.
CONDITIONS = (MEMORY_PRESSURE, DISK_PRESSURE, PID_PRESSURE, READY)
#: Condition -> whether it holds -> reason and message.
_WORDS = {
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
#: The labels that are brought up to date on a Node that was there before; others are given at creation only.
_KEPT_LABELS = (
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
class Sign:
    """What is the case about a condition; texts of its own where they are given."""

    holds: bool
    reason: str = ""
    message: str = ""


def words_of(type: str, sign: Sign) -> tuple[str, str]:
    """Reason and message of a condition."""
    reason, message = _WORDS.get(type, {}).get(sign.holds, ("", ""))
    return sign.reason or reason, sign.message or message


def event_of(type: str, holds: bool) -> str:
    """The kubelet's word for the event that a condition has changed."""
    if type == READY:
        return "NodeReady" if holds else "NodeNotReady"
    return _WORDS[type][holds][0].replace("Kubelet", "Node", 1) if type in _WORDS else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """All that an agent says about its node, conditions apart."""

    name: str
    machine: Machine
    line: ResourceList  #: what pods may have
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    runtime: str = "none://1"
    version: str = ""
    features: tuple[str, ...] = ()
    port: int = 0  #: of the agent's pages; 0: none


def labels_of(facts: NodeFacts) -> dict[str, str]:
    """The labels a Node is created with; those of the settings go before those of the machine's file."""
    machine = facts.machine
    # Several agents on one machine are told apart by their names; a label has room for 63 characters.
    host = facts.name if len(facts.name) <= 63 else machine.hostname[:63]
    found = {
        "kubernetes.io/hostname": host,
        "kubernetes.io/os": machine.os,
        "kubernetes.io/arch": machine.arch,
        "beta.kubernetes.io/os": machine.os,
        "beta.kubernetes.io/arch": machine.arch,
    }
    return {**found, **machine.labels, **facts.labels}


def new_node(facts: NodeFacts, signs: Mapping[str, Sign], now: float) -> dict[str, Any]:
    """The Node to create."""
    taints = [codec.to_tree(taint) for taint in dict.fromkeys((*facts.taints, *facts.machine.taints))]
    tree: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": facts.name, "labels": labels_of(facts)},
        "spec": {"taints": taints} if taints else {},
        "status": wanted_status(facts, signs, {}, now),
    }
    return tree


def label_patch(facts: NodeFacts, known: Mapping[str, Any]) -> dict[str, Any] | None:
    """What brings the labels of a Node that was there before up to date; None: they are."""
    have = _mapping(_mapping(known.get("metadata")).get("labels"))
    labels = labels_of(facts)
    wrong = {key: labels[key] for key in _KEPT_LABELS if key in labels and have.get(key) != labels[key]}
    return {"metadata": {"labels": wrong}} if wrong else None


def wanted_status(
    facts: NodeFacts, signs: Mapping[str, Sign], known: Mapping[str, Any], now: float
) -> dict[str, Any]:
    """The status as it should be, given the one there is."""
    machine = facts.machine
    capacity, line = _amounts(machine.capacity), _amounts(facts.line)
    for name, amount in _mapping(known.get("capacity")).items():
        if name not in capacity and is_extended(name):  # added by somebody else
            line[name] = amount
    status: dict[str, Any] = {
        "capacity": capacity,
        "allocatable": line,
        "conditions": _conditions(signs, known, now),
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
    if facts.port:
        status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": facts.port}}
    return status


def addresses_of(facts: NodeFacts) -> tuple[NodeAddress, ...]:
    """The addresses of a node; its host name is one of them."""
    given = dict.fromkeys((*facts.addresses, *facts.machine.addresses))
    if not any(address.type == "Hostname" for address in given):
        name = labels_of(facts)["kubernetes.io/hostname"]
        given[NodeAddress(type="Hostname", address=name)] = None
    return tuple(given)


def status_patch(wanted: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """A strategic merge patch that leads from one status to the other; what is not ours stays."""
    patch = dict(wanted)
    for amounts in ("capacity", "allocatable"):
        gone = {name: None for name in _mapping(known.get(amounts)) if _is_gone(name, wanted[amounts])}
        patch[amounts] = {**wanted[amounts], **gone}
    # Addresses are merged by their type, of which there may be several.
    patch["addresses"] = [{"$patch": "replace"}, *wanted["addresses"]]
    if "declaredFeatures" not in wanted and known.get("declaredFeatures"):
        patch["declaredFeatures"] = None
    return {"status": patch}


def _is_gone(name: str, wanted: Mapping[str, Any]) -> bool:
    return name not in wanted and is_huge_page(name)


def has_changed(wanted: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether a status differs from the one there is in anything but the times of its heartbeats."""
    for name, value in wanted.items():
        have = known.get(name)
        if name in ("capacity", "allocatable"):
            have = _mapping(have)
            wrong = any(not _same_amount(have.get(key), amount) for key, amount in value.items())
            if wrong or any(_is_gone(key, value) for key in have):
                return True
        elif name == "conditions":
            there = {_mapping(c).get("type"): _timeless(_mapping(c)) for c in have or ()}
            if any(there.get(condition["type"]) != _timeless(condition) for condition in value):
                return True
        elif name == "nodeInfo":
            # What is empty need not come back.
            if any((_mapping(have).get(key) or "") != (text or "") for key, text in value.items()):
                return True
        elif have != value:
            return True
    return "declaredFeatures" not in wanted and bool(known.get("declaredFeatures"))


def new_lease(name: str, uid: str, now: float, seconds: int) -> dict[str, Any]:
    """The Lease of a node, which goes when the Node does."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASES_OF_NODES, "ownerReferences": [_owner(name, uid)]},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": seconds, "renewTime": write_micro(now)},
    }


def renewed_lease(lease: Mapping[str, Any], name: str, uid: str, now: float, seconds: int) -> dict[str, Any]:
    """The Lease with a new time, for this very Node."""
    fresh = new_lease(name, uid, now, seconds)
    metadata = {**_mapping(lease.get("metadata")), "ownerReferences": fresh["metadata"]["ownerReferences"]}
    return {**lease, "metadata": metadata, "spec": {**_mapping(lease.get("spec")), **fresh["spec"]}}


def _owner(name: str, uid: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}


def _amounts(amounts: ResourceList) -> dict[str, Any]:
    return {name: str(amount) for name, amount in amounts.items()}


def _conditions(signs: Mapping[str, Sign], known: Mapping[str, Any], now: float) -> list[dict[str, Any]]:
    before = {_mapping(c).get("type"): _mapping(c) for c in known.get("conditions") or ()}
    found = []
    for type in sorted(signs, key=lambda type: (type == READY, _place(type), type)):
        sign = signs[type]
        status = "True" if sign.holds else "False"
        reason, message = words_of(type, sign)
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


def _place(type: str) -> int:
    return CONDITIONS.index(type) if type in CONDITIONS else len(CONDITIONS)


def _timeless(condition: Mapping[str, Any]) -> tuple[Any, ...]:
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


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def format_time(now: float) -> str:
    """A time as most fields have it."""
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def write_micro(now: float) -> str:
    """A time as leases have it."""
    return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
