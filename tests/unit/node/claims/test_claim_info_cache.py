"""The cache of claims: what pods get, what drivers are asked, what stays on the disk."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from plimsoll.api.core import (
    Container,
    ContainerClaim,
    ExtendedResourceClaimStatus,
    ExtendedResourceRequest,
    Pod,
    PodStatus,
    ResourceRequirements,
)
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceRequestAllocationResult
from plimsoll.errors import StateError
from plimsoll.node.claim_info import PreparedDevice
from plimsoll.node.claims.checkpoint import read_boot_id
from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.layout import Layout
from tests.unit.node.claims.world import GPU, NIC, World, cdi_of, make_claim, make_pod, on_disk


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


@pytest.fixture
def world() -> World:
    return World()


def disk(layout: Layout) -> tuple[object, ...]:
    return tuple(sorted(on_disk(layout).values(), key=lambda claim: claim.ref.uid))


def memory(cache: ClaimInfoCache) -> tuple[object, ...]:
    return tuple(sorted(cache.claims(), key=lambda claim: claim.ref.uid))


def test_a_pod_gets_its_claims_prepared(layout: Layout, world: World) -> None:
    world.add(make_claim("a", GPU, users=["p"]), make_claim("b", GPU, NIC, users=["p"]))
    pod = make_pod("p", "a", "b")

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        assert cache.claims_of_container(pod, pod.spec.containers[0]) is None
        assert await cache.prepare(pod, world.named("a", "b")) == ()
        # All claims of one driver in one call.
        assert world.calls == [("prepare", GPU, ("uid-a", "uid-b")), ("prepare", NIC, ("uid-b",))]
        assert cache.cdi_ids(pod, pod.spec.containers[0]) == (
            cdi_of(GPU, "uid-a"),
            cdi_of(GPU, "uid-b"),
            cdi_of(NIC, "uid-b"),
        )
        known = cache.claims_of_container(pod, pod.spec.containers[0])
        assert known is not None
        assert [claim.ref.name for claim in known] == ["a", "b"]
        assert all(claim.ready for claim in known)
        assert disk(layout) == memory(cache)
        assert cache.list_findings() == ()

        assert await cache.prepare(pod, world.named("a", "b")) == ()
        assert len(world.calls) == 2

        assert await cache.unprepare("p") == ()
        assert world.calls[2:] == [("unprepare", GPU, ("uid-a", "uid-b")), ("unprepare", NIC, ("uid-b",))]
        assert cache.claims() == disk(layout) == ()
        assert await cache.unprepare("p") == ()
        assert len(world.calls) == 4

    asyncio.run(story())


def test_a_shared_claim_is_prepared_once(layout: Layout, world: World) -> None:
    world.add(make_claim("a", users=["p", "q"]))

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        pods = make_pod("p", "a"), make_pod("q", "a")
        answers = await asyncio.gather(*(cache.prepare(pod, world.named("a")) for pod in pods))
        assert answers == [(), ()]
        assert world.calls == [("prepare", GPU, ("uid-a",))]
        assert cache.claims()[0].pods == {"p", "q"}
        assert await cache.unprepare("p") == ()
        assert len(world.calls) == 1
        assert cache.claims_of_pod("p") == ()
        assert len(cache.claims_of_pod("q")) == 1
        assert disk(layout) == memory(cache)
        assert await cache.unprepare("q") == ()
        assert world.calls[1:] == [("unprepare", GPU, ("uid-a",))]
        assert not len(cache._locks)

    asyncio.run(story())


def test_a_restart_asks_no_driver(layout: Layout, world: World) -> None:
    world.add(make_claim("a", GPU, NIC, users=["p", "q"]))

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        await cache.prepare(make_pod("p", "a"), world.named("a"))
        world.calls.clear()
        again = ClaimInfoCache.open(layout, world)
        assert memory(again) == memory(cache)
        assert again.findings == ()
        assert await again.prepare(make_pod("p", "a"), world.named("a")) == ()
        assert await again.prepare(make_pod("q", "a"), world.named("a")) == ()
        assert world.calls == []
        assert again.claims()[0].pods == {"p", "q"}

    asyncio.run(story())


def test_a_machine_that_was_started_anew(layout: Layout, world: World) -> None:
    world.add(make_claim("a", GPU, NIC, users=["p"]))
    pod = make_pod("p", "a")

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world, boot="one")
        await cache.prepare(pod, world.named("a"))
        for unknown in ("one", ""):
            assert ClaimInfoCache.open(layout, world, boot=unknown).claims() == cache.claims()
        world.held.clear()
        world.calls.clear()
        again = ClaimInfoCache.open(layout, world, boot="two")
        (finding,) = again.findings
        assert finding.what == "the machine was rebooted: 1 checkpointed claims are prepared again"
        assert not again.claims()[0].ready
        assert await again.prepare(pod, world.named("a")) == ()
        assert len(world.calls) == 2
        assert again.claims() == cache.claims()
        third = ClaimInfoCache.open(layout, world, boot="two")
        assert third.claims() == cache.claims()
        assert third.findings == ()
        # Nobody came back for it: it is released all the same.
        fourth = ClaimInfoCache.open(layout, world, boot="three")
        assert await fourth.reconcile([]) == ()
        assert fourth.claims() == ()

    asyncio.run(story())


def test_answers_are_bounded(layout: Layout, world: World) -> None:
    world.add(make_claim("a", users=["p"]), make_claim("b", users=["p"]))
    names = tuple(f"v/c={'x' * 500}{number}" for number in range(200))
    world.answers[GPU, "uid-a"] = (PreparedDevice("node", "a-dev", (), names),)

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        (fault,) = await cache.prepare(make_pod("p", "a", "b"), world.named("a", "b"))
        assert (fault.claim, fault.code) == ("a", "malformed")
        assert "more than 65536 bytes" in fault.message
        assert {claim.ref.name: claim.ready for claim in cache.claims()} == {"a": False, "b": True}

    asyncio.run(story())


def test_the_rest_is_asked_for_after_a_partial_failure(layout: Layout, world: World) -> None:
    world.add(make_claim("a", GPU, NIC, users=["p"]), make_claim("b", NIC, users=["p"]))
    world.faults[("prepare", NIC, "uid-a")] = "refused"
    pod = make_pod("p", "a", "b")

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        (fault,) = await cache.prepare(pod, world.named("a", "b"))
        assert (fault.claim, fault.code, fault.driver) == ("a", "refused", NIC)
        assert fault.message == "NodePrepareResources failed for ResourceClaim a: refused!"
        with pytest.raises(StateError, match="ResourceClaim a is not prepared"):
            cache.cdi_ids(pod, pod.spec.containers[0])
        ready = {claim.ref.name: claim.ready for claim in cache.claims()}
        assert ready == {"a": False, "b": True}
        (finding,) = cache.list_findings()
        assert NIC in finding.fix
        world.calls.clear()
        world.faults.clear()
        again = ClaimInfoCache.open(layout, world)
        assert await again.prepare(pod, world.named("a", "b")) == ()
        assert world.calls == [("prepare", NIC, ("uid-a",))]

    asyncio.run(story())


@pytest.mark.parametrize("kind", ["timeout", "skipped", "malformed", "broken", "refused"])
def test_whoever_may_hold_a_claim_is_asked_to_let_go(layout: Layout, world: World, kind: str) -> None:
    world.add(make_claim("a", users=["p"]))
    world.faults[("prepare", GPU)] = kind

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        (fault,) = await cache.prepare(make_pod("p", "a"), world.named("a"))
        assert fault.code == kind
        assert await cache.unprepare("p") == ()
        assert world.calls[-1] == ("unprepare", GPU, ("uid-a",))
        assert not world.held.get(GPU)

    asyncio.run(story())


def test_a_pod_whose_driver_never_came_can_be_deleted(layout: Layout, world: World) -> None:
    world.add(make_claim("a", users=["p"]))
    world.absent.add(GPU)

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        (fault,) = await cache.prepare(make_pod("p", "a"), world.named("a"))
        assert fault.code == "absent"
        assert ClaimInfoCache.open(layout, world).claims() == cache.claims()
        assert await cache.unprepare("p") == ()
        assert cache.claims() == ()
        assert [call[0] for call in world.calls] == ["prepare"]

    asyncio.run(story())


def test_a_driver_that_went_away_with_a_claim_is_not_forgotten(layout: Layout, world: World) -> None:
    world.add(make_claim("a", users=["p"]))
    world.faults["prepare", GPU] = "timeout"

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        for absent in (False, True, True):
            world.absent = {GPU} if absent else set()
            (fault,) = await cache.prepare(make_pod("p", "a"), world.named("a"))
            assert fault.code == ("absent" if absent else "timeout")
            assert cache.claims()[0].pending == {GPU}
        assert [fault.code for fault in await cache.unprepare("p")] == ["absent"]
        world.absent.clear()
        assert await cache.unprepare("p") == ()
        assert not world.held[GPU]

    asyncio.run(story())


def test_what_a_driver_keeps_stays_in_the_book(layout: Layout, world: World) -> None:
    world.add(make_claim("a", GPU, NIC, users=["p", "q"]))

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        await cache.prepare(make_pod("p", "a"), world.named("a"))
        world.absent.add(NIC)
        (fault,) = await cache.unprepare("p")
        assert (fault.code, fault.driver) == ("absent", NIC)
        world.calls.clear()
        (fault,) = await cache.reconcile([])
        assert world.calls == [("unprepare", NIC, ("uid-a",))]
        # Somebody else needs it in the meantime: the one who let go prepares it again, and so does the other.
        world.absent.clear()
        world.calls.clear()
        assert await cache.prepare(make_pod("q", "a"), world.named("a")) == ()
        assert world.calls == [("prepare", GPU, ("uid-a",)), ("prepare", NIC, ("uid-a",))]
        assert await cache.reconcile(["q"]) == ()
        assert cache.claims()[0].pods == {"q"}
        assert await cache.reconcile([]) == ()
        assert cache.claims() == ()
        assert not any(world.held.values())

    asyncio.run(story())


def test_reconcile_releases_what_vanished_in_one_call(layout: Layout, world: World) -> None:
    names = [f"c{number}" for number in range(5)]
    world.add(*(make_claim(name, users=[f"p{name}"]) for name in names))

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        for name in names:
            await cache.prepare(make_pod(f"p{name}", name), world.named(name))
        world.calls.clear()
        assert await cache.reconcile(["pc0"]) == ()
        assert world.calls == [("unprepare", GPU, tuple(f"uid-{name}" for name in names[1:]))]
        assert [claim.ref.name for claim in cache.claims()] == ["c0"]
        revision = cache.revision
        assert await cache.reconcile(["pc0"]) == ()
        assert cache.revision == revision

    asyncio.run(story())


def test_an_earlier_allocation_has_to_be_released_first(layout: Layout, world: World) -> None:
    first, second = make_claim("a", GPU, users=["p"]), make_claim("a", NIC, users=["q"])
    moved = make_claim(
        "a", users=["q"], results=[DeviceRequestAllocationResult(driver=GPU, pool="node", device="other")]
    )
    world.add(first)

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        assert await cache.prepare(make_pod("p", "a"), {"a": first}) == ()
        for claim in (second, moved):
            (fault,) = await cache.prepare(make_pod("q", "a"), {"a": claim})
            assert (fault.code, fault.driver) == ("Reallocated", GPU)
        assert await cache.reconcile(["q"]) == ()
        world.add(second)
        assert await cache.prepare(make_pod("q", "a"), {"a": second}) == ()
        assert world.held == {GPU: set(), NIC: {"uid-a"}}

    asyncio.run(story())


def device(pool: str = "node", name: str = "d", share: str | None = None) -> PreparedDevice:
    return PreparedDevice(pool, name, (), (), share)


@pytest.mark.parametrize(
    "answer",
    [device(name="e"), device(pool="other"), device(share="s2"), device(name=""), device(pool="", name="")],
)
def test_devices_of_others_are_refused(layout: Layout, world: World, answer: PreparedDevice) -> None:
    mine = DeviceRequestAllocationResult(request="r", driver=GPU, pool="node", device="d", share_id="s1")
    nic = DeviceRequestAllocationResult(request="r", driver=NIC, pool="node", device="e")
    world.add(make_claim("a", users=["p"], results=[mine, nic]))
    world.answers[GPU, "uid-a"] = (device(share="s1"), answer)

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        (fault,) = await cache.prepare(make_pod("p", "a"), world.named("a"))
        assert (fault.code, fault.driver) == ("malformed", GPU)
        assert "not allocated" in fault.message
        assert not cache.claims()[0].ready
        assert await cache.unprepare("p") == ()
        assert not any(world.held.values())

    asyncio.run(story())


def test_a_share_may_be_left_unnamed_and_devices_left_out(layout: Layout, world: World) -> None:
    mine = DeviceRequestAllocationResult(
        driver=GPU, pool="node", device="d", share_id="s1", admin_access=True
    )
    world.add(make_claim("a", users=["p"], results=[mine]))
    world.add(make_claim("b", users=["p"]), make_claim("none", users=["p"], results=[]))
    world.answers[GPU, "uid-a"] = (device(), device(share="s1"))
    world.answers[GPU, "uid-b"] = ()

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        pod = make_pod("p", "a", "b", "none")
        assert await cache.prepare(pod, world.named("a", "b", "none")) == ()
        assert all(claim.ready for claim in cache.claims())
        assert ClaimInfoCache.open(layout, world).claims() == tuple(
            sorted(cache.claims(), key=lambda claim: claim.ref.uid)
        )
        assert await cache.unprepare("p") == ()

    asyncio.run(story())


def test_cdi_devices_are_given_once_and_in_order(layout: Layout, world: World) -> None:
    results = [
        DeviceRequestAllocationResult(request=name, driver=GPU, pool="node", device=f"d{name}")
        for name in ("x", "y", "z")
    ]
    world.add(make_claim("a", users=["p"], results=results))
    world.answers[GPU, "uid-a"] = (
        PreparedDevice("node", "dx", ("x",), ("v/c=x", "v/c=all")),
        PreparedDevice("node", "dy", ("y",), ("v/c=all", "v/c=y")),
        PreparedDevice("node", "dz", (), ("v/c=z",)),
    )

    def container(name: str, *requests: str) -> Container:
        claims = tuple(ContainerClaim(name="a", request=request) for request in requests)
        return Container(name=name, resources=ResourceRequirements(claims=claims))

    pod = make_pod(
        "p",
        "a",
        containers=[container("x", "x"), container("yx", "y", "x"), container("all", ""), container("no")],
    )

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        assert await cache.prepare(pod, world.named("a")) == ()
        x, yx, everything, nothing = (cache.cdi_ids(pod, each) for each in pod.spec.containers)
        assert x == ("v/c=x", "v/c=all", "v/c=z")
        assert yx == ("v/c=all", "v/c=y", "v/c=z", "v/c=x")
        assert everything == ("v/c=x", "v/c=all", "v/c=y", "v/c=z")
        assert nothing == ()
        assert cache.claims_of_container(pod, pod.spec.containers[3]) == ()

    asyncio.run(story())


def test_claims_for_extended_resources_follow_their_mappings(layout: Layout, world: World) -> None:
    results = [
        DeviceRequestAllocationResult(request=f"r{n}", driver=GPU, pool="node", device=f"d{n}")
        for n in range(2)
    ]
    world.add(make_claim("made", users=["p"], results=results))
    world.answers[GPU, "uid-made"] = tuple(
        PreparedDevice("node", f"d{n}", (f"r{n}",), (f"v/c={n}",)) for n in range(2)
    )
    two = ResourceRequirements(requests={"example.com/gpu": Quantity.parse("1")})
    by_class = "deviceclass.resource.kubernetes.io/gpu"
    pod = make_pod(
        "p",
        containers=[
            Container(name="one", resources=two),
            Container(name="two", resources=ResourceRequirements(requests={by_class: Quantity.parse("1")})),
            Container(name="unasked"),
            Container(name="other", resources=two),
        ],
    )
    mappings = (
        ExtendedResourceRequest(container_name="one", resource_name="example.com/gpu", request_name="r0"),
        ExtendedResourceRequest(container_name="two", resource_name=by_class, request_name="r1"),
        ExtendedResourceRequest(container_name="unasked", resource_name="example.com/gpu", request_name="r0"),
    )
    status = ExtendedResourceClaimStatus(request_mappings=mappings, resource_claim_name="made")
    pod = Pod(metadata=pod.metadata, spec=pod.spec, status=PodStatus(extended_resource_claim_status=status))

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world)
        one, two, unasked, other = pod.spec.containers
        assert cache.claims_of_container(pod, one) is None
        assert cache.claims_of_container(pod, other) == ()
        assert await cache.prepare(pod, {"": world.claims["uid-made"]}) == ()
        assert cache.cdi_ids(pod, one) == ("v/c=0",)
        assert cache.cdi_ids(pod, two) == ("v/c=1",)
        assert cache.cdi_ids(pod, unasked) == cache.cdi_ids(pod, other) == ()
        assert [len(cache.claims_of_container(pod, each) or ()) for each in pod.spec.containers] == [
            1,
            1,
            1,
            0,
        ]
        assert await cache.unprepare("p") == ()
        assert cache.claims() == ()

    asyncio.run(story())


def test_without_saving_nothing_is_written(layout: Layout, world: World) -> None:
    world.add(make_claim("a", users=["p"]))

    async def story() -> None:
        cache = ClaimInfoCache.open(layout, world, save=False)
        assert await cache.prepare(make_pod("p", "a"), world.named("a")) == ()
        assert await cache.unprepare("p") == ()
        assert list(layout.root.iterdir()) == []

    asyncio.run(story())


def test_the_record_can_be_read(layout: Layout, world: World) -> None:
    world.add(
        make_claim(
            "a",
            users=["p"],
            results=[
                DeviceRequestAllocationResult(request="r", driver=GPU, pool="node", device="d", share_id="s")
            ],
        )
    )

    async def story() -> None:
        await ClaimInfoCache.open(layout, world).prepare(make_pod("p", "a"), world.named("a"))

    asyncio.run(story())
    tree = json.loads(layout.claims.read_text())
    assert (tree["kind"], tree["version"]) == ("PreparedClaims", 1)
    assert tree["body"].pop("boot") == read_boot_id()
    assert tree["body"] == {
        "claims": [
            {
                "namespace": "default",
                "name": "a",
                "uid": "uid-a",
                "ready": True,
                "pods": ["p"],
                "drivers": {
                    GPU: [
                        {
                            "pool": "node",
                            "device": "d",
                            "requests": ["r"],
                            "cdi": [cdi_of(GPU, "uid-a")],
                            "shareID": "s",
                        }
                    ]
                },
                "allocated": {GPU: [{"pool": "node", "device": "d", "shareID": "s"}]},
            }
        ]
    }
    assert layout.claims.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in layout.root.iterdir()] == ["claims.json"]
