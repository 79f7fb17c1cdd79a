"""`MemoryCluster`: a cluster in memory on which pods are created, bound, evicted and deleted.

Every change goes through the `ChangeLog`, so that all of it can be undone. Scheduling decisions are made in
`scheduling.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

from plimsoll.api.core import Node, Pod
from plimsoll.api.pod_claims import find_requesting_pod, owner_group, pod_group_of, uses_claims
from plimsoll.api.resource import (
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from plimsoll.api.scheduling import PodGroup
from plimsoll.api.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from plimsoll.api.timestamps import parse_time
from plimsoll.controllers.device_taint_eviction.plan import pod_eviction, published_taints, rule_taints
from plimsoll.controllers.taint_eviction import eviction_time
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.placeholders import is_placeholder, make_pod, plan_placeholders
from plimsoll.scheduler.filters.taint_toleration import NO_EXECUTE
from plimsoll.scheduler.gang.claims import find_group_consumers, find_reserved_claims
from plimsoll.scheduler.preemption import Nominations
from plimsoll.scheduler.profile import ProfileSet, SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.changes import ChangeLog, ChangeMark
from plimsoll.tools.cluster_state.objects import Key, key_of
from plimsoll.tools.node_terms import taint_text
from plimsoll.tools.pod_schedulers import schedule_by_rules
from plimsoll.tools.whatif import lifecycle
from plimsoll.tools.whatif.manifests import CREATION_TIME
from plimsoll.tools.whatif.outcome import EvictedPod, EvictionReason, PodPlacement
from plimsoll.tools.whatif.quotas import QuotaUsage
from plimsoll.tools.whatif.volumes import (
    bind_immediately,
    bind_volumes,
    generate_volume_claims,
    with_defaults,
)

_NOW = parse_time(CREATION_TIME) or 0.0
#: Objects in the order in which others need them: classes give defaults to claims.
_STORAGE = (StorageClass, PersistentVolume, PersistentVolumeClaim)


class MemoryCluster:
    """Objects of a private cluster state and the changes made to them."""

    def __init__(self, cluster_state: ClusterState, settings: SchedulerProfile | ProfileSet) -> None:
        self.cluster_state = cluster_state
        self.settings = settings
        self.changes = ChangeLog(cluster_state)
        self.quotas = QuotaUsage(cluster_state)
        self.changes.observer = self.quotas.change
        #: Why claims of pods could not be created from their templates, by the name of the pod.
        self.claim_refusals: dict[Key, str] = {}
        #: Arrival order of added pods, by pod key.
        self.arrivals: dict[str, int] = {}
        #: Pods evicted so far.
        self.evicted: list[EvictedPod] = []
        #: Placements on nodes, which the states of a cluster share.
        self.placements: dict[str, PodPlacement] = {}
        self.rules_made = 0

    # -- lookups

    def find_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        return self.cluster_state.objects.find(ResourceClaim, namespace, name)

    def find_group(self, pod: Pod) -> PodGroup | None:
        """Return the group of a pod, if its pods can share claims."""
        name, snapshot = pod_group_of(pod), self.cluster_state.snapshot
        if not name or not snapshot.gates.enabled("DRAWorkloadResourceClaims"):
            return None
        return snapshot.find(PodGroup, pod.metadata.namespace, name)

    def uses_of(self, pod: Pod) -> list[tuple[ResourceClaim, bool]]:
        """Return the claims of a pod and whether each was generated for it."""
        if not uses_claims(pod):
            return []
        return list(lifecycle.claims_used_by(pod, partial(self.find_claim, pod.metadata.namespace)))

    def pods_on(self, node: str) -> list[Pod]:
        """Return the pods of a node by name, without placeholders; undo does not restore the ledger's
        insertion order.
        """
        row = self.cluster_state.snapshot.row_of(node)
        pods = () if row is None else self.cluster_state.snapshot.pods_at(row)
        return sorted((pod for pod in pods if not is_placeholder(pod)), key=lambda pod: pod.metadata.key)

    def bound(self) -> list[Pod]:
        """Return the pods with a node that have not terminated, without placeholders."""
        return [pod for pod in self.cluster_state.pods if pod.spec.node_name]

    def lowest_priority(self) -> int:
        """Return the lowest priority of a bound pod, 0 if there is none."""
        return min((pod.priority for pod in self.bound()), default=0)

    def order(self, pod: Pod) -> tuple[int, int, str, str, str]:
        """Return the queue order: higher priority first, then the longest pending."""
        meta = pod.metadata
        arrival = self.arrivals.get(pod_key(pod), 0)
        since = "" if arrival else meta.creation_timestamp or ""
        return -pod.priority, arrival, since, meta.namespace, meta.name

    # -- pods

    def add_pod(self, pod: Pod) -> None:
        """Add a pod at the end of the queue and create its claims."""
        self.arrivals[pod_key(pod)] = len(self.arrivals) + 1
        self.prepare(pod)

    def add_objects(self, things: Iterable[Any]) -> None:
        """Add or replace objects that are not pods, and bind volume claims as the volume controller does.

        A claim that was there before gets a volume provisioned only if its class is new: otherwise the
        provisioner would have done so.
        """
        snapshot, new = self.cluster_state.snapshot, set()
        for thing in sorted(things, key=_creation_order):
            self.changes.set(with_defaults(thing, snapshot))
            if isinstance(thing, _STORAGE):
                new.add((type(thing), *key_of(thing)))
        if all(kind is PersistentVolumeClaim for kind, _, _ in new):
            waiting = [snapshot.find(*key) for key in sorted(new, key=itemgetter(1, 2))]
        else:
            waiting = sorted(snapshot.all(PersistentVolumeClaim), key=key_of)
        for known in waiting:
            claim = with_defaults(known, snapshot)
            own = (PersistentVolumeClaim, *key_of(claim)), (StorageClass, "", claim.storage_class)
            bound = list(bind_immediately(claim, snapshot, can_provision=not new.isdisjoint(own)))
            for thing in bound or [claim]:
                self.changes.set(thing)

    def prepare(self, pod: Pod) -> None:
        """Create the claims of a pod that do not exist yet, and those that it shares with its group."""
        name = pod.metadata.key
        self.claim_refusals.pop(name, None)

        def create(claim: ResourceClaim) -> bool:
            refusal = self.quotas.find_refusal(claim)
            if refusal:
                self.claim_refusals[name] = refusal
            else:
                self.changes.set(claim)
            return not refusal

        find = partial(self.cluster_state.objects.find, ResourceClaimTemplate, pod.metadata.namespace)
        pod, group = lifecycle.make_claims(pod, self.find_group(pod), find, create)
        if group is not None:
            self.changes.set(group)
        self.add_objects(list(generate_volume_claims(pod, self.cluster_state.snapshot)))
        self.changes.set(pod)

    def schedule_pod(
        self, pod: Pod, nominations: Nominations | None = None
    ) -> Placement | FitError | NodeReason:
        """Run a scheduling attempt."""
        snapshot = self.cluster_state.snapshot
        return schedule_by_rules(pod, snapshot, self.settings.for_pod(pod), self.changes.new_id, nominations)

    def bind(self, placement: Placement) -> None:
        """Bind a pod to its node."""
        stored, snapshot = placement.pod_info.stored, self.cluster_state.snapshot
        group = self.find_group(stored)
        consumers = {} if group is None else find_group_consumers(group, [placement], snapshot.gates)
        find = partial(self.find_claim, stored.metadata.namespace)
        pod, claims = lifecycle.bind(placement, self.cluster_state.profile, find, consumers)
        for claim in claims:
            self.changes.set(claim)
        for volume in bind_volumes(placement.volumes, snapshot.node(placement.row), snapshot.find):
            self.changes.set(volume)
        self.changes.set(pod)
        self._add_placeholders(placement.row, pod)
        self.cluster_state.snapshot.next_start_row = placement.row + 1

    def _add_placeholders(self, row: int, pod: Pod) -> None:
        """Create the placeholders that a pod on a node still needs, if the cluster uses them."""
        ledger = self.cluster_state.snapshot.ledger(row)
        entry = ledger.entries.get(pod_key(pod)) if ledger.profile.placeholders else None
        if entry is None:
            return
        for each in plan_placeholders(pod, entry.charged_claims, ledger.options, ledger.profile):
            if not ledger.has_placeholder_of(each.owner):
                self.changes.set(make_pod(each, ledger.name))

    def renew_placeholders(self) -> None:
        """Replace all placeholders by those that fit the charges as they are now."""
        snapshot = self.cluster_state.snapshot
        for row in snapshot.rows() if snapshot.profile.placeholders else ():
            for pod in snapshot.pods_at(row):
                if is_placeholder(pod):
                    self.changes.remove(pod)
            for pod in snapshot.pods_at(row):
                self._add_placeholders(row, pod)

    def evict(self, pod: Pod, because: EvictionReason, by: str = "", after: int = 0) -> Pod | None:
        """Evict a pod. Return the pod that replaces it, if any; one that was being deleted just goes."""
        if lifecycle.is_gone_for_good(pod):
            self.delete(pod)
            return None
        node = pod.spec.node_name
        bare = lifecycle.controller_of(pod) is None
        is_recreated = because is EvictionReason.DRAINED or not bare
        self.evicted.append(EvictedPod(pod.metadata.key, node, because, by, is_recreated, after, bare))
        if not is_recreated:
            self.delete(pod)
            return None
        self.changes.remove_placeholders(pod)
        # Claims are released first, so that none is charged to the evicted pod.
        for claim, _ in self.uses_of(pod):
            if find_requesting_pod(claim) is not None:
                self.changes.remove(claim)
            else:
                self.changes.set(lifecycle.release_claim(claim, pod))
        recreated = lifecycle.unbind(pod)
        self.arrivals[pod_key(recreated)] = len(self.arrivals) + 1
        self.prepare(recreated)
        return recreated

    def delete(self, pod: Pod) -> None:
        """Delete a pod, the claims generated for it and its placeholders."""
        uses = self.uses_of(pod)
        self.changes.remove(pod)
        for claim, generated in uses:
            if generated:
                self.changes.remove(claim)
            else:
                self.changes.set(lifecycle.release_claim(claim, pod))

    def remove_group(self, group: PodGroup) -> None:
        """Remove a pod group and the claims generated for it."""
        for claim in list(self.cluster_state.objects.all(ResourceClaim)):
            is_own = claim.metadata.namespace == group.metadata.namespace
            if is_own and owner_group(claim) == (group.metadata.name, group.metadata.uid):
                self.changes.remove(claim)
        self.changes.remove(group)

    def release_group_claims(self, group: PodGroup) -> None:
        """Release the claims that are reserved for a group of which no pod is scheduled."""
        for claim in list(find_reserved_claims(group, self.cluster_state.snapshot)):
            self.changes.set(lifecycle.release_claim(claim, group))

    # -- nodes and devices

    def remove_node(self, node: Node) -> None:
        """Remove a node and its devices; pods with a controller are recreated."""
        name = node.metadata.name
        for pod in self.pods_on(name):
            if lifecycle.stays_on_node(pod):
                self.delete(pod)
            else:
                self.evict(pod, EvictionReason.NODE_GONE, name)
        for pod in self.cluster_state.objects.all(Pod):
            if pod.spec.node_name == name and is_placeholder(pod):
                self.changes.remove(pod)
        for slice in self.cluster_state.objects.all(ResourceSlice):
            if slice.spec.node_name == name:
                self.changes.remove(slice)
        self.changes.remove(node)

    def evict_by_node(self, node: Node) -> None:
        """Evict the pods that do not tolerate the taints of a node."""
        for pod in self.pods_on(node.metadata.name):
            due = eviction_time(pod, node.spec.taints, _NOW)
            if due is not None:
                by = ", ".join(taint_text(each) for each in node.spec.taints if each.effect == NO_EXECUTE)
                self.evict(pod, EvictionReason.NODE_TAINT, by, max(0, round(due - _NOW)))

    def evict_by_devices(
        self, rules: Iterable[DeviceTaintRule] = (), slices: Iterable[ResourceSlice] = ()
    ) -> None:
        """Evict the pods that use a device tainted by these rules or slices and do not tolerate it."""
        rules = list(rules)
        ordered = sorted(slices, key=_pool_of)
        if not rules and not ordered:
            return
        published = {pool: published_taints(group) for pool, group in groupby(ordered, _pool_of)}

        def taints_of(result: DeviceRequestAllocationResult) -> Iterator[Any]:
            yield from rule_taints(rules, result)
            yield from published.get((result.driver, result.pool), {}).get(result.device, ())

        for pod in self.bound():
            if not uses_claims(pod):
                continue
            claims = {claim.metadata.name: claim for claim, _ in self.uses_of(pod)}
            found = pod_eviction(pod, claims, taints_of)
            if found is not None:
                by = ", ".join(cause.rule or str(cause.device) for cause in found.causes)
                after = max(0, round(found.when - _NOW)) if rules else 0
                self.evict(pod, EvictionReason.DEVICE_TAINT, by, after)

    # -- undo

    def mark(self) -> tuple[ChangeMark, int]:
        return self.changes.mark(), len(self.evicted)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Undo everything that the `with` block changes."""
        mark = self.mark()
        try:
            yield
        finally:
            self.undo(mark)

    def undo(self, mark: tuple[ChangeMark, int]) -> None:
        self.changes.undo(mark[0])
        del self.evicted[mark[1] :]


def _creation_order(thing: Any) -> int:
    return next((place for place, kind in enumerate(_STORAGE) if isinstance(thing, kind)), len(_STORAGE))


def _pool_of(slice: ResourceSlice) -> tuple[str, str]:
    return slice.spec.driver, slice.spec.pool.name
