"""Snapshot of the cluster: nodes, ledgers, devices, claims and assumed placements.

Objects arrive one by one in any order (`set`, `remove`); the same objects make the same snapshot, so that
nothing is lost by a restart. `assume` charges a placement to the node's ledger and allocates its devices at
once; `forget` undoes exactly that. Objects from the API (bound pods, allocated claims) replace what was
assumed. `verify.py` recomputes everything from the objects.

KEP-5517 (docs/spec/keps.md), "Scheduler Internal Cache Update"; docs/spec/accounting.md, "Scheduler".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from plimsoll.allocator import Features, Inventory
from plimsoll.api.core import Node, Pod
from plimsoll.api.gates import Gates
from plimsoll.api.pod_claims import uses_claims
from plimsoll.api.resource import AllocationResult, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from plimsoll.api.scheduling import PodGroup
from plimsoll.api.workloads import SELECTING_KINDS
from plimsoll.ledger.claims import ChargeContext, ChargedClaim, read_charged_claims
from plimsoll.ledger.columns import Mask, NodeColumns
from plimsoll.ledger.node_ledger import NodeLedger, pod_key, resources_options
from plimsoll.ledger.placeholders import OwnerKind, is_placeholder, placeholder_owner
from plimsoll.ledger.placement import assume_placeholders
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.assumed_allocations import AssumedAllocations
from plimsoll.scheduler.snapshot.assumed_volumes import AssumedVolumes
from plimsoll.scheduler.snapshot.changes import WRITTEN_KINDS, is_older, scheduling_fields
from plimsoll.scheduler.snapshot.charges import charge_bound_pod, have_same_charges
from plimsoll.scheduler.snapshot.claim_users import ClaimUsers
from plimsoll.scheduler.snapshot.generations import Generations
from plimsoll.scheduler.snapshot.indexes import I, SnapshotIndexes
from plimsoll.scheduler.snapshot.published_devices import PublishedDevices

T = TypeVar("T")
_FIRST_SIZE = 64


class Snapshot:
    """Cluster state of the scheduler.

    Each node has a row in columns; there are `size` rows, and `alive` masks those in use.
    """

    def __init__(self, gates: Gates | None = None, profile: AccountingProfile | None = None) -> None:
        self.gates = gates or Gates.default()
        self.profile = profile or AccountingProfile.for_gates(self.gates)
        self.options = resources_options(self.gates, self.profile)
        self.features = Features.of(self.gates)
        # -- nodes
        self.size = _FIRST_SIZE
        self.alive: Mask = np.zeros(self.size, dtype=np.bool_)
        self.nodes: list[Node | None] = [None] * self.size
        self.ledgers: list[NodeLedger | None] = [None] * self.size
        self._columns = NodeColumns(size=self.size)
        self._outdated_rows: set[int] = set()  #: rows whose columns are refreshed when they are read
        self._rows: dict[str, int] = {}
        self._free_rows: list[int] = list(range(self.size - 1, -1, -1))
        # -- pods: in ledgers by key, and bound to unknown nodes by node name
        self._pods: dict[str, tuple[int, Pod]] = {}
        self._pods_of_unknown_nodes: dict[str, dict[str, Pod]] = {}
        #: Assumed placements on nodes that were removed: their pods may be bound there all the same.
        self._placements_of_unknown_nodes: dict[str, dict[str, Placement]] = {}
        self._assumed: dict[str, Placement] = {}
        self._unconfirmed: dict[str, Placement] = {}
        #: Placeholders that are being created, by the key of the pod whose placement needs them.
        self._assumed_placeholders: dict[str, list[Pod]] = {}
        # -- claims and devices
        #: Allocations of claims, written or assumed; only this class and simulations change them.
        self.allocations = AssumedAllocations(self.features.consumable_capacity)
        self.state = self.allocations.state
        self.classes: dict[str, DeviceClass] = {}
        self.assumed_volumes = AssumedVolumes()
        self._users = ClaimUsers()
        #: Whether claims are charged to bound pods whose status does not have the charges.
        self._charges_unrecorded = self.options.count_claims and self.profile.charge_preallocated
        #: Pods whose charges are in no status and may have changed.
        self._outdated_charges: set[str] = set()
        self._devices = PublishedDevices(self.features, self.profile)
        # -- everything else
        self._objects: dict[type[Any], dict[tuple[str, str], Any]] = {}
        #: Kinds that are served but that the scheduler has no permission to list.
        self.unreadable: set[type[Any]] = set()
        self.indexes = SnapshotIndexes()
        #: Changes that may have freed something. The events that queueing hints declare must be counted,
        #: except those in `unschedulable_cache.UNCOUNTED_EVENTS`.
        self.generations = Generations(self.size)
        self._bump = self.generations.bump
        #: Number of the last change by an object of the API that may affect scheduling.
        self.revision = 0
        #: Row at which the search for the best node starts, so that equal nodes take turns.
        self.next_start_row = 0

    # -- lookups

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._rows)

    def row_of(self, node: str) -> int | None:
        return self._rows.get(node)

    def rows(self) -> Iterable[int]:
        """Return the rows with a node, in order."""
        return sorted(self._rows.values())

    def node(self, row: int) -> Node:
        node = self.nodes[row]
        assert node is not None, "no node at this row"
        return node

    def ledger(self, row: int) -> NodeLedger:
        """Return the ledger of a node."""
        if self._outdated_charges:
            self._update_charges()
        return self._ledger(row)

    def _ledger(self, row: int) -> NodeLedger:
        ledger = self.ledgers[row]
        assert ledger is not None, "no node at this row"
        return ledger

    @property
    def columns(self) -> NodeColumns:
        """Ledgers of all nodes as columns."""
        if self._outdated_charges:
            self._update_charges()
        if self._outdated_rows:
            for row in sorted(self._outdated_rows):
                self._columns.refresh(row, self._ledger(row))
            self._outdated_rows.clear()
        return self._columns

    def pods_at(self, row: int) -> list[Pod]:
        """Return the pods in a node's ledger, bound and assumed."""
        return [entry.pod for entry in self.ledger(row).entries.values()]

    def find_pod(self, key: str) -> tuple[int, Pod] | None:
        """Return the row of a pod in a ledger, and the pod as it was added."""
        return self._pods.get(key)

    def pod_keys(self) -> set[str]:
        """Return the keys of the pods in all ledgers."""
        return set(self._pods)

    @property
    def unconfirmed(self) -> Mapping[str, Placement]:
        """Placements that are being written, by pod key; some of them have their pods bound already."""
        return self._unconfirmed

    @property
    def assumed(self) -> Mapping[str, Placement]:
        """Placements that no bound pod has confirmed yet, by pod key."""
        return self._assumed

    @property
    def assumed_placeholders(self) -> set[str]:
        """Keys of the placeholders that are being created."""
        return {pod_key(pod) for pods in self._assumed_placeholders.values() for pod in pods}

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        return self.find(ResourceClaim, namespace, name)

    def claim_users(self, namespace: str, name: str) -> Set[str]:
        """Return the pods in ledgers that use a claim."""
        return self._users.of(namespace, name)

    def find(self, kind: type[T], namespace: str, name: str) -> T | None:
        """Return an object that is neither a node nor a pod."""
        return self._objects.get(kind, {}).get((namespace, name))

    def all(self, kind: type[T]) -> Iterator[T]:
        yield from self._objects.get(kind, {}).values()

    def index(self, kind: type[I]) -> I:
        """Return the index of this kind, created and filled on first use and updated from then on."""
        known = self.indexes.get(kind)
        if known is None:
            nodes = ((row, self.node(row)) for row in self.rows())
            known = self.indexes.create(kind, self.size, nodes, self._pods.values(), self._objects)
        assert isinstance(known, kind)
        return known

    @property
    def inventory(self) -> Inventory:
        """Devices of all slices."""
        return self._devices.inventory(self.all)

    def charge_context(self, row: int | None = None) -> ChargeContext:
        """Return the inputs for computing charges of claims on a node, or on any node."""
        node = None if row is None else self.nodes[row]
        devices = self._devices.devices(self.all)
        return ChargeContext(devices, node, self.classes, self.profile)

    # -- objects

    def set(self, new: Any) -> None:
        """Add or update an object."""
        if isinstance(new, Pod):
            self._set_pod(new)
        elif isinstance(new, Node):
            self._set_node(new)
        else:
            self._set_object(new)

    def remove(self, old: Any) -> None:
        """Remove an object; unknown objects are ignored."""
        self.revision += 1
        if isinstance(old, Pod):
            self._remove_pod(pod_key(old))
            self._drop_pod_of_unknown_node(pod_key(old))
        elif isinstance(old, Node):
            self._remove_node(old.metadata.name)
        else:
            self._remove_object(old)

    # -- assumed placements

    def assume(self, placement: Placement) -> None:
        """Charge a placement to the node's ledger, and assume the devices and volumes of its claims."""
        key = placement.pod_info.key
        self._unconfirmed[key] = placement
        self.next_start_row = placement.row + 1
        self._assume_at(placement.row, placement)
        for claim in placement.pod_info.unallocated_claims:
            allocation = placement.allocations[claim.metadata.name]
            self.on_devices_released(self.allocations.assume(claim.metadata.uid, key, allocation))
        self.assumed_volumes.assume(key, placement.volumes, placement.node)

    def _assume_at(self, row: int, placement: Placement) -> None:
        """Charge a placement to the node at a row."""
        pod, key, ledger = placement.pod_info.pod, placement.pod_info.key, self._ledger(row)
        ledger.assume(pod, placement.charged_claims)
        self._assumed[key] = placement
        self._on_pod_added(row, pod)
        if self.profile.placeholders:
            placeholders = assume_placeholders(ledger, pod, placement.charged_claims)
            for placeholder in placeholders:
                self._on_pod_added(row, placeholder)
            if placeholders:
                self._assumed_placeholders[key] = placeholders

    def forget(self, key: str) -> None:
        """Undo an assumed placement; what the API has allocated stays allocated.

        Only the binder may call this, once no write for the pod is in flight: until then the devices stay
        assumed, even if the pod or its node is deleted.
        """
        if key in self._assumed:
            self._remove_pod(key)
        self._drop_placement_of_unknown_node(key)
        self._forget_placeholders(key)
        self._unconfirmed.pop(key, None)
        self._forget_allocations(key)
        if self.assumed_volumes.release(key):
            self._bump(None)

    def confirm(self, key: str) -> None:
        """Drop the record of a placement that has been written; the objects have it now."""
        self._unconfirmed.pop(key, None)
        self._forget_placeholders(key)
        self._forget_allocations(key)
        self.assumed_volumes.release(key)

    def _forget_allocations(self, key: str) -> None:
        for released in self.allocations.forget(key):
            self.on_devices_released(released)

    def _forget_placeholders(self, key: str) -> None:
        """Remove what was assumed of the placeholders of a placement; those that exist are pods by now."""
        for placeholder in self._assumed_placeholders.pop(key, ()):
            self._remove_pod(pod_key(placeholder))

    def set_placeholders(self, on: bool) -> None:
        """Set whether placeholder pods request the charges of claims, because the server drops them."""
        if on == self.profile.placeholders:
            return
        self.profile = replace(self.profile, placeholders=on)
        for row in self.rows():
            self._ledger(row).profile = self.profile
        self.revision += 1
        self._bump(None)

    def is_stale_placeholder(self, row: int, pod: Pod) -> bool:
        """Return whether a pod is the placeholder of a pod or claim that is not in use on a node any more."""
        owner = placeholder_owner(pod)
        if owner is None:
            return False
        entries = self._ledger(row).entries
        if owner.kind is OwnerKind.POD:
            return owner.key not in entries
        return not any(user in entries for user in self._users.of(owner.namespace, owner.name))

    # -- nodes

    def _set_node(self, node: Node) -> None:
        name = node.metadata.name
        row = self._rows.get(name)
        if row is None:
            if not self._free_rows:
                self._grow()
            row = self._free_rows.pop()
            self._rows[name] = row
            self.ledgers[row] = NodeLedger(node, self.gates, self.profile, self.options)
            self.alive[row] = True
            old = None
        else:
            old = self.node(row)
            self._ledger(row).set_node(node)
        self.nodes[row] = node
        self.indexes.node_set(row, node, old)
        for pod in self._pods_of_unknown_nodes.pop(name, {}).values():
            self._add_pod(row, pod)
        for placement in self._placements_of_unknown_nodes.pop(name, {}).values():
            self._assume_at(row, placement)
        self._outdated_rows.add(row)
        if old is None or scheduling_fields(node) != scheduling_fields(old):
            self.revision += 1
            self._outdate_charges(row)
            self._bump(row)

    def _remove_node(self, name: str) -> None:
        row = self._rows.pop(name, None)
        if row is None:
            return
        node, ledger = self.node(row), self._ledger(row)
        pods = [entry.pod for entry in ledger.entries.values() if not entry.assumed]
        placements = {key: self._assumed[key] for key in ledger.entries if key in self._assumed}
        for key in list(ledger.entries):
            self._remove_pod(key)
        self.indexes.node_removed(row, node)
        self.nodes[row] = self.ledgers[row] = None
        self.alive[row] = False
        self._outdated_rows.discard(row)
        self._columns.clear(row)
        self._free_rows.append(row)
        if pods:  # still bound: charged again if the node is added again
            self._pods_of_unknown_nodes[name] = {pod_key(pod): pod for pod in pods}
        if placements:
            self._placements_of_unknown_nodes[name] = placements

    def _grow(self) -> None:
        before, self.size = self.size, self.size * 2
        more = self.size - before
        self.alive = np.concatenate([self.alive, np.zeros(more, dtype=np.bool_)])
        self.generations.grow(self.size)
        self.nodes += [None] * more
        self.ledgers += [None] * more
        self._columns.grow(self.size)
        self._free_rows = list(range(self.size - 1, before - 1, -1))
        self.indexes.resized(self.size)

    # -- pods

    def _set_pod(self, pod: Pod) -> None:
        key, name = pod_key(pod), pod.spec.node_name
        if pod.has_terminated:
            self.remove(pod)
            return
        if not name:
            return  # not bound: an assumed placement stays
        row = self._rows.get(name)
        known = self._pods.get(key)
        if known is None or known[0] != row:
            self.revision += 1
        if known is not None and known[0] != row:
            self._remove_pod(key)
        if self._pods_of_unknown_nodes or self._placements_of_unknown_nodes:
            self._drop_pod_of_unknown_node(key)
        if row is None:
            self._pods_of_unknown_nodes.setdefault(name, {})[key] = pod
        else:
            self._add_pod(row, pod)

    def _drop_pod_of_unknown_node(self, key: str) -> None:
        """Remove a pod from those of unknown nodes."""
        for pods in self._pods_of_unknown_nodes.values():
            pods.pop(key, None)
        self._drop_placement_of_unknown_node(key)

    def _drop_placement_of_unknown_node(self, key: str) -> None:
        for placements in self._placements_of_unknown_nodes.values():
            placements.pop(key, None)

    def _add_pod(self, row: int, pod: Pod) -> None:
        """Add a bound pod to its node's ledger, or update it there."""
        key, ledger = pod_key(pod), self._ledger(row)
        if self._assumed_placeholders and is_placeholder(pod) and key != pod.metadata.full_name:
            self._remove_pod(pod.metadata.full_name)  # it was assumed without a UID
        known = self._pods.get(key)
        if known is None:
            ledger.add(pod, self._charges(row, pod))
        else:
            if known[1] is pod:
                return
            before = ledger.entries[key].units
            after = ledger.update(pod).units
            self._on_pod_removed(row, known[1])
            self._assumed.pop(key, None)
            if known[1].metadata.labels != pod.metadata.labels:
                self._bump(None, devices=False)  # anti-affinity may concern any node
            if any(after.get(name, 0) < amount for name, amount in before.items()):
                self._bump(row)
        self._on_pod_added(row, pod)

    def _remove_pod(self, key: str) -> None:
        found = self._pods.get(key)
        self._assumed.pop(key, None)
        if found is None:
            return
        row, pod = found
        self._ledger(row).remove(pod)
        self._on_pod_removed(row, pod)
        self._bump(row)

    def _on_pod_added(self, row: int, pod: Pod) -> None:
        self._pods[pod_key(pod)] = (row, pod)
        self._outdated_rows.add(row)
        self.indexes.pod_added(row, pod)
        self._users.add(pod)

    def _on_pod_removed(self, row: int, pod: Pod) -> None:
        del self._pods[pod_key(pod)]
        self._outdated_rows.add(row)
        self.indexes.pod_removed(row, pod)
        self._users.remove(pod)

    def _charges(self, row: int, pod: Pod) -> tuple[ChargedClaim, ...]:
        """Return the charges of a bound pod's claims: those in its status, else computed ones."""
        recorded = read_charged_claims(pod, self.profile)
        if recorded or not uses_claims(pod):
            return recorded
        if not self._charges_unrecorded:
            return ()
        return charge_bound_pod(pod, self.claim, self.charge_context(row))

    # -- claims, classes, slices and other objects

    def _set_object(self, new: Any) -> None:
        kind, key = type(new), new.metadata.key
        objects = self._objects.setdefault(kind, {})
        old = objects.get(key)
        if kind in WRITTEN_KINDS and old is not None:
            if is_older(new, old):
                return
            if kind is ResourceClaim and old.metadata.uid != new.metadata.uid:
                self._remove_object(old)
                old = None
        objects[key] = new
        self.revision += kind is not PodGroup  # its status is written by the scheduler
        if kind is ResourceClaim:
            self.on_devices_released(self.allocations.on_claim(new))
            if old is None or old.status.allocation != new.status.allocation:
                self._outdated_charges |= self._users.of(*key)
            if old is not None and not {*old.status.reserved_for} <= {*new.status.reserved_for}:
                self._bump(None)
        elif kind is ResourceSlice:
            self._on_slice_changed(new, old)
        elif kind is DeviceClass:
            self.classes[key[1]] = new
            self._outdated_charges |= self._users.with_class(key[1], self.claim)
            self._bump(None)
        elif kind is DeviceTaintRule:
            self._devices.on_taint_rules_changed()
            self._bump(None)
        elif kind not in SELECTING_KINDS:
            self._bump(None)
        self.indexes.object_changed(old, new)

    def _remove_object(self, gone: Any) -> None:
        kind, key = type(gone), gone.metadata.key
        old = self._objects.get(kind, {}).get(key)
        if old is None or (kind is ResourceClaim and old.metadata.uid != gone.metadata.uid):
            return
        del self._objects[kind][key]
        if kind is ResourceClaim:
            self._outdated_charges |= self._users.of(*key)
            self.on_devices_released(self.allocations.on_claim_deleted(old.metadata.uid))
        elif kind is ResourceSlice:
            self._on_slice_changed(None, old)
        elif kind is DeviceClass:
            self.classes.pop(key[1], None)
            self._outdated_charges |= self._users.with_class(key[1], self.claim)
        elif kind is DeviceTaintRule:
            self._devices.on_taint_rules_changed()
        if kind not in SELECTING_KINDS:
            self._bump(None)
        self.indexes.object_changed(old, None)

    def _on_slice_changed(self, new: ResourceSlice | None, old: ResourceSlice | None) -> None:
        for slice in (old, new):
            if slice is None:
                continue
            node = self._devices.on_slice(slice, added=slice is new)
            row = self._rows.get(node) if node else None
            if row is None:  # the pool may have become complete for several nodes
                self._outdated_charges |= self._users.with_pool(
                    slice.spec.driver, slice.spec.pool.name, self.claim
                )
            else:
                self._outdate_charges(row)
            self._bump(row)

    def on_devices_released(self, released: AllocationResult | None) -> None:
        """Invalidate results on the nodes of released devices."""
        for result in released.devices.results if released is not None else ():
            node = self._devices.node_of(result.driver, result.pool)
            self._bump(self._rows.get(node) if node else None)

    # -- charges that are in no pod status

    def _outdate_charges(self, row: int) -> None:
        """Mark the charges of the claims of a node's pods as outdated."""
        entries = self._ledger(row).entries.items()
        self._outdated_charges.update(key for key, entry in entries if uses_claims(entry.pod))

    def _update_charges(self) -> None:
        """Recompute outdated charges, which follow claims, classes and devices."""
        stale, self._outdated_charges = self._outdated_charges, set()
        for key in sorted(stale & self._pods.keys()):
            row, pod = self._pods[key]
            entry = self._ledger(row).entries[key]
            if entry.assumed or read_charged_claims(pod, self.profile) or not self._charges_unrecorded:
                continue
            charged_claims = self._charges(row, pod)
            if not have_same_charges(charged_claims, entry.charged_claims):
                self._ledger(row).update(pod, charged_claims)
                self._outdated_rows.add(row)
                self._bump(row)
