"""The claim controller: watches pods, claims and templates, and keeps claims as their pods need them.

Owns the loop around `plans/claims.py` and `plans/reservations.py`. Promises: a claim is not made twice for
one entry of a pod, even where the API's answer got lost or the cache lies behind; no reservation is taken
from a pod without asking the API whether the pod is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.client.endpoints import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from plimsoll.controllers.actions import NOTHING, Create, Plan
from plimsoll.controllers.caches import Index, Listener
from plimsoll.controllers.common import Context
from plimsoll.controllers.plans.claims import explain_refusal, plan_pod
from plimsoll.controllers.plans.pods import Ref, claim_names, is_done, owning_pod, ref
from plimsoll.controllers.plans.reservations import FINALIZER, find_doubtful, plan_claim
from plimsoll.controllers.plans.views import Template
from plimsoll.controllers.queue import WorkQueue
from plimsoll.errors import ApiError

#: How many deleted pods are remembered, so that the API need not be asked about each.
_REMEMBERED = 500


class Key(NamedTuple):
    kind: Literal["pod", "claim"]
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class ClaimController:
    """See the module."""

    name = "resourceclaim-controller"

    def __init__(self, context: Context) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._pods = context.caches.of(PODS)
        self._claims = context.caches.of(RESOURCE_CLAIMS)
        self._templates = context.caches.of(RESOURCE_CLAIM_TEMPLATES)
        self._using: Index[Pod, Ref] = Index(_claims_of)
        self._copying: Index[Pod, Ref] = Index(_templates_of)
        self._owned: Index[ResourceClaim, str] = Index(_owners_of)
        self._reserved: Index[ResourceClaim, Ref] = Index(_consumers_of)
        self._made: dict[str, dict[str, ResourceClaim]] = {}  # by pod UID, until the cache has them
        self._unsure: set[str] = set()  # UIDs of pods for which a claim may have been made unheard
        self._deleted: dict[str, None] = {}
        self._quiet: dict[Ref, tuple[str, float]] = {}
        self._pods.add_handler(self._using)
        self._pods.add_handler(self._copying)
        self._claims.add_handler(self._owned)
        self._claims.add_handler(self._reserved)
        self._pods.add_handler(Listener(self._hear_pod))
        self._claims.add_handler(Listener(self._hear_claim))
        self._templates.add_handler(Listener(self._hear_template))

    # -- what wakes whom

    def _hear_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        key = ref(pod.metadata)
        names = claim_names(pod)
        if not names and not pod.spec.resource_claims and key not in self._reserved:
            return
        if new is None:
            self._made.pop(pod.metadata.uid, None)
            self._unsure.discard(pod.metadata.uid)
            self._deleted[pod.metadata.uid] = None
            while len(self._deleted) > _REMEMBERED:
                self._deleted.pop(next(iter(self._deleted)))
        if new is None or is_done(new):
            names += [claim.metadata.name for claim in self._reserved.find(key)]
            for name in names:
                self.queue.add(Key("claim", pod.metadata.namespace, name))
        else:
            self.queue.add(Key("pod", *key))

    def _hear_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        claim = new or old
        assert claim is not None
        owner = owning_pod(claim)
        if new is not None:
            self.queue.add(Key("claim", *ref(new.metadata)))
        else:
            self._quiet.pop(ref(claim.metadata), None)
        if owner is not None:
            self._made.get(owner[1], {}).pop(claim.metadata.name, None)
            self.queue.add(Key("pod", claim.metadata.namespace, owner[0]))
        for pod in self._using.find(ref(claim.metadata)):
            self._hear_pod(pod, pod)

    def _hear_template(self, old: Template | None, new: Template | None) -> None:
        if new is not None:
            for pod in self._copying.find(ref(new.metadata)):
                self.queue.add(Key("pod", *ref(pod.metadata)))

    # -- work

    async def reconcile(self, key: Key) -> Plan:
        if key.kind == "pod":
            return await self._reconcile_pod(key.namespace, key.name)
        return await self._reconcile_claim(key.namespace, key.name)

    async def _reconcile_pod(self, namespace: str, name: str) -> Plan:
        pod: Pod | None = self._pods.get(namespace, name)
        if pod is None:
            return NOTHING
        await self._check_made(pod)
        plan = self._plan_pod(pod)
        creates = [action for action in plan.actions if isinstance(action, Create)]
        for create in creates:
            await self._create(pod, create)
        if creates and not plan.trouble:
            plan = self._plan_pod(pod)
            if any(isinstance(action, Create) for action in plan.actions):
                return Plan(
                    trouble="claims were made, but not as they were meant: without owner or annotation"
                )
        await self._context.performer.perform(
            action for action in plan.actions if not isinstance(action, Create)
        )
        return plan

    def _plan_pod(self, pod: Pod) -> Plan:
        namespace, uid = pod.metadata.namespace, pod.metadata.uid
        owned: dict[str, ResourceClaim] = {
            **self._made.get(uid, {}),
            **{claim.metadata.name: claim for claim in self._owned.find(uid)},
        }
        claims = {
            name: claim
            for name in claim_names(pod)
            if (claim := self._claims.get(namespace, name)) is not None
        }
        names = (entry.resource_claim_template_name for entry in pod.spec.resource_claims)
        templates = {
            name: template
            for name in names
            if name is not None and (template := self._templates.get(namespace, name)) is not None
        }
        mine = [claim for claim in owned.values() if claim.metadata.namespace == namespace]
        return plan_pod(pod, {**owned, **claims}, mine, templates)

    async def _create(self, pod: Pod, create: Create) -> None:
        uid = pod.metadata.uid
        self._unsure.add(uid)
        try:
            tree = await self._context.client.create(create.endpoint, create.tree, create.namespace)
        except ApiError as error:
            if 400 <= error.code < 500:
                self._unsure.discard(uid)
                report = explain_refusal(pod, create, error.message)
                await self._context.recorder.record(report)
            raise
        self._unsure.discard(uid)
        claim = codec.look(tree, ResourceClaim)
        self._made.setdefault(uid, {})[claim.metadata.name] = claim

    async def _check_made(self, pod: Pod) -> None:
        """Of claims that were made and are not in the cache, ask the API."""
        uid, namespace = pod.metadata.uid, pod.metadata.namespace
        client = self._context.client
        if uid in self._unsure:
            listing = await client.list(RESOURCE_CLAIMS, namespace)
            found = (codec.decode(raw, ResourceClaim) for raw in listing.items)
            owned = {claim.metadata.name: claim for claim in found if uid in _owners_of(claim)}
            self._made[uid] = owned
            self._unsure.discard(uid)
            return
        for name in list(self._made.get(uid, ())):
            try:
                await client.get_raw(RESOURCE_CLAIMS, name, namespace)
            except ApiError as error:
                if error.code != 404:
                    raise
                self._made.get(uid, {}).pop(name, None)
        if not self._made.get(uid):
            self._made.pop(uid, None)

    async def _reconcile_claim(self, namespace: str, name: str) -> Plan:
        claim: ResourceClaim | None = self._claims.get(namespace, name)
        if claim is None:
            return NOTHING
        owner = owning_pod(claim)
        names = {consumer.name for consumer in claim.status.reserved_for} | ({owner[0]} if owner else set())
        pods = {name: pod for name in names if (pod := self._pods.get(namespace, name)) is not None}
        deleted = frozenset(self._deleted)
        live = {
            doubtful: await self._find_uid(namespace, doubtful)
            for doubtful in find_doubtful(claim, pods, deleted)
        }
        plan = plan_claim(claim, pods, live, deleted, quiet=self._watch_quiet(claim))
        await self._context.performer.perform(plan.actions)
        return plan

    async def _find_uid(self, namespace: str, name: str) -> str:
        try:
            raw = await self._context.client.get_raw(PODS, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return ""
        return codec.decode(raw, Pod).metadata.uid

    def _watch_quiet(self, claim: ResourceClaim) -> float:
        """For how long a finalizer without an allocation has been seen to stand unchanged."""
        key, revision = ref(claim.metadata), claim.metadata.resource_version
        if FINALIZER not in claim.metadata.finalizers or claim.status.allocation is not None:
            self._quiet.pop(key, None)
            return 0.0
        now = self._context.clock.now()
        known = self._quiet.get(key)
        if known is None or known[0] != revision:
            known = self._quiet[key] = (revision, now)
        return now - known[1]


def _claims_of(pod: Pod) -> Iterable[Ref]:
    return (Ref(pod.metadata.namespace, name) for name in claim_names(pod))


def _templates_of(pod: Pod) -> Iterable[Ref]:
    for entry in pod.spec.resource_claims:
        if entry.resource_claim_template_name is not None:
            yield Ref(pod.metadata.namespace, entry.resource_claim_template_name)


def _consumers_of(claim: ResourceClaim) -> Iterable[Ref]:
    return (Ref(claim.metadata.namespace, consumer.name) for consumer in claim.status.reserved_for)


def _owners_of(claim: ResourceClaim) -> list[str]:
    owner = owning_pod(claim)
    return [owner[1]] if owner is not None else []
