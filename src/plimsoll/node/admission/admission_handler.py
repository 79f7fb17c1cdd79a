"""Admission of the pods bound to a node, against the node's own ledger.

A pod is checked once, when it arrives, against everything admitted before; the reason and message of a
rejection are the kubelet's. The admitted pods, their order and their allocated resources are checkpointed.
Guarantees that pods which were admitted stay admitted after a restart, whatever is allocatable then, and that
the others follow in order of creation; that the admitted pods never exceed the allocatable amount they were
checked against; and that ledger and checkpoint agree.

DIFF: upstream checks running pods again after a restart, in order of creation, and fails those that no longer
fit (test_an_admitted_pod_stays_admitted).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from plimsoll.api.core import Node, Pod
from plimsoll.api.gates import Gates
from plimsoll.api.node_selection import filter_valid_terms, term_matches
from plimsoll.api.tolerations import is_tolerated
from plimsoll.common.checkpoint import FindingSeverity, NodeFinding, RecordFile
from plimsoll.errors import InputError, StoreError
from plimsoll.ledger.claims import read_charged_claims
from plimsoll.ledger.containers import is_sidecar
from plimsoll.ledger.fit import PodAdmitResult
from plimsoll.ledger.node_ledger import NodeLedger, pod_key
from plimsoll.ledger.placement import check_admission
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.qos import pod_qos
from plimsoll.ledger.units import to_unit
from plimsoll.node.admission.allocation import PodAllocation
from plimsoll.node.admission.preemption import (
    Candidate,
    Need,
    choose_victims,
    is_critical,
    may_preempt,
    needs_of,
)

_log = logging.getLogger("plimsoll.node")

KIND = "AdmittedPods"
_OS_LABEL = "kubernetes.io/os"
_NO_EXECUTE = "NoExecute"
_ANY_ADDRESS = "0.0.0.0"


class AdmissionHandler:
    """Admission handler of one node."""

    def __init__(
        self,
        node: Node,
        *,
        gates: Gates | None = None,
        profile: AccountingProfile | None = None,
        record: RecordFile | None = None,
    ) -> None:
        """Create a handler; without a record nothing is checkpointed."""
        self.ledger = NodeLedger(node, gates, profile)
        self.findings: tuple[NodeFinding, ...] = ()
        #: Number of rejected pods, by reason.
        self.rejections: dict[str, int] = {}
        self._record = record
        self._allocations: dict[str, PodAllocation] = {}
        self._recovered: dict[str, PodAllocation | None] = {}
        self._dirty = False
        self._saving = asyncio.Lock()
        if record is not None:
            self._load(record)

    # -- queries

    def __contains__(self, uid: str) -> bool:
        return uid in self.ledger.entries

    def __len__(self) -> int:
        return len(self.ledger)

    @property
    def admitted_uids(self) -> tuple[str, ...]:
        """The UIDs of the admitted pods, in order of admission."""
        return tuple(self.ledger.entries)

    def pods(self) -> tuple[Pod, ...]:
        """Return the admitted pods as they are charged."""
        return tuple(entry.pod for entry in self.ledger.entries.values())

    def allocation(self, uid: str) -> PodAllocation | None:
        """Return what a pod was allocated; None if it is not admitted."""
        return self._allocations.get(uid)

    def allocated(self, pod: Pod) -> Pod:
        """Return the pod with its allocated resources in place of those of its spec."""
        return _as_allocated(pod, self._allocations.get(pod_key(pod)))

    # -- changes

    def add_recovered(self, uids: Iterable[str]) -> None:
        """Register pods that are known to have been admitted before; call before `restore`."""
        for uid in uids:
            self._recovered.setdefault(uid, None)

    def restore(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """Charge the pods that were admitted before; return the others in the order they are to be checked.

        Call once, with all pods of the node. Terminated pods are neither charged nor returned.
        """
        living = {pod_key(pod): pod for pod in pods if not is_terminal(pod)}
        for uid, allocation in self._recovered.items():
            pod = living.pop(uid, None)
            if pod is not None and uid not in self:
                self._charge(pod, allocation or PodAllocation.from_spec(pod))
            else:
                self._dirty = True
        self._recovered = {}
        return tuple(sorted((pod for uid, pod in living.items() if uid not in self), key=age_key))

    def admit(self, pod: Pod) -> PodAdmitResult:
        """Check a pod and admit it if it fits; a pod that is already admitted stays admitted."""
        if pod_key(pod) in self:
            return PodAdmitResult(True)
        result = self.check(pod)
        if result.admit:
            self._charge(pod, PodAllocation.from_spec(pod))
        else:
            self.rejections[result.reason] = self.rejections.get(result.reason, 0) + 1
        return result

    def check(self, pod: Pod) -> PodAdmitResult:
        """Check a pod without charging it."""
        node = self.ledger.node
        if pod.metadata.labels.get(_OS_LABEL, "linux") != "linux":
            text = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
            return PodAdmitResult(False, "PodOSSelectorNodeLabelDoesNotMatch", text)
        fit = check_admission(self.ledger, pod, read_charged_claims(pod, self.ledger.profile))
        if not fit.admit and not is_critical(pod):
            return fit
        # For pods that may preempt others, failures that preemption cannot resolve come first.
        others = (entry.pod for entry in self.ledger.entries.values())
        for name, text in predicate_failures(pod, node, others):
            return PodAdmitResult(False, name, f"Predicate {name} failed: {text}")
        return fit

    def fits_without(self, others: Collection[Pod], pod: Pod) -> bool:
        """Return whether a pod would fit if these admitted pods were removed."""
        ledger = self.ledger.clone()
        for each in others:
            ledger.remove(each)
        return check_admission(ledger, pod, read_charged_claims(pod, ledger.profile)).admit

    def find_victims(self, pod: Pod) -> tuple[Pod, ...]:
        """Select the pods to terminate so that a critical pod can be admitted; none if that does not help or
        is not allowed.

        The caller terminates (`preemption.REASON`) and removes them; then the pod can be admitted.
        """
        result = self.check(pod)
        if result.admit or not is_critical(pod) or not result.shortages:
            return ()
        chosen = choose_victims(pod, self._candidates(), needs_of(result.shortages))
        if chosen is None or not self.fits_without(chosen, pod):
            chosen = self._find_victims_by_trial(pod)
        return chosen

    def update(self, pod: Pod) -> None:
        """Update an admitted pod. Its allocated resources stay; the charges of its claims may change."""
        uid = pod_key(pod)
        if uid in self:
            self.ledger.update(_as_allocated(pod, self._allocations[uid]))

    def allocate(self, pod: Pod, allocation: PodAllocation) -> None:
        """Change what an admitted pod is allocated: its resize was accepted."""
        uid = pod_key(pod)
        if uid not in self:
            return
        self._allocations[uid] = allocation
        self._dirty = True
        self.ledger.update(_as_allocated(pod, allocation))

    def remove(self, uid: str) -> None:
        """Remove a pod whose containers have all terminated, and free its charges."""
        entry = self.ledger.entries.get(uid)
        if entry is not None:
            self.ledger.remove(entry.pod)
            self._allocations.pop(uid, None)
            self._dirty = True

    def set_node(self, node: Node) -> None:
        """Update the node; admitted pods stay admitted."""
        self.ledger.set_node(node)

    # -- checkpoint

    def save(self) -> NodeFinding | None:
        """Write the checkpoint if anything changed; return a finding if that failed."""
        if self._record is None or not self._dirty:
            return None
        self._dirty = False
        return self._write(self._body())

    async def flush(self) -> NodeFinding | None:
        """Write the checkpoint like `save`, without blocking the event loop. Writes are serialized: an older
        checkpoint must not follow a newer one, and no caller may return before its change is on disk.
        """
        if self._record is None:
            return None
        async with self._saving:
            if not self._dirty:
                return None
            self._dirty = False
            writing = asyncio.ensure_future(asyncio.to_thread(self._write, self._body()))
            try:
                return await asyncio.shield(writing)
            except asyncio.CancelledError:
                await asyncio.wait((writing,))  # a thread cannot be stopped
                raise

    def _body(self) -> dict[str, Any]:
        pods = []
        for uid, entry in self.ledger.entries.items():
            meta = entry.pod.metadata
            head = {"uid": uid, "namespace": meta.namespace, "name": meta.name}
            pods.append({**head, "allocation": self._allocations[uid].to_json()})
        # Pods admitted before the restart and not listed yet are kept.
        pods += [
            {"uid": uid, **({"allocation": allocation.to_json()} if allocation is not None else {})}
            for uid, allocation in self._recovered.items()
        ]
        return {"pods": pods}

    def _write(self, body: dict[str, Any]) -> NodeFinding | None:
        assert self._record is not None
        try:
            self._record.save(body)
        except StoreError as error:
            self._dirty = True
            _log.error("%s", error)
            fix = "free space on its file system, or fix its permissions"
            return NodeFinding(FindingSeverity.ERROR, str(error), fix, str(self._record.path))
        return None

    def _load(self, record: RecordFile) -> None:
        loaded = record.load()
        if loaded.finding is not None:
            self.findings = (loaded.finding,)
        for uid, allocation in read_admitted_pods(loaded.value):
            self._recovered[uid] = allocation

    # -- internals

    def _charge(self, pod: Pod, allocation: PodAllocation) -> None:
        uid = pod_key(pod)
        self._allocations[uid] = allocation
        self.ledger.add(_as_allocated(pod, allocation))
        self._dirty = True

    def _candidates(self) -> list[Candidate]:
        options = self.ledger.options
        found = []
        for entry in self.ledger.entries.values():
            frees: dict[Need, int] = {(name, ""): amount for name, amount in entry.units.items()}
            for hold in entry.holds:
                state = self.ledger.claims.get(hold.claim)
                if state is None:
                    continue
                frees[hold.resource, state.name] = to_unit(hold.resource, hold.drawn)
                if state.consumers == {pod_key(entry.pod)}:  # the pool is freed with its last consumer
                    pool_amount = to_unit(hold.resource, hold.total)
                    frees[hold.resource, ""] = frees.get((hold.resource, ""), 0) + pool_amount
            qos = pod_qos(entry.pod, options.form, claims=options.claims_in_qos)
            found.append(Candidate(entry.pod, qos, frees))
        return found

    def _find_victims_by_trial(self, pod: Pod) -> tuple[Pod, ...]:
        """Select victims where amounts are not enough: pools that several pods have to release together."""
        rank = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}
        candidates = [each for each in self._candidates() if may_preempt(pod, each.pod)]
        candidates.sort(key=lambda each: (rank.get(each.qos, 0), each.pod.spec.priority or 0))
        chosen: list[Pod] = []
        for each in candidates:
            chosen.append(each.pod)
            if self.fits_without(chosen, pod):
                break
        else:
            return ()
        for each_pod in tuple(chosen):  # pods that turn out not to be needed are kept
            rest = [other for other in chosen if other is not each_pod]
            if rest and self.fits_without(rest, pod):
                chosen = rest
        return tuple(chosen)


def _as_allocated(pod: Pod, allocation: PodAllocation | None) -> Pod:
    return (
        pod if allocation is None or allocation == PodAllocation.from_spec(pod) else allocation.apply_to(pod)
    )


def is_terminal(pod: Pod) -> bool:
    """Return whether a pod's phase is terminal."""
    return pod.status.phase in ("Succeeded", "Failed")


