"""Binding of volumes: lost, delayed and refused writes, and the end of the wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.api.core import Node, Pod
from plimsoll.api.meta import ObjectReference
from plimsoll.api.storage import (
    BIND_COMPLETED,
    SELECTED_NODE,
    PersistentVolume,
    PersistentVolumeClaim,
)
from plimsoll.errors import ApiError, UnreachableError
from plimsoll.ledger.requests import PodResourcesOptions
from plimsoll.scheduler.binding.volumes import VolumeBinder, find_volume_targets
from plimsoll.scheduler.binding.writer import BindingWriter
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.result import DynamicProvision, Placement, PodVolumes, StaticBinding
from tests.build import node, pod
from tests.sizes import examples
from tests.unit.scheduler.filters.volume_objects import claim, static_volume, using

T = TypeVar("T", PersistentVolume, PersistentVolumeClaim)
ANSWERED, LOST, UNHEARD, DELAYED, BUSY, CONFLICT = range(6)
PREFIX = 'running PreBind plugin "VolumeBinding": '


def at_version(thing: T, version: int) -> T:
    return replace(thing, metadata=replace(thing.metadata, resource_version=str(version)))


class FaultyApi:
    """Volumes and claims in memory, and a writer whose calls fail in a given order."""

    def __init__(self, *things: Any, faults: tuple[int, ...] = ()) -> None:
        self.things = {each.metadata.key: at_version(each, 1) for each in things}
        self.nodes = {"n": node("n", labels={"kubernetes.io/hostname": "n"})}
        self.pods: dict[str, str] = {"p": "uid-p"}
        self.delayed: list[Callable[[], None]] = []
        self.version = 1
        self.faults = list(faults)
        self._fences = 0

    # -- the API

    def store(self, thing: T) -> T:
        self.version += 1
        self.things[thing.metadata.key] = at_version(thing, self.version)
        return self.things[thing.metadata.key]  # type: ignore[no-any-return]

    def change(self, target: T, change: Callable[[T], T], *, checked: bool = True) -> T:
        known = self.things.get(target.metadata.key)
        if known is None:
            raise ApiError(404, "NotFound", "gone")
        if checked and known.metadata.resource_version != target.metadata.resource_version:
            raise ApiError(409, "Conflict", "the object has been modified")
        return self.store(change(known))

    def deliver(self, apply: Callable[[], T]) -> None:
        with suppress(ApiError):  # refused
            apply()

    async def _call(self, apply: Callable[[], T]) -> T:
        fault = self.faults.pop(0) if self.faults else ANSWERED
        if fault == LOST:
            raise UnreachableError("no connection", sent=True)
        if fault == UNHEARD:
            self.deliver(apply)
            raise UnreachableError("connection reset", sent=True)
        if fault == DELAYED:
            self.delayed.append(lambda: self.deliver(apply))
            raise UnreachableError("timed out", sent=True)
        if fault == BUSY:
            raise ApiError(503, "ServiceUnavailable", "busy")
        if fault == CONFLICT:
            raise ApiError(409, "Conflict", "the object has been modified")
        return apply()

    # -- VolumeWriter

    async def bind_volume(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> PersistentVolume:
        def change(known: PersistentVolume) -> PersistentVolume:
            return replace(
                known,
                spec=replace(
                    known.spec, claim_ref=ObjectReference.to_version(claim.metadata, "PersistentVolumeClaim")
                ),
            )

        return await self._call(lambda: self.change(volume, change))

    async def select_node(self, claim: PersistentVolumeClaim, node: str) -> PersistentVolumeClaim:
        return await self._call(
            lambda: self.change(claim, lambda known: annotated(known, SELECTED_NODE, node))
        )

    async def fence_volume(self, volume: PersistentVolume) -> PersistentVolume | None:
        return await self._fence(volume)

    async def fence_volume_claim(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim | None:
        return await self._fence(claim)

    async def _fence(self, target: T) -> T:
        self._fences += 1
        value = str(self._fences)
        return await self._call(
            lambda: self.change(target, lambda known: annotated(known, "fence", value), checked=False)
        )

    async def read_volume(self, volume: PersistentVolume) -> PersistentVolume | None:
        return self.volume(volume.metadata.name)

    async def read_volume_claim(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim | None:
        return self.volume_claim(*claim.metadata.key)

    async def pause(self, attempt: int, error: ApiError) -> None:
        pass

    # -- VolumeCluster

    def node(self, name: str) -> Node | None:
        return self.nodes.get(name)

    def volume(self, name: str) -> PersistentVolume | None:
        return self.things.get(("", name))

    def volume_claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None:
        return self.things.get((namespace, name))

    def has_pod(self, pod: Pod) -> bool:
        return self.pods.get(pod.metadata.name) == pod.metadata.uid

    async def wait_for(
        self, names: Collection[tuple[str, str]], check: Callable[[], bool | str], timeout_ms: int
    ) -> bool | str:
        assert set(names) <= set(self.things) | {("default", "gone")}
        return check()


def annotated(thing: T, key: str, value: str) -> T:
    meta = thing.metadata
    return replace(thing, metadata=replace(meta, annotations={**meta.annotations, key: value}))


DATA, MORE = claim("data", storage_class="local", size="1Gi"), claim("more", storage_class="fast", size="1Gi")
VOLUME = static_volume("v", host="n")


def make_binder(api: FaultyApi) -> VolumeBinder:
    volumes = PodVolumes(
        (StaticBinding(api.things["", "v"], api.things["default", "data"]),),
        (DynamicProvision(api.things["default", "more"]),),
    )
    one = pod("p", volumes=using("data", "more"))
    placement = Placement(PodInfo(one, (), PodResourcesOptions()), 0, "n", volumes=volumes)
    writer: BindingWriter = api  # type: ignore[assignment]
    return VolumeBinder(placement, writer, api, api)


def written(api: FaultyApi) -> tuple[bool, bool]:
    """Return whether the volume refers to the claim, and whether the other claim has its node."""
    return api.things["", "v"].is_bound_to(DATA), api.things["default", "more"].selected_node == "n"


faults = st.lists(st.sampled_from(range(6)), max_size=12).map(tuple)


@given(given_faults=faults)
@settings(max_examples=examples(400))
def test_no_write_is_applied_after_the_binding_has_ended(given_faults: tuple[int, ...]) -> None:
    api = FaultyApi(DATA, MORE, VOLUME, faults=given_faults)
    failed = asyncio.run(make_binder(api).write())
    before = written(api)
    if failed is None:
        assert before == (True, True)
    for deliver in api.delayed:
        deliver()
    assert written(api) == before


@given(given_faults=faults)
@settings(max_examples=examples(100))
def test_after_a_fence_no_write_is_applied(given_faults: tuple[int, ...]) -> None:
    api = FaultyApi(DATA, MORE, VOLUME)
    binder = make_binder(api)
    first = api.things["", "v"]
    api.delayed.append(lambda: api.deliver(lambda: api.change(first, lambda known: bound_to(known, MORE))))
    api.faults = [fault for fault in given_faults if fault != CONFLICT]
    asyncio.run(binder.fence())
    for deliver in api.delayed:
        deliver()
    assert written(api) == (False, False)
    assert not api.things["", "v"].is_bound_to(MORE)


def bound_to(volume: PersistentVolume, owner: PersistentVolumeClaim) -> PersistentVolume:
    return replace(
        volume,
        spec=replace(
            volume.spec, claim_ref=ObjectReference.to_version(owner.metadata, "PersistentVolumeClaim")
        ),
    )


def test_what_is_written_already_is_not_written_again() -> None:
    api = FaultyApi(annotated(MORE, SELECTED_NODE, "n"), DATA, bound_to(VOLUME, DATA))
    assert asyncio.run(make_binder(api).write()) is None
    assert api.version == 1


def test_a_conflict_ends_the_attempt() -> None:
    api = FaultyApi(DATA, MORE, VOLUME, faults=(CONFLICT,))
    failed = asyncio.run(make_binder(api).write())
    assert failed is not None
    assert failed.error == PREFIX + "the object has been modified"
    assert written(api) == (False, False)


# -- the end of the wait


def complete(api: FaultyApi) -> None:
    """Let the volume controller and the provisioner do their part."""
    api.store(bound_to(api.things["", "v"], DATA))
    new = static_volume("new", host="n", claimed_by=MORE)
    api.things["", "new"] = new
    for name, volume in (("data", "v"), ("more", "new")):
        known = annotated(api.things["default", name], BIND_COMPLETED, "yes")
        api.store(replace(known, spec=replace(known.spec, volume_name=volume)))


def without(thing: PersistentVolumeClaim, key: str, **others: str) -> PersistentVolumeClaim:
    annotations = {name: value for name, value in thing.metadata.annotations.items() if name != key} | others
    return replace(thing, metadata=replace(thing.metadata, annotations=annotations))


def test_the_wait_ends_when_all_claims_are_bound() -> None:
    api = FaultyApi(DATA, MORE, VOLUME)
    binder = make_binder(api)
    assert asyncio.run(binder.write()) is None
    assert binder.check() is False
    complete(api)
    assert binder.check() is True
    assert asyncio.run(binder.wait_until_bound()) is None
    del api.things["", "new"]  # known later than the claim
    assert binder.check() is False


def far_away(api: FaultyApi) -> None:
    api.things["", "new"] = static_volume("new", host="m", claimed_by=MORE)


def reset_reference(api: FaultyApi) -> None:
    api.things["", "v"] = VOLUME


def fail_provisioning(api: FaultyApi) -> None:
    known = api.things["default", "more"]
    api.things["default", "more"] = without(known, SELECTED_NODE, other="kept")


def drop_annotations(api: FaultyApi) -> None:
    known = api.things["default", "more"]
    api.things["default", "more"] = replace(known, metadata=replace(known.metadata, annotations={}))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (far_away, 'pv "new" node affinity doesn\'t match node "n": no matching NodeSelectorTerms'),
        (reset_reference, 'ClaimRef got reset for pv "v"'),
        (fail_provisioning, 'provisioning failed for PVC "more"'),
        (drop_annotations, 'selectedNode annotation reset for PVC "more"'),
        (lambda api: api.things.pop(("", "v")), 'failed to check binding: persistentvolumes "v" not found'),
        (
            lambda api: api.things.pop(("default", "data")),
            'failed to check binding: persistentvolumeclaims "default/data" not found',
        ),
        (
            lambda api: api.things.pop(("default", "more")),
            'failed to check provisioning pvc: persistentvolumeclaims "default/more" not found',
        ),
        (lambda api: api.pods.clear(), 'pod does not exist any more: pod "p" not found'),
        (lambda api: api.pods.update(p="uid-other"), 'pod does not exist any more: pod "p" not found'),
        (lambda api: api.nodes.clear(), 'failed to get node "n": node "n" not found'),
    ],
)
def test_the_wait_ends_when_binding_was_given_up(change: Callable[[FaultyApi], object], problem: str) -> None:
    api = FaultyApi(DATA, MORE, VOLUME)
    binder = make_binder(api)
    assert asyncio.run(binder.write()) is None
    complete(api)
    change(api)
    assert binder.check() == problem


def test_a_volume_of_another_claim_is_never_taken() -> None:
    api = FaultyApi(DATA, MORE, VOLUME)
    binder = make_binder(api)
    api.store(bound_to(api.things["", "v"], claim("rival")))
    failed = asyncio.run(binder.write())
    assert failed is not None
    assert api.things["", "v"].is_bound_to(claim("rival"))


def test_the_time_limit() -> None:
    api = FaultyApi(DATA, MORE, VOLUME)
    binder = make_binder(api)
    assert asyncio.run(binder.write()) is None
    failed = asyncio.run(binder.wait_until_bound())
    assert failed is not None
    assert failed.error == PREFIX + "binding volumes: context deadline exceeded"


# -- takeover


def test_claims_that_a_previous_leader_may_still_write_to() -> None:
    known = {
        "waiting": claim("waiting", storage_class="fast"),
        "selected": claim("selected", storage_class="fast", selected_node="n"),
        "bound": claim("bound", "v"),
    }
    every = list(known.values())
    pods = [pod("p", volumes=using(*known)), pod("q", node="n", volumes=using(*known)), pod("r")]
    assert find_volume_targets(pods, lambda one: every if one.spec.volumes else []) == [known["waiting"]]
