"""Simulation of a node without some of its pods, and with others.

Pods are removed from one node of a snapshot, restored one by one, and others added. At the end everything is
restored: the ledger is the same object as before, indexes were notified of each change and of its inverse,
and claims have their devices. The devices of a claim are free once all its consumers are removed.

DIFF: upstream's dry runs free the requests of victims but leave their claims allocated, so that preemption
does not help against a shortage of devices; with `deviceOrder: devices-first` ours do the same, for
predictions (test_devices_of_victims_are_freed).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import resolve_claim_names, uses_claims
from plimsoll.api.resource import AllocationResult, ResourceClaim
from plimsoll.ledger.entries import LedgerEntry
from plimsoll.ledger.node_ledger import NodeLedger, pod_key
from plimsoll.ledger.placement import assume_placeholders
from plimsoll.scheduler.devices import NodeFit
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.snapshot.snapshot import Snapshot


@dataclass(slots=True)
class SimulatedClaims:
    """State of the claims in a simulation of one node, or of several."""

    #: Keys of the removed pods.
    removed: set[str] = field(default_factory=set)
    #: Original allocations of claims that were changed, by UID.
    before: dict[str, AllocationResult | None] = field(default_factory=dict)


class NodeSimulation:
    """Changes to one node of a snapshot for the duration of a `with` block; one at a time per snapshot,
    unless they share `claims` and end in reverse order (`simulated_cluster`).

    Uses internals of the snapshot. The claims with a UID in `kept` stay allocated; without `frees_devices`,
    all claims do.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        row: int,
        kept: Collection[str] = (),
        *,
        frees_devices: bool = True,
        claims: SimulatedClaims | None = None,
    ) -> None:
        self.snapshot = snapshot
        self.row = row
        self._kept = frozenset(kept)
        self._frees_devices = frees_devices
        self._original: NodeLedger = snapshot.ledger(row)
        self._removed: dict[str, LedgerEntry] = {}
        self._removed_placeholders: list[LedgerEntry] = []
        self._added: dict[str, PodInfo] = {}
        self._added_placeholders: dict[str, list[Pod]] = {}  #: by the key of the pod that was added
        self._claims = SimulatedClaims() if claims is None else claims

    def __enter__(self) -> NodeSimulation:
        self._generations = self.snapshot.generations.copy()
        self.snapshot.ledgers[self.row] = self._original.clone()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        snapshot, row = self.snapshot, self.row
        for key, pod_info in self._added.items():
            for pod in (pod_info.pod, *self._added_placeholders[key]):
                self._notify_removed(pod)
        for entry in self._removed.values():
            self._notify_added(entry.pod)
        # Added pods are removed before removed pods get their devices back.
        originals = sorted(self._claims.before.items(), key=lambda item: item[1] is not None)
        for uid, before in originals:
            self._allocate(uid, before)
        self._claims.before.clear()
        snapshot.ledgers[row] = self._original
        self._refresh()
        snapshot.generations.restore(self._generations)

    # -- pods of the node

    @property
    def removed_pods(self) -> list[Pod]:
        """Pods removed so far, in order."""
        return [entry.pod for entry in self._removed.values()]

    def remove_pods(self, pods: Iterable[Pod]) -> None:
        """Remove pods from the ledger; claims without other users release their devices."""
        ledger = self.snapshot.ledger(self.row)
        entries = []
        for pod in pods:
            entry, placeholders = ledger.remove_with_placeholders(pod)
            entries.append(entry)
            self._removed_placeholders += placeholders
        for entry in entries:
            self._removed[pod_key(entry.pod)] = entry
            self._claims.removed.add(pod_key(entry.pod))
            self._notify_removed(entry.pod)
        for entry in entries:
            for claim in self._claims_of(entry.pod):
                if self._is_unused(claim):
                    self._allocate(claim.metadata.uid, None)
        self._refresh()

    def restore_pods(self, pods: Iterable[Pod]) -> None:
        """Restore pods as they were, with the devices of their claims."""
        ledger = self.snapshot.ledger(self.row)
        for pod in pods:
            entry = self._removed.pop(pod_key(pod))
            self._claims.removed.discard(pod_key(pod))
            ledger.restore(entry)
            self._restore_placeholders(ledger)
            self._notify_added(entry.pod)
            for claim in self._claims_of(entry.pod):
                self._reallocate(claim)
        self._refresh()

    def _restore_placeholders(self, ledger: NodeLedger) -> None:
        """Restore the placeholders of pods and claims that are in the ledger again."""
        for entry in list(self._removed_placeholders):
            if not self.snapshot.is_stale_placeholder(self.row, entry.pod):
                self._removed_placeholders.remove(entry)
                ledger.restore(entry)

    def release_claims(self, claims: Iterable[ResourceClaim]) -> None:
        """Release the devices of claims."""
        for claim in claims:
            self._allocate(claim.metadata.uid, None)
        self._refresh()

    # -- other pods

    def add_pod(self, pod_info: PodInfo, fit: NodeFit | None = None) -> None:
        """Add a pod, whether it fits or not; `fit` has the devices and charges of its claims.

        Its placeholders are added, too, as when its placement is assumed.
        """
        pod_info = pod_info.at_node(self.snapshot.node(self.row))
        pod, ledger = pod_info.pod, self.snapshot.ledger(self.row)
        charged_claims = fit.charged_claims if fit is not None else ()
        ledger.assume(pod, charged_claims)
        placeholders = (
            assume_placeholders(ledger, pod, charged_claims) if self.snapshot.profile.placeholders else []
        )
        self._added[pod_info.key] = pod_info
        self._added_placeholders[pod_info.key] = placeholders
        for each in (pod, *placeholders):
            self._notify_added(each)
        if fit is not None:
            for claim in pod_info.unallocated_claims:
                self._allocate(claim.metadata.uid, fit.allocations[claim.metadata.name])
        self._refresh()

    def remove_added(self, pod_info: PodInfo) -> None:
        """Remove a pod that was added."""
        pod_info = self._added.pop(pod_info.key)
        for pod in (*self._added_placeholders.pop(pod_info.key), pod_info.pod):
            self.snapshot.ledger(self.row).remove(pod)
            self._notify_removed(pod)
        for claim in pod_info.unallocated_claims:
            self._reallocate(claim)
        self._refresh()

    # -- internals

    def _claims_of(self, pod: Pod) -> Iterator[ResourceClaim]:
        for name in dict.fromkeys(resolve_claim_names(pod).values()) if uses_claims(pod) else ():
            claim = self.snapshot.claim(pod.metadata.namespace, name)
            if claim is not None:
                yield claim

    def _is_unused(self, claim: ResourceClaim) -> bool:
        """Return whether a claim is allocated, and all its users were removed."""
        meta = claim.metadata
        if (
            not self._frees_devices
            or meta.uid in self._kept
            or self.snapshot.allocations.of(meta.uid) is None
        ):
            return False
        users = self.snapshot.claim_users(meta.namespace, meta.name)
        return self._claims.removed >= {*users, *(user.uid for user in claim.status.reserved_for)}

    def _reallocate(self, claim: ResourceClaim) -> None:
        """Give a claim the devices that it had at first."""
        uid = claim.metadata.uid
        if uid in self._claims.before:
            self._allocate(uid, self._claims.before[uid])

    def _allocate(self, uid: str, allocation: AllocationResult | None) -> None:
        self._claims.before.setdefault(uid, self.snapshot.allocations.of(uid))
        self.snapshot.on_devices_released(self.snapshot.allocations.set(uid, allocation))

    def _notify_added(self, pod: Pod) -> None:
        # Indexes created during a simulation are filled from the ledger.
        self.snapshot._pods[pod_key(pod)] = (self.row, pod)
        self.snapshot.indexes.pod_added(self.row, pod)

    def _notify_removed(self, pod: Pod) -> None:
        del self.snapshot._pods[pod_key(pod)]
        self.snapshot.indexes.pod_removed(self.row, pod)

    def _refresh(self) -> None:
        self.snapshot.columns.refresh(self.row, self.snapshot.ledger(self.row))
