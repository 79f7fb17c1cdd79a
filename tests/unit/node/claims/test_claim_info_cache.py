"""Claim info cache: results for pods, calls to drivers, and the checkpoint."""

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
from plimsoll.common.checkpoint import read_boot_id
from plimsoll.errors import StateError
from plimsoll.node.claim_info import PreparedDevice
from plimsoll.node.claims.claim_info_cache import ClaimInfoCache
from plimsoll.node.layout import Layout
from tests.unit.node.claims.fake_drivers import GPU, NIC, FakeDrivers, cdi_of, make_claim, make_pod, on_disk


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


@pytest.fixture
def fake_drivers() -> FakeDrivers:
    return FakeDrivers()


def disk(layout: Layout) -> tuple[object, ...]:
    return tuple(sorted(on_disk(layout).values(), key=lambda claim: claim.ref.uid))


def memory(cache: ClaimInfoCache) -> tuple[object, ...]:
    return tuple(sorted(cache.claims(), key=lambda claim: claim.ref.uid))


async def test_a_pod_gets_its_claims_prepared(layout: Layout, fake_drivers: FakeDrivers) -> None:
    fake_drivers.add(make_claim("a", GPU, users=["p"]), make_claim("b", GPU, NIC, users=["p"]))
    pod = make_pod("p", "a", "b")
    cache = ClaimInfoCache.open(layout, fake_drivers)
    assert cache.claims_of_container(pod, pod.spec.containers[0]) is None
    assert await cache.prepare(pod, fake_drivers.named("a", "b")) == ()
    # All claims of one driver in one call.
    assert fake_drivers.calls == [("prepare", GPU, ("uid-a", "uid-b")), ("prepare", NIC, ("uid-b",))]
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
    assert await cache.prepare(pod, fake_drivers.named("a", "b")) == ()
    assert len(fake_drivers.calls) == 2

    assert await cache.unprepare("p") == ()
    assert fake_drivers.calls[2:] == [
        ("unprepare", GPU, ("uid-a", "uid-b")),
        ("unprepare", NIC, ("uid-b",)),
    ]
    assert cache.claims() == disk(layout) == ()
    assert await cache.unprepare("p") == ()
    assert len(fake_drivers.calls) == 4


async def test_a_shared_claim_is_prepared_once(layout: Layout, fake_drivers: FakeDrivers) -> None:
    fake_drivers.add(make_claim("a", users=["p", "q"]))
    cache = ClaimInfoCache.open(layout, fake_drivers)
    pods = make_pod("p", "a"), make_pod("q", "a")
    answers = await asyncio.gather(*(cache.prepare(pod, fake_drivers.named("a")) for pod in pods))
    assert answers == [(), ()]
    assert fake_drivers.calls == [("prepare", GPU, ("uid-a",))]
    assert cache.claims()[0].pods == {"p", "q"}
    assert await cache.unprepare("p") == ()
    assert len(fake_drivers.calls) == 1
    assert cache.claims_of_pod("p") == ()
    assert len(cache.claims_of_pod("q")) == 1
    assert disk(layout) == memory(cache)
    assert await cache.unprepare("q") == ()
    assert fake_drivers.calls[1:] == [("unprepare", GPU, ("uid-a",))]
    assert not len(cache.locks)


