"""Independent checker of nodes with placeholder pods: it reads API objects alone and shares no code with the
product.

`NodeStates` replays pods and claims in the order of their resource versions. In every state it sums the
admitted pods of each node twice: the requests that kubelets and kube-scheduler see, with those of
placeholders; and what pods and claims really take, without placeholders. `find_faults` checks a state in
which nothing changes any more.

Pods have one container. Charges are those of the annotations on device classes, computed from allocations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from math import ceil
from typing import Any

Tree = dict[str, Any]
Amounts = Counter[str]
ClaimKey = tuple[str, str]

PLACEHOLDERS = "plimsoll-placeholders"
STANDS_FOR = "plimsoll.dev/stands-for"
CLAIM = "plimsoll.dev/claim"
MAPPINGS = "plimsoll.dev/node-allocatable"
_SEEN, _TRUE = "requests", "requests and claims"
_FACTORS = {
    "": Fraction(1),
    "m": Fraction(1, 1000),
    **{letter: Fraction(1000 ** (number + 1)) for number, letter in enumerate("kMGT")},
    **{f"{letter}i": Fraction(1024 ** (number + 1)) for number, letter in enumerate("KMGT")},
}


@cache
def amount_of(text: object) -> int:
    """Parse a quantity, in thousandths."""
    number = str(text).rstrip("mkKMGTi")
    return ceil(Fraction(number) * _FACTORS[str(text)[len(number) :]] * 1000)


@dataclass(frozen=True)
class Excess:
    """Node past its allocatable amount, from one resource version on."""

    version: int
    node: str
    resource: str
    sums: str  #: which of the two sums
    taken: int
    allocatable: int
    excused: bool  #: a person had removed a placeholder there

    def __str__(self) -> str:
        note = " (a placeholder had been removed by hand)" if self.excused else ""
        return (
            f"version {self.version}: node {self.node}: {self.resource} {self.taken / 1000:g} of "
            f"{self.allocatable / 1000:g} by {self.sums}{note}"
        )


@dataclass
class NodeStates:
    """Pods, claims and nodes as of the latest event, and every excess so far."""

    classes: dict[str, Tree]  #: mappings by device class
    capacities: dict[tuple[str, str, str], dict[str, int]]  #: by driver, pool and device
    removed_by_hand: set[str]  #: UIDs of placeholders
    pods: dict[str, Tree] = field(default_factory=dict)
    claims: dict[ClaimKey, Tree] = field(default_factory=dict)
    nodes: dict[str, Tree] = field(default_factory=dict)
    excesses: list[Excess] = field(default_factory=list)
    states: int = 0
    exposed: set[str] = field(default_factory=set)
    _exceeded: set[tuple[str, str, str]] = field(default_factory=set)
    _by_node: dict[str, set[str]] = field(default_factory=dict)

    # -- events

    def apply(self, deleted: bool, tree: Tree) -> None:
        """Apply an event; events come in the order of their resource versions."""
        version = int(tree["metadata"]["resourceVersion"])
        concerned = set(self._apply(deleted, tree))
        for node in concerned:
            self.states += 1
            self._check(node, version)

    def _apply(self, deleted: bool, tree: Tree) -> Iterator[str]:
        meta = tree["metadata"]
        if tree["kind"] == "Pod":
            node, uid = tree["spec"].get("nodeName", ""), meta["uid"]
            before = self.pods.pop(uid, None)
            if before is not None:
                self._by_node.get(before["spec"].get("nodeName", ""), set()).discard(uid)
            if not deleted:
                self.pods[uid] = tree
                self._by_node.setdefault(node, set()).add(uid)
            elif uid in self.removed_by_hand and node:
                self.exposed.add(node)
            if node:
                yield node
        elif tree["kind"] == "ResourceClaim":
            key = (meta["namespace"], meta["name"])
            self.claims.pop(key, None)
            if not deleted:
                self.claims[key] = tree
            yield from {
                pod["spec"]["nodeName"]
                for pod in self.pods.values()
                if is_admitted(pod) and key in claims_of(pod)
            }
        elif tree["kind"] == "Node":
            self.nodes.pop(meta["name"], None)
            if not deleted:
                self.nodes[meta["name"]] = tree
                yield meta["name"]

    def _check(self, node: str, version: int) -> None:
        if node not in self.nodes:
            return
        limits = self.allocatable(node)
        true = self.true_sum(node)
        if node in self.exposed and all(true[name] <= limits[name] for name in true):
            missing = any(True for _ in self.missing_placeholders(node))
            if not missing:
                self.exposed.discard(node)
        for sums, total in ((_SEEN, self.seen_sum(node)), (_TRUE, true)):
            for resource, taken in total.items():
                at = (node, resource, sums)
                if taken <= limits[resource]:
                    self._exceeded.discard(at)
                elif at not in self._exceeded:
                    self._exceeded.add(at)
                    excused = sums == _TRUE and node in self.exposed
                    self.excesses.append(
                        Excess(version, node, resource, sums, taken, limits[resource], excused)
                    )

    # -- sums

    def allocatable(self, node: str) -> Amounts:
        return _amounts(self.nodes[node]["status"]["allocatable"])

    def admitted(self, node: str) -> list[Tree]:
        pods = (self.pods[uid] for uid in self._by_node.get(node, ()))
        return [pod for pod in pods if is_admitted(pod)]

    def seen_sum(self, node: str) -> Amounts:
        """Sum what kubelets and kube-scheduler see."""
        total: Amounts = Counter()
        for pod in self.admitted(node):
            _add(total, requests_of(pod))
            total["pods"] += 1000
        return total

    def true_sum(self, node: str) -> Amounts:
        """Sum what pods and claims take."""
        total: Amounts = Counter()
        shared: set[ClaimKey] = set()
        for pod in self.admitted(node):
            if is_placeholder(pod):
                continue
            _add(total, self.own_amounts(pod))
            shared |= {key for key in claims_of(pod) if self._is_pool(key)}
        for key in shared:
            _add(total, self.claim_amounts(key)[1])
        return total

    def own_amounts(self, pod: Tree) -> Amounts:
        """Return what a pod takes, without pools that several pods may share."""
        requests, total = requests_of(pod), Counter(requests_of(pod))
        larger: Amounts = Counter()
        for key in claims_of(pod):
            policies, amounts = self.claim_amounts(key)
            for resource, amount in amounts.items():
                policy = policies.get(resource, "AddPerClaim")
                if policy == "AddPerClaim":
                    total[resource] += amount
                elif policy == "Max":
                    larger[resource] += amount
                elif policy == "ConsumeFrom":
                    total[resource] -= requests[resource]
        for resource, amount in larger.items():
            total[resource] += max(amount - requests[resource], 0)
        return total

    def claim_amounts(self, key: ClaimKey) -> tuple[dict[str, str], Amounts]:
        """Return the policies of a claim's class, and what its allocation charges."""
        total: Amounts = Counter()
        claim = self.claims.get(key)
        if claim is None:
            return {}, total
        policies: dict[str, str] = {}
        requests = {each["name"]: each["exactly"] for each in claim["spec"]["devices"]["requests"]}
        for result in _results(claim):
            rules = self.classes[requests[result["request"]]["deviceClassName"]]
            policies |= rules.get("nodeAllocatableResourceAccountingPolicies", {})
            for resource, rule in rules["nodeAllocatableResourceMappings"].items():
                amount = amount_of(rule.get("allocationMultiplier", "1"))
                if name := rule.get("capacityKey"):
                    consumed = result.get("consumedCapacity", {}).get(name)
                    at = (result["driver"], result["pool"], result["device"])
                    amount *= amount_of(consumed) if consumed else self.capacities[at][name]
                    amount //= 1000
                total[resource] += amount
        return policies, total

    def _is_pool(self, key: ClaimKey) -> bool:
        return "ConsumeFrom" in self.claim_amounts(key)[0].values()

    # -- placeholders

    def planned(self, pod: Tree) -> Iterator[tuple[str, Amounts]]:
        """Yield what must stand for a pod: the UID of the pod, or the name of a claim, and the requests."""
        own = Counter(self.own_amounts(pod))
        named = {each.get("resourceClaimName") for each in pod["spec"].get("resourceClaims", ())}
        for key in claims_of(pod):
            if self._is_pool(key):
                amounts = self.claim_amounts(key)[1]
                if key[1] in named:
                    yield "/".join(key), amounts
                else:
                    _add(own, amounts)
        requests = requests_of(pod)
        beyond = Counter({name: own[name] - requests[name] for name in own if own[name] > requests[name]})
        if beyond:
            yield pod["metadata"]["uid"], beyond

    def placeholders(self, node: str) -> dict[str, Tree]:
        """Return the admitted placeholders of a node by what they stand for."""
        return {_owner(pod): pod for pod in self.admitted(node) if is_placeholder(pod)}

    def missing_placeholders(self, node: str) -> Iterator[tuple[Tree, Amounts]]:
        """Yield the charged pods of a node that have no placeholder with exactly their charges."""
        there = self.placeholders(node)
        for pod in self.admitted(node):
            if is_placeholder(pod) or "deletionTimestamp" in pod["metadata"]:
                continue
            for uid, amounts in self.planned(pod):
                if uid not in there or +requests_of(there[uid]) != +amounts:
                    yield pod, amounts

    # -- at rest

    def find_faults(self, lane: str, *, placeholders: bool) -> list[str]:
        """Return what is wrong with the nodes of a lane and its pods when nothing changes any more."""
        nodes = [
            name
            for name, node in self.nodes.items()
            if node["metadata"].get("labels", {}).get("lane") == lane
        ]
        faults = []
        for node in nodes:
            cordoned = self.nodes[node]["spec"].get("unschedulable", False)
            limits, seen = self.allocatable(node), self.seen_sum(node)
            for pod, amounts in self.missing_placeholders(node) if placeholders and not cordoned else ():
                if node in self.exposed and not _fits(amounts, limits, seen, 1):
                    continue  # reported by an event: a person removed it, and others took the room
                faults.append(f"pod {_name(pod)} on {node} has no placeholder of {_text(amounts)}")
            for owner, pod in self.placeholders(node).items():
                users = (
                    other
                    for other in self.admitted(node)
                    if owner in (other["metadata"]["uid"], *("/".join(key) for key in claims_of(other)))
                )
                if not any(users):
                    faults.append(f"placeholder {_name(pod)} on {node} is stale")
        for pod in self.pods.values():
            if is_placeholder(pod) or pod["spec"].get("nodeSelector", {}).get("lane") != lane:
                continue
            if not pod["spec"].get("nodeName"):
                faults += (
                    f"pod {_name(pod)} is not bound, and fits {node}: {_message(pod)}"
                    for node in nodes
                    if self._may_bind(pod, node)
                )
            elif not is_over(pod) and not is_admitted(pod):
                faults.append(f"pod {_name(pod)} on {pod['spec']['nodeName']} is not decided about")
        for pod in self.pods.values():
            if is_placeholder(pod) and pod["spec"]["nodeName"] in nodes and not is_admitted(pod):
                faults.append(f"placeholder {_name(pod)} is {pod['status'].get('phase')}")
        return faults

    def _may_bind(self, pod: Tree, node: str) -> bool:
        """Return whether a pending pod fits a node as it is, with the devices that are free there."""
        if self.nodes[node]["spec"].get("unschedulable") or "deletionTimestamp" in pod["metadata"]:
            return False
        if any(each["status"].get("nominatedNodeName") == node for each in self.pods.values()):
            return False  # room is kept for a pod that preempts
        if len(claims_of(pod)) < len(pod["spec"].get("resourceClaims", ())):
            return False  # a claim has not been generated yet
        limits = self.allocatable(node)
        taken = self.seen_sum(node) | self.true_sum(node)
        charges, pods = self._pending_charges(pod, node)
        if charges is None:
            return False
        need = Counter(requests_of(pod))
        _add(need, charges)
        return _fits(need, limits, taken, pods)

    def _pending_charges(self, pod: Tree, node: str) -> tuple[Amounts | None, int]:
        """Return what the claims of a pending pod would charge (None: not here), and the number of pods."""
        charges: Amounts = Counter()
        taken = self._devices_in_use()
        for key in claims_of(pod):
            claim = self.claims.get(key)
            if claim is None:
                return None, 0
            if _results(claim):
                if {result["pool"] for result in _results(claim)} != {node}:
                    return None, 0
                if "/".join(key) not in self.placeholders(node):
                    _add(charges, self.claim_amounts(key)[1])
                continue
            for request in claim["spec"]["devices"]["requests"]:
                exact = request["exactly"]
                rules = self.classes[exact["deviceClassName"]]
                wanted = {
                    name: amount_of(text)
                    for name, text in exact.get("capacity", {}).get("requests", {}).items()
                }
                if not self._has_device(exact["deviceClassName"], node, wanted, taken):
                    return None, 0
                for resource, rule in rules["nodeAllocatableResourceMappings"].items():
                    amount = amount_of(rule.get("allocationMultiplier", "1"))
                    charges[resource] += amount * wanted.get(rule.get("capacityKey"), 1000) // 1000
        return charges, 1 + bool(charges)

    def _devices_in_use(self) -> dict[tuple[str, str, str], Amounts]:
        used: dict[tuple[str, str, str], Amounts] = {}
        for claim in self.claims.values():
            for result in _results(claim):
                at = (result["driver"], result["pool"], result["device"])
                found = used.setdefault(at, Counter())
                _add(found, _amounts(result.get("consumedCapacity", {})))
        return used

    def _has_device(self, name: str, node: str, wanted: dict[str, int], used: Any) -> bool:
        for at, capacity in self.capacities.items():
            if at[1] != node or self.classes[name]["driver"] != at[0]:
                continue
            if not wanted and at not in used:
                return True
            if wanted and all(
                capacity.get(each, 0) - used.get(at, Counter())[each] >= amount
                for each, amount in wanted.items()
            ):
                return True
        return False


