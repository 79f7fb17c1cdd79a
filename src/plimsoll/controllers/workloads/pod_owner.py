"""Bases of the controllers that own pods or other workloads: watches, queue keys, adoption and events."""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.kept import is_kept
from plimsoll.api.label_selection import CompiledLabelSelector, SelectorProblem, compile_label_selector
from plimsoll.api.meta import Object, ObjectMeta, ObjectReference
from plimsoll.client.endpoints import PODS, Endpoint
from plimsoll.client.event_recorder import NORMAL, EventRecord
from plimsoll.client.informer import CallbackHandler, Informer
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.pod_utils import ObjectName, object_name
from plimsoll.controllers.shared_informers import ObjectIndex
from plimsoll.controllers.work_queue import WorkQueue
from plimsoll.controllers.workload_views import WorkloadView
from plimsoll.controllers.workloads.ownership import HasMetadata, OwnedObjects, claim_objects, controller_of
from plimsoll.controllers.workloads.pod_control import PodControl
from plimsoll.errors import ApiError

V = TypeVar("V", bound=WorkloadView)
D = TypeVar("D", bound=HasMetadata)
M = TypeVar("M", bound=HasMetadata)


class OwnerController(Generic[V, D]):
    """Watches of one kind of workload and of the objects that it owns; subclasses reconcile."""

    name: ClassVar[str]
    endpoint: ClassVar[Endpoint]
    dependents: ClassVar[Endpoint]  #: kind of the objects that it owns
    component: ClassVar[str]  #: source of its events
    finalizer: ClassVar[str] = ""  #: that its pods have

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[ObjectName] = WorkQueue(context.clock)
        self._owners: Informer[V] = context.informers.get(self.endpoint)
        self._dependents: Informer[D] = context.informers.get(self.dependents)
        self._index: ObjectIndex[D, str] = ObjectIndex(_index_values)
        self._owner_index: ObjectIndex[V, str] = ObjectIndex(lambda owner: (owner.metadata.namespace,))
        self._selectors: dict[tuple[str, str], CompiledLabelSelector | SelectorProblem] = {}
        self._dependents.add_handler(self._index)
        self._dependents.add_handler(CallbackHandler(self._on_dependent))
        self._owners.add_handler(self._owner_index)
        self._owners.add_handler(CallbackHandler(self._on_owner))

    def selector_of(self, owner: V) -> CompiledLabelSelector | SelectorProblem:
        """Return the compiled selector of an owner."""
        key = (owner.metadata.uid, owner.metadata.resource_version)
        found = self._selectors.get(key)
        if found is None:
            if len(self._selectors) > 4 * len(self._owners) + 64:
                self._selectors.clear()
            found = self._selectors[key] = self.compile_selector(owner)
        return found

    def compile_selector(self, owner: V) -> CompiledLabelSelector | SelectorProblem:
        return compile_label_selector(owner.spec.selector)  # type: ignore[attr-defined]  # all have one

    def find_owner(self, key: ObjectName) -> V | None:
        """Return the owner of a key; None if it does not exist or is kept as it is."""
        owner = self._owners.get(*key)
        return None if owner is None or is_kept(owner.metadata) else owner

    # -- changes

    def _on_owner(self, old: V | None, new: V | None) -> None:
        owner = new or old
        assert owner is not None
        self.queue.add(object_name(owner.metadata))

    def _on_dependent(self, old: D | None, new: D | None) -> None:
        for item in (old, new):
            if item is not None and (key := self._owner_key(item.metadata)) is not None:
                self.queue.add(key)
        if new is None or controller_of(new.metadata) is not None:
            return
        if old is None or (old.metadata.labels, old.metadata.owner_references) != (
            new.metadata.labels,
            new.metadata.owner_references,
        ):
            for owner in self._owner_index.find(new.metadata.namespace):
                selector = self.selector_of(owner)
                if isinstance(selector, CompiledLabelSelector) and selector.matches(new.metadata.labels):
                    self.queue.add(object_name(owner.metadata))

    def _owner_key(self, metadata: ObjectMeta) -> ObjectName | None:
        """Return the key of the owner of an object, if it is of this controller's kind."""
        reference = controller_of(metadata)
        if reference is None or reference.kind != self.endpoint.kind:
            return None
        group = reference.api_version.rpartition("/")[0]
        return ObjectName(metadata.namespace, reference.name) if group == self.endpoint.group else None

    # -- ownership

    def candidates(self, owner: V) -> list[D]:
        """Return the cached objects that an owner owns or could adopt."""
        orphans = self._index.find(_orphans_of(owner.metadata.namespace))
        return [*self._index.find(owner.metadata.uid), *orphans]

    async def claim(
        self, owner: V, selector: CompiledLabelSelector, candidates: list[M], endpoint: Endpoint | None = None
    ) -> list[M]:
        """Return the candidates that belong to an owner; adopt and release them according to its selector."""
        owned: OwnedObjects[M] = claim_objects(
            owner.metadata, self.endpoint, endpoint or self.dependents, selector, candidates, self.finalizer
        )
        if owned.adoptions and not await self.is_live(owner):
            raise ApiError(
                409, "Conflict", f"{self.endpoint.kind} {owner.metadata.full_name} is being deleted"
            )
        for action in (*owned.releases, *owned.adoptions):
            await self._context.executor.execute((action,))
        return owned.items

    async def is_live(self, owner: V) -> bool:
        """Ask the API whether an owner still exists and is not being deleted."""
        metadata = owner.metadata
        raw = await self._context.find_raw(self.endpoint, metadata.name, metadata.namespace)
        if raw is None:
            return False
        live = codec.decode(raw, Object).metadata
        return live.uid == metadata.uid and live.deletion_timestamp is None

    # -- events

    def reference(self, owner: V) -> ObjectReference:
        return ObjectReference.to(owner.metadata, self.endpoint.kind, self.endpoint.api_version)

    async def report(self, owner: V, reason: str, message: str, type: str = NORMAL) -> None:
        record = EventRecord(self.reference(owner), reason, message, self.component, type)
        await self._context.recorder.record(record)


class PodOwnerController(OwnerController[V, Pod]):
    """Base of the controllers of pods."""

    dependents = PODS

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._pod_control = PodControl(context, self.component, self.finalizer)

    def _on_owner(self, old: V | None, new: V | None) -> None:
        super()._on_owner(old, new)
        if old is not None and new is None:
            self._pod_control.forget(old.metadata.uid)

    async def claim_pods(self, owner: V, selector: CompiledLabelSelector) -> list[Pod]:
        """Return the pods of an owner, with writes that the cache does not show yet."""
        uid = owner.metadata.uid
        await self._pod_control.catch_up(uid)
        return await self.claim(owner, selector, self._pod_control.current(uid, self.candidates(owner)))


def _index_values(item: HasMetadata) -> tuple[str]:
    reference = controller_of(item.metadata)
    return (_orphans_of(item.metadata.namespace) if reference is None else reference.uid,)


def _orphans_of(namespace: str) -> str:
    return f"orphans/{namespace}"
