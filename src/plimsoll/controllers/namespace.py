"""Namespace controller: deletes the content of terminating namespaces, and creates the default ones.

As in kube-controller-manager: sets the phase and the conditions, deletes pods first and everything else after
the last of them, and removes the finalizer `kubernetes` once the API has nothing left in the namespace.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.meta import Condition, Object
from plimsoll.api.timestamps import format_time, parse_time
from plimsoll.client.discovery import Served
from plimsoll.client.endpoints import NAMESPACES, PODS, Endpoint
from plimsoll.client.informer import CallbackHandler
from plimsoll.controllers.actions import (
    EMPTY_PLAN,
    Action,
    ActionPlan,
    CreateAction,
    PatchAction,
    UpdateAction,
)
from plimsoll.controllers.context import ControllerContext, deletable_endpoints
from plimsoll.controllers.object_views import DEFAULT_NAMESPACES, NamespaceView
from plimsoll.controllers.pod_utils import is_finished
from plimsoll.controllers.work_queue import WorkQueue
from plimsoll.errors import ApiError

FINALIZER = "kubernetes"
TERMINATING = "Terminating"
#: Estimated seconds for finalizers of the remaining objects.
FINALIZER_ESTIMATE = 15

#: Conditions of a terminating namespace without problems: type -> (reason, message).
_CONDITIONS = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}


@dataclass(frozen=True, slots=True)
class NamespaceContent:
    """Content that remains in a namespace after an attempt to delete it."""

    remaining: Mapping[str, int] = field(default_factory=dict)  #: `plural.group` -> number of objects
    finalizers: Mapping[str, int] = field(default_factory=dict)  #: finalizer -> number of objects
    failures: Sequence[str] = ()
    estimate: int = 0  #: estimated seconds until the remaining objects are gone
    discovery_error: str = ""  #: failed API discovery; nothing was deleted


def plan_default_namespaces(known: Collection[str]) -> ActionPlan:
    """Plan the creation of the default namespaces that are missing."""
    return ActionPlan(
        tuple(
            CreateAction(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            for name in DEFAULT_NAMESPACES
            if name not in known
        )
    )


def estimate_pod_termination(pods: Sequence[Pod], deleted_at: float, now: float) -> int:
    """Estimate the seconds until pods terminate; 0 if their grace periods are over."""
    graces = (pod.spec.termination_grace_period_seconds or 0 for pod in pods if not is_finished(pod))
    longest = max(graces, default=0)
    return longest if now - deleted_at < longest else 0


def plan_phase(namespace: NamespaceView) -> ActionPlan:
    """Plan the phase Terminating for a deleted namespace."""
    if namespace.metadata.deletion_timestamp is None or namespace.status.phase == TERMINATING:
        return EMPTY_PLAN
    return ActionPlan((_patch_status(namespace, {"phase": TERMINATING}),))


def plan_finalization(
    namespace: NamespaceView, tree: Mapping[str, Any], content: NamespaceContent, now: float
) -> ActionPlan:
    """Plan the conditions of a terminating namespace, and its finalization if it is empty.

    `tree` is the full namespace object.

    DIFF: while pods are left, the conditions count them (test_conditions_count_remaining_pods); upstream
    reports that all content is removed until the last pod is gone.
    """
    actions: list[Action] = []
    conditions = _conditions(namespace.status.conditions, content, now)
    if conditions:
        actions.append(_patch_status(namespace, {"conditions": conditions}))
    if content.discovery_error or content.failures:
        return ActionPlan(tuple(actions), error="; ".join((content.discovery_error, *content.failures)))
    if content.estimate:
        return ActionPlan(tuple(actions), requeue_after=content.estimate // 2 + 1)
    if content.remaining:
        return ActionPlan(tuple(actions), error="objects without finalizers remain")
    kept = [finalizer for finalizer in namespace.spec.finalizers if finalizer != FINALIZER]
    final = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": tree["metadata"],
        "spec": {**tree.get("spec", {}), "finalizers": sorted(kept)},
    }
    return ActionPlan((*actions, UpdateAction(NAMESPACES, final, "finalize")))


def _conditions(old: Sequence[Condition], content: NamespaceContent, now: float) -> list[dict[str, Any]]:
    """Return the conditions that change."""
    problems: dict[str, tuple[str, str]] = {}
    if content.discovery_error:
        problems["NamespaceDeletionDiscoveryFailure"] = ("DiscoveryFailed", content.discovery_error)
    if content.failures:
        text = ", ".join(sorted(content.failures))
        count = len(content.failures)
        problems["NamespaceDeletionContentFailure"] = (
            "ContentDeletionFailed",
            f"Failed to delete all resource types, {count} remaining: {text}",
        )
    if content.remaining:
        texts = sorted(f"{kind} has {count} resource instances" for kind, count in content.remaining.items())
        problems["NamespaceContentRemaining"] = (
            "SomeResourcesRemain",
            f"Some resources are remaining: {', '.join(texts)}",
        )
    if content.finalizers:
        texts = sorted(f"{name} in {count} resource instances" for name, count in content.finalizers.items())
        problems["NamespaceFinalizersRemaining"] = (
            "SomeFinalizersRemain",
            f"Some content in the namespace has finalizers remaining: {', '.join(texts)}",
        )
    known = {condition.type: condition for condition in old}
    changed = []
    for type, fine in _CONDITIONS.items():
        status = "True" if type in problems else "False"
        reason, message = problems.get(type, fine)
        before = known.get(type)
        if before is not None and (before.status, before.reason, before.message) == (status, reason, message):
            continue
        same = before is not None and before.status == status and before.last_transition_time
        since = same or format_time(now)
        changed.append(
            {
                "type": type,
                "status": status,
                "reason": reason,
                "message": message,
                "lastTransitionTime": since,
            }
        )
    return changed


def _patch_status(namespace: NamespaceView, status: dict[str, Any]) -> PatchAction:
    metadata = {"uid": namespace.metadata.uid, "resourceVersion": namespace.metadata.resource_version}
    patch = {"metadata": metadata, "status": status}
    return PatchAction(NAMESPACES, namespace.metadata.name, patch, subresource="status", type="strategic")


#: Key of the default namespaces.
_DEFAULT_NAMESPACES_KEY = ""
#: Number of kinds deleted concurrently.
_CONCURRENCY = 8
#: Longest backoff of a namespace.
_LONGEST_DELAY = 60.0


class NamespaceController:
    """Controller of namespaces; keys are names."""

    name = "namespace-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[str] = WorkQueue(context.clock, longest=_LONGEST_DELAY)
        self._namespaces = context.informers.get(NAMESPACES)
        self._namespaces.add_handler(CallbackHandler(self._on_namespace))
        self.queue.add(_DEFAULT_NAMESPACES_KEY)
        if context.watches_all:
            for endpoint in deletable_endpoints(context.served):
                if endpoint.namespaced:
                    context.informers.get(endpoint).add_handler(CallbackHandler(self._on_content))

    def _on_namespace(self, old: NamespaceView | None, new: NamespaceView | None) -> None:
        if new is not None and new.metadata.deletion_timestamp is not None:
            self.queue.add_after(new.metadata.name, self._context.settings.namespace_grace)
        if new is None and old is not None and old.metadata.name in DEFAULT_NAMESPACES:
            self.queue.add(_DEFAULT_NAMESPACES_KEY)

    def _on_content(self, old: Any, new: Any) -> None:
        """Requeue a terminating namespace when an object in it is deleted."""
        if new is None:
            namespace: NamespaceView | None = self._namespaces.get("", old.metadata.namespace)
            if namespace is not None and namespace.metadata.deletion_timestamp is not None:
                self.queue.add(namespace.metadata.name)

    async def reconcile(self, key: str) -> ActionPlan:
        execute = self._context.executor.execute
        if key == _DEFAULT_NAMESPACES_KEY:
            plan = plan_default_namespaces([item.metadata.name for item in self._namespaces.items()])
            await execute(plan.actions)
            return plan
        raw = await self._context.find_raw(NAMESPACES, key)
        if raw is None:
            return EMPTY_PLAN
        tree = codec.decode_tree(raw)
        namespace = codec.convert(tree, NamespaceView)
        phase = plan_phase(namespace)
        if phase:
            done = await execute(phase.actions)
            if not done.objects:
                return EMPTY_PLAN
            tree = done.objects[-1]
            namespace = codec.convert(tree, NamespaceView)
        if namespace.metadata.deletion_timestamp is None or not namespace.spec.finalizers:
            return EMPTY_PLAN
        content = await self._delete_content(namespace)
        plan = plan_finalization(namespace, tree, content, self._context.clock.now())
        await execute(plan.actions)
        return plan

    async def _delete_content(self, namespace: NamespaceView) -> NamespaceContent:
        """Delete the content of a namespace; return what remains and why."""
        remaining: dict[str, int] = {}
        finalizers: Counter[str] = Counter()
        failures: list[str] = []
        estimates = [0]

        async def delete_kind(kind: Served) -> None:
            try:
                rest, estimate = await self._delete_kind(kind, namespace)
            except ApiError as error:
                failures.append(str(error))
                return
            if rest:
                held = Counter(name for item in rest for name in item.metadata.finalizers)
                finalizers.update(held)
                remaining[f"{kind.endpoint.plural}.{kind.endpoint.group}"] = len(rest)
                estimates.append(estimate or (FINALIZER_ESTIMATE if held else 0))

        try:
            served = await self._context.rediscover()
        except ApiError as error:
            return NamespaceContent(discovery_error=str(error))
        kinds = [kind for kind in served if kind.endpoint.namespaced and "delete" in kind.verbs]
        pods = [kind for kind in kinds if kind.endpoint[:3] == PODS[:3]]
        others = [kind for kind in kinds if kind not in pods]
        for kind in pods:
            await delete_kind(kind)
        if not remaining:
            limit = asyncio.Semaphore(_CONCURRENCY)

            async def delete_limited(kind: Served) -> None:
                async with limit:
                    await delete_kind(kind)

            await asyncio.gather(*map(delete_limited, others))
        return NamespaceContent(remaining, finalizers, sorted(failures), max(estimates))

    async def _delete_kind(self, kind: Served, namespace: NamespaceView) -> tuple[list[Object], int]:
        endpoint, name = kind.endpoint, namespace.metadata.name
        client = self._context.client
        found = await self._list(kind, name)
        if not found:
            return [], 0
        estimate = self._estimate(endpoint, found, namespace)
        if "deletecollection" in kind.verbs:
            await client.delete_collection(endpoint, name, propagation="Background")
        else:
            for item in found:
                try:
                    await client.delete(endpoint, item.metadata.name, name, propagation="Background")
                except ApiError as error:
                    if error.code not in (404, 405):
                        raise
        return await self._list(kind, name), estimate

    async def _list(self, kind: Served, namespace: str) -> list[Object]:
        if "list" not in kind.verbs:
            return []
        view: Any = Pod if kind.endpoint[:3] == PODS[:3] else Object
        try:
            listing = await self._context.client.list(kind.endpoint, namespace)
        except ApiError as error:
            if error.code not in (404, 405):
                raise
            return []
        return [codec.decode(raw, view) for raw in listing.items]

    def _estimate(self, endpoint: Endpoint, found: list[Any], namespace: NamespaceView) -> int:
        if endpoint[:3] != PODS[:3]:
            return 0
        deleted_at = parse_time(namespace.metadata.deletion_timestamp) or 0.0
        return estimate_pod_termination(found, deleted_at, self._context.clock.now())