def age_key(pod: Pod) -> tuple[str, str, str]:
    """Return the sort key of pods that are new to the node: the creation time."""
    meta = pod.metadata
    return meta.creation_timestamp or "", meta.namespace, meta.name


def read_admitted_pods(value: Any) -> Iterator[tuple[str, PodAllocation | None]]:
    """Yield the pods of a checkpoint in order; unreadable entries are skipped."""
    pods = value.get("pods") if isinstance(value, Mapping) else None
    for entry in pods if isinstance(pods, list) else ():
        uid = entry.get("uid") if isinstance(entry, Mapping) else None
        if isinstance(uid, str) and uid:
            try:
                yield uid, PodAllocation.from_json(entry.get("allocation"))
            except InputError:
                yield uid, None


# -- predicates other than resource fit


def predicate_failures(pod: Pod, node: Node, others: Iterable[Pod]) -> Iterator[tuple[str, str]]:
    """Yield the predicates a pod fails on this node, with the kubelet's names and messages."""
    if not matches_node(pod, node):
        yield "NodeAffinity", "node(s) didn't match Pod's node affinity/selector"
    if pod.spec.node_name and pod.spec.node_name != node.metadata.name:
        yield "NodeName", "node(s) didn't match the requested node name"
    requested = tuple(host_ports(pod))
    if requested:
        used = [port for other in others if pod_key(other) != pod_key(pod) for port in host_ports(other)]
        if any(_conflicts(one, other) for one in requested for other in used):
            yield "NodePorts", "node(s) didn't have free ports for the requested pod ports"
    for taint in node.spec.taints:
        if taint.effect == _NO_EXECUTE and not is_tolerated(pod.spec.tolerations, taint):
            yield "TaintToleration", "node(s) had taints that the pod didn't tolerate"
            break


def matches_node(pod: Pod, node: Node) -> bool:
    """Return whether the node matches a pod's node selector and required node affinity."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return any(term_matches(term, node) for term in filter_valid_terms(affinity.required.node_selector_terms))


def host_ports(pod: Pod) -> Iterator[tuple[str, str, int]]:
    """Yield address, protocol and port number of the host ports of a pod; address "" is every address."""
    for container in (*filter(is_sidecar, pod.spec.init_containers), *pod.spec.containers):
        for port in container.ports:
            number = port.host_port or (port.container_port if pod.spec.host_network else 0)
            if number > 0:
                address = "" if port.host_ip == _ANY_ADDRESS else port.host_ip
                yield address, port.protocol or "TCP", number


def _conflicts(one: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
    return one[1:] == other[1:] and (not one[0] or not other[0] or one[0] == other[0])