def is_placeholder(pod: Tree) -> bool:
    return bool(pod["metadata"]["namespace"] == PLACEHOLDERS)


def _owner(placeholder: Tree) -> str:
    """Return the UID of the pod, or the name of the claim, that a placeholder stands for."""
    meta = placeholder["metadata"]
    return str(meta.get("labels", {}).get(STANDS_FOR) or meta["annotations"][CLAIM])


def is_over(pod: Tree) -> bool:
    return pod["status"].get("phase") in ("Failed", "Succeeded")


def is_admitted(pod: Tree) -> bool:
    """Return whether a kubelet has admitted a pod that has not ended.

    A kubelet that has just started reports a start time, and no conditions, for a pod that it has rejected.
    """
    status = pod["status"]
    synced = any(each["type"] == "Initialized" for each in status.get("conditions", ()))
    return bool(status.get("startTime")) and not is_over(pod) and (synced or status["phase"] == "Running")


def claims_of(pod: Tree) -> list[ClaimKey]:
    names = {each["name"]: each.get("resourceClaimName") for each in pod["spec"].get("resourceClaims", ())}
    for each in pod["status"].get("resourceClaimStatuses", ()):
        names[each["name"]] = names[each["name"]] or each.get("resourceClaimName")
    return [(pod["metadata"]["namespace"], name) for name in names.values() if name]


def requests_of(pod: Tree) -> Amounts:
    total: Amounts = Counter()
    for container in pod["spec"]["containers"]:
        _add(total, _amounts(container.get("resources", {}).get("requests", {})))
    return total


def _results(claim: Tree) -> list[Tree]:
    allocation = claim.get("status", {}).get("allocation") or {}
    return list(allocation.get("devices", {}).get("results", ()))


def _amounts(texts: Tree) -> Amounts:
    return Counter({name: amount_of(text) for name, text in texts.items()})


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] += amount


def _fits(need: Amounts, limits: Amounts, taken: Amounts, pods: int) -> bool:
    need = Counter(need)
    need["pods"] += 1000 * pods
    return all(taken[name] + amount <= limits[name] for name, amount in need.items())


def _name(pod: Tree) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _message(pod: Tree) -> str:
    return " ".join(each.get("message", "") for each in pod["status"].get("conditions", ()))


def _text(amounts: Amounts) -> str:
    return ", ".join(f"{name} {amount / 1000:g}" for name, amount in amounts.items())
