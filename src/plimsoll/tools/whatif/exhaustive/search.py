"""START HERE: `prove`: whether any placement of a batch of pods exists.

A search over all pods, nodes and device choices with the scheduler's own rules. It ends in one of three ways:
a placement of all pods; proof that none exists; or the step limit, and nothing is known. Running pods stay
where they are. Symmetric choices are tried once: pods with equal signatures are placed on nodes in one order,
of equal nodes the first is tried, equal devices are interchangeable, and a failed state is not searched
again. If not all pods can be placed, a second search looks for more than the scheduler placed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from plimsoll.allocator import AllocationFault
from plimsoll.api.codec import encode
from plimsoll.api.core import Pod
from plimsoll.api.pod_volumes import placement_volumes
from plimsoll.api.resource import ResourceClaim
from plimsoll.scheduler.cycle import run_filters
from plimsoll.scheduler.devices import DynamicResourcesFilter, NodeFit
from plimsoll.scheduler.devices.exact import DeviceMessage
from plimsoll.scheduler.devices.usage import read_usage
from plimsoll.scheduler.extended_resource_index import ExtendedResourceClasses
from plimsoll.scheduler.filter_result import FilterResult
from plimsoll.scheduler.filters.node_resources import may_have_claims
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.reasons import NodeReason, render
from plimsoll.scheduler.result import Placement
from plimsoll.scheduler.unschedulable_cache import pod_signature
from plimsoll.tools.cluster_state.progress import ProgressCallback, no_progress
from plimsoll.tools.fixes.additions import HOSTNAME
from plimsoll.tools.whatif.exhaustive.choices import can_list, fits_on
from plimsoll.tools.whatif.memory_cluster import MemoryCluster
from plimsoll.tools.whatif.outcome import Name, PodPlacement
from plimsoll.tools.whatif.scheduling import depends_on_others

#: Steps between two progress reports.
_PROGRESS_STEPS = 64
#: Step limit of a search.
STEPS = 20_000
#: Maximum number of pods.
PODS_MAX = 200


#: Pods by signature.
_Kinds = tuple[tuple[Pod, ...], ...]


class ProofVerdict(Enum):
    """Result of the search."""

    ALL = "placed all"
    IMPOSSIBLE = "impossible"
    GAVE_UP = "gave up"


@dataclass(frozen=True, slots=True)
class Proof:
    """Result of the search over all placements of a batch."""

    verdict: ProofVerdict
    pods: int
    greedy: int  #: number of pods the scheduler places one by one
    most: int  #: number of pods in the best placement found
    settled: bool  #: True if no placement has more than `most`
    steps: int
    placement: Mapping[Name, PodPlacement] = field(default_factory=dict)  #: the best one, if it is better
    why: str = ""  #: reason, if one pod alone decides it


def prove(cluster: MemoryCluster, greedy: int, steps: int, tick: ProgressCallback = no_progress) -> Proof:
    """Search all placements of the pending pods; the cluster is restored afterwards."""
    pods = sorted(cluster.cluster_state.pending, key=cluster.order)
    with cluster.trial():
        return _PlacementSearch(cluster, pods, greedy, steps, tick).run()


class _PlacementSearch:
    """One search."""

    def __init__(
        self, cluster: MemoryCluster, pods: Sequence[Pod], greedy: int, steps: int, tick: ProgressCallback
    ) -> None:
        self._cluster = cluster
        self._snapshot = cluster.cluster_state.snapshot
        self._pods = pods
        self._greedy = greedy
        self._limit = steps
        self._tick = tick
        self._steps = 0
        self._failed: set[object] = set()
        self._placed: dict[Name, PodPlacement] = {}
        self._best: dict[Name, PodPlacement] = {}
        self._unsure = False  #: True if something could not be evaluated
        self._over = False  #: True if the step limit is reached
        self._infeasible_reason = ""
        self._touched: dict[int, int] = {}

    def run(self) -> Proof:
        pods = len(self._pods)
        if not pods:
            return Proof(ProofVerdict.ALL, 0, 0, 0, True, 0)
        kinds = self._read()
        if pods > PODS_MAX:
            why = f"{pods} pods exceed the limit of {PODS_MAX} for an exhaustive search"
            return Proof(ProofVerdict.GAVE_UP, pods, self._greedy, self._greedy, False, 0, why=why)
        verdict, settled = ProofVerdict.IMPOSSIBLE, False
        if not self._infeasible_reason and self._place(kinds, 0, 0):
            verdict, settled = ProofVerdict.ALL, True
            self._best = dict(self._placed)
        elif self._over or self._unsure:
            verdict = ProofVerdict.GAVE_UP
        else:
            self._improve(kinds)
            settled = not (self._unsure or self._over)
        most = max(self._greedy, len(self._best))
        better = self._best if len(self._best) > self._greedy else {}
        return Proof(verdict, pods, self._greedy, most, settled, self._steps, better, self._infeasible_reason)

    # -- pods

    def _read(self) -> _Kinds:
        """Group the pods by signature and record pending claims."""
        groups: dict[bytes, list[Pod]] = {}
        waiting: dict[str, ResourceClaim] = {}
        self._stuck: list[Pod] = []
        for pod in self._pods:
            pod_info = read_pod_info(pod, self._snapshot)
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            if isinstance(pod_info, NodeReason) or gates:
                why = f"scheduling gates: {gates}" if gates else render(pod_info)  # type: ignore[arg-type]
                self._infeasible_reason = self._infeasible_reason or f"{pod.metadata.full_name}: {why}"
                self._stuck.append(pod)
                continue
            waiting |= {claim.metadata.uid: claim for claim in pod_info.unallocated_claims}
            groups.setdefault(pod_signature(pod_info), []).append(pod)
        self._batch = list(waiting.values())
        placeable = [pod for group in groups.values() for pod in group]
        all_pods = [*placeable, *self._cluster.bound()]
        #: True if placements affect other pods beyond the ledgers.
        self._has_interactions = any(_affects_others(pod) for pod in all_pods)
        #: True if a pod may fit only after another is placed.
        self._in_turns = any(depends_on_others(pod) for pod in placeable)
        self._by_name = any(_names_nodes(pod) for pod in placeable)
        #: True if claims may be shared, so that it matters which claim has which devices.
        self._sharing = any(
            each.resource_claim_name for pod in placeable for each in pod.spec.resource_claims
        )
        #: True if requests may draw from the pool of a claim, so that their sum proves nothing.
        self._draws = self._snapshot.profile.policies and any(map(may_have_claims, placeable))
        return tuple(map(tuple, groups.values()))

    def _improve(self, kinds: _Kinds) -> None:
        """Search for a placement of more pods than the scheduler placed, repeatedly."""
        total = sum(map(len, kinds))
        best = self._greedy
        while best < total:
            skips = total - best - 1
            if skips < 0 or (skips == 0 and not self._infeasible_reason):
                return  # placing all pods was proven impossible
            self._failed.clear()
            self._placed.clear()
            mark = self._cluster.mark()
            found = self._place(kinds, skips, 0)
            self._cluster.undo(mark)
            self._touched.clear()
            if not found:
                return
            self._best = dict(self._placed)
            best = len(self._best)

    # -- search

    def _place(self, kinds: _Kinds, skips: int, first: int) -> bool:
        """Place the remaining pods, leaving out at most `skips`; the first kind only from node `first` on."""
        left = [number for number, kind in enumerate(kinds) if kind]
        if not left:
            return True
        if self._over:
            return False
        state = self._state(kinds, skips, first)
        if state in self._failed or self._exceeds_capacity(kinds, skips):
            return False
        for number in left if self._in_turns else left[:1]:
            kind = kinds[number]
            rest = (*kinds[:number], kind[1:], *kinds[number + 1 :])
            if self._try(kind[0], rest, skips, first, alike=bool(kind[1:])):
                return True
        number = left[0]
        if skips >= len(kinds[number]):  # pods of equal signature are left out together
            without = (*kinds[:number], (), *kinds[number + 1 :])
            if self._place(without, skips - len(kinds[number]), 0):
                return True
        if not self._over:
            self._failed.add(state)
        return False

    def _try(self, pod: Pod, rest: _Kinds, skips: int, first: int, *, alike: bool) -> bool:
        """Place one pod on each feasible node, then the rest."""
        cluster, snapshot = self._cluster, self._snapshot
        pod_info = read_pod_info(pod, snapshot)
        if isinstance(pod_info, NodeReason):
            return False
        profile = cluster.settings.for_pod(pod)
        filter_result = run_filters(pod_info, snapshot, profile, cluster.changes.new_id)
        if isinstance(filter_result, NodeReason):
            return False
        seen: set[object] = set()
        for row in np.flatnonzero(filter_result.feasible).tolist():
            if row < first and not self._in_turns:
                continue
            signature = self._node_signature(row)
            if signature in seen:
                continue
            seen.add(signature)
            if self._try_node(pod_info, row, filter_result, rest, skips, row if alike else 0):
                return True
        return False

    def _try_node(
        self,
        pod_info: PodInfo,
        row: int,
        filter_result: FilterResult,
        rest: _Kinds,
        skips: int,
        first: int,
    ) -> bool:
        cluster, name = self._cluster, pod_info.pod.metadata.key
        if self._step():
            return False
        devices, volumes = filter_result.devices, filter_result.find_volumes(row)
        if devices is not None and self._is_refused(devices, row):
            return False
        pod_info = pod_info.at_node(self._snapshot.node(row))
        if volumes:
            self._unsure = True  # another choice of volumes may leave more for the others
        if not can_list(pod_info, row, self._snapshot):
            self._unsure = True
            return False
        node = self._snapshot.node(row).metadata.name
        fits: list[NodeFit] = []
        for fit in fits_on(pod_info, row, self._snapshot, self._batch, cluster.changes.new_id):
            fits.append(fit)
            if self._step():
                return False
        for fit in fits:
            mark = cluster.mark()
            placement = Placement(pod_info, row, node, fit.allocations, fit.charged_claims, volumes=volumes)
            cluster.bind(placement)
            self._touched[row] = self._touched.get(row, 0) + 1
            self._placed[name] = PodPlacement(node, devices=placement.devices)
            if self._place(rest, skips, first):
                return True
            del self._placed[name]
            self._touched[row] -= 1
            cluster.undo(mark)
        return False

    def _is_refused(self, devices: DynamicResourcesFilter, row: int) -> bool:
        """Return whether the scheduler's own search proves that no devices are available."""
        answer = devices.search_uncached(row)
        if isinstance(answer, NodeFit):
            return False
        sentences = {reason.message for reason in answer}
        return sentences <= {DeviceMessage.CANNOT_ALLOCATE, DeviceMessage.CLAIM_ELSEWHERE}

    def _step(self) -> bool:
        """Count a step; return whether the limit is reached."""
        if self._over:
            return True
        self._steps += 1
        if self._steps % _PROGRESS_STEPS == 0:
            self._tick("searching placements", self._steps, self._limit)
        self._over = self._steps >= self._limit
        return self._over

    # -- equal states

    def _exceeds_capacity(self, kinds: _Kinds, skips: int) -> bool:
        """Return whether the remaining pods request more than all nodes have left, without claims."""
        if skips or self._draws:
            return False
        columns = self._snapshot.columns
        classes = self._snapshot.index(ExtendedResourceClasses)
        wanted: dict[str, int] = {}
        for kind in kinds:
            if kind:
                demand = PodInfo(kind[0], (), self._snapshot.options).requests
                for name, amount in demand.items():
                    if classes.find(name) is not None:
                        continue  # devices may serve it
                    wanted[name] = wanted.get(name, 0) + amount * len(kind)
        alive = self._snapshot.alive
        return any(
            amount > int(np.maximum(columns.free(name)[alive], 0).sum()) for name, amount in wanted.items()
        )

    def _state(self, kinds: _Kinds, skips: int, first: int) -> object:
        """Return a key that is equal for states with equal continuations."""
        touched = sorted(row for row, count in self._touched.items() if count)
        nodes = tuple((row, self._node_state(row)) for row in touched)
        where: object = None
        if self._has_interactions or self._in_turns or self._sharing:
            where = tuple(sorted((name, found.node) for name, found in self._placed.items()))
        return tuple(map(len, kinds)), skips, first, nodes, where

    def _node_signature(self, row: int) -> object:
        """Return a key that is equal for nodes the batch cannot distinguish in the current state."""
        node = self._snapshot.node(row)
        if self._by_name:
            return row
        labels = {k: v for k, v in node.metadata.labels.items() if k != HOSTNAME}
        fixed = encode((labels, node.metadata.annotations, node.spec, node.status.declared_features))
        pods: object = None
        if self._has_interactions:
            pods = tuple(sorted(map(_footprint, self._snapshot.pods_at(row))))
        return fixed, self._node_state(row), pods

    def _node_state(self, row: int) -> object:
        """Return the ledger and device state of a node as a key."""
        snapshot = self._snapshot
        ledger = snapshot.ledger(row)
        devices = snapshot.inventory.devices_for(snapshot.node(row))
        if isinstance(devices, AllocationFault) or devices.signature is None:
            held: object = (row, *sorted((str(device), str(h)) for device, h in snapshot.state))
        else:
            held = (devices.signature, read_usage(snapshot, devices).signature)
        claims: object = None
        if self._sharing:
            claims = tuple(sorted(repr(state) for state in ledger.claims.values()))
        line = tuple(sorted(ledger.allocatable.items()))
        return line, tuple(sorted(ledger.requested.items())), len(ledger), held, claims


def _affects_others(pod: Pod) -> bool:
    """Return whether a pod interacts with others beyond resources and devices."""
    spec = pod.spec
    ports = any(port.host_port for c in spec.containers for port in c.ports)
    affinity = spec.affinity
    others = affinity is not None and (
        affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
    )
    return ports or others or bool(spec.topology_spread_constraints) or bool(placement_volumes(spec))


def _names_nodes(pod: Pod) -> bool:
    """Return whether a pod may select a node by name."""
    affinity = pod.spec.affinity
    return HOSTNAME in pod.spec.node_selector or (affinity is not None and affinity.node_affinity is not None)


def _footprint(pod: Pod) -> bytes:
    spec, meta = pod.spec, pod.metadata
    ports = [port for c in spec.containers for port in c.ports]
    return encode(
        (meta.namespace, sorted(meta.labels.items()), spec.affinity, ports, placement_volumes(spec))
    )
