"""Plan of a Deployment: which ReplicaSets to create, resize and delete, and its status.

As in kube-controller-manager: one step at a time. A rolling update first grows the newest ReplicaSet as far
as `maxSurge` allows, then shrinks old ones as far as `maxUnavailable` allows; Recreate waits until the old
pods are gone. A paused Deployment is only scaled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as change_action
from typing import Any

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.api.meta import ObjectReference
from plimsoll.client.endpoints import DEPLOYMENTS, REPLICA_SETS
from plimsoll.client.event_recorder import NORMAL, EventRecord
from plimsoll.controllers.actions import Action, ActionPlan, CreateAction, DeleteAction, PatchAction
from plimsoll.controllers.deployment import replica_sets as sizes
from plimsoll.controllers.deployment.status import (
    CREATE_ERROR,
    CREATED,
    FOUND,
    PAUSED,
    PROGRESSING,
    RESUMED,
    TIMED_OUT,
    count_status,
    has_deadline,
    is_complete,
    make_condition,
    roll_out_status,
    seconds_to_deadline,
)
from plimsoll.controllers.pod_utils import is_finished
from plimsoll.controllers.workload_views import DeploymentStatusView, DeploymentView, ReplicaSetView
from plimsoll.controllers.workloads import conditions
from plimsoll.controllers.workloads.templates import patch_status

COMPONENT = "deployment-controller"


@dataclass
class _Draft:
    """Deployment and its ReplicaSets as they will be when the planned changes are made."""

    deployment: DeploymentView
    now: float
    new: ReplicaSetView | None = None
    old: list[ReplicaSetView] = field(default_factory=list)
    create: CreateAction | None = None
    changes: dict[str, dict[str, Any]] = field(default_factory=dict)  # ReplicaSet -> merge patch
    events: list[EventRecord] = field(default_factory=list)
    deletes: list[DeleteAction] = field(default_factory=list)
    revision: str = ""  # to be recorded in the Deployment
    old_status: DeploymentStatusView = field(init=False)

    def __post_init__(self) -> None:
        self.old_status = self.deployment.status

    @property
    def sets(self) -> list[ReplicaSetView]:
        return [*self.old, *([self.new] if self.new is not None else [])]

    def set_progress(self, status: str, reason: str, message: str) -> None:
        if not has_deadline(self.deployment):
            return
        condition = make_condition(PROGRESSING, status, reason, message, self.now)
        found = conditions.updated(self.deployment.status.conditions, condition)
        self.deployment = replace(self.deployment, status=replace(self.deployment.status, conditions=found))

    def resize(self, target: Mapping[str, int]) -> bool:
        """Change the sizes of ReplicaSets; return whether any differs."""
        annotations = sizes.size_annotations(self.deployment)
        resized = False
        for each in self.sets:
            name = each.metadata.name
            size = target.get(name)
            if size is None:
                continue
            known = each.metadata.annotations
            if size == each.replicas and all(known.get(key) == value for key, value in annotations.items()):
                continue
            patch = self.changes.setdefault(name, {})
            patch.setdefault("metadata", {}).setdefault("annotations", {}).update(annotations)
            if size != each.replicas:
                patch.setdefault("spec", {})["replicas"] = size
                self.report_scaled(name, each.replicas, size)
                resized = True
            metadata = replace(each.metadata, annotations={**known, **annotations})
            self.put(replace(each, metadata=metadata, spec=replace(each.spec, replicas=size)))
        return resized

    def put(self, changed: ReplicaSetView) -> None:
        name = changed.metadata.name
        if self.new is not None and self.new.metadata.name == name:
            self.new = changed
        self.old = [changed if each.metadata.name == name else each for each in self.old]

    def report_scaled(self, name: str, before: int, after: int) -> None:
        verb = "up" if after > before else "down"
        text = f"Scaled {verb} replica set {name} from {before} to {after}"
        metadata = self.deployment.metadata
        regarding = ObjectReference.to(metadata, DEPLOYMENTS.kind, DEPLOYMENTS.api_version)
        self.events.append(EventRecord(regarding, "ScalingReplicaSet", text, COMPONENT, NORMAL))


def plan_deployment(
    deployment: DeploymentView,
    sets: Sequence[ReplicaSetView],
    pods: Sequence[Pod],
    taken: Mapping[str, ReplicaSetView],
    now: float,
) -> ActionPlan:
    """Plan for a Deployment.

    `sets` are its ReplicaSets, `pods` theirs, and `taken` all ReplicaSets of the namespace by name.
    """
    draft = _Draft(deployment, now)
    draft.new = sizes.find_new(deployment, sets)
    draft.old = [each for each in sets if each is not draft.new]
    if deployment.metadata.deletion_timestamp is not None:
        return _finish(draft, count_status(deployment, draft.sets, draft.new, now))
    _check_pause(draft)
    if deployment.spec.paused or _was_scaled(deployment, draft.sets):
        _record_revision(draft)
        draft.resize(sizes.plan_scaled_sizes(deployment, draft.new, draft.old))
        if deployment.spec.paused:
            _delete_surplus(draft)
        return _finish(draft, count_status(draft.deployment, draft.sets, draft.new, now))
    roll = _roll if sizes.is_rolling(deployment) else _recreate
    collision = roll(draft, pods, taken)
    if collision is not None:
        return _finish(draft, collision)
    status = roll_out_status(draft.deployment, draft.sets, draft.new, now)
    return _finish(draft, status)


def plan_create_failure(deployment: DeploymentView, message: str, now: float) -> PatchAction | None:
    """Plan the status after a ReplicaSet could not be created."""
    draft = _Draft(deployment, now)
    draft.set_progress("False", CREATE_ERROR, message)
    return patch_status(DEPLOYMENTS, deployment.metadata, deployment.status, draft.deployment.status)


def _check_pause(draft: _Draft) -> None:
    progress = conditions.find(draft.deployment.status.conditions, PROGRESSING)
    if progress is not None and progress.reason == TIMED_OUT:
        return
    is_marked = progress is not None and progress.reason == PAUSED
    if draft.deployment.spec.paused and not is_marked:
        draft.set_progress("Unknown", PAUSED, "Deployment is paused")
    elif not draft.deployment.spec.paused and is_marked:
        draft.set_progress("Unknown", RESUMED, "Deployment is resumed")


def _was_scaled(deployment: DeploymentView, sets: Sequence[ReplicaSetView]) -> bool:
    """Return whether the Deployment was scaled since its ReplicaSets were."""
    return any(
        (desired := sizes.desired_of(each)) is not None and desired != deployment.replicas
        for each in sizes.filter_active(sets)
    )


def _record_revision(draft: _Draft) -> None:
    """Bring the annotations of the newest ReplicaSet and the revision of the Deployment up to date."""
    new = draft.new
    if new is None:
        return
    revision = max((sizes.revision_of(each.metadata) for each in draft.old), default=0) + 1
    known = new.metadata.annotations
    annotations = sizes.new_annotations(draft.deployment, known, revision)
    seconds = draft.deployment.spec.min_ready_seconds
    if annotations:
        patch = draft.changes.setdefault(new.metadata.name, {}).setdefault("metadata", {})
        patch.setdefault("annotations", {}).update(annotations)
        draft.put(replace(new, metadata=replace(new.metadata, annotations={**known, **annotations})))
    if new.spec.min_ready_seconds != seconds:
        draft.changes.setdefault(new.metadata.name, {}).setdefault("spec", {})["minReadySeconds"] = seconds
    assert draft.new is not None
    recorded = draft.new.metadata.annotations.get(sizes.REVISION, "")
    if draft.deployment.metadata.annotations.get(sizes.REVISION) != recorded:
        draft.revision = recorded
    if conditions.find(draft.deployment.status.conditions, PROGRESSING) is None:
        draft.set_progress("True", FOUND, f'Found new replica set "{new.metadata.name}"')


def _ensure_new(draft: _Draft, taken: Mapping[str, ReplicaSetView]) -> DeploymentStatusView | None:
    """Ensure that a ReplicaSet of the current template exists; return the status if its name is taken."""
    deployment = draft.deployment
    if draft.new is not None:
        _record_revision(draft)
        return None
    name, _ = sizes.name_of_new(deployment)
    if name in taken:
        collisions = (deployment.status.collision_count or 0) + 1
        return replace(deployment.status, collision_count=collisions)
    revision = max((sizes.revision_of(each.metadata) for each in draft.old), default=0) + 1
    size = sizes.new_size(deployment, draft.old, None)
    draft.new, draft.create = sizes.make_new(deployment, size, revision)
    draft.revision = str(revision)
    if size:
        draft.report_scaled(name, 0, size)
    draft.set_progress("True", CREATED, f'Created new replica set "{name}"')
    return None


def _roll(
    draft: _Draft, pods: Sequence[Pod], taken: Mapping[str, ReplicaSetView]
) -> DeploymentStatusView | None:
    collision = _ensure_new(draft, taken)
    if collision is not None or draft.create is not None:
        return collision
    new, deployment = draft.new, draft.deployment
    assert new is not None
    size = min(deployment.replicas, new.replicas)
    if new.replicas < deployment.replicas:
        size = sizes.new_size(deployment, draft.sets, new)
    if draft.resize({new.metadata.name: size} if size != new.replicas else {}):
        return None
    if draft.resize(sizes.plan_old_sizes(deployment, new, draft.old)):
        return None
    if is_complete(deployment, count_status(deployment, draft.sets, draft.new, draft.now)):
        _delete_surplus(draft)
    return None


def _recreate(
    draft: _Draft, pods: Sequence[Pod], taken: Mapping[str, ReplicaSetView]
) -> DeploymentStatusView | None:
    _record_revision(draft)
    active = sizes.filter_active(draft.old)
    if active:
        draft.resize({each.metadata.name: 0 for each in active})
        return None
    newest = draft.new.metadata.uid if draft.new is not None else None
    if any(not is_finished(pod) and _controller(pod) != newest for pod in pods):
        return None
    collision = _ensure_new(draft, taken)
    if collision is not None or draft.create is not None:
        return collision
    new, deployment = draft.new, draft.deployment
    assert new is not None
    if draft.resize({new.metadata.name: deployment.replicas}):
        return None
    if is_complete(deployment, count_status(deployment, draft.sets, draft.new, draft.now)):
        _delete_surplus(draft)
    return None


def _controller(pod: Pod) -> str:
    return next((owner.uid for owner in pod.metadata.owner_references if owner.controller), "")


def _delete_surplus(draft: _Draft) -> None:
    """Delete the oldest empty ReplicaSets beyond the revision history limit."""
    limit = draft.deployment.spec.revision_history_limit
    if limit is None:
        return
    alive = [each for each in draft.old if each.metadata.deletion_timestamp is None]
    ordered = sorted(alive, key=lambda each: (sizes.revision_of(each.metadata), each.metadata.name))
    for each in ordered[: max(0, len(alive) - limit)]:
        metadata = each.metadata
        settled = metadata.generation <= each.status.observed_generation
        if settled and not each.replicas and not each.status.replicas:
            delete = DeleteAction(REPLICA_SETS, metadata.name, metadata.namespace, uid=metadata.uid)
            draft.deletes.append(change_action(delete, propagation="Background"))


def _finish(draft: _Draft, status: DeploymentStatusView) -> ActionPlan:
    deployment = draft.deployment
    metadata = deployment.metadata
    actions: list[Action] = []
    if draft.create is not None:
        actions.append(draft.create)
    for each in draft.sets:
        patch = draft.changes.get(each.metadata.name)
        if patch is not None and each.metadata.uid:
            known = {"uid": each.metadata.uid, "resourceVersion": each.metadata.resource_version}
            tree = {**patch, "metadata": {**patch.get("metadata", {}), **known}}
            actions.append(PatchAction(REPLICA_SETS, each.metadata.name, tree, metadata.namespace))
    actions.extend(draft.events)
    if draft.revision:
        known = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        tree = {"metadata": {**known, "annotations": {sizes.REVISION: draft.revision}}}
        actions.append(PatchAction(DEPLOYMENTS, metadata.name, tree, metadata.namespace))
    return ActionPlan(
        (*actions, *_status_actions(draft, status), *draft.deletes),
        requeue_after=None if deployment.spec.paused else seconds_to_deadline(deployment, status, draft.now),
    )


def _status_actions(draft: _Draft, status: DeploymentStatusView) -> tuple[PatchAction, ...]:
    patch = patch_status(DEPLOYMENTS, draft.deployment.metadata, draft.old_status, status)
    if patch is None:
        return ()
    return (change_action(patch, chained=True),) if draft.revision else (patch,)
