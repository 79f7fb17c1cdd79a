"""Writes of pods for their owners, and a view of the pods that includes these writes.

A cache lags behind the API. Pods that were created and are not in the cache yet, and deletions and removed
finalizers that it does not show yet, are remembered until the cache has caught up, so that a plan never
counts from an old state and creates a pod twice. If it is unknown whether a creation took place, because its
response was lost, the pods are listed again before the next plan.

Pods are created in batches of 1, 2, 4, ... while all succeed: a quota or an invalid template costs one
failed request per attempt, not one per pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.meta import ObjectReference
from plimsoll.api.timestamps import format_time
from plimsoll.client.endpoints import PODS
from plimsoll.client.event_recorder import NORMAL, WARNING, EventRecord
from plimsoll.client.informer import Informer
from plimsoll.controllers.actions import CreateAction, DeleteAction, PatchAction
from plimsoll.controllers.context import ControllerContext
from plimsoll.errors import ApiError

#: Pods that are written at the same time.
_CONCURRENCY = 16


@dataclass
class _Unseen:
    """Writes for the pods of one owner that the cache does not show yet, by the UID of the pod."""

    created: dict[str, Pod] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    finalized: set[str] = field(default_factory=set)
    uncertain: bool = False


@dataclass(frozen=True, slots=True)
class PodWrites:
    """Result of writing pods: how many writes succeeded, and the first error."""

    done: int = 0
    error: ApiError | None = None


class PodControl:
    """Writer of the pods of all owners of one kind."""

    def __init__(self, context: ControllerContext, component: str, finalizer: str = "") -> None:
        """Create a writer; `finalizer` is the one that its owners put on pods."""
        self._context = context
        self._finalizer = finalizer
        self._component = component
        self._pods: Informer[Pod] = context.informers.get(PODS)
        self._unseen: dict[str, _Unseen] = {}

    async def catch_up(self, owner: str) -> None:
        """List the pods again if it is unknown whether a pod of an owner was created."""
        unseen = self._unseen.get(owner)
        if unseen is not None and unseen.uncertain:
            await self._pods.refresh()
            unseen.uncertain = False

    def current(self, owner: str, cached: Iterable[Pod]) -> list[Pod]:
        """Return the pods of an owner: those in the cache, with the writes that it does not show yet."""
        pods = {pod.metadata.uid: pod for pod in cached}
        unseen = self._unseen.get(owner)
        if unseen is None:
            return list(pods.values())
        revision = revision_number(self._pods.revision)
        for uid, pod in list(unseen.created.items()):
            if uid in pods or revision_number(pod.metadata.resource_version) <= revision:
                del unseen.created[uid]
            else:
                pods[uid] = pod
        for uid in list(unseen.deleted):
            shown = pods.get(uid)
            if shown is None or shown.metadata.deletion_timestamp is not None:
                unseen.deleted.discard(uid)
            else:
                now = format_time(self._context.clock.now())
                pods[uid] = replace(shown, metadata=replace(shown.metadata, deletion_timestamp=now))
        for uid in list(unseen.finalized):
            shown = pods.get(uid)
            if shown is None or self._finalizer not in shown.metadata.finalizers:
                unseen.finalized.discard(uid)
            else:
                kept = tuple(each for each in shown.metadata.finalizers if each != self._finalizer)
                pods[uid] = replace(shown, metadata=replace(shown.metadata, finalizers=kept))
        if not (unseen.created or unseen.deleted or unseen.finalized or unseen.uncertain):
            del self._unseen[owner]
        return list(pods.values())

    def forget(self, owner: str) -> None:
        """Forget an owner that no longer exists."""
        self._unseen.pop(owner, None)

    async def create(self, owner: ObjectReference, actions: Sequence[CreateAction]) -> PodWrites:
        """Create pods in growing batches; stop after a batch with an error."""
        done, size, start = 0, 1, 0
        while start < len(actions):
            batch = actions[start : start + size]
            results = await asyncio.gather(*(self._create(owner, action) for action in batch))
            errors = [result for result in results if result is not None]
            done += len(batch) - len(errors)
            if errors:
                return PodWrites(done, errors[0])
            start, size = start + size, min(size * 2, _CONCURRENCY)
        return PodWrites(done)

    async def _create(self, owner: ObjectReference, action: CreateAction) -> ApiError | None:
        try:
            tree = await self._context.client.create(PODS, action.tree, action.namespace)
        except ApiError as error:
            taken = error.reason == "AlreadyExists"
            if taken or not 400 <= error.code < 500:
                self._of(owner.uid).uncertain = True
            # A terminating namespace takes the owner with it; no need to report that.
            if not taken and "because it is being terminated" not in error.message:
                await self._report(owner, "FailedCreate", f"Error creating: {error.message}", WARNING)
            return error
        pod = codec.convert_fast(tree, Pod)
        if self._pods.get(*pod.metadata.key) is None:
            self._of(owner.uid).created[pod.metadata.uid] = pod
        await self._report(owner, "SuccessfulCreate", f"Created pod: {pod.metadata.name}")
        return None

    async def delete(self, owner: ObjectReference, actions: Sequence[DeleteAction]) -> PodWrites:
        """Delete pods; pods that are already gone count as deleted."""
        limit = asyncio.Semaphore(_CONCURRENCY)

        async def remove(action: DeleteAction) -> ApiError | None:
            async with limit:
                return await self._delete(owner, action)

        errors = [error for error in await asyncio.gather(*map(remove, actions)) if error is not None]
        return PodWrites(len(actions) - len(errors), errors[0] if errors else None)

    async def _delete(self, owner: ObjectReference, action: DeleteAction) -> ApiError | None:
        # Known before the call: the removal may be in the cache before the response arrives.
        self._of(owner.uid).deleted.add(action.uid)
        try:
            result = await self._context.executor.execute((action,))
        except ApiError as error:
            self._of(owner.uid).deleted.discard(action.uid)
            await self._report(owner, "FailedDelete", f"Error deleting: {error.message}", WARNING)
            return error
        if result.objects:
            await self._report(owner, "SuccessfulDelete", f"Deleted pod: {action.name}")
        return None

    async def remove_finalizers(self, owner: str, actions: Sequence[PatchAction]) -> ApiError | None:
        """Patch the finalizers of pods away; return the first error. Without an owner nothing is counted."""
        limit = asyncio.Semaphore(_CONCURRENCY)

        async def patch(action: PatchAction) -> ApiError | None:
            uid = action.patch["metadata"]["uid"]
            async with limit:
                try:
                    await self._context.executor.execute((action,))
                except ApiError as error:
                    # Another pod of this name: the one that was meant is gone.
                    return None if error.code in (409, 422) and self._is_gone(action, uid) else error
                if owner:
                    self._of(owner).finalized.add(uid)
                return None

        errors = [error for error in await asyncio.gather(*map(patch, actions)) if error is not None]
        return errors[0] if errors else None

    def _is_gone(self, action: PatchAction, uid: str) -> bool:
        cached = self._pods.get(action.namespace, action.name)
        return cached is None or cached.metadata.uid != uid

    def _of(self, owner: str) -> _Unseen:
        return self._unseen.setdefault(owner, _Unseen())

    async def _report(self, owner: ObjectReference, reason: str, message: str, type: str = NORMAL) -> None:
        await self._context.recorder.record(EventRecord(owner, reason, message, self._component, type))


def revision_number(revision: str) -> int:
    """Return a resourceVersion as a number; 0 if it is none."""
    return int(revision) if revision.isascii() and revision.isdigit() else 0
