"""The deliberate differences from upstream, each beside what upstream does."""

from __future__ import annotations

import pytest

from plimsoll.api.forms import Form
from plimsoll.ledger.judge import Judgement
from plimsoll.ledger.profile import Profile
from plimsoll.ledger.status import with_charges
from plimsoll.ledger.texts import render_all
from plimsoll.ledger.verdict import Code
from tests.unit.ledger.books import (
    DRIVER,
    World,
    claim,
    container,
    device,
    piece,
    pod,
    result,
)

UPSTREAM = Profile.upstream_1_36()
OURS = Profile.default()
ONE = pod("p", container("a", "c", cpu="1"))


def charged(judged: Judgement) -> str:
    assert judged.bills is not None
    return str(judged.bills[0].charge.resources["cpu"].quantity)


@pytest.mark.parametrize(("profile", "amount"), [(UPSTREAM, "1"), (OURS, "2")])
def test_a_device_is_found_by_driver_pool_and_name(profile: Profile, amount: str) -> None:
    world = World(
        piece(device("d", cpu="1"), driver="x.example.com"),
        piece(device("d", cpu="2"), driver="y.example.com"),
        claims=[claim("c", result("d", "y.example.com"))],
        profile=profile,
    )
    assert charged(world.judge_placement(ONE, "c")) == amount


@pytest.mark.parametrize(("profile", "amount"), [(UPSTREAM, "1"), (OURS, "3")])
def test_the_newest_generation_on_the_node_counts(profile: Profile, amount: str) -> None:
    world = World(
        piece(device("d", cpu="1"), generation=1),
        piece(device("d", cpu="2"), generation=9, nodeName="another"),
        piece(device("d", cpu="3"), generation=2),
        claims=[claim("c", result("d"))],
        profile=profile,
    )
    assert charged(world.judge_placement(ONE, "c")) == amount


def test_an_exclusive_device_charges_its_whole_capacity() -> None:
    key = f"{DRIVER}/cpu"
    part = device("l3-0", capacity={key: "8"}, cpu={"capacityKey": key})

    def judged(profile: Profile, shared: bool = False) -> Judgement:
        one = {**part, "allowMultipleAllocations": shared}
        return World(piece(one), claims=[claim("c", result("l3-0"))], profile=profile).judge_placement(
            ONE, "c"
        )

    assert charged(judged(OURS)) == "8"
    text = (
        "claim default/c, device l3-0: ConsumedCapacity is nil, but Capacity key 'dra.example.com/cpu' "
        "is set in NodeAllocatableResourceMappings for resource cpu"
    )
    for refused in (judged(UPSTREAM), judged(OURS, shared=True)):
        assert (refused.verdict.code, render_all(refused.verdict)) == (Code.ERROR, (text,))
        assert refused.bills is None


def test_an_unreferenced_claim_is_charged_once() -> None:
    aside = pod("p", container("a", cpu="1"), claims=["c"])

    def judged(profile: Profile) -> Judgement:
        world = World(piece(device("d", cpu="4")), claims=[claim("c", result("d"))], profile=profile)
        return world.judge_placement(aside, "c")

    assert judged(OURS).demand == {"cpu": 5000}
    refused = judged(UPSTREAM).verdict
    assert refused.code is Code.UNRESOLVABLE
    assert render_all(refused) == (
        "claim c: node-allocatable resource claim not referenced by any container within the pod",
    )


@pytest.mark.parametrize(("profile", "fits"), [(UPSTREAM, True), (OURS, False)])
def test_a_claim_allocated_before_is_charged(profile: Profile, fits: bool) -> None:
    world = World(piece(device("d", cpu="6")), claims=[claim("c", result("d"))], profile=profile, cpu="8")
    judged = world.judge_placement(pod("p", container("a", "c", cpu="3")))
    assert judged.verdict.fits is fits
    assert len(judged.bills or ()) == (0 if fits else 1)


