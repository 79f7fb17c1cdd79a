"""Simulation of a node without some of its pods, and with others.

Pods are removed from one node of a snapshot, restored one by one, others added; at the end everything is
restored: the ledger is the same object as before, indexes were notified of each change and of its inverse,
and claims hold their devices. A claim's devices are free once all its consumers are removed; claims shared
with remaining pods keep theirs.

DIFF: upstream's dry runs free what victims request but leave their claims allocated, so that a shortage of
devices cannot be preempted away; with `deviceOrder: devices-first` ours do the same, for predictions.
test_devices_of_victims_are_freed
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from types import TracebackType

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.resource import AllocationResult, ResourceClaim
from plimsoll.ledger.entries import LedgerEntry
from plimsoll.ledger.node_ledger import NodeLedger, pod_key
from plimsoll.scheduler.devices import NodeFit
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class NodeSimulation:
    """Changes to one node of a snapshot for the duration of a `with` block; one at a time per snapshot.

    Uses internals of the snapshot. `kept` are the UIDs of claims that other pods are about to use: they stay
    allocated. Without `frees_devices` all claims do.
    """

    def __init__(
        self, snapshot: Snapshot, row: int, kept: Collection[str] = (), *, frees_devices: bool = True
    ) -> None:
        self.snapshot = snapshot
        self.row = row
        self._kept = frozenset(kept)
        self._frees_devices = frees_devices
        self._original: NodeLedger = snapshot.ledger(row)
        self._lifted: dict[str, LedgerEntry] = {}
        self._added: dict[str, PodInfo] = {}
        #: Previous devices of claims that hold other devices now.
        self._before: dict[str, AllocationResult | None] = {}

    def __enter__(self) -> NodeSimulation:
        self._stamp, self._freed = self.snapshot.generation, self.snapshot.node_generations.copy()
        self.snapshot.ledgers[self.row] = self._original.clone()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        snapshot, row = self.snapshot, self.row
        for pod_info in self._added.values():
            self._notify_removed(pod_info.pod)
        for entry in self._lifted.values():
            self._notify_added(entry.pod)
        # Added pods are removed before removed pods get their devices back.
        for uid, before in sorted(self._before.items(), key=lambda item: item[1] is not None):
            self._hold(uid, before)
        snapshot.ledgers[row] = self._original
        self._refresh()
        snapshot.generation = self._stamp
        snapshot.node_generations[:] = self._freed

    # -- pods of the node

    @property
    def removed_pods(self) -> list[Pod]:
        """Pods removed so far, in order."""
        return [entry.pod for entry in self._lifted.values()]

    def entry(self, pod: Pod) -> LedgerEntry:
        """Return the ledger entry of a removed pod."""
        return self._lifted[pod_key(pod)]

    def remove_pods(self, pods: Iterable[Pod]) -> None:
        """Remove pods from the ledger; claims without other users release their devices."""
        ledger = self.snapshot.ledger(self.row)
        entries = [ledger.remove(pod) for pod in pods]
        for entry in entries:
            self._lifted[pod_key(entry.pod)] = entry
            self._notify_removed(entry.pod)
        for entry in entries:
            for claim in self._claims(entry.pod):
                if self._is_abandoned(claim):
                    self._hold(claim.metadata.uid, None)
        self._refresh()

    def restore_pods(self, pods: Iterable[Pod]) -> None:
        """Restore pods as they were, with the devices of their claims."""
        ledger = self.snapshot.ledger(self.row)
        for pod in pods:
            entry = self._lifted.pop(pod_key(pod))
            ledger.restore(entry)
            self._notify_added(entry.pod)
            for claim in self._claims(entry.pod):
                uid = claim.metadata.uid
                if uid in self._before:
                    self._hold(uid, self._before[uid])
        self._refresh()

    # -- other pods

    def add(self, pod_info: PodInfo, fit: NodeFit | None = None) -> None:
        """Add a pod, whether it fits or not; with `fit`, its claims and devices too."""
        pod = pod_info.pod
        self.snapshot.ledger(self.row).assume(pod, fit.charged_claims if fit is not None else ())
        self._added[pod_info.key] = pod_info
        self._notify_added(pod)
        for claim in pod_info.unallocated_claims if fit is not None else ():
            assert fit is not None
            self._hold(claim.metadata.uid, fit.allocations[claim.metadata.name])
        self._refresh()

    def remove_added(self, pod_info: PodInfo) -> None:
        """Remove a pod that was added."""
        del self._added[pod_info.key]
        self.snapshot.ledger(self.row).remove(pod_info.pod)
        self._notify_removed(pod_info.pod)
        for claim in pod_info.unallocated_claims:
            uid = claim.metadata.uid
            if uid in self._before:
                self._hold(uid, self._before[uid])
        self._refresh()

    # -- inside

    def _claims(self, pod: Pod) -> Iterator[ResourceClaim]:
        for name in dict.fromkeys(resolve_claim_names(pod).values()) if pod.spec.resource_claims else ():
            claim = self.snapshot.claim(pod.metadata.namespace, name)
            if claim is not None:
                yield claim

    def _is_abandoned(self, claim: ResourceClaim) -> bool:
        """Return whether no user of a claim is left."""
        meta = claim.metadata
        if not self._frees_devices or meta.uid in self._kept or self.snapshot.allocation_of(meta.uid) is None:
            return False
        users = self.snapshot.claim_users(meta.namespace, meta.name)
        return self._lifted.keys() >= {*users, *(user.uid for user in claim.status.reserved_for)}

    def _hold(self, uid: str, allocation: AllocationResult | None) -> None:
        self._before.setdefault(uid, self.snapshot.allocation_of(uid))
        self.snapshot._set_allocation(uid, allocation)

    def _notify_added(self, pod: Pod) -> None:
        # Indexes created during a simulation are filled from the ledger.
        self.snapshot._pods[pod_key(pod)] = (self.row, pod)
        for index in self.snapshot._indexes.values():
            index.pod_added(self.row, pod)

    def _notify_removed(self, pod: Pod) -> None:
        del self.snapshot._pods[pod_key(pod)]
        for index in self.snapshot._indexes.values():
            index.pod_removed(self.row, pod)

    def _refresh(self) -> None:
        self.snapshot.columns.refresh(self.row, self.snapshot.ledger(self.row))
