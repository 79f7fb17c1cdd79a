"""What would be if some pods of a node were gone, and others there.

Owns `Hypothesis`: pods are lifted out of one place of a snapshot, put back one by one, others added, and when
it ends everything is as it was: the ledger is the very object it was before, indexes have been told of each
change and of its opposite, claims hold the devices they held, and no trace says that room was ever made.
A claim's devices are free once all its consumers are lifted; claims shared with pods that stay keep theirs.

DIFF: upstream's dry runs free what victims request but leave their claims allocated, so that a shortage of
devices cannot be preempted away; with `deviceOrder: devices-first` ours do the same, for predictions.
test_devices_of_victims_are_freed
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from types import TracebackType

from plimsoll.api.core import Pod
from plimsoll.api.resource import AllocationResult, ResourceClaim
from plimsoll.ledger.claims import resolve_claim_names
from plimsoll.ledger.entries import LedgerEntry
from plimsoll.ledger.node_ledger import NodeLedger, pod_key
from plimsoll.scheduler.devices import NodeFit
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.snapshot.snapshot import Snapshot


class Hypothesis:
    """One place of a snapshot, changed for the time of a `with` block; one at a time in a snapshot.

    It is the snapshot's closest friend and uses what others must not.

    `kept` are the UIDs of claims that somebody else is about to use: they stay held whoever is lifted. All
    claims do without `frees_devices`.
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
        #: What claims held before, for those that hold something else now.
        self._before: dict[str, AllocationResult | None] = {}

    def __enter__(self) -> Hypothesis:
        self._stamp, self._freed = self.snapshot.generation, self.snapshot.node_generations.copy()
        self.snapshot.ledgers[self.row] = self._original.clone()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        snapshot, row = self.snapshot, self.row
        for pod_info in self._added.values():
            self._tell_removed(pod_info.pod)
        for entry in self._lifted.values():
            self._tell_added(entry.pod)
        # What was added is let go before what was lifted holds its devices again.
        for uid, before in sorted(self._before.items(), key=lambda item: item[1] is not None):
            self._hold(uid, before)
        snapshot.ledgers[row] = self._original
        self._refresh()
        snapshot.generation = self._stamp
        snapshot.node_generations[:] = self._freed

    # -- pods of the place

    @property
    def lifted(self) -> list[Pod]:
        """The pods that are out now, in the order they were lifted."""
        return [entry.pod for entry in self._lifted.values()]

    def entry(self, pod: Pod) -> LedgerEntry:
        """What a pod that is out now was charged."""
        return self._lifted[pod_key(pod)]

    def lift(self, pods: Iterable[Pod]) -> None:
        """Take pods off the books; claims that nobody else uses let their devices go."""
        book = self.snapshot.ledger(self.row)
        entries = [book.remove(pod) for pod in pods]
        for entry in entries:
            self._lifted[pod_key(entry.pod)] = entry
            self._tell_removed(entry.pod)
        for entry in entries:
            for claim in self._claims(entry.pod):
                if self._is_abandoned(claim):
                    self._hold(claim.metadata.uid, None)
        self._refresh()

    def put_back(self, pods: Iterable[Pod]) -> None:
        """Book pods again as they were; their claims hold what they held."""
        book = self.snapshot.ledger(self.row)
        for pod in pods:
            entry = self._lifted.pop(pod_key(pod))
            book.restore(entry)
            self._tell_added(entry.pod)
            for claim in self._claims(entry.pod):
                uid = claim.metadata.uid
                if uid in self._before:
                    self._hold(uid, self._before[uid])
        self._refresh()

    # -- others

    def add(self, pod_info: PodInfo, fit: NodeFit | None = None) -> None:
        """Book another pod, whether there is room for it or not; with `fit`, its claims and devices too."""
        pod = pod_info.pod
        self.snapshot.ledger(self.row).assume(pod, fit.charged_claims if fit is not None else ())
        self._added[pod_info.key] = pod_info
        self._tell_added(pod)
        for claim in pod_info.unallocated_claims if fit is not None else ():
            assert fit is not None
            self._hold(claim.metadata.uid, fit.allocations[claim.metadata.name])
        self._refresh()

    def take_out(self, pod_info: PodInfo) -> None:
        """Take away a pod that was added."""
        del self._added[pod_info.key]
        self.snapshot.ledger(self.row).remove(pod_info.pod)
        self._tell_removed(pod_info.pod)
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
        """Whether none of those who use a claim is left."""
        meta = claim.metadata
        if not self._frees_devices or meta.uid in self._kept or self.snapshot.allocation_of(meta.uid) is None:
            return False
        users = self.snapshot.claim_users(meta.namespace, meta.name)
        return self._lifted.keys() >= {*users, *(user.uid for user in claim.status.reserved_for)}

    def _hold(self, uid: str, allocation: AllocationResult | None) -> None:
        self._before.setdefault(uid, self.snapshot.allocation_of(uid))
        self.snapshot._set_allocation(uid, allocation)

    def _tell_added(self, pod: Pod) -> None:
        # Indexes that are made in the middle of a hypothesis are filled from what is booked.
        self.snapshot._pods[pod_key(pod)] = (self.row, pod)
        for index in self.snapshot._indexes.values():
            index.pod_added(self.row, pod)

    def _tell_removed(self, pod: Pod) -> None:
        del self.snapshot._pods[pod_key(pod)]
        for index in self.snapshot._indexes.values():
            index.pod_removed(self.row, pod)

    def _refresh(self) -> None:
        self.snapshot.columns.refresh(self.row, self.snapshot.ledger(self.row))