@pytest.mark.parametrize(("profile", "listed"), [(UPSTREAM, ("a", "a", "b")), (OURS, ("a", "b"))])
def test_a_container_is_listed_once(profile: Profile, listed: tuple[str, ...]) -> None:
    twice = container("a")
    twice["resources"]["claims"] = [{"name": "c", "request": "x"}, {"name": "c", "request": "y"}]
    world = World(piece(device("d", cpu="1")), claims=[claim("c", result("d"))], profile=profile)
    judged = world.judge_placement(pod("p", twice, container("b", "c")), "c")
    assert judged.bills is not None
    assert judged.bills[0].charge.containers == listed


@pytest.mark.parametrize(
    ("profile", "cost"), [(UPSTREAM, 5000), (Profile.upstream_1_37(), 5000), (OURS, 9000)]
)
def test_policies_need_the_default_profile(profile: Profile, cost: int) -> None:
    rule = {"allocationMultiplier": "4", "accountingPolicy": "AddPerReference"}
    world = World(piece(device("d", cpu=rule)), claims=[claim("c", result("d"))], profile=profile)
    judged = world.judge_placement(pod("p", container("a", "c", cpu="1"), container("b", "c")), "c")
    assert judged.demand == {"cpu": cost}


@pytest.mark.parametrize(("profile", "left"), [(UPSTREAM, 1000), (OURS, 5000)])
def test_charges_survive_a_server_that_drops_them(profile: Profile, left: int) -> None:
    world = World(piece(device("d", cpu="4")), claims=[claim("c", result("d"))], profile=profile)
    judged = world.judge_placement(ONE, "c")
    world.ledger.assume(ONE, judged.bills or ())
    world.ledger.add(ONE)  # the bound pod comes back without a word about claims
    assert world.cpu == left
    stored = with_charges(ONE, judged.bills or (), Form.V1_36).whole(Form.V1_36)
    world.ledger.update(stored)
    assert world.cpu == 5000
    assert world.ledger.verify() == []


def test_profiles_by_name() -> None:
    assert Profile.named("default") == OURS
    assert Profile.named("upstream-1.36") == UPSTREAM
    assert Profile.named("upstream-1.35") is None


# -- 1.37


def test_1_37_refuses_a_mapped_device_that_is_reserved_for_another_pod() -> None:
    world = World(
        piece(
            device("d", cpu="4"),
            device("o", fields={"nodeAllocatableResources": {"cpu": {"overhead": {"perPod": "1"}}}}),
        ),
        claims=[claim("c", result("d"), reserved=["uid-q"]), claim("o", result("o"), reserved=["uid-q"])],
        profile=Profile.upstream_1_37(),
    )
    refused = world.judge_placement(ONE).verdict
    assert refused.code is Code.UNRESOLVABLE
    assert render_all(refused) == (
        "node allocatable resource claim c has a mapped device and cannot be shared across pods",
    )
    overhead_only = world.judge_placement(pod("p", container("a", "o", cpu="1")))
    assert overhead_only.verdict.fits
    assert overhead_only.demand == {"cpu": 2000}
    world.claims["c"] = claim("c", result("d"), reserved=["uid-p", "uid-q"])
    assert world.judge_placement(ONE).verdict.fits


def test_1_37_holds_limits_against_the_pod_level_too() -> None:
    world = World(
        piece(device("d", cpu="4", hugepages_1Gi="2Gi")),
        claims=[claim("c", result("d"))],
        profile=Profile.upstream_1_37(),
        hugepages_1Gi="8Gi",
    )

    def texts(own: str, **limits: str) -> tuple[str, ...]:
        one = container("a", "c")
        one["resources"]["limits"] = {"cpu": own}
        level = {key.replace("_", "-"): text for key, text in limits.items()}
        return render_all(world.judge_placement(pod("p", one, resources={"limits": level})).verdict)

    assert texts("2", cpu="5") == (
        "pod level limit for cpu is insufficient to cover the limit and DRA overhead for container a",
    )
    assert texts("2", cpu="6") == ()
    assert texts("2", hugepages_1Gi="1Gi") == (
        "pod level limit for hugepages-1Gi is insufficient to cover "
        "the aggregated container and node-allocatable DRA limits",
    )
