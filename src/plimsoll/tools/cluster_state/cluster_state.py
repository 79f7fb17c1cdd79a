"""`ClusterState`: objects of a cluster together with the scheduler's snapshot of them.

Objects and snapshot are kept in step as objects are set and removed, so that tools report from the same code
that schedules. Nothing is ever written to a cluster.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from typing import Any, TypeVar

from plimsoll.api.core import TERMINAL_PHASES, Namespace, Node, Pod
from plimsoll.api.forms import POD_KEY, read_status
from plimsoll.api.gates import Gates
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.common.gc_pause import without_collection
from plimsoll.errors import InputError
from plimsoll.ledger.placeholders import NAMESPACE, is_placeholder
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.cluster_state.assumed_mappings import AssumedMappings
from plimsoll.tools.cluster_state.objects import ClusterObjects
from plimsoll.tools.cluster_state.progress import TICK_EVERY, ProgressCallback, no_progress

T = TypeVar("T", Pod, ResourceClaim)


class ClusterState:
    """Objects of a cluster and the ledgers computed from them."""

    def __init__(
        self,
        objects: ClusterObjects | None = None,
        gates: Gates | None = None,
        profile: AccountingProfile | None = None,
        *,
        origin: str = "",
        assume_mapping: bool = False,
    ) -> None:
        """Create the state of an empty cluster if no objects are given. `origin` names the source in
        messages. With `assume_mapping`, devices that are node resources without a mapping get one.
        """
        self.objects = ClusterObjects() if objects is None else objects
        self.gates = gates or Gates.default()
        # DIFF: a claim that several pods of a node use although it must not be shared is counted once: its
        # devices exist once. Upstream counts it for every pod (test_a_claim_of_two_pods_is_charged_once).
        self.profile = profile or replace(AccountingProfile.for_gates(self.gates), charge_shared_once=True)
        self.origin = origin
        #: Mappings that drivers do not publish; None if none are assumed.
        self.assumed_mappings: AssumedMappings | None = None
        if assume_mapping:
            self._assume_mappings()

    def _assume_mappings(self) -> None:
        mappings = self.assumed_mappings = AssumedMappings()
        for device_class in self.objects.all(DeviceClass):
            mappings.set_class(device_class.metadata.name, device_class)
        self.objects = self.objects.copy()
        for slice in self.objects.all(ResourceSlice):
            self.objects.set(mappings.add_slice(slice))

    @cached_property
    def snapshot(self) -> Snapshot:
        """The scheduler's snapshot, with every bound pod charged to its node."""
        return self._make_snapshot(no_progress)

    def compute_ledgers(self, tick: ProgressCallback) -> None:
        """Compute the snapshot, unless that is done, and report the progress; no collection examines it."""
        if "snapshot" not in self.__dict__:
            with without_collection(keep=True):
                self.__dict__["snapshot"] = self._make_snapshot(tick)

    def _make_snapshot(self, tick: ProgressCallback) -> Snapshot:
        snapshot = Snapshot(self.gates, self.profile)
        with without_collection():
            # Pods last: their charges depend on the other objects.
            things = [*self.objects.other_than(Pod), *self.objects.all(Pod)]
            for number, thing in enumerate(things):
                if number % TICK_EVERY == 0:
                    tick("computing the ledgers", number, len(things))
                snapshot.set(thing)
        snapshot.set_placeholders(self.uses_placeholders)
        return snapshot

    @cached_property
    def uses_placeholders(self) -> bool:
        """True if placeholder pods request what claims charge: their namespace exists, and the server did
        not store the charges of the latest pod that was charged.
        """
        pods = self.objects.by_key(Pod)
        if self.objects.find(Namespace, "", NAMESPACE) is None and not any(
            map(is_placeholder, pods.values())
        ):
            return False
        charged = [
            pod for pod in pods.values() if read_status(pod.status) or POD_KEY in pod.metadata.annotations
        ]
        latest = max(charged, key=lambda pod: pod.metadata.creation_timestamp or "", default=None)
        return latest is None or not read_status(latest.status)

    def copy(self) -> ClusterState:
        """Return an independent copy."""
        made = ClusterState(self.objects.copy(), self.gates, self.profile, origin=self.origin)
        made.uses_placeholders = self.uses_placeholders  # pods that were bound since have charges in any case
        made.assumed_mappings = None if self.assumed_mappings is None else self.assumed_mappings.copy()
        return made

    # -- updates

    def set(self, thing: Any) -> None:
        """Add or replace an object."""
        mappings = self.assumed_mappings
        if mappings is not None and isinstance(thing, ResourceSlice):
            thing = mappings.add_slice(thing)
        self._set(thing)
        if isinstance(thing, DeviceClass):
            self._assume_again(thing.metadata.name, thing)

    def remove(self, thing: Any) -> None:
        """Remove an object."""
        self.objects.remove(thing)
        if "snapshot" in self.__dict__:
            self.snapshot.remove(thing)
        mappings = self.assumed_mappings
        if mappings is not None and isinstance(thing, ResourceSlice):
            mappings.remove_slice(thing.metadata.name)
        if isinstance(thing, DeviceClass):
            self._assume_again(thing.metadata.name, None)

    def _set(self, thing: Any) -> None:
        self.objects.set(thing)
        if "snapshot" in self.__dict__:
            self.snapshot.set(thing)
            if isinstance(thing, Namespace) and thing.metadata.name == NAMESPACE:
                self.__dict__.pop("uses_placeholders", None)
                self.snapshot.set_placeholders(self.uses_placeholders)

    def _assume_again(self, name: str, device_class: DeviceClass | None) -> None:
        mappings = self.assumed_mappings
        if mappings is not None and mappings.set_class(name, device_class):
            for slice in mappings.all_slices():
                self._set(slice)

    # -- lookups

    @property
    def nodes(self) -> list[Node]:
        return sorted(self.objects.all(Node), key=lambda node: node.metadata.name)

    @property
    def pods(self) -> list[Pod]:
        """Pods that have not terminated, bound or not, without placeholders (`ledger/placeholders.py`)."""
        return [
            pod
            for pod in self.objects.by_key(Pod).values()
            if pod.status.phase not in TERMINAL_PHASES and not is_placeholder(pod)
        ]

    @property
    def pending(self) -> list[Pod]:
        """Pods that are not bound to a node and not being deleted."""
        return [
            pod
            for pod in self.objects.by_key(Pod).values()
            if not pod.spec.node_name and pod.metadata.deletion_timestamp is None and not pod.has_terminated
        ]

    def pod(self, name: str, namespace: str = "") -> Pod:
        """Return the pod called `name`. Raise InputError with similar names if there is none."""
        return self._named(Pod, "pod", name, namespace)

    def claim(self, name: str, namespace: str = "") -> ResourceClaim:
        return self._named(ResourceClaim, "ResourceClaim", name, namespace)

    def _named(self, kind: type[T], word: str, name: str, namespace: str) -> T:
        """Find an object by NAME or NAMESPACE/NAME; without a namespace the name must be unique."""
        found = self.objects.find(kind, namespace, name) if namespace else None
        if found is None and "/" in name:  # unless a dump has an object with such a name
            namespace, name = name.split("/", 1)
            found = self.objects.find(kind, namespace, name)
        if found is not None:
            return found
        everywhere = [each for each in self.objects.all(kind) if each.metadata.name == name]
        if not namespace and len(everywhere) == 1:
            return everywhere[0]
        raise InputError(_missing(word, name, namespace, everywhere, self.objects.all(kind)))


def _missing(word: str, name: str, namespace: str, same: list[T], known: list[T]) -> str:
    if same:
        found = ", ".join(sorted(each.metadata.full_name for each in same)[:5])
        if not namespace:
            return f"{word} {name} exists in several namespaces: {found}; select one with -n"
        return f"{word} {name} not found in namespace {namespace}; found {found}"
    where = f" in namespace {namespace}" if namespace else ""
    near = get_close_matches(name, sorted({each.metadata.name for each in known}), 3)
    hint = f"; did you mean {', '.join(near)}?" if near else f" ({len(known)} exist)"
    return f"{word} {name} not found{where}{hint}"
