"""DaemonSet controller: watches nodes, keeps revisions and the backoff of failed pods, executes plans."""

from __future__ import annotations

from msgspec.structs import replace

from plimsoll.api.core import Node
from plimsoll.api.label_selection import SelectorProblem
from plimsoll.client.endpoints import CONTROLLER_REVISIONS, DAEMON_SETS, NODES
from plimsoll.client.event_recorder import WARNING
from plimsoll.client.informer import CallbackHandler, Informer
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.daemon_set.plan import DaemonSetPlan, plan_daemon_set
from plimsoll.controllers.pod_utils import ObjectName, object_name
from plimsoll.controllers.workload_views import DaemonSetView
from plimsoll.controllers.workloads.pod_owner import PodOwnerController
from plimsoll.controllers.workloads.pod_states import next_available
from plimsoll.controllers.workloads.revision_owner import RevisionOwner
from plimsoll.controllers.workloads.revisions import REVISION_LABEL, plan_history
from plimsoll.controllers.workloads.templates import patch_status

#: Backoff in seconds after the first failed pod on a node, and the longest.
_FIRST_BACKOFF = 1.0
_LONGEST_BACKOFF = 900.0


class DaemonSetController(PodOwnerController[DaemonSetView]):
    """Controller around `plan_daemon_set`."""

    name = "daemonset-controller"
    endpoint = DAEMON_SETS
    component = "daemonset-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._nodes: Informer[Node] = context.informers.get(NODES)
        self._nodes.add_handler(CallbackHandler(self._on_node))
        self._revisions = RevisionOwner(context, DAEMON_SETS)
        #: DaemonSet and node -> last failed pod, how many there were, and until when the last one stays.
        self._failures: dict[tuple[str, str], tuple[str, int, float]] = {}

    def _on_node(self, old: Node | None, new: Node | None) -> None:
        if old is not None and new is not None:
            same = (old.metadata.labels, old.spec.taints) == (new.metadata.labels, new.spec.taints)
            if same and old.spec.unschedulable == new.spec.unschedulable:
                return
        for owner in self._owners.items():
            self.queue.add(object_name(owner.metadata))

    def _on_owner(self, old: DaemonSetView | None, new: DaemonSetView | None) -> None:
        super()._on_owner(old, new)
        if old is not None and new is None:
            uid = old.metadata.uid
            self._failures = {key: value for key, value in self._failures.items() if key[0] != uid}

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        owner = self.find_owner(key)
        if owner is None:
            return EMPTY_PLAN
        selector = self.selector_of(owner)
        if isinstance(selector, SelectorProblem) or selector.everything:
            text = "This daemon set is selecting all pods. A non-empty selector is required."
            await self.report(owner, "SelectingAll", text, WARNING)
            return EMPTY_PLAN
        revisions = await self.claim(
            owner, selector, self._revisions.candidates(owner.metadata), CONTROLLER_REVISIONS
        )
        newest = await self._revisions.ensure(
            owner.metadata, owner.spec.template, revisions, owner.status.collision_count
        )
        if newest is None:
            status = replace(owner.status, collision_count=(owner.status.collision_count or 0) + 1)
            patch = patch_status(DAEMON_SETS, owner.metadata, owner.status, status)
            await self._context.executor.execute((patch,) if patch is not None else ())
            return EMPTY_PLAN
        pods = await self.claim_pods(owner, selector)
        now = self._context.clock.now()
        hash = newest.metadata.labels.get(REVISION_LABEL, "")
        held = {
            node
            for (uid, node), (_, _, until) in self._failures.items()
            if uid == owner.metadata.uid and until > now
        }
        plan = plan_daemon_set(owner, self._nodes.items(), pods, hash, now, held)
        wait = await self._note_failures(owner, plan, now)
        reference = self.reference(owner)
        deleted = await self._pod_control.delete(reference, plan.deletes)
        created = await self._pod_control.create(reference, plan.creates)
        patch = patch_status(DAEMON_SETS, owner.metadata, owner.status, plan.status)
        hashes = {pod.metadata.labels.get(REVISION_LABEL, "") for pod in pods}
        used = [
            each.metadata.name
            for each in revisions
            if each.metadata.name == newest.metadata.name
            or each.metadata.labels.get(REVISION_LABEL) in hashes
        ]
        history = plan_history(revisions, owner.spec.revision_history_limit, used)
        await self._context.executor.execute((*((patch,) if patch is not None else ()), *history))
        error = deleted.error or created.error
        if error is not None:
            return ActionPlan(error=error.message)
        times = [wait, next_available(pods, owner.spec.min_ready_seconds, now)]
        return ActionPlan(requeue_after=min((time for time in times if time is not None), default=None))

    async def _note_failures(self, owner: DaemonSetView, plan: DaemonSetPlan, now: float) -> float | None:
        """Record failed pods; return after how many seconds the next of them is deleted.

        The first failed pod of a node is deleted at once, each further one stays twice as long.
        """
        waits: list[float] = []
        for node, pod in plan.failed.items():
            key = (owner.metadata.uid, node)
            last, count, until = self._failures.get(key, ("", 0, 0.0))
            if pod.metadata.uid != last:
                text = f"Found failed daemon pod {pod.metadata.full_name} on node {node}, will try to kill it"
                await self.report(owner, "FailedDaemonPod", text, WARNING)
                delay = min(_LONGEST_BACKOFF, _FIRST_BACKOFF * 2 ** min(count, 16)) if count else 0.0
                until = now + delay
                self._failures[key] = (pod.metadata.uid, count + 1, until)
                if delay:
                    plan.deletes = [each for each in plan.deletes if each.uid != pod.metadata.uid]
            if until > now:
                waits.append(until - now)
        return min(waits, default=None)
