"""Recorded workloads whose controllers would start or stop something at once, with the reasons.

A workload whose pods are all in the files was like that when they were recorded, so that it is kept: a
CronJob missed a time since, a quota that is not in the files refused pods, a template differs. Where the
files lack pods, the controllers create them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.client.endpoints import REPLICA_SETS, REPLICATION_CONTROLLERS
from plimsoll.controllers.actions import CreateAction, DeleteAction, PatchAction
from plimsoll.controllers.cron_job.plan import plan_cron_job
from plimsoll.controllers.daemon_set.nodes import NodeMatcher, node_of
from plimsoll.controllers.deployment.plan import plan_deployment
from plimsoll.controllers.job.backoff import BackoffRecord
from plimsoll.controllers.job.plan import is_finished_job, plan_job
from plimsoll.controllers.replica_set import plan_replicas
from plimsoll.controllers.stateful_set.identity import ordinal_of
from plimsoll.controllers.ttl_after_finished import plan_expiry
from plimsoll.controllers.workload_views import (
    CronJobView,
    DaemonSetView,
    DeploymentView,
    JobView,
    ReplicaSetView,
    ReplicationControllerView,
    StatefulSetView,
)
from plimsoll.controllers.workloads.pod_states import is_active

Tree = dict[str, Any]
_ANOTHER_NUMBER = "it did not have the pods that it should have"
#: Field of the status that counts the pods.
_COUNTS = {"DaemonSet": "currentNumberScheduled", "Job": "active"}


class RecordedWorkloads:
    """Workloads of files with what they own."""

    def __init__(self, trees: Sequence[Tree], nodes: Sequence[Node], now: float) -> None:
        self._nodes = nodes
        self._now = now
        self._owned: dict[str, list[Tree]] = {}
        for tree in trees:
            for owner in tree["metadata"].get("ownerReferences") or ():
                if owner.get("controller"):
                    self._owned.setdefault(str(owner.get("uid")), []).append(tree)

    def reason(self, tree: Tree) -> str:
        """Return why a workload would not stay as it is; "" if it would, and for other kinds."""
        find = _REASONS.get(tree["kind"])
        return find(self, tree) if find is not None else ""

    def _pods(self, tree: Mapping[str, Any]) -> list[Pod]:
        owned = self._owned.get(tree["metadata"]["uid"], ())
        return [codec.convert(each, Pod) for each in owned if each["kind"] == "Pod"]

    def _is_complete(self, tree: Tree, pods: Sequence[Pod]) -> bool:
        """Return whether the files have the pods that its controller has seen, if it has."""
        status = tree.get("status") or {}
        counted = status.get(_COUNTS.get(tree["kind"], "replicas")) or 0
        return bool(pods or status) and counted <= sum(map(is_active, pods))

    def _job_reason(self, tree: Tree) -> str:
        job = codec.convert(tree, JobView)
        if plan_expiry(job, self._now).actions:
            return "its time to live has passed since"
        if is_finished_job(job):
            return ""
        pods = self._pods(tree)
        if any(pod.metadata.deletion_timestamp is not None for pod in pods):
            return "a pod of it was terminating"
        plan = plan_job(job, pods, BackoffRecord(), self._now)
        if plan.finished is not None and plan.finished.reason == "DeadlineExceeded":
            return "its active deadline has passed since"
        changes = plan.creates or plan.deletes or plan.finished
        return _ANOTHER_NUMBER if changes and self._is_complete(tree, pods) else ""

    def _cron_job_reason(self, tree: Tree) -> str:
        cron_job = codec.convert(tree, CronJobView)
        jobs = [codec.convert(each, JobView) for each in self._owned.get(tree["metadata"]["uid"], ())]
        known = {job.metadata.uid for job in jobs}
        gone = [each.uid for each in cron_job.status.active if each.uid not in known]
        plan = plan_cron_job(cron_job, jobs, gone, self._now)
        if plan.create is not None:
            return "a time of its schedule has passed since"
        deletes = any(isinstance(each, DeleteAction) for each in plan.actions)
        return "it had more Jobs than its history limit" if deletes else ""

    def _replicas_reason(self, tree: Tree) -> str:
        is_set = tree["kind"] == "ReplicaSet"
        view: Any = ReplicaSetView if is_set else ReplicationControllerView
        owner = codec.convert(tree, view)
        pods = self._pods(tree)
        endpoint = REPLICA_SETS if is_set else REPLICATION_CONTROLLERS
        changes = plan_replicas(endpoint, owner, pods, {}, self._now)
        return _ANOTHER_NUMBER if changes and self._is_complete(tree, pods) else ""

    def _deployment_reason(self, tree: Tree) -> str:
        deployment = codec.convert(tree, DeploymentView)
        owned = self._owned.get(tree["metadata"]["uid"], ())
        sets = {each["metadata"]["name"]: codec.convert(each, ReplicaSetView) for each in owned}
        pods = [pod for each in owned for pod in self._pods(each)]
        plan = plan_deployment(deployment, list(sets.values()), pods, sets, self._now)
        changes = any(
            isinstance(each, CreateAction)
            or (isinstance(each, PatchAction) and "replicas" in (each.patch.get("spec") or {}))
            for each in plan.actions
        )
        return "its ReplicaSets would be scaled" if changes and pods else ""

    def _stateful_set_reason(self, tree: Tree) -> str:
        owner = codec.convert(tree, StatefulSetView)
        pods = self._pods(tree)
        if any(pod.status.phase == "Pending" for pod in pods):
            return ""  # its controller waits for them
        running = {ordinal_of(owner, pod) for pod in pods if is_active(pod)}
        wanted = set(range(owner.start, owner.start + owner.replicas))
        return _ANOTHER_NUMBER if running != wanted and self._is_complete(tree, pods) else ""

    def _daemon_set_reason(self, tree: Tree) -> str:
        matcher = NodeMatcher(codec.convert(tree, DaemonSetView))
        pods = self._pods(tree)
        used = [node_of(pod) for pod in pods]
        places = {node.metadata.name: matcher.should_run(node) for node in self._nodes}
        changes = len(set(used)) < len(used) or any(
            (runs and name not in used) or (not stays and name in used)
            for name, (runs, stays) in places.items()
        )
        return _ANOTHER_NUMBER if changes and self._is_complete(tree, pods) else ""


_REASONS = {
    "CronJob": RecordedWorkloads._cron_job_reason,
    "DaemonSet": RecordedWorkloads._daemon_set_reason,
    "Deployment": RecordedWorkloads._deployment_reason,
    "Job": RecordedWorkloads._job_reason,
    "ReplicaSet": RecordedWorkloads._replicas_reason,
    "ReplicationController": RecordedWorkloads._replicas_reason,
    "StatefulSet": RecordedWorkloads._stateful_set_reason,
}
