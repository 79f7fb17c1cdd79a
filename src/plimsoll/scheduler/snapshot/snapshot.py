"""Everything the scheduler knows, as it stands now: nodes, books, devices, claims and what is assumed.

Owns `Snapshot`. Objects come in one by one, in whatever order they are heard of (`set`, `remove`); the same
objects make the same snapshot, so a restart loses nothing. `assume` charges a placement at once, on both
books: the node's ledger and the devices; `forget` takes exactly that back. What others write (bound pods,
allocated claims) replaces what was assumed. `verify` computes everything again from the objects.

Document 000, "Scheduler Internal Cache Update"; section 3 of the accounting semantics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, TypeVar

import numpy as np

from plimsoll.allocator import Features, Inventory
from plimsoll.api.core import Node, Pod
from plimsoll.api.gates import Gates
from plimsoll.api.resource import AllocationResult, DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from plimsoll.ledger.claims import Bill, Pricing, bills_in_status, claim_names
from plimsoll.ledger.columns import Column, Mask, NodeColumns
from plimsoll.ledger.judge import price_claims
from plimsoll.ledger.node import NodeLedger, options_for, pod_key
from plimsoll.ledger.profile import Profile
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.snapshot.assumed_allocations import Holdings
from plimsoll.scheduler.snapshot.claim_users import ClaimUsers, same_price
from plimsoll.scheduler.snapshot.index import Index
from plimsoll.scheduler.snapshot.published_devices import Published

I = TypeVar("I", bound=Index)  # noqa: E741
T = TypeVar("T")
_FIRST_SIZE = 64
FINISHED = frozenset({"Succeeded", "Failed"})


class Snapshot:
    """The cluster as the scheduler sees it. Places are numbers of nodes, from 0 to `size`; see `alive`."""

    def __init__(self, gates: Gates | None = None, profile: Profile | None = None) -> None:
        self.gates = gates or Gates.all_on()
        self.profile = profile or Profile.default()
        self.options = options_for(self.gates, self.profile)
        self.features = Features.of(self.gates)
        # -- nodes
        self.size = _FIRST_SIZE
        self.alive: Mask = np.zeros(self.size, dtype=np.bool_)
        self.nodes: list[Node | None] = [None] * self.size
        self.ledgers: list[NodeLedger | None] = [None] * self.size
        self._columns = NodeColumns(size=self.size)
        self._places: dict[str, int] = {}
        self._vacant: list[int] = list(range(self.size - 1, -1, -1))
        # -- pods: those on the books by key, and those bound to a node we have not heard of
        self._booked: dict[str, tuple[int, Pod]] = {}
        self._strays: dict[str, dict[str, Pod]] = {}
        self._assumed: dict[str, Placement] = {}
        self._promised: dict[str, Placement] = {}
        # -- claims and devices
        self._holdings = Holdings(self.features.consumable_capacity)
        self.state = self._holdings.state
        self.classes: dict[str, DeviceClass] = {}
        self._users = ClaimUsers()
        #: Pods whose charges may be others than those booked, because nobody has written them down.
        self._stale: set[str] = set()
        self._published = Published(self.features, self.profile)
        # -- everything else
        self._objects: dict[type[Any], dict[tuple[str, str], Any]] = {}
        self._indexes: dict[type[Index], Index] = {}
        # -- when something last happened that may make room, anywhere and place by place
        self.stamp = 0
        self.freed: Column = np.zeros(self.size, dtype=np.int64)
        #: Where the next pod goes if all nodes are equal.
        self.turn = 0

    # -- looking things up

    def __len__(self) -> int:
        """How many nodes there are."""
        return len(self._places)

    def place_of(self, node: str) -> int | None:
        return self._places.get(node)

    def places(self) -> Iterable[int]:
        """The places with a node, in the order of their numbers."""
        return sorted(self._places.values())

    def node(self, place: int) -> Node:
        node = self.nodes[place]
        assert node is not None, "no node at this place"
        return node

    def ledger(self, place: int) -> NodeLedger:
        """The books of a node."""
        if self._stale:
            self._price_again()
        return self._ledger(place)

    def _ledger(self, place: int) -> NodeLedger:
        ledger = self.ledgers[place]
        assert ledger is not None, "no node at this place"
        return ledger

    @property
    def columns(self) -> NodeColumns:
        """The books of all nodes side by side."""
        if self._stale:
            self._price_again()
        return self._columns

    def pods_at(self, place: int) -> list[Pod]:
        """The pods on the books of a node, bound and assumed."""
        return [entry.pod for entry in self.ledger(place).entries.values()]

    def booked(self, key: str) -> tuple[int, Pod] | None:
        """Where a pod is on the books, and the pod as it was booked."""
        return self._booked.get(key)

    def booked_keys(self) -> set[str]:
        """The pods on the books of any node."""
        return set(self._booked)

    @property
    def assumed(self) -> Mapping[str, Placement]:
        """The placements that no bound pod has confirmed yet, by pod."""
        return self._assumed

    def claim(self, namespace: str, name: str) -> ResourceClaim | None:
        return self.find(ResourceClaim, namespace, name)

    def pending(self, uid: str) -> AllocationResult | None:
        """What a claim was promised that is not written down yet."""
        return self._holdings.promised(uid)

    def held(self, uid: str) -> AllocationResult | None:
        """The devices that are held for a claim, written down or promised."""
        return self._holdings.of(uid)

    def users(self, namespace: str, name: str) -> Set[str]:
        """The pods on the books that use a claim."""
        return self._users.of(namespace, name)

    def find(self, kind: type[T], namespace: str, name: str) -> T | None:
        """An object that is neither a node nor a pod."""
        return self._objects.get(kind, {}).get((namespace, name))

    def all(self, kind: type[T]) -> Iterator[T]:
        yield from self._objects.get(kind, {}).values()

    def index(self, kind: type[I]) -> I:
        """The index of this kind, made and filled on first use and kept up to date from then on."""
        known = self._indexes.get(kind)
        if known is None:
            known = kind()
            self._indexes[kind] = known
            self._fill(known)
        assert isinstance(known, kind)
        return known

    @property
    def inventory(self) -> Inventory:
        """The devices of all slices."""
        return self._published.inventory(self.all(ResourceSlice), self.all(DeviceTaintRule))

    def pricing(self, place: int | None = None) -> Pricing:
        """What claims are priced with at a place, or anywhere."""
        node = None if place is None else self.nodes[place]
        devices = self._published.devices(self.all(ResourceSlice))
        return Pricing(devices, node, self.classes, self.profile)

    # -- hearing of objects

    def set(self, new: Any) -> None:
        """An object is new or has changed."""
        if isinstance(new, Pod):
            self._set_pod(new)
        elif isinstance(new, Node):
            self._set_node(new)
        else:
            self._set_object(new)

    def remove(self, old: Any) -> None:
        """An object is gone; one that was not known does no harm."""
        if isinstance(old, Pod):
            self._unbook(pod_key(old))
            self._drop_stray(pod_key(old))
        elif isinstance(old, Node):
            self._remove_node(old.metadata.name)
        else:
            self._remove_object(old)

    # -- assuming

    def assume(self, placement: Placement) -> None:
        """Charge a placement now: the pod on the node's books, its claims' devices as held."""
        pod = placement.task.pod
        ledger = self._ledger(placement.place)
        ledger.assume(pod, placement.bills)
        key = placement.task.key
        self._assumed[key] = self._promised[key] = placement
        self.turn = placement.place + 1
        self._join(placement.place, pod)
        for claim in placement.task.waiting:
            allocation = placement.allocations[claim.metadata.name]
            self._let_go(self._holdings.promise(claim.metadata.uid, key, allocation))

    def forget(self, key: str) -> None:
        """Take an assumption back, whatever is left of it; what the API says is allocated stays held.

        Only whoever binds the pod may say so, when no write of it is under way any more: until then the
        devices stay promised, even if the pod or its node is gone.
        """
        if key in self._assumed:
            self._unbook(key)
        placement = self._promised.pop(key, None)
        for claim in placement.task.waiting if placement is not None else ():
            known = self.claim(claim.metadata.namespace, claim.metadata.name)
            self._let_go(self._holdings.withdraw(claim.metadata.uid, key, known))

    def confirm(self, key: str) -> None:
        """A placement is written down: from now on the objects tell all there is to know about it."""
        self._promised.pop(key, None)

    # -- nodes

    def _set_node(self, node: Node) -> None:
        name = node.metadata.name
        place = self._places.get(name)
        if place is None:
            if not self._vacant:
                self._grow()
            place = self._vacant.pop()
            self._places[name] = place
            self.ledgers[place] = NodeLedger(node, self.gates, self.profile)
            self.alive[place] = True
            old = None
        else:
            old = self.node(place)
            self._ledger(place).set_node(node)
        self.nodes[place] = node
        for index in self._indexes.values():
            index.node_set(place, node, old)
        for pod in self._strays.pop(name, {}).values():
            self._book(place, pod)
        self._refresh(place)
        if old is None or _but_heartbeat(node) != _but_heartbeat(old):
            self._note_stale(place)
            self._free_up(place)

    def _remove_node(self, name: str) -> None:
        place = self._places.pop(name, None)
        if place is None:
            return
        node, ledger = self.node(place), self._ledger(place)
        pods = [entry.pod for entry in ledger.entries.values() if not entry.assumed]
        for key in list(ledger.entries):
            self._unbook(key)
        for index in self._indexes.values():
            index.node_removed(place, node)
        self.nodes[place] = self.ledgers[place] = None
        self.alive[place] = False
        self._columns.clear(place)
        self._vacant.append(place)
        if pods:  # they stay bound to it, and count again should it come back
            self._strays[name] = {pod_key(pod): pod for pod in pods}

    def _grow(self) -> None:
        before, self.size = self.size, self.size * 2
        more = self.size - before
        self.alive = np.concatenate([self.alive, np.zeros(more, dtype=np.bool_)])
        self.freed = np.concatenate([self.freed, np.zeros(more, dtype=np.int64)])
        self.nodes += [None] * more
        self.ledgers += [None] * more
        self._columns.grow(self.size)
        self._vacant = list(range(self.size - 1, before - 1, -1))
        for index in self._indexes.values():
            index.grown(self.size)

    # -- pods

    def _set_pod(self, pod: Pod) -> None:
        key, name = pod_key(pod), pod.spec.node_name
        if pod.status.phase in FINISHED:
            self.remove(pod)
            return
        if not name:
            return  # not bound: an assumption, if there is one, goes on
        place = self._places.get(name)
        known = self._booked.get(key)
        if known is not None and known[0] != place:
            self._unbook(key)
        self._drop_stray(key)
        if place is None:
            self._strays.setdefault(name, {})[key] = pod
        else:
            self._book(place, pod)

    def _drop_stray(self, key: str) -> None:
        """A pod is not, or not only, bound to a node we have not heard of."""
        for strays in self._strays.values():
            strays.pop(key, None)

    def _book(self, place: int, pod: Pod) -> None:
        """Put a bound pod on the books, or bring them up to date."""
        key, ledger = pod_key(pod), self._ledger(place)
        known = self._booked.get(key)
        if known is None:
            ledger.add(pod, self._bills(place, pod))
        else:
            if known[1] is pod:
                return
            before = ledger.entries[key].units
            after = ledger.update(pod).units
            self._leave(place, known[1])
            self._assumed.pop(key, None)
            if known[1].metadata.labels != pod.metadata.labels:
                self._free_up(None)  # who must be apart from it may be anywhere
            elif any(after.get(name, 0) < amount for name, amount in before.items()):
                self._free_up(place)
        self._join(place, pod)

    def _unbook(self, key: str) -> None:
        found = self._booked.get(key)
        self._assumed.pop(key, None)
        if found is None:
            return
        place, pod = found
        self._ledger(place).remove(pod)
        self._leave(place, pod)
        self._free_up(place)

    def _join(self, place: int, pod: Pod) -> None:
        self._booked[pod_key(pod)] = (place, pod)
        self._refresh(place)
        for index in self._indexes.values():
            index.pod_added(place, pod)
        self._users.join(pod)

    def _leave(self, place: int, pod: Pod) -> None:
        key = pod_key(pod)
        del self._booked[key]
        self._refresh(place)
        for index in self._indexes.values():
            index.pod_removed(place, pod)
        self._users.leave(pod)

    def _bills(self, place: int, pod: Pod) -> tuple[Bill, ...] | None:
        """What a bound pod's claims charge: its status says so, or else its claims are priced now.

        DIFF: pods that a scheduler without the gate has bound are charged for their claims, too; upstream
        leaves them out (test_a_pod_bound_without_charges_is_priced).
        """
        if not (self.options.count_claims and self.profile.charge_preallocated and pod.spec.resource_claims):
            return None
        if bills_in_status(pod, self.profile):
            return None
        names = claim_names(pod).values()
        found = {name: self.claim(pod.metadata.namespace, name) for name in names}
        claims = {name: claim for name, claim in found.items() if claim is not None}
        priced = price_claims(pod, claims, {}, self.pricing(place))
        return tuple(sorted((b for b in priced if isinstance(b, Bill)), key=lambda bill: bill.claim))

    # -- claims, classes, slices and all the rest

    def _set_object(self, new: Any) -> None:
        kind, key = type(new), _name_of(new)
        objects = self._objects.setdefault(kind, {})
        old = objects.get(key)
        if kind is ResourceClaim and old is not None:
            if _is_older(new, old):
                return
            if old.metadata.uid != new.metadata.uid:
                self._remove_object(old)
                old = None
        objects[key] = new
        if kind is ResourceClaim:
            self._let_go(self._holdings.hear(new))
            if old is None or old.status.allocation != new.status.allocation:
                self._stale |= self._users.of(*key)
            if old is not None and not {*old.status.reserved_for} <= {*new.status.reserved_for}:
                self._free_up(None)
        elif kind is ResourceSlice:
            self._slices_changed(new, old)
        elif kind is DeviceClass:
            self.classes[key[1]] = new
            self._stale |= self._users.asking_for(key[1], self.claim)
            self._free_up(None)
        elif kind is DeviceTaintRule:
            self._published.rules_changed()
            self._free_up(None)
        else:
            self._free_up(None)
        for index in self._indexes.values():
            index.object_set(new, old)

    def _remove_object(self, gone: Any) -> None:
        kind, key = type(gone), _name_of(gone)
        old = self._objects.get(kind, {}).get(key)
        if old is None or (kind is ResourceClaim and old.metadata.uid != gone.metadata.uid):
            return
        del self._objects[kind][key]
        if kind is ResourceClaim:
            self._stale |= self._users.of(*key)
            self._let_go(self._holdings.drop(old.metadata.uid))
        elif kind is ResourceSlice:
            self._slices_changed(None, old)
        elif kind is DeviceClass:
            self.classes.pop(key[1], None)
            self._stale |= self._users.asking_for(key[1], self.claim)
        elif kind is DeviceTaintRule:
            self._published.rules_changed()
        self._free_up(None)
        for index in self._indexes.values():
            index.object_removed(old)

    def _slices_changed(self, new: ResourceSlice | None, old: ResourceSlice | None) -> None:
        for slice in (old, new):
            if slice is None:
                continue
            node = self._published.note(slice, added=slice is new)
            place = self._places.get(node) if node else None
            if place is None:  # a pool of several nodes may have become whole for all of them
                self._stale |= self._users.drawing_from(slice.spec.driver, slice.spec.pool.name, self.claim)
            else:
                self._note_stale(place)
            self._free_up(place)

    def _hold(self, uid: str, allocation: AllocationResult | None) -> None:
        """Hold these devices for a claim instead of those it had."""
        self._let_go(self._holdings.hold(uid, allocation))

    def _let_go(self, released: AllocationResult | None) -> None:
        """Devices are held no longer: there may be room on their nodes."""
        for result in released.devices.results if released is not None else ():
            node = self._published.node_of(result.driver, result.pool)
            self._free_up(self._places.get(node) if node else None)

    # -- charges that nobody wrote down

    def _note_stale(self, place: int) -> None:
        """What the claims of the pods at a place charge may be otherwise now."""
        entries = self._ledger(place).entries.items()
        self._stale.update(key for key, entry in entries if entry.pod.spec.resource_claims)

    def _price_again(self) -> None:
        """Bring the charges up to date that follow claims, classes and devices."""
        stale, self._stale = self._stale, set()
        for key in sorted(stale & self._booked.keys()):
            place, pod = self._booked[key]
            entry = self._ledger(place).entries[key]
            bills = None if entry.assumed else self._bills(place, pod)
            if bills is not None and not same_price(bills, entry.bills):
                self._ledger(place).update(pod, bills)
                self._refresh(place)
                self._free_up(place)

    # -- inside

    def _refresh(self, place: int) -> None:
        self._columns.refresh(place, self._ledger(place))

    def _free_up(self, place: int | None) -> None:
        """Something happened that may make room at a place, or (None) anywhere."""
        self.stamp += 1
        if place is None:
            self.freed[:] = self.stamp
        else:
            self.freed[place] = self.stamp

    def _fill(self, index: Index) -> None:
        index.grown(self.size)
        for place in self.places():
            index.node_set(place, self.node(place), None)
        for place, pod in self._booked.values():
            index.pod_added(place, pod)
        for objects in self._objects.values():
            for each in objects.values():
                index.object_set(each, None)


def _name_of(object: Any) -> tuple[str, str]:
    return object.metadata.namespace, object.metadata.name


def _but_heartbeat(node: Node) -> tuple[object, ...]:
    """What rules look at: a change of anything else makes no room."""
    meta, status = node.metadata, node.status
    return status.allocatable, status.declared_features, meta.labels, meta.annotations, node.spec


def _is_older(new: ResourceClaim, old: ResourceClaim) -> bool:
    """Whether a claim is heard of after a newer state of it: an answer to a write outran the watch."""
    one, other = new.metadata.resource_version, old.metadata.resource_version
    return one.isdecimal() and other.isdecimal() and int(one) < int(other)