async def test_prepared_claims_are_not_prepared_again_after_an_agent_restart(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    fake_drivers.add(make_claim("a", GPU, NIC, users=["p", "q"]))
    cache = ClaimInfoCache.open(layout, fake_drivers)
    await cache.prepare(make_pod("p", "a"), fake_drivers.named("a"))
    fake_drivers.calls.clear()
    again = ClaimInfoCache.open(layout, fake_drivers)
    assert memory(again) == memory(cache)
    assert again.findings == ()
    assert await again.prepare(make_pod("p", "a"), fake_drivers.named("a")) == ()
    assert await again.prepare(make_pod("q", "a"), fake_drivers.named("a")) == ()
    assert fake_drivers.calls == []
    assert again.claims()[0].pods == {"p", "q"}


async def test_claims_are_prepared_again_after_a_reboot(layout: Layout, fake_drivers: FakeDrivers) -> None:
    fake_drivers.add(make_claim("a", GPU, NIC, users=["p"]))
    pod = make_pod("p", "a")
    cache = ClaimInfoCache.open(layout, fake_drivers, boot="one")
    await cache.prepare(pod, fake_drivers.named("a"))
    for unknown in ("one", ""):
        assert ClaimInfoCache.open(layout, fake_drivers, boot=unknown).claims() == cache.claims()
    fake_drivers.held.clear()
    fake_drivers.calls.clear()
    again = ClaimInfoCache.open(layout, fake_drivers, boot="two")
    (finding,) = again.findings
    assert finding.what == "the machine was rebooted: 1 checkpointed claims are prepared again"
    assert not again.claims()[0].ready
    assert await again.prepare(pod, fake_drivers.named("a")) == ()
    assert len(fake_drivers.calls) == 2
    assert again.claims() == cache.claims()
    third = ClaimInfoCache.open(layout, fake_drivers, boot="two")
    assert third.claims() == cache.claims()
    assert third.findings == ()
    # No pod came back for it: it is still released.
    fourth = ClaimInfoCache.open(layout, fake_drivers, boot="three")
    assert await fourth.reconcile([]) == ()
    assert fourth.claims() == ()


async def test_device_lists_of_drivers_are_bounded(layout: Layout, fake_drivers: FakeDrivers) -> None:
    fake_drivers.add(make_claim("a", users=["p"]), make_claim("b", users=["p"]))
    names = tuple(f"v/c={'x' * 500}{number}" for number in range(200))
    fake_drivers.answers[GPU, "uid-a"] = (PreparedDevice("node", "a-dev", (), names),)
    cache = ClaimInfoCache.open(layout, fake_drivers)
    (fault,) = await cache.prepare(make_pod("p", "a", "b"), fake_drivers.named("a", "b"))
    assert (fault.claim, fault.code) == ("a", "malformed")
    assert "more than 65536 bytes" in fault.message
    assert {claim.ref.name: claim.ready for claim in cache.claims()} == {"a": False, "b": True}


async def test_after_a_partial_failure_only_failed_claims_are_prepared_again(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    fake_drivers.add(make_claim("a", GPU, NIC, users=["p"]), make_claim("b", NIC, users=["p"]))
    fake_drivers.faults[("prepare", NIC, "uid-a")] = "refused"
    pod = make_pod("p", "a", "b")
    cache = ClaimInfoCache.open(layout, fake_drivers)
    (fault,) = await cache.prepare(pod, fake_drivers.named("a", "b"))
    assert (fault.claim, fault.code, fault.driver) == ("a", "refused", NIC)
    assert fault.message == "NodePrepareResources failed for ResourceClaim a: refused!"
    with pytest.raises(StateError, match="ResourceClaim a is not prepared"):
        cache.cdi_ids(pod, pod.spec.containers[0])
    ready = {claim.ref.name: claim.ready for claim in cache.claims()}
    assert ready == {"a": False, "b": True}
    fake_drivers.calls.clear()
    fake_drivers.faults.clear()
    again = ClaimInfoCache.open(layout, fake_drivers)
    assert await again.prepare(pod, fake_drivers.named("a", "b")) == ()
    assert fake_drivers.calls == [("prepare", NIC, ("uid-a",))]


@pytest.mark.parametrize("kind", ["timeout", "skipped", "malformed", "broken", "refused"])
async def test_every_driver_that_may_hold_a_claim_unprepares_it(
    layout: Layout, fake_drivers: FakeDrivers, kind: str
) -> None:
    fake_drivers.add(make_claim("a", users=["p"]))
    fake_drivers.faults[("prepare", GPU)] = kind
    cache = ClaimInfoCache.open(layout, fake_drivers)
    (fault,) = await cache.prepare(make_pod("p", "a"), fake_drivers.named("a"))
    assert fault.code == kind
    assert await cache.unprepare("p") == ()
    assert fake_drivers.calls[-1] == ("unprepare", GPU, ("uid-a",))
    assert not fake_drivers.held.get(GPU)


async def test_a_pod_whose_driver_never_registered_can_be_deleted(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    fake_drivers.add(make_claim("a", users=["p"]))
    fake_drivers.absent.add(GPU)
    cache = ClaimInfoCache.open(layout, fake_drivers)
    (fault,) = await cache.prepare(make_pod("p", "a"), fake_drivers.named("a"))
    assert fault.code == "absent"
    assert ClaimInfoCache.open(layout, fake_drivers).claims() == cache.claims()
    assert await cache.unprepare("p") == ()
    assert cache.claims() == ()
    assert [call[0] for call in fake_drivers.calls] == ["prepare"]


async def test_unprepare_waits_for_a_driver_that_disconnected(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    fake_drivers.add(make_claim("a", users=["p"]))
    fake_drivers.faults["prepare", GPU] = "timeout"
    cache = ClaimInfoCache.open(layout, fake_drivers)
    for absent in (False, True, True):
        fake_drivers.absent = {GPU} if absent else set()
        (fault,) = await cache.prepare(make_pod("p", "a"), fake_drivers.named("a"))
        assert fault.code == ("absent" if absent else "timeout")
        assert cache.claims()[0].pending == {GPU}
    assert [fault.code for fault in await cache.unprepare("p")] == ["absent"]
    fake_drivers.absent.clear()
    assert await cache.unprepare("p") == ()
    assert not fake_drivers.held[GPU]


async def test_claims_that_a_driver_fails_to_unprepare_stay_in_the_cache(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    fake_drivers.add(make_claim("a", GPU, NIC, users=["p", "q"]))
    cache = ClaimInfoCache.open(layout, fake_drivers)
    await cache.prepare(make_pod("p", "a"), fake_drivers.named("a"))
    fake_drivers.absent.add(NIC)
    (fault,) = await cache.unprepare("p")
    assert (fault.code, fault.driver) == ("absent", NIC)
    fake_drivers.calls.clear()
    (fault,) = await cache.reconcile([])
    assert fake_drivers.calls == [("unprepare", NIC, ("uid-a",))]
    # Another pod needs it in the meantime: both drivers prepare it again.
    fake_drivers.absent.clear()
    fake_drivers.calls.clear()
    assert await cache.prepare(make_pod("q", "a"), fake_drivers.named("a")) == ()
    assert fake_drivers.calls == [("prepare", GPU, ("uid-a",)), ("prepare", NIC, ("uid-a",))]
    assert await cache.reconcile(["q"]) == ()
    assert cache.claims()[0].pods == {"q"}
    assert await cache.reconcile([]) == ()
    assert cache.claims() == ()
    assert not any(fake_drivers.held.values())


async def test_reconcile_unprepares_claims_of_deleted_pods_in_one_call(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    names = [f"c{number}" for number in range(5)]
    fake_drivers.add(*(make_claim(name, users=[f"p{name}"]) for name in names))
    cache = ClaimInfoCache.open(layout, fake_drivers)
    for name in names:
        await cache.prepare(make_pod(f"p{name}", name), fake_drivers.named(name))
    fake_drivers.calls.clear()
    assert await cache.reconcile(["pc0"]) == ()
    assert fake_drivers.calls == [("unprepare", GPU, tuple(f"uid-{name}" for name in names[1:]))]
    assert [claim.ref.name for claim in cache.claims()] == ["c0"]
    revision = cache.revision
    assert await cache.reconcile(["pc0"]) == ()
    assert cache.revision == revision


async def test_an_earlier_allocation_has_to_be_released_first(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    first, second = make_claim("a", GPU, users=["p"]), make_claim("a", NIC, users=["q"])
    moved = make_claim(
        "a", users=["q"], results=[DeviceRequestAllocationResult(driver=GPU, pool="node", device="other")]
    )
    fake_drivers.add(first)
    cache = ClaimInfoCache.open(layout, fake_drivers)
    assert await cache.prepare(make_pod("p", "a"), {"a": first}) == ()
    for claim in (second, moved):
        (fault,) = await cache.prepare(make_pod("q", "a"), {"a": claim})
        assert (fault.code, fault.driver) == ("Reallocated", GPU)
    assert await cache.reconcile(["q"]) == ()
    fake_drivers.add(second)
    assert await cache.prepare(make_pod("q", "a"), {"a": second}) == ()
    assert fake_drivers.held == {GPU: set(), NIC: {"uid-a"}}


def device(pool: str = "node", name: str = "d", share: str | None = None) -> PreparedDevice:
    return PreparedDevice(pool, name, (), (), share)


@pytest.mark.parametrize(
    "answer",
    [device(name="e"), device(pool="other"), device(share="s2"), device(name=""), device(pool="", name="")],
)
async def test_devices_of_another_driver_are_refused(
    layout: Layout, fake_drivers: FakeDrivers, answer: PreparedDevice
) -> None:
    mine = DeviceRequestAllocationResult(request="r", driver=GPU, pool="node", device="d", share_id="s1")
    nic = DeviceRequestAllocationResult(request="r", driver=NIC, pool="node", device="e")
    fake_drivers.add(make_claim("a", users=["p"], results=[mine, nic]))
    fake_drivers.answers[GPU, "uid-a"] = (device(share="s1"), answer)
    cache = ClaimInfoCache.open(layout, fake_drivers)
    (fault,) = await cache.prepare(make_pod("p", "a"), fake_drivers.named("a"))
    assert (fault.code, fault.driver) == ("malformed", GPU)
    assert "not allocated" in fault.message
    assert not cache.claims()[0].ready
    assert await cache.unprepare("p") == ()
    assert not any(fake_drivers.held.values())


async def test_share_ids_and_devices_may_be_missing_in_the_response(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    mine = DeviceRequestAllocationResult(
        driver=GPU, pool="node", device="d", share_id="s1", admin_access=True
    )
    fake_drivers.add(make_claim("a", users=["p"], results=[mine]))
    fake_drivers.add(make_claim("b", users=["p"]), make_claim("none", users=["p"], results=[]))
    fake_drivers.answers[GPU, "uid-a"] = (device(), device(share="s1"))
    fake_drivers.answers[GPU, "uid-b"] = ()
    cache = ClaimInfoCache.open(layout, fake_drivers)
    pod = make_pod("p", "a", "b", "none")
    assert await cache.prepare(pod, fake_drivers.named("a", "b", "none")) == ()
    assert all(claim.ready for claim in cache.claims())
    assert ClaimInfoCache.open(layout, fake_drivers).claims() == tuple(
        sorted(cache.claims(), key=lambda claim: claim.ref.uid)
    )
    assert await cache.unprepare("p") == ()


async def test_cdi_devices_are_unique_and_ordered(layout: Layout, fake_drivers: FakeDrivers) -> None:
    results = [
        DeviceRequestAllocationResult(request=name, driver=GPU, pool="node", device=f"d{name}")
        for name in ("x", "y", "z")
    ]
    fake_drivers.add(make_claim("a", users=["p"], results=results))
    fake_drivers.answers[GPU, "uid-a"] = (
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
    cache = ClaimInfoCache.open(layout, fake_drivers)
    assert await cache.prepare(pod, fake_drivers.named("a")) == ()
    x, yx, everything, nothing = (cache.cdi_ids(pod, each) for each in pod.spec.containers)
    assert x == ("v/c=x", "v/c=all", "v/c=z")
    assert yx == ("v/c=all", "v/c=y", "v/c=z", "v/c=x")
    assert everything == ("v/c=x", "v/c=all", "v/c=y", "v/c=z")
    assert nothing == ()
    assert cache.claims_of_container(pod, pod.spec.containers[3]) == ()


async def test_claims_for_extended_resources_follow_their_mappings(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    results = [
        DeviceRequestAllocationResult(request=f"r{n}", driver=GPU, pool="node", device=f"d{n}")
        for n in range(2)
    ]
    fake_drivers.add(make_claim("made", users=["p"], results=results))
    fake_drivers.answers[GPU, "uid-made"] = tuple(
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
    cache = ClaimInfoCache.open(layout, fake_drivers)
    first, second, unasked, other = pod.spec.containers
    assert cache.claims_of_container(pod, first) is None
    assert cache.claims_of_container(pod, other) == ()
    assert await cache.prepare(pod, {"": fake_drivers.claims["uid-made"]}) == ()
    assert cache.cdi_ids(pod, first) == ("v/c=0",)
    assert cache.cdi_ids(pod, second) == ("v/c=1",)
    assert cache.cdi_ids(pod, unasked) == cache.cdi_ids(pod, other) == ()
    assert [len(cache.claims_of_container(pod, each) or ()) for each in pod.spec.containers] == [
        1,
        1,
        1,
        0,
    ]
    assert await cache.unprepare("p") == ()
    assert cache.claims() == ()


async def test_without_a_checkpoint_nothing_is_written(layout: Layout, fake_drivers: FakeDrivers) -> None:
    fake_drivers.add(make_claim("a", users=["p"]))
    cache = ClaimInfoCache.open(layout, fake_drivers, save=False)
    assert await cache.prepare(make_pod("p", "a"), fake_drivers.named("a")) == ()
    assert await cache.unprepare("p") == ()
    assert list(layout.root.iterdir()) == []


def test_the_checkpoint_is_readable_json(layout: Layout, fake_drivers: FakeDrivers) -> None:
    fake_drivers.add(
        make_claim(
            "a",
            users=["p"],
            results=[
                DeviceRequestAllocationResult(request="r", driver=GPU, pool="node", device="d", share_id="s")
            ],
        )
    )

    async def scenario() -> None:
        await ClaimInfoCache.open(layout, fake_drivers).prepare(make_pod("p", "a"), fake_drivers.named("a"))

    asyncio.run(scenario())
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


def skipping(name: str, *operations: str, driver: str = GPU) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(
        request="r", driver=driver, pool="node", device=name, skip_node_operations=operations
    )


@pytest.mark.parametrize(
    ("operations", "calls"),
    [
        ([("*",), ("*",)], []),
        ([("NodePrepareResources", "NodeUnprepareResources"), ("*",)], []),
        ([("NodeUnprepareResources",), ("*",)], ["prepare"]),
        ([("*",), ()], ["prepare", "unprepare"]),
        ([("FutureOperation",), ("*",)], ["prepare", "unprepare"]),
    ],
)
def test_calls_that_all_devices_of_a_driver_skip_are_not_made(
    layout: Layout, fake_drivers: FakeDrivers, operations: list[tuple[str, ...]], calls: list[str]
) -> None:
    results = [skipping(f"d{number}", *each) for number, each in enumerate(operations)]
    results.append(skipping("n0", driver=NIC))
    fake_drivers.add(make_claim("a", users=["p"], results=results))
    pod = make_pod("p", "a")

    async def scenario() -> None:
        cache = ClaimInfoCache.open(layout, fake_drivers, optional_operations=True)
        assert await cache.prepare(pod, fake_drivers.named("a")) == ()
        assert all(claim.ready for claim in cache.claims())
        assert disk(layout) == memory(cache)
        # The operations are those of the time of allocation, also after a restart.
        again = ClaimInfoCache.open(layout, fake_drivers, optional_operations=True)
        assert await again.unprepare("p") == ()
        assert again.claims() == ()

    asyncio.run(scenario())
    assert [call for call, driver, _ in fake_drivers.calls if driver == GPU] == calls
    assert [call for call, driver, _ in fake_drivers.calls if driver == NIC] == ["prepare", "unprepare"]


def test_a_driver_that_skips_every_call_need_not_be_registered(layout: Layout) -> None:
    drivers = FakeDrivers()
    drivers.add(make_claim("a", users=["p"], results=[skipping("d0", "*", driver="absent.example.com")]))

    async def scenario() -> None:
        cache = ClaimInfoCache.open(layout, drivers, optional_operations=True)
        assert await cache.prepare(make_pod("p", "a"), drivers.named("a")) == ()
        assert await cache.unprepare("p") == ()

    asyncio.run(scenario())
    assert drivers.calls == []


def test_without_the_gate_a_claim_that_skips_calls_is_refused(
    layout: Layout, fake_drivers: FakeDrivers
) -> None:
    fake_drivers.add(make_claim("a", users=["p"], results=[skipping("d0", "*")]))

    async def scenario() -> None:
        cache = ClaimInfoCache.open(layout, fake_drivers)
        (fault,) = await cache.prepare(make_pod("p", "a"), fake_drivers.named("a"))
        assert (
            fault.message == "ResourceClaim a: DRAOptionalNodeOperations feature gate is disabled on kubelet"
        )

    asyncio.run(scenario())
    assert fake_drivers.calls == []
