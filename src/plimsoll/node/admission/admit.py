"""Which of the pods sent to a node it takes: the ledger again, on the node itself.

Owns `Admitter`: the node's own books. A pod is judged once, when it comes, against everything that was let in
before; the reason and message of a refusal are the kubelet's. Who was let in, in which order and with what is
kept in a record. Promises: after a restart pods that were let in stay in, whatever the line is then; the
others follow by the time they were made; the pods that are in never come to more than the line they were
judged by; books and record agree.

DIFF: upstream judges running pods anew after a restart, by the time they were made, and fails those that no
longer fit (test_who_was_let_in_stays_in).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from plimsoll.api.core import Node, Pod
from plimsoll.api.gates import Gates
from plimsoll.api.node_selection import readable_terms, term_matches
from plimsoll.api.tolerations import tolerated
from plimsoll.common.checkpoint import Finding, RecordFile, Severity
from plimsoll.errors import InputError, StoreError
from plimsoll.ledger.claims import bills_in_status
from plimsoll.ledger.containers import is_sidecar
from plimsoll.ledger.fit import Admission
from plimsoll.ledger.judge import judge_admission
from plimsoll.ledger.node import NodeLedger, pod_key
from plimsoll.ledger.profile import Profile
from plimsoll.ledger.qos import pod_qos
from plimsoll.ledger.units import unit_of
from plimsoll.node.admission.allocation import Allocation
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
_EVERY_ADDRESS = "0.0.0.0"


class Admitter:
    """The books of one node."""

    def __init__(
        self,
        node: Node,
        *,
        gates: Gates | None = None,
        profile: Profile | None = None,
        record: RecordFile | None = None,
    ) -> None:
        """Without a record nothing is remembered."""
        self.ledger = NodeLedger(node, gates, profile)
        self.findings: tuple[Finding, ...] = ()
        #: How often pods were refused, by reason.
        self.refusals: dict[str, int] = {}
        self._record = record
        self._allocations: dict[str, Allocation] = {}
        self._before: dict[str, Allocation | None] = {}
        self._dirty = False
        self._saving = asyncio.Lock()
        if record is not None:
            self._load(record)

    # -- looking

    def __contains__(self, uid: str) -> bool:
        return uid in self.ledger.entries

    def __len__(self) -> int:
        return len(self.ledger)

    @property
    def order(self) -> tuple[str, ...]:
        """The UIDs of the pods that are in, in the order they came."""
        return tuple(self.ledger.entries)

    def pods(self) -> tuple[Pod, ...]:
        """The pods that are in, as they are booked."""
        return tuple(entry.pod for entry in self.ledger.entries.values())

    def allocation(self, uid: str) -> Allocation | None:
        """What a pod was given; None if it is not in."""
        return self._allocations.get(uid)

    def allocated(self, pod: Pod) -> Pod:
        """The pod as if its spec asked for what it was given."""
        return _given(pod, self._allocations.get(pod_key(pod)))

    # -- coming and going

    def remember(self, uids: Iterable[str]) -> None:
        """Pods that somebody else knows were let in before; to be told before `restore`."""
        for uid in uids:
            self._before.setdefault(uid, None)

    def restore(self, pods: Iterable[Pod]) -> tuple[Pod, ...]:
        """Book again who was in before; returns the other pods in the order they are to be judged in.

        To be called once, with all pods of the node. Pods that have ended are neither booked nor returned.
        """
        living = {pod_key(pod): pod for pod in pods if not has_ended(pod)}
        for uid, allocation in self._before.items():
            pod = living.pop(uid, None)
            if pod is not None and uid not in self:
                self._book(pod, allocation or Allocation.of(pod))
            else:
                self._dirty = True
        self._before = {}
        return tuple(sorted((pod for uid, pod in living.items() if uid not in self), key=age))

    def admit(self, pod: Pod) -> Admission:
        """Judge a pod and, if there is room for it, let it in; one that is in already stays in."""
        if pod_key(pod) in self:
            return Admission(True)
        answer = self.judge(pod)
        if answer.admit:
            self._book(pod, Allocation.of(pod))
        else:
            self.refusals[answer.reason] = self.refusals.get(answer.reason, 0) + 1
        return answer

    def judge(self, pod: Pod) -> Admission:
        """Judge a pod; nothing is booked."""
        node = self.ledger.node
        if pod.metadata.labels.get(_OS_LABEL, "linux") != "linux":
            text = "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label"
            return Admission(False, "PodOSSelectorNodeLabelDoesNotMatch", text)
        room = judge_admission(self.ledger, pod, bills_in_status(pod, self.ledger.profile))
        if not room.admit and not is_critical(pod):
            return room
        # What no room can make good comes first for pods that would have room made for them.
        others = (entry.pod for entry in self.ledger.entries.values())
        for name, text in static_refusals(pod, node, others):
            return Admission(False, name, f"Predicate {name} failed: {text}")
        return room

    def victims(self, pod: Pod) -> tuple[Pod, ...]:
        """Who has to go so that a critical pod can be let in; nobody if that does not help or is not due.

        Those pods are to be ended (`preemption.REASON`) and removed; then the pod can be admitted.
        """
        answer = self.judge(pod)
        if answer.admit or not is_critical(pod) or not answer.shortages:
            return ()
        chosen = choose_victims(pod, self._candidates(), needs_of(answer.shortages))
        if chosen is None or not self._helps(chosen, pod):
            chosen = self._enough(pod)
        return chosen

    def update(self, pod: Pod) -> None:
        """A pod that is in has changed. What it was given stays; what its claims charge may have changed."""
        uid = pod_key(pod)
        if uid in self:
            self.ledger.update(_given(pod, self._allocations[uid]))

    def allocate(self, pod: Pod, allocation: Allocation) -> None:
        """A pod that is in was given something else: its resize is granted."""
        uid = pod_key(pod)
        if uid not in self:
            return
        self._allocations[uid] = allocation
        self._dirty = True
        self.ledger.update(_given(pod, allocation))

    def remove(self, uid: str) -> None:
        """A pod has ended, with its containers: all that was booked for it is free."""
        entry = self.ledger.entries.get(uid)
        if entry is not None:
            self.ledger.remove(entry.pod)
            self._allocations.pop(uid, None)
            self._dirty = True

    def set_node(self, node: Node) -> None:
        """The node has changed; who is in stays in."""
        self.ledger.set_node(node)

    # -- the record

    def save(self) -> Finding | None:
        """Write the record if anything changed; the finding says that this failed."""
        if self._record is None or not self._dirty:
            return None
        self._dirty = False
        return self._write(self._body())

    async def flush(self) -> Finding | None:
        """The same without keeping the loop waiting for the disk. One after the other: an older record must
        not come after a newer one, and who is told that all is saved must not be told before it is."""
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
        # Who was in before and has not been seen yet is not forgotten.
        pods += [
            {"uid": uid, **({"allocation": given.to_json()} if given is not None else {})}
            for uid, given in self._before.items()
        ]
        return {"pods": pods}

    def _write(self, body: dict[str, Any]) -> Finding | None:
        assert self._record is not None
        try:
            self._record.save(body)
        except StoreError as error:
            self._dirty = True
            _log.error("%s", error)
            fix = "free space on its file system, or mend its permissions"
            return Finding(Severity.ERROR, str(error), fix, str(self._record.path))
        return None

    def _load(self, record: RecordFile) -> None:
        loaded = record.load()
        if loaded.finding is not None:
            self.findings = (loaded.finding,)
        for uid, allocation in read_order(loaded.value):
            self._before[uid] = allocation

    # -- inside

    def _book(self, pod: Pod, allocation: Allocation) -> None:
        uid = pod_key(pod)
        self._allocations[uid] = allocation
        self.ledger.add(_given(pod, allocation))
        self._dirty = True

    def _candidates(self) -> list[Candidate]:
        form = self.ledger.profile.form
        found = []
        for entry in self.ledger.entries.values():
            frees: dict[Need, int] = {(name, ""): amount for name, amount in entry.units.items()}
            for hold in entry.holds:
                state = self.ledger.claims.get(hold.claim)
                if state is None:
                    continue
                frees[hold.resource, state.name] = unit_of(hold.resource, hold.drawn)
                if state.consumers == {pod_key(entry.pod)}:  # the whole pool goes with its last user
                    whole = unit_of(hold.resource, hold.whole)
                    frees[hold.resource, ""] = frees.get((hold.resource, ""), 0) + whole
            found.append(Candidate(entry.pod, pod_qos(entry.pod, form), frees))
        return found

    def _helps(self, gone: Collection[Pod], pod: Pod) -> bool:
        book = self.ledger.clone()
        for each in gone:
            book.remove(each)
        return judge_admission(book, pod, bills_in_status(pod, book.profile)).admit

    def _enough(self, pod: Pod) -> tuple[Pod, ...]:
        """Victims where amounts alone do not tell: pools that several pods would have to leave together."""
        rank = {"BestEffort": 0, "Burstable": 1, "Guaranteed": 2}
        candidates = [each for each in self._candidates() if may_preempt(pod, each.pod)]
        candidates.sort(key=lambda each: (rank.get(each.qos, 0), each.pod.spec.priority or 0))
        chosen: list[Pod] = []
        for each in candidates:
            chosen.append(each.pod)
            if self._helps(chosen, pod):
                break
        else:
            return ()
        for each_pod in tuple(chosen):  # who need not go stays
            rest = [other for other in chosen if other is not each_pod]
            if rest and self._helps(rest, pod):
                chosen = rest
        return tuple(chosen)


def _given(pod: Pod, allocation: Allocation | None) -> Pod:
    return pod if allocation is None or allocation == Allocation.of(pod) else allocation.onto(pod)


def has_ended(pod: Pod) -> bool:
    """Whether all is over for a pod."""
    return pod.status.phase in ("Succeeded", "Failed")


def age(pod: Pod) -> tuple[str, str, str]:
    """The order of pods that nobody has seen before: by the time they were made."""
    meta = pod.metadata
    return meta.creation_timestamp or "", meta.namespace, meta.name


def read_order(value: Any) -> Iterator[tuple[str, Allocation | None]]:
    """The pods of a record in their order; what cannot be read is left out."""
    pods = value.get("pods") if isinstance(value, Mapping) else None
    for entry in pods if isinstance(pods, list) else ():
        uid = entry.get("uid") if isinstance(entry, Mapping) else None
        if isinstance(uid, str) and uid:
            try:
                yield uid, Allocation.from_json(entry.get("allocation"))
            except InputError:
                yield uid, None


# -- what has nothing to do with room


def static_refusals(pod: Pod, node: Node, others: Iterable[Pod]) -> Iterator[tuple[str, str]]:
    """The rules a pod breaks on this node, with the kubelet's names and texts for them."""
    if not matches_node(pod, node):
        yield "NodeAffinity", "node(s) didn't match Pod's node affinity/selector"
    if pod.spec.node_name and pod.spec.node_name != node.metadata.name:
        yield "NodeName", "node(s) didn't match the requested node name"
    wanted = tuple(host_ports(pod))
    if wanted:
        taken = [port for other in others if pod_key(other) != pod_key(pod) for port in host_ports(other)]
        if any(_clash(one, other) for one in wanted for other in taken):
            yield "NodePorts", "node(s) didn't have free ports for the requested pod ports"
    for taint in node.spec.taints:
        if taint.effect == _NO_EXECUTE and not tolerated(pod.spec.tolerations, taint):
            yield "TaintToleration", "node(s) had taints that the pod didn't tolerate"
            break


def matches_node(pod: Pod, node: Node) -> bool:
    """Whether a pod's selector and required affinity mean this node."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return any(term_matches(term, node) for term in readable_terms(affinity.required.node_selector_terms))


def host_ports(pod: Pod) -> Iterator[tuple[str, str, int]]:
    """Address, protocol and number of the host's ports that a pod takes; "" is every address."""
    for container in (*filter(is_sidecar, pod.spec.init_containers), *pod.spec.containers):
        for port in container.ports:
            number = port.host_port or (port.container_port if pod.spec.host_network else 0)
            if number > 0:
                address = "" if port.host_ip == _EVERY_ADDRESS else port.host_ip
                yield address, port.protocol or "TCP", number


def _clash(one: tuple[str, str, int], other: tuple[str, str, int]) -> bool:
    return one[1:] == other[1:] and (not one[0] or not other[0] or one[0] == other[0])
