"""START HERE: `Whatif`: a cluster in memory that can be changed, scheduled and restored.

The objects of a cluster state are copied once; every change and placement is written to the copy as a cluster
would write it: claims from templates, allocations, reservations, charges, bindings. Pods are scheduled one
after the other by the scheduler's own cycle, so the second sees the first. `branch()` is a transaction: it is
undone exactly unless it is kept. Nothing is written back to the original cluster.

    with Whatif.of_dump("dump.yaml") as w:
        w.add(Path("batch.yaml"), replicas=50)
        outcome = w.schedule()
        print(len(outcome.placed), [(pending.pod, pending.why) for pending in outcome.pending])
"""

from __future__ import annotations

from dataclasses import replace as replace_fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from msgspec.structs import replace

from plimsoll.api.core import TERMINAL_PHASES, Node, Pod
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.resource import DeviceTaintRule, ResourceClaim, ResourceSlice
from plimsoll.api.scheduling import PodGroup
from plimsoll.client.kubeconfig import find_config
from plimsoll.errors import InputError
from plimsoll.ledger.placeholders import is_placeholder, placeholder_owner
from plimsoll.scheduler.profile import ProfileSet, SchedulerProfile
from plimsoll.scheduler.result import Placement
from plimsoll.tools.cluster_state import ClusterState, Source, read_cluster_state
from plimsoll.tools.cluster_state.objects import Key
from plimsoll.tools.cluster_state.progress import ProgressCallback, no_progress
from plimsoll.tools.pod_schedulers import schedulers_of
from plimsoll.tools.whatif.admission import admit_pod, find_priorities
from plimsoll.tools.whatif.affected_nodes import find_affected_nodes
from plimsoll.tools.whatif.drains import (
    NodeDrain,
    budgets_of,
    find_eviction_refusal,
    read_budgets,
    required_flags,
)
from plimsoll.tools.whatif.exhaustive import STEPS, Proof, prove
from plimsoll.tools.whatif.lifecycle import controller_of, copy_pod, is_gone_for_good, stays_on_node
from plimsoll.tools.whatif.manifests import PODS_MAX, AddedWorkload, Manifest, read_manifests
from plimsoll.tools.whatif.memory_cluster import MemoryCluster
from plimsoll.tools.whatif.nodes import clone_node, free_names
from plimsoll.tools.whatif.object_refs import find_targets
from plimsoll.tools.whatif.outcome import (
    EvictedPod,
    EvictionReason,
    Name,
    PodPlacement,
    PodPlacements,
    RefusedObject,
    ScheduledPod,
    WhatifOutcome,
)
from plimsoll.tools.whatif.policy import under_policy
from plimsoll.tools.whatif.scheduling import schedule_all
from plimsoll.tools.whatif.taints import change_taints, parse_device_taint, parse_taint

NODES_MAX = 10_000


