"""`find_moves`: the fewest pods whose move lets others fit, proven by scheduling them in memory.

A set of pods works if everything can be scheduled after they are evicted (`MoveOrder`). Sets are tried by
size, so the first that works is the smallest. Two rules leave out sets that cannot work:

- Evicted pods must be on nodes where the target, or another evicted pod, would fit if all pods that can move
  were gone: others free nothing that is needed.
- A single pod goes to one node: until it fits, further pods are evicted from the same node, and only where
  few enough free the devices that it requests (`EvictionBounds`).

Pods are moved if a controller recreates them, no disruption budget forbids it, and they are not DaemonSet or
mirror pods. The search is bounded; the result shows whether all smaller sets were tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
from msgspec import structs

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.identity import DeviceId
from plimsoll.api.pod_claims import uses_claims
from plimsoll.api.pod_volumes import placement_spec, placement_volumes
from plimsoll.api.resource import DeviceClass
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.cycle import run_filters, schedule_one
from plimsoll.scheduler.devices import NodeFit
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.profile import ProfileSet, SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import Placement
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.objects import Key
from plimsoll.tools.cluster_state.progress import ProgressCallback, no_progress
from plimsoll.tools.defrag.bounds import EvictionBounds
from plimsoll.tools.defrag.node_taints import count_left_out, find_nodes_with
from plimsoll.tools.defrag.target import DefragTarget, add_target
from plimsoll.tools.node_terms import taint_text
from plimsoll.tools.whatif.drains import budgets_of, find_eviction_refusal, read_budgets
from plimsoll.tools.whatif.exhaustive import ProofVerdict, prove
from plimsoll.tools.whatif.lifecycle import controller_of, stays_on_node
from plimsoll.tools.whatif.memory_cluster import MemoryCluster
from plimsoll.tools.whatif.outcome import EvictionReason, Name, PodPlacement, ScheduledPod, WhatifOutcome
from plimsoll.tools.whatif.scheduling import depends_on_others, schedule_all
from plimsoll.tools.whatif.whatif import Whatif

STEPS = 5_000
MOVES_MAX = 4
#: Steps between two progress reports.
_PROGRESS_STEPS = 20
#: Steps of the search for a placement of one set.
_PROOF_STEPS = 500
#: Nodes that are tried for some solution after the limit.
_NODES_TRIED = 100
#: Nodes of a cluster for which scheduling the moved pods of a set counts as one more set.
_NODES_PER_STEP = 16


@dataclass(frozen=True, slots=True)
class DefragLimits:
    """Bounds of the search."""

    moves: int = MOVES_MAX  #: largest set that is tried
    steps: int = STEPS  #: sets that are tried
    bare: bool = False  #: also move pods that no controller recreates


class MoveOrder(Enum):
    """Order in which pods are moved so that everything is scheduled."""

    IN_TURN = "in turn"  #: the moved pods are recreated while their nodes are cordoned, then the target
    TARGET_FIRST = "target first"  #: the target is created before pods are evicted
    #: Every pod is directed to its node, as found by exhaustive search; the scheduler may choose another.
    DIRECTED = "directed"


@dataclass(frozen=True, slots=True)
class PodTransfer:
    """Pod that is moved."""

    pod: Name
    source: str
    node: str  #: where the scheduler places it
    bare: bool = False  #: no controller recreates it


@dataclass(frozen=True, slots=True)
class DefragResult:
    """Result of the search."""

    targets: tuple[Name, ...]
    fits: bool
    moves: tuple[PodTransfer, ...] = ()
    placements: tuple[tuple[Name, str, tuple[str, ...]], ...] = ()  #: target pods: node and devices
    order: MoveOrder = MoveOrder.IN_TURN
    exact: bool = True  #: all smaller sets were tried
    tried: int = 0
    largest: int = 0  #: size up to which all sets were tried
    movable: int = 0  #: pods that can be moved
    why: str = ""  #: reason why the target is pending without any move
    refusal: str = ""  #: reason why the API would not create the target
    tolerated: tuple[str, ...] = ()  #: node taints that a pod for devices of a class tolerates
    left_out: Mapping[str, int] = field(default_factory=dict)  #: nodes closed to the target by their reason


def find_moves(
    cluster_state: ClusterState,
    target: DefragTarget,
    limits: DefragLimits | None = None,
    *,
    settings: SchedulerProfile | ProfileSet | None = None,
    tick: ProgressCallback = no_progress,
) -> DefragResult:
    """Search the smallest set of pods to move; the cluster state is not modified."""
    whatif = Whatif(cluster_state, settings=settings)
    whatif.cluster_state.compute_ledgers(tick)
    targets = add_target(target, whatif)
    if whatif.refused:
        return DefragResult(tuple(targets), False, refusal=whatif.refused[0].why)
    state = whatif.cluster_state
    pods = [state.pod(name, namespace) for namespace, name in targets]
    device_class = state.objects.find(DeviceClass, "", target.device_class)
    nodes, tolerated = state.nodes, tuple[str, ...]()
    if device_class is not None:
        nodes = [node for node, _ in find_nodes_with(state, device_class)]
        tolerated = tuple(map(taint_text, pods[0].spec.tolerations))
    left_out = count_left_out(nodes, pods)
    settings = settings or SchedulerProfile.default()
    search = MoveSearch(state, targets, limits or DefragLimits(), settings, tick)
    return replace(search.run(), tolerated=tolerated, left_out=left_out)


class MoveSearch:
    """One search, on a cluster in memory that has the target pods."""

    def __init__(
        self,
        cluster_state: ClusterState,
        targets: Sequence[Name],
        limits: DefragLimits,
        settings: SchedulerProfile | ProfileSet,
        tick: ProgressCallback = no_progress,
    ) -> None:
        self._cluster = MemoryCluster(cluster_state, settings)
        self._targets = tuple(targets)
        self._limits = limits
        self._tick = tick
        self._tried = 0
        self._over = False
        for pod in cluster_state.pending:  # other pending pods would take what is freed
            if pod.metadata.key not in self._targets:
                self._cluster.changes.remove(pod)
        self.movable = [pod for pod in self._cluster.bound() if self._can_move(pod)]
        self.movable.sort(key=lambda pod: (pod.spec.node_name, pod.metadata.key))
        self._by_node: dict[str, list[int]] = {}
        for number, pod in enumerate(self.movable):
            self._by_node.setdefault(pod.spec.node_name, []).append(number)
        self._budgets = read_budgets(cluster_state)
        self._alike = list(map(_signature, self.movable))
        self._useful: dict[Name, frozenset[str]] = {}
        self._seen: set[frozenset[int]] = set()
        #: Sets of the size being tried with which the targets fit, but not everything was scheduled.
        self._unplaced: list[frozenset[int]] = []
        self._proof_steps = 0
        self._is_unsure = False  #: exhaustive search of a set ended at its limit
        self._emptied: MemoryCluster | None = None
        self._fits: dict[frozenset[int], bool] = {}
        self._work = 0  #: sets that were tried, and what scheduling the moved pods took
        self._bounds = self._find_bounds()

    def run(self) -> DefragResult:
        """Try all sets by size."""
        why, done = self._reason(), -1
        found: DefragResult | None = None
        for size in range(self._limits.moves + 1):
            self._seen.clear()
            self._unplaced.clear()
            found = self._search(frozenset(), size) or self._arrange_any()
            if found is not None or self._over:
                break
            if not self._is_unsure:
                done = size
        if found is None:
            any_found = self._find_any() if self._over else None
            found = any_found or DefragResult(self._targets, False, why=why)
        smaller = len(found.moves) - 1 if found.fits else self._limits.moves
        movable, largest = len(self.movable), max(done, 0)
        return replace(found, exact=smaller <= done, tried=self._tried, largest=largest, movable=movable)

    def _reason(self) -> str:
        with self._cluster.trial():
            outcome = schedule_all(self._cluster, preempt=False)
        return outcome.pending[0].why if outcome.pending else ""

    def _search(self, chosen: frozenset[int], size: int) -> DefragResult | None:
        """Try all sets of a size that contain the chosen pods."""
        if self._over or chosen in self._seen:
            return None
        self._seen.add(chosen)
        if len(chosen) == size:
            self._tried += 1
            if self._tried % _PROGRESS_STEPS == 0:
                self._tick("trying sets of pods", self._tried, self._limits.steps)
            self._work += 1
            if self._work > self._limits.steps:
                self._over = True
                return None
            return self.attempt(chosen)
        for number in self._next(chosen, size):
            found = self._search(chosen | {number}, size)
            if found is not None or self._over:
                return found
        return None

    def _next(self, chosen: frozenset[int], size: int) -> Iterator[int]:
        """Yield the pods that can be added to a set that will have a size."""
        taken: set[tuple[str, object]] = set()
        for node in self._next_nodes(chosen, size):
            for number in self._by_node[node]:
                kind = (node, self._alike[number])
                if number in chosen or kind in taken:
                    continue
                taken.add(kind)  # another pod of the same kind frees the same
                if self._may_fit(node, chosen | {number}, size):
                    yield number

    def _may_fit(self, node: str, chosen: frozenset[int], size: int) -> bool:
        """Return whether these pods and others, up to a size, may free the target's devices on a node."""
        if self._bounds is None or self._nodes(chosen) - {node}:
            return True
        return len(chosen) + self._bounds.fewest(node, chosen) <= size

    def _next_nodes(self, chosen: frozenset[int], size: int) -> list[str]:
        if len(self._targets) == 1 and chosen and not self._target_fits(chosen):
            nodes = self._nodes(chosen)
            return sorted(nodes) if len(nodes) == 1 else []
        if not chosen and self._bounds is not None:
            return [node for node in sorted(self._by_node) if self._may_fit(node, chosen, size)]
        names = [*self._targets, *(self.movable[number].metadata.key for number in chosen)]
        found = frozenset[str]().union(*map(self._useful_nodes, names))
        return sorted(found & self._by_node.keys())

    def _target_fits(self, chosen: frozenset[int]) -> bool:
        """Return whether a single target pod fits somewhere once these pods are evicted."""
        known = self._fits.get(chosen)
        if known is None:
            with self._cluster.trial():
                self._evict(chosen)
                known = self._fits[chosen] = self._schedule_target(self._nodes(chosen))
        return known

    def _schedule_target(self, changed: set[str]) -> bool:
        """Schedule the target pod: on nodes that changed, if no other can fit because of that."""
        cluster, snapshot = self._cluster, self._cluster.cluster_state.snapshot
        pod = cluster.cluster_state.objects.find(Pod, *self._targets[0])
        if pod is None:
            return False
        if self._bounds is None or not changed:
            return isinstance(cluster.schedule_pod(pod), Placement)
        settings = cluster.settings.for_pod(pod)
        pod_info = read_pod_info(pod, snapshot, settings)
        if isinstance(pod_info, NodeReason):
            return False
        allowed = np.zeros_like(snapshot.alive)
        allowed[[row for row in map(snapshot.row_of, changed) if row is not None]] = True
        placed = schedule_one(pod_info, snapshot, settings, cluster.changes.new_id, allowed=allowed)
        return isinstance(placed, Placement)

    def _find_bounds(self) -> EvictionBounds | None:
        """Return bounds for a single target on which pods of other nodes have no influence."""
        pod = self._cluster.cluster_state.objects.find(Pod, *self._targets[0])
        if pod is None or len(self._targets) > 1 or placement_volumes(pod.spec):
            return None
        if pod.spec.topology_spread_constraints or any(
            each.spec.affinity is not None for each in (pod, *self.movable)
        ):
            return None
        uses = [claim for claim, _ in self._cluster.uses_of(pod)]
        if any(claim.status.allocation is not None or claim.status.reserved_for for claim in uses):
            return None
        held: dict[str, dict[int, set[DeviceId]]] = {node: {} for node in self._by_node}
        for number, moved in enumerate(self.movable):
            results = (each for claim, _ in self._cluster.uses_of(moved) for each in claim.allocation_results)
            held[moved.spec.node_name][number] = set(map(DeviceId.of, results))
        return EvictionBounds(self._cluster.cluster_state.snapshot, uses, held, self._limits.moves)

    # -- one set

    def attempt(self, chosen: frozenset[int]) -> DefragResult | None:
        """Evict pods and schedule everything; return the result if nothing is left pending."""
        if not self._may_evict(chosen):
            return None
        if len(self._targets) == 1 and not self._target_fits(chosen):
            return None
        self._work += len(self._cluster.cluster_state.nodes) // _NODES_PER_STEP
        orders = {MoveOrder.IN_TURN: self._schedule_in_turn, MoveOrder.TARGET_FIRST: self._schedule_together}
        for order, schedule in orders.items():
            with self._cluster.trial():
                placed = schedule(chosen)
                if placed is not None:
                    where = {each.pod: each for outcome in placed for each in outcome.placed}
                    return self._result(chosen, where, order if chosen else MoveOrder.IN_TURN)
        self._unplaced.append(chosen)
        return None

    def _may_evict(self, chosen: frozenset[int]) -> bool:
        """Return whether disruption budgets allow to evict all pods of a set."""
        unavailable: Counter[Key] = Counter()
        for number in sorted(chosen) if self._budgets else ():
            pod = self.movable[number]
            budgets = budgets_of(pod, self._budgets)
            if find_eviction_refusal(pod, budgets, unavailable):
                return False
            unavailable.update(budget.metadata.key for budget in budgets)
        return True

    def _arrange_any(self) -> DefragResult | None:
        """Search all placements for the sets of which the scheduler does not place all pods by itself."""
        found = (self._arrange(chosen) for chosen in self._unplaced if not self._over)
        return next((each for each in found if each is not None), None)

    def _arrange(self, chosen: frozenset[int]) -> DefragResult | None:
        with self._cluster.trial():
            self._evict(chosen)
            pods = self._cluster.cluster_state.pending
            if not all(isinstance(self._cluster.schedule_pod(pod), Placement) for pod in pods):
                return None
            proof = prove(self._cluster, len(pods) - 1, _PROOF_STEPS)
        self._proof_steps += proof.steps
        self._over = self._over or self._proof_steps > self._limits.steps
        self._is_unsure = self._is_unsure or proof.verdict is ProofVerdict.GAVE_UP
        if proof.verdict is not ProofVerdict.ALL:
            return None
        return self._result(chosen, proof.placement, MoveOrder.DIRECTED)

    def _schedule_in_turn(self, chosen: frozenset[int]) -> list[WhatifOutcome] | None:
        """Schedule the evicted pods elsewhere, then the target."""
        changes, objects = self._cluster.changes, self._cluster.cluster_state.objects
        targets = [pod for name in self._targets if (pod := objects.find(Pod, *name)) is not None]
        for pod in targets:
            changes.remove(pod)
        closed = [
            node for node in self._cluster.cluster_state.nodes if node.metadata.name in self._nodes(chosen)
        ]
        for node in closed:
            changes.set(structs.replace(node, spec=structs.replace(node.spec, unschedulable=True)))
        self._evict(chosen)
        moved = schedule_all(self._cluster, preempt=False)
        if moved.pending:
            return None
        for node in closed:
            changes.set(node)
        for pod in targets:
            self._cluster.prepare(pod)
        outcome = schedule_all(self._cluster, preempt=False)
        return None if outcome.pending else [moved, outcome]

    def _schedule_together(self, chosen: frozenset[int]) -> list[WhatifOutcome] | None:
        self._evict(chosen)
        outcome = schedule_all(self._cluster, preempt=False)
        return None if outcome.pending else [outcome]

    def _evict(self, chosen: frozenset[int]) -> None:
        for number in sorted(chosen):
            self._cluster.evict(self.movable[number], EvictionReason.DRAINED)

    def _nodes(self, chosen: frozenset[int]) -> set[str]:
        return {self.movable[number].spec.node_name for number in chosen}

    def _result(
        self,
        chosen: frozenset[int],
        placed: Mapping[Name, ScheduledPod] | Mapping[Name, PodPlacement],
        order: MoveOrder,
    ) -> DefragResult:
        pods = [self.movable[number] for number in sorted(chosen)]
        nodes = [placed[pod.metadata.key].node for pod in pods]
        moves = tuple(
            PodTransfer(pod.metadata.key, pod.spec.node_name, node, controller_of(pod) is None)
            for pod, node in zip(pods, nodes, strict=True)
        )
        targets = tuple((name, placed[name].node, placed[name].devices) for name in self._targets)
        return DefragResult(self._targets, True, moves, targets, order)

    # -- candidates

    def _can_move(self, pod: Pod) -> bool:
        is_deleted = pod.metadata.deletion_timestamp is not None
        is_recreated = controller_of(pod) is not None or self._limits.bare
        return is_recreated and not is_deleted and not stays_on_node(pod)

    def _useful_nodes(self, name: Name) -> frozenset[str]:
        """Return the nodes where a pod would fit if all pods that can move were gone."""
        known = self._useful.get(name)
        if known is not None:
            return known
        if self._emptied is None:
            self._emptied = MemoryCluster(self._cluster.cluster_state.copy(), self._cluster.settings)
            for moved in self.movable:
                self._emptied.evict(moved, EvictionReason.DRAINED)
        cluster = self._emptied
        pod = cluster.cluster_state.objects.find(Pod, *name)
        assert pod is not None, "targets and evicted pods are pending"
        if depends_on_others(pod):
            found = frozenset(self._by_node)
        else:
            found = frozenset(_fitting_nodes(pod, cluster))
        self._useful[name] = found
        return found

    def _find_any(self) -> DefragResult | None:
        """Return some set that works, for a search that reached its limit: the pods of one node, those that
        are not needed put back one by one.
        """
        best: DefragResult | None = None
        nodes = [node for node in sorted(self._by_node) if node in self._useful_nodes(self._targets[0])]
        for node in nodes[:_NODES_TRIED]:
            if self._work > 2 * self._limits.steps:
                break
            chosen = frozenset(self._by_node[node])
            if self.attempt(chosen) is None:
                continue
            for number in sorted(chosen):
                if self.attempt(chosen - {number}) is not None:
                    chosen -= {number}
            found = self.attempt(chosen)
            if found is not None and (best is None or len(found.moves) < len(best.moves)):
                best = found
        return best


def _signature(pod: Pod) -> object:
    """Return a key that is equal for pods of a node of which any may be moved instead of another."""
    if uses_claims(pod) or placement_volumes(pod.spec):
        return pod_key(pod)
    labels = sorted(pod.metadata.labels.items())
    owner = controller_of(pod)
    return pod.metadata.namespace, codec.encode((labels, placement_spec(pod.spec), owner))


def _fitting_nodes(pod: Pod, cluster: MemoryCluster) -> Iterator[str]:
    """Yield the nodes that pass all filters for a pod, devices included."""
    snapshot = cluster.cluster_state.snapshot
    pod_info = read_pod_info(pod, snapshot)
    if isinstance(pod_info, NodeReason):
        return
    result = run_filters(pod_info, snapshot, cluster.settings.for_pod(pod), cluster.changes.new_id)
    if isinstance(result, NodeReason):
        return
    for row in np.flatnonzero(result.feasible).tolist():
        if result.devices is None or isinstance(result.devices.search_uncached(row), NodeFit):
            yield snapshot.node(row).metadata.name
