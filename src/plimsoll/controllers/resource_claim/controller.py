"""ResourceClaim controller: watches pods, PodGroups, claims and templates.

An entry of a pod never gets two claims, even if the API's response was lost or the cache lags behind. No
reservation is removed without asking the API whether the pod is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Literal, NamedTuple

from plimsoll.api import codec
from plimsoll.api.core import Pod, PodResourceClaim
from plimsoll.api.kept import is_kept
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.pod_claims import is_group, owner_group, owner_pod, pod_group_of
from plimsoll.api.resource import ResourceClaim
from plimsoll.api.scheduling import PodGroup, PodGroupResourceClaim
from plimsoll.client.endpoints import POD_GROUPS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from plimsoll.client.event_recorder import EventRecord
from plimsoll.client.informer import CallbackHandler
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, CreateAction
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.object_views import ClaimTemplateView
from plimsoll.controllers.pod_utils import (
    POD_CLAIM_ANNOTATION,
    ObjectName,
    claim_names,
    is_done,
    object_name,
)
from plimsoll.controllers.resource_claim.claim_plan import (
    FINALIZER,
    find_uncertain_consumers,
    find_uncertain_groups,
    plan_claim,
)
from plimsoll.controllers.resource_claim.group_plan import failed_event, plan_group
from plimsoll.controllers.resource_claim.pod_plan import creation_failed_event, plan_pod
from plimsoll.controllers.shared_informers import ObjectIndex
from plimsoll.controllers.work_queue import WorkQueue
from plimsoll.errors import ApiError

#: Size of the cache of deleted pods, which saves an API call per consumer.
_MAX_REMEMBERED = 500
#: Delay before a pod that exists, but was not seen, is looked up again: its deletion may never be seen.
_UNSEEN_SECONDS = 10.0


class _WorkKey(NamedTuple):
    """Key of a pod, a PodGroup or a claim."""

    kind: Literal["pod", "group", "claim"]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class ResourceClaimController:
    """Controller around the plans of `pod_plan.py` and `claim_plan.py`."""

    name = "resourceclaim-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[_WorkKey] = WorkQueue(context.clock)
        self._pods = context.informers.get(PODS)
        self._claims = context.informers.get(RESOURCE_CLAIMS)
        self._templates = context.informers.get(RESOURCE_CLAIM_TEMPLATES)
        self._pods_by_claim: ObjectIndex[Pod, ObjectName] = ObjectIndex(_claims_of)
        self._pods_by_template: ObjectIndex[Pod, ObjectName] = ObjectIndex(_templates_of)
        self._claims_by_owner: ObjectIndex[ResourceClaim, str] = ObjectIndex(_owners_of)
        self._claims_by_consumer: ObjectIndex[ResourceClaim, ObjectName] = ObjectIndex(_consumers_of)
        self._created: dict[str, dict[str, ResourceClaim]] = {}  # by pod UID, until the cache has them
        self._unconfirmed: set[str] = set()  # UIDs of pods with a create request of unknown outcome
        self._deleted: dict[str, None] = {}
        self._unchanged_since: dict[ObjectName, tuple[str, float]] = {}
        #: PodGroups, if the API serves them.
        self._groups = context.informers.get(POD_GROUPS) if context.serves(POD_GROUPS) else None
        self._pods_by_group: ObjectIndex[Pod, ObjectName] = ObjectIndex(_groups_of)
        self._groups_by_template: ObjectIndex[PodGroup, ObjectName] = ObjectIndex(_templates_of_group)
        if self._groups is not None:
            self._pods.add_handler(self._pods_by_group)
            self._groups.add_handler(self._groups_by_template)
            self._groups.add_handler(CallbackHandler(self._on_group))
        self._pods.add_handler(self._pods_by_claim)
        self._pods.add_handler(self._pods_by_template)
        self._claims.add_handler(self._claims_by_owner)
        self._claims.add_handler(self._claims_by_consumer)
        self._pods.add_handler(CallbackHandler(self._on_pod))
        self._claims.add_handler(CallbackHandler(self._on_claim))
        self._templates.add_handler(CallbackHandler(self._on_template))

    # -- event handlers

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        key = object_name(pod.metadata)
        names = claim_names(pod)
        if not names and not pod.spec.resource_claims and key not in self._claims_by_consumer:
            return
        if new is None:
            self._forget(pod.metadata.uid)
        if new is None or is_done(new):
            names += [claim.metadata.name for claim in self._claims_by_consumer.find(key)]
            for name in names:
                self.queue.add(_WorkKey("claim", pod.metadata.namespace, name))
        else:
            self.queue.add(_WorkKey("pod", *key))

    def _forget(self, uid: str) -> None:
        """Remember that a pod or PodGroup was deleted."""
        self._created.pop(uid, None)
        self._unconfirmed.discard(uid)
        self._deleted[uid] = None
        while len(self._deleted) > _MAX_REMEMBERED:
            self._deleted.pop(next(iter(self._deleted)))

    def _on_group(self, old: PodGroup | None, new: PodGroup | None) -> None:
        group = new or old
        assert group is not None
        key = object_name(group.metadata)
        if new is None:
            self._forget(group.metadata.uid)
            for claim in self._claims_by_consumer.find(key):
                self.queue.add(_WorkKey("claim", *object_name(claim.metadata)))
            return
        if new.spec.resource_claims:
            self.queue.add(_WorkKey("group", *key))
        for pod in self._pods_by_group.find(key):
            self._on_pod(pod, pod)

    def _on_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        claim = new or old
        assert claim is not None
        owner = owner_pod(claim)
        if new is not None:
            self.queue.add(_WorkKey("claim", *object_name(new.metadata)))
        else:
            self._unchanged_since.pop(object_name(claim.metadata), None)
        if owner is not None:
            self._created.get(owner[1], {}).pop(claim.metadata.name, None)
            self.queue.add(_WorkKey("pod", claim.metadata.namespace, owner[0]))
        owner = owner_group(claim)
        if owner is not None and self._groups is not None:
            self._created.get(owner[1], {}).pop(claim.metadata.name, None)
            self.queue.add(_WorkKey("group", claim.metadata.namespace, owner[0]))
            for pod in self._pods_by_group.find(ObjectName(claim.metadata.namespace, owner[0])):
                self.queue.add(_WorkKey("pod", *object_name(pod.metadata)))
        for pod in self._pods_by_claim.find(object_name(claim.metadata)):
            self._on_pod(pod, pod)

    def _on_template(self, old: ClaimTemplateView | None, new: ClaimTemplateView | None) -> None:
        if new is not None:
            for pod in self._pods_by_template.find(object_name(new.metadata)):
                self.queue.add(_WorkKey("pod", *object_name(pod.metadata)))
            for group in self._groups_by_template.find(object_name(new.metadata)):
                self.queue.add(_WorkKey("group", *object_name(group.metadata)))

    # -- reconcile

    async def reconcile(self, key: _WorkKey) -> ActionPlan:
        if key.kind == "pod":
            return await self._reconcile_pod(key.namespace, key.name)
        if key.kind == "group":
            return await self._reconcile_group(key.namespace, key.name)
        return await self._reconcile_claim(key.namespace, key.name)

    async def _reconcile_pod(self, namespace: str, name: str) -> ActionPlan:
        pod: Pod | None = self._pods.get(namespace, name)
        if pod is None:
            return EMPTY_PLAN
        return await self._create_claims(
            pod.metadata,
            lambda: self._plan_pod(pod),
            lambda create, message: creation_failed_event(pod, create, message),
        )

    async def _reconcile_group(self, namespace: str, name: str) -> ActionPlan:
        group: PodGroup | None = self._groups.get(namespace, name) if self._groups is not None else None
        if group is None:
            return EMPTY_PLAN

        def event(create: CreateAction, message: str) -> EventRecord:
            entry = create.tree["metadata"]["annotations"][POD_CLAIM_ANNOTATION]
            return failed_event(group, f"PodGroupResourceClaim {entry}: create ResourceClaim : {message}")

        return await self._create_claims(group.metadata, lambda: self._plan_group(group), event)

    async def _create_claims(
        self,
        owner: ObjectMeta,
        plan_again: Callable[[], ActionPlan],
        event: Callable[[CreateAction, str], EventRecord],
    ) -> ActionPlan:
        """Create the claims that a plan asks for, then execute the rest of the plan that follows."""
        await self._confirm_created(owner)
        plan = plan_again()
        creates = [action for action in plan.actions if isinstance(action, CreateAction)]
        for create in creates:
            await self._create(owner.uid, create, event)
        if creates and not plan.error:
            plan = plan_again()
            if any(isinstance(action, CreateAction) for action in plan.actions):
                return ActionPlan(error="created claims lack their owner reference or annotation")
        await self._context.executor.execute(
            action for action in plan.actions if not isinstance(action, CreateAction)
        )
        return plan

    def _plan_pod(self, pod: Pod) -> ActionPlan:
        namespace = pod.metadata.namespace
        group: PodGroup | None = None
        if self._groups is not None and (group_name := pod_group_of(pod)):
            group = self._groups.get(namespace, group_name)
            if group is None:
                name = pod.metadata.full_name
                return ActionPlan(error=f'get PodGroup for Pod {name}: podgroup "{group_name}" not found')
        owned = self._owned(pod.metadata)
        claims = {
            name: claim
            for name in claim_names(pod)
            if (claim := self._claims.get(namespace, name)) is not None
        }
        group_owned = self._owned(group.metadata) if group is not None else {}
        templates = self._find_templates(namespace, pod.spec.resource_claims)
        return plan_pod(
            pod, {**group_owned, **owned, **claims}, owned.values(), templates, group, group_owned.values()
        )

    def _plan_group(self, group: PodGroup) -> ActionPlan:
        templates = self._find_templates(group.metadata.namespace, group.spec.resource_claims)
        return plan_group(group, self._owned(group.metadata).values(), templates)

    def _owned(self, owner: ObjectMeta) -> dict[str, ResourceClaim]:
        """Return the claims that a pod or PodGroup owns, those included that the cache does not have yet."""
        found: dict[str, ResourceClaim] = {
            **self._created.get(owner.uid, {}),
            **{claim.metadata.name: claim for claim in self._claims_by_owner.find(owner.uid)},
        }
        return {name: claim for name, claim in found.items() if claim.metadata.namespace == owner.namespace}

    def _find_templates(
        self, namespace: str, entries: Iterable[PodResourceClaim | PodGroupResourceClaim]
    ) -> dict[str, ClaimTemplateView]:
        names = (entry.resource_claim_template_name for entry in entries)
        return {
            name: template
            for name in names
            if name is not None and (template := self._templates.get(namespace, name)) is not None
        }

    async def _create(
        self, uid: str, create: CreateAction, event: Callable[[CreateAction, str], EventRecord]
    ) -> None:
        self._unconfirmed.add(uid)
        try:
            tree = await self._context.client.create(create.endpoint, create.tree, create.namespace)
        except ApiError as error:
            if 400 <= error.code < 500:
                self._unconfirmed.discard(uid)
                await self._context.recorder.record(event(create, error.message))
            raise
        self._unconfirmed.discard(uid)
        claim = codec.convert_fast(tree, ResourceClaim)
        self._created.setdefault(uid, {})[claim.metadata.name] = claim

    async def _confirm_created(self, owner: ObjectMeta) -> None:
        """Ask the API for claims that were created and are not in the cache yet."""
        uid, namespace = owner.uid, owner.namespace
        if uid in self._unconfirmed:
            listing = await self._context.client.list(RESOURCE_CLAIMS, namespace)
            found = (codec.decode(raw, ResourceClaim) for raw in listing.items)
            owned = {claim.metadata.name: claim for claim in found if uid in _owners_of(claim)}
            self._created[uid] = owned
            self._unconfirmed.discard(uid)
            return
        for name in list(self._created.get(uid, ())):
            if await self._context.find_raw(RESOURCE_CLAIMS, name, namespace) is None:
                self._created.get(uid, {}).pop(name, None)
        if not self._created.get(uid):
            self._created.pop(uid, None)

    async def _reconcile_claim(self, namespace: str, name: str) -> ActionPlan:
        claim: ResourceClaim | None = self._claims.get(namespace, name)
        if claim is None or is_kept(claim.metadata):
            return EMPTY_PLAN
        owner = owner_pod(claim)
        names = {consumer.name for consumer in claim.status.reserved_for} | ({owner[0]} if owner else set())
        pods = {name: pod for name in names if (pod := self._pods.get(namespace, name)) is not None}
        deleted = frozenset(self._deleted)
        live = {
            uncertain: await self._find_uid(namespace, uncertain)
            for uncertain in find_uncertain_consumers(claim, pods, deleted)
        }
        plan = plan_claim(
            claim,
            pods,
            live,
            deleted,
            live_groups=await self._find_groups(claim, deleted),
            unchanged_for=self._seconds_unchanged(claim),
        )
        await self._context.executor.execute(plan.actions)
        if any(live.values()) and plan.requeue_after is None:
            return replace(plan, requeue_after=_UNSEEN_SECONDS)
        return plan

    async def _find_uid(self, namespace: str, name: str) -> str:
        raw = await self._context.find_raw(PODS, name, namespace)
        return "" if raw is None else codec.decode(raw, Pod).metadata.uid

    async def _find_groups(self, claim: ResourceClaim, deleted: frozenset[str]) -> dict[str, str] | None:
        """Return the UIDs of the PodGroups that a claim is reserved for; None if there are no such kinds."""
        if self._groups is None:
            return None
        namespace = claim.metadata.namespace
        names = {consumer.name for consumer in claim.status.reserved_for if is_group(consumer)}
        cached = {name: each for name in names if (each := self._groups.get(namespace, name)) is not None}
        found = {name: group.metadata.uid for name, group in cached.items()}
        for name in find_uncertain_groups(claim, cached, deleted):
            raw = await self._context.find_raw(POD_GROUPS, name, namespace)
            found[name] = "" if raw is None else codec.decode(raw, PodGroup).metadata.uid
        return found

    def _seconds_unchanged(self, claim: ResourceClaim) -> float:
        """Return for how long a finalizer without an allocation has been observed unchanged."""
        key, revision = object_name(claim.metadata), claim.metadata.resource_version
        if FINALIZER not in claim.metadata.finalizers or claim.status.allocation is not None:
            self._unchanged_since.pop(key, None)
            return 0.0
        now = self._context.clock.monotonic()
        known = self._unchanged_since.get(key)
        if known is None or known[0] != revision:
            known = self._unchanged_since[key] = (revision, now)
        return now - known[1]


def _claims_of(pod: Pod) -> Iterable[ObjectName]:
    return (ObjectName(pod.metadata.namespace, name) for name in claim_names(pod))


def _templates_of(pod: Pod) -> Iterable[ObjectName]:
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_template_name is not None:
            yield ObjectName(pod.metadata.namespace, entry.resource_claim_template_name)


def _groups_of(pod: Pod) -> Iterable[ObjectName]:
    name = pod_group_of(pod)
    return (ObjectName(pod.metadata.namespace, name),) if name else ()


def _templates_of_group(group: PodGroup) -> Iterable[ObjectName]:
    for entry in group.spec.resource_claims:
        if entry.resource_claim_template_name is not None:
            yield ObjectName(group.metadata.namespace, entry.resource_claim_template_name)


def _consumers_of(claim: ResourceClaim) -> Iterable[ObjectName]:
    return (ObjectName(claim.metadata.namespace, consumer.name) for consumer in claim.status.reserved_for)


def _owners_of(claim: ResourceClaim) -> list[str]:
    owner = owner_pod(claim) or owner_group(claim)
    return [owner[1]] if owner is not None else []