class WhatifOperations:
    """Operations on a cluster in memory; base class of `Whatif` and `Branch`."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.passed_by: list[str] = []  #: added objects that do not affect scheduling
        self.refused: list[RefusedObject] = []  #: added objects that the API would refuse to create
        self.drains: list[NodeDrain] = []
        #: Evicted pods by disruption budget, and those of them that have no controller.
        self._disrupted: dict[Key, list[Name]] = {}
        self._lost: set[Name] = set()
        self._budgets: list[PodDisruptionBudget] | None = None  #: as they are before the first drain
        self._placed: dict[Name, ScheduledPod] = {}  #: pods that were scheduled during drains
        self._reasons: dict[tuple[str, str], str] = {}
        self._kept = False

    def __enter__(self) -> Self:
        self._mark = self.cluster.mark()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._kept or error is not None:
            self.cluster.undo(self._mark)

    # -- state

    @property
    def cluster_state(self) -> ClusterState:
        """The current cluster state, for the other tools; read-only."""
        return self.cluster.cluster_state

    @property
    def pending(self) -> list[Pod]:
        """Pods without a node."""
        return self.cluster.cluster_state.pending

    def state(self) -> PodPlacements:
        """Return the placement of every pod; reasons are those of the last `schedule`."""
        found = {}
        on_nodes = self.cluster.placements
        for name, pod in self.cluster.cluster_state.objects.by_key(Pod).items():
            if pod.status.phase in TERMINAL_PHASES or is_placeholder(pod):
                continue
            node = pod.spec.node_name
            if not node:
                found[name] = PodPlacement(why=self._reasons.get(name, ""))
            elif node in on_nodes:
                found[name] = on_nodes[node]
            else:
                found[name] = on_nodes[node] = PodPlacement(node)
        return found

    # -- changes

    def add(
        self,
        *manifests: Manifest,
        namespace: str = "default",
        replicas: int | None = None,
        most: int = PODS_MAX,
    ) -> list[Any]:
        """Add or change objects: YAML text, files (`Path`), trees or objects. Return what was added.

        Workloads become their pods and claims are created from templates; with `replicas`, each pod is
        multiplied. Objects that exceed a quota are not added, but appended to `refused`. Raises InputError
        if a pod of that name exists, or for more than `most` pods.
        """
        added = read_manifests(manifests, namespace=namespace, replicas=replicas, most=most)
        self.passed_by += added.passed_by
        pods = [thing for thing in added.things if isinstance(thing, Pod)]
        find = self.cluster.cluster_state.objects.find
        claims = [each for each in added.volume_claims if find(type(each), *each.metadata.key) is None]
        others = [thing for thing in added.things if not isinstance(thing, Pod | ResourceClaim)]
        self.cluster.add_objects(thing for thing in (*others, *claims) if self._is_allowed(thing))
        for thing in added.things:
            if isinstance(thing, ResourceClaim) and self._is_allowed(thing):
                self.cluster.add_objects([thing])
                others.append(thing)
        refused = {uid for uid, workload in added.workloads.items() if not self._allows_workload(workload)}
        classes = {pod.spec.priority_class_name for pod in pods if pod.spec.priority_class_name}
        known = find_priorities(self.cluster.cluster_state, classes) if pods else {}
        accepted: list[Any] = []
        for pod in pods:
            name = pod.metadata.key
            if self.cluster.cluster_state.objects.find(Pod, *name) is not None:
                raise InputError(f"pod {'/'.join(name)} already exists: remove it first, or rename one")
            admitted = admit_pod(pod, self.cluster.cluster_state, known)
            owner = controller_of(pod)
            if owner is not None and owner.uid in refused:
                self.refused.append(RefusedObject("Pod", name, "", f"{owner.kind}/{owner.name}"))
            elif self._is_allowed(admitted):
                self.cluster.add_pod(admitted)
                accepted.append(pod)
        for thing in others:
            if isinstance(thing, Node):
                self.cluster.evict_by_node(thing)
        self.cluster.evict_by_devices(
            [thing for thing in others if isinstance(thing, DeviceTaintRule)],
            [thing for thing in others if isinstance(thing, ResourceSlice)],
        )
        self._prepare()
        return [*others, *accepted]

    def remove(self, *names: str, namespace: str = "default") -> None:
        """Remove objects: `Pod/ns/name`, `Node/name`, `Deployment/ns/name` (its pods), and so on."""
        for text in names:
            for thing in find_targets(self.cluster.cluster_state.objects, text, namespace):
                owner = placeholder_owner(thing) if isinstance(thing, Pod) else None
                if owner is not None and self._is_in_use(thing):
                    raise InputError(f"{text}: is the placeholder of {owner}, and removed with it")
                if isinstance(thing, Pod):
                    self.cluster.delete(thing)
                elif isinstance(thing, Node):
                    self.cluster.remove_node(thing)
                elif isinstance(thing, PodGroup):
                    self.cluster.remove_group(thing)
                else:
                    self.cluster.changes.remove(thing)

    def add_nodes(self, count: int, like: str = "") -> list[str]:
        """Add nodes like an existing one, with its devices and DaemonSet pods. Return their names."""
        if not 1 <= count <= NODES_MAX:
            raise InputError(f"nodes to add: must be from 1 to {NODES_MAX}, not {count}")
        nodes = self.cluster.cluster_state.nodes
        if not like and len(nodes) == 1:
            like = nodes[0].metadata.name
        if not like:
            raise InputError(f"nodes to add: name the node to copy (there are {len(nodes)} nodes)")
        node = self._node(like)
        pods = self.cluster.pods_on(like)
        names = free_names(self.cluster.cluster_state.objects, like, count)
        for name in names:
            for thing in list(clone_node(self.cluster.cluster_state.objects, node, name, pods)):
                if isinstance(thing, Pod):
                    self.cluster.add_pod(thing)
                else:
                    self.cluster.changes.set(thing)
        return names

    def taint(self, node: str, taint: str) -> None:
        """Taint a node with `key=value:effect`, or untaint it with `key:effect-`; NoExecute evicts pods."""
        parsed, gone = parse_taint(taint)
        old = self._node(node)
        new = replace(old, spec=replace(old.spec, taints=change_taints(old.spec.taints, parsed, gone)))
        self.cluster.changes.set(new)
        if not gone:
            self.cluster.evict_by_node(new)

    def taint_devices(self, taint: str) -> None:
        """Taint devices by a rule, `driver=..,pool=..,device=..:key=value:effect`."""
        self.cluster.rules_made += 1
        rule = parse_device_taint(taint, self.cluster.rules_made)
        self.cluster.changes.set(rule)
        self.cluster.evict_by_devices([rule])

    def cordon(self, node: str) -> None:
        """Mark a node unschedulable."""
        old = self._node(node)
        self.cluster.changes.set(replace(old, spec=replace(old.spec, unschedulable=True)))

    def drain(self, node: str, *, preempt: bool = True) -> NodeDrain:
        """Cordon a node and evict its pods as `kubectl drain` does, except DaemonSet and mirror pods.

        Pods that a PodDisruptionBudget protects are evicted as soon as the replacements of others are
        scheduled; those that remain stay on the node. The result is appended to `drains`.
        """
        self.cordon(node)
        pods = self.cluster.pods_on(node)
        drain = NodeDrain(node, required_flags(pods))
        self.drains.append(drain)
        left, later = [pod for pod in pods if not stays_on_node(pod)], False
        while left:
            recreated: list[Pod] = []
            blocked: list[Pod] = []
            drain.blocked.clear()
            for pod in left:
                why = self._evict_for_drain(pod, node, recreated)
                if why:
                    blocked.append(pod)
                    drain.blocked[pod.metadata.key] = why
                elif later:
                    drain.later = (*drain.later, pod.metadata.key)
            if len(blocked) == len(left) or not blocked:
                break
            left, later = blocked, True
            outcome = schedule_all(self.cluster, preempt=preempt, pending=recreated)
            self._placed |= {each.pod: each for each in outcome.placed}
        return drain

    def _evict_for_drain(self, pod: Pod, node: str, recreated: list[Pod]) -> str:
        """Evict a pod through the eviction API; return why it refuses."""
        key = pod.metadata.key
        if is_gone_for_good(pod):
            self.cluster.delete(pod)
            return ""
        if self._budgets is None:
            self._budgets = read_budgets(self.cluster.cluster_state)
        budgets = budgets_of(pod, self._budgets)
        unavailable = {
            budget.metadata.key: sum(map(self._is_unavailable, self._disrupted.get(budget.metadata.key, ())))
            for budget in budgets
        }
        refusal = find_eviction_refusal(pod, budgets, unavailable)
        if not refusal:
            for budget in budgets:
                self._disrupted.setdefault(budget.metadata.key, []).append(key)
            if controller_of(pod) is None:
                self._lost.add(key)
            found = self.cluster.evict(pod, EvictionReason.DRAINED, node)
            recreated += [] if found is None else [self.cluster.cluster_state.pod(key[1], key[0])]
        return refusal

    def _is_unavailable(self, name: Name) -> bool:
        """Return whether an evicted pod has no replacement that is scheduled."""
        found = self.cluster.cluster_state.objects.find(Pod, *name)
        return name in self._lost or found is None or not found.spec.node_name

    def replace_policy(self, policy: str) -> None:
        """Charge every device under one accounting policy, for running pods too."""
        for thing in list(under_policy(self.cluster.cluster_state.objects, policy)):
            self.cluster.changes.set(thing)
        self.cluster.renew_placeholders()

    # -- scheduling

    def schedule(self, *, preempt: bool = True, tick: ProgressCallback = no_progress) -> WhatifOutcome:
        """Schedule every pending pod as the scheduler would. Return the outcome."""
        outcome = schedule_all(self.cluster, preempt=preempt, tick=tick, pending=self._prepare())
        known = outcome.where()
        early = [each for name, each in self._placed.items() if name not in known]
        outcome = replace_fields(outcome, placed=(*early, *outcome.placed)) if early else outcome
        self._reasons = {pending.pod: pending.why for pending in outcome.pending}
        return outcome

    def prove(self, *, steps: int = STEPS, tick: ProgressCallback = no_progress) -> Proof:
        """Search for any placement of the pending pods; running pods stay where they are.

        Nothing is changed. For small batches: the search gives up after `steps` steps.
        """
        self._prepare()
        with self.branch() as greedy:
            placed = len(greedy.schedule(preempt=False, tick=tick).placed)
        return prove(self.cluster, placed, steps, tick)

    def count_more(self, pod: Name, most: int = 1000) -> tuple[int, str]:
        """Count the copies of a pod that would fit in addition, up to `most`, without preemption; also
        return why a quota does not allow more, if it is that.
        """
        found = self.cluster.cluster_state.pod(pod[1], pod[0])
        with self.branch() as trial:
            return trial._fill(found, most)

    @property
    def evicted(self) -> tuple[EvictedPod, ...]:
        """All pods evicted so far, in order."""
        return tuple(self.cluster.evicted)

    def branch(self) -> Branch:
        """Return a transaction: `with w.branch() as b:`; undone at the end unless `b.keep()` was called."""
        return Branch(self.cluster)

    # -- internals

    def _is_in_use(self, placeholder: Pod) -> bool:
        """Return whether the pod or claim that a placeholder stands for is on its node."""
        snapshot = self.cluster.cluster_state.snapshot
        row = snapshot.row_of(placeholder.spec.node_name)
        return row is not None and not snapshot.is_stale_placeholder(row, placeholder)

    def _is_allowed(self, thing: Any) -> bool:
        """Return whether quotas allow an object to be created; record it if they do not."""
        refusal = self.cluster.quotas.find_refusal(thing)
        if refusal:
            owner = controller_of(thing) if isinstance(thing, Pod) else None
            by = "" if owner is None else f"{owner.kind}/{owner.name}"
            self.refused.append(RefusedObject(type(thing).__name__, thing.metadata.key, refusal, by))
        return not refusal

    def _allows_workload(self, workload: AddedWorkload) -> bool:
        quotas, name = self.cluster.quotas, (workload.namespace, workload.name)
        refusals = (quotas.find_refusal_of(each, workload.namespace) for each in workload.resources)
        refusal = next(filter(None, refusals), "")
        if refusal:
            self.refused.append(RefusedObject(workload.kind, name, refusal))
        return not refusal

    def _prepare(self) -> list[Pod]:
        """Create the missing claims of pending pods whose templates exist. Return the pending pods."""
        pending = self.cluster.cluster_state.pending
        lacking = [pod for pod in pending if _lacks_claims(pod)]
        for pod in lacking:
            self.cluster.prepare(pod)
        return self.cluster.cluster_state.pending if lacking else pending

    def _fill(self, pod: Pod, most: int) -> tuple[int, str]:
        for count in range(most):
            name = f"{pod.metadata.name}-more-{count}"
            copy = copy_pod(pod, name)
            refusal = self.cluster.quotas.find_refusal(copy)
            if not refusal:
                self.cluster.add_pod(copy)
                refusal = self.cluster.claim_refusals.get(copy.metadata.key, "")
            if refusal:
                return count, refusal
            placement = self.cluster.schedule_pod(
                self.cluster.cluster_state.pod(name, pod.metadata.namespace)
            )
            if not isinstance(placement, Placement):
                return count, ""
            self.cluster.bind(placement)
        return most, ""

    def _node(self, name: str) -> Node:
        objects = self.cluster.cluster_state.objects
        return find_targets(objects, f"Node/{name}")[0]  # type: ignore[no-any-return]


def _lacks_claims(pod: Pod) -> bool:
    """Return whether claims of a pod have not been created from their templates."""
    made = {status.name for status in pod.status.resource_claim_statuses}
    return any(
        each.resource_claim_template_name and each.name not in made for each in pod.spec.resource_claims
    )


class Branch(WhatifOperations):
    """Transaction: everything done in the `with` block is undone at its end, unless kept."""

    def keep(self) -> None:
        """Keep the changes in the parent."""
        self._kept = True

    def affected_nodes(self) -> set[str] | None:
        """Return the nodes whose free amounts or devices may have changed in the branch; None if all may."""
        return find_affected_nodes(self.cluster.changes.versions(self._mark[0]), self.cluster_state.snapshot)


class Whatif(WhatifOperations):
    """Cluster in memory, created from a cluster state, which is not modified."""

    def __init__(
        self,
        cluster_state: ClusterState,
        *,
        settings: SchedulerProfile | ProfileSet | None = None,
        lent: bool = False,
    ) -> None:
        """With `lent`, work on `cluster_state` itself and restore it when `with` or a branch ends."""
        super().__init__(
            MemoryCluster(
                cluster_state if lent else cluster_state.copy(), settings or schedulers_of(cluster_state)
            )
        )

    @staticmethod
    def of_dump(*paths: str | Path, settings: SchedulerProfile | None = None) -> Whatif:
        """Create from the output of `kubectl get -o yaml`: files, directories, archives, or `-` for
        standard input.
        """
        return Whatif(read_cluster_state(Source(tuple(map(str, paths)))), settings=settings)

    @staticmethod
    def of_cluster(
        kubeconfig: str | Path | None = None, context: str = "", *, settings: SchedulerProfile | None = None
    ) -> Whatif:
        """Create from a running cluster; by default the one kubectl would use."""
        config = find_config(Path(kubeconfig) if kubeconfig else None, context=context)
        return Whatif(read_cluster_state(Source(config=config.interactive())), settings=settings)
