"""Scheduling attempt of a pod group: all or nothing, joint search, topology domains, shared claims."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.scheduling import PodGroup
from plimsoll.scheduler.gang.cycle import GroupResult, schedule_group
from plimsoll.scheduler.gang.members import GangMessage, hold_reason
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.snapshot.verify import verify
from tests.build import DRIVER, claim, device, device_class, exactly, member, node, pod_group, resource_slice
from tests.sizes import examples
from tests.unit.scheduler.overdrafts import find_overdrafts
from tests.unit.scheduler.snapshots import snapshot_of

BIG = 'device.attributes["gpu.example.com"].size == "big"'


def attempt(group: PodGroup, members: Sequence[Pod], snapshot: Snapshot, **options: Any) -> GroupResult:
    numbers = itertools.count()
    before = snapshot.pod_keys(), len(snapshot.assumed)
    result = schedule_group(
        group,
        members,
        snapshot,
        lambda pod: SchedulerProfile.default(),
        lambda: f"share-{next(numbers)}",
        **options,
    )
    assert (snapshot.pod_keys(), len(snapshot.assumed)) == before, "the snapshot must be unchanged"
    assert verify(snapshot) == []
    for placement in result.placements:
        snapshot.assume(placement)
    assert find_overdrafts(snapshot) == []
    for placement in reversed(result.placements):
        snapshot.forget(placement.pod_info.key)
    return result


def nodes_of(result: GroupResult) -> dict[str, str]:
    return {each.pod_info.pod.metadata.name: each.node for each in result.placements}


def test_a_gang_is_placed_with_its_members_counted_together() -> None:
    snapshot = snapshot_of(node("a", cpu="2"), node("b", cpu="2"))
    members = [member(f"p{i}", cpu="1") for i in range(4)]
    result = attempt(pod_group(min_count=4), members, snapshot)
    assert result.is_scheduled
    assert sorted(nodes_of(result).values()) == ["a", "a", "b", "b"]
    assert not result.searched


def test_a_gang_that_does_not_fit_reports_how_many_members_fit() -> None:
    snapshot = snapshot_of(node("a", cpu="3"))
    members = [member(f"p{i}", cpu="1") for i in range(4)]
    result = attempt(pod_group(min_count=4), members, snapshot)
    assert not result.is_scheduled
    assert (len(result.placements), list(result.failures)) == (3, ["uid-p3"])


def test_members_beyond_the_minimum_are_placed_if_they_fit() -> None:
    snapshot = snapshot_of(node("a", cpu="3"))
    members = [member(f"p{i}", cpu="1") for i in range(4)]
    result = attempt(pod_group(min_count=2), members, snapshot)
    assert result.is_scheduled
    assert (len(result.placements), len(result.failures)) == (3, 1)


def test_scheduled_members_count() -> None:
    bound = member("old", cpu="1", node="a")
    snapshot = snapshot_of(node("a", cpu="2"), bound)
    result = attempt(pod_group(min_count=2), [member("p", cpu="1")], snapshot)
    assert (result.needed, result.is_scheduled) == (1, True)


def test_a_basic_group_places_what_fits() -> None:
    snapshot = snapshot_of(node("a", cpu="1"))
    members = [member("p0", cpu="1"), member("p1", cpu="1")]
    result = attempt(pod_group(), members, snapshot)
    assert (result.is_scheduled, len(result.placements)) == (True, 1)
    off = snapshot_of(node("a", cpu="1"), gates=Gates.of({"GangScheduling": False}))
    assert attempt(pod_group(min_count=2), members, off).is_scheduled


def test_a_gang_that_one_by_one_scheduling_misses_is_placed() -> None:
    # The scores send the small pod to the larger node, which the large pod needs.
    snapshot = snapshot_of(node("small", cpu="2"), node("large", cpu="4"))
    members = [member("p1", cpu="2"), member("p2", cpu="4")]
    result = attempt(pod_group(min_count=2), members, snapshot)
    assert nodes_of(result) == {"p1": "small", "p2": "large"}
    assert result.searched
    assert not attempt(pod_group(min_count=2), members, snapshot, steps=1).is_scheduled


def gpus(name: str, *sizes: str) -> list[Any]:
    devices = [device(f"{size}{i}", size=size) for i, size in enumerate(sizes)]
    return [node(name), resource_slice(devices, name)]


def test_devices_of_a_gang_are_searched_together() -> None:
    # Any device suits the first claim; the first one found is the big one that the second claim needs.
    objects = [*gpus("a", "big", "small"), device_class()]
    claims = [claim("any", exactly()), claim("big", exactly(select=BIG))]
    snapshot = snapshot_of(*objects, *claims)
    members = [member("p0", claims=["any"]), member("p1", claims=["big"])]
    result = attempt(pod_group(min_count=2), members, snapshot)
    assert {each.pod_info.pod.metadata.name: each.devices for each in result.placements} == {
        "p0": ("gpu.example.com/a/small1",),
        "p1": ("gpu.example.com/a/big0",),
    }


def test_members_that_share_a_claim_are_placed_together() -> None:
    objects = [*gpus("a", "big"), *gpus("b", "big"), device_class(), claim("c", exactly())]
    snapshot = snapshot_of(*objects)
    members = [member(f"p{i}", claims=["c"]) for i in range(3)]
    result = attempt(pod_group(min_count=3), members, snapshot)
    assert len(set(nodes_of(result).values())) == 1
    assert [bool(each.allocations) for each in result.placements] == [True, False, False]


def test_a_group_stays_in_one_domain() -> None:
    def rack(name: str, label: str, cpu: str) -> Any:
        return node(name, cpu=cpu, labels={"rack": label})

    snapshot = snapshot_of(rack("a", "r1", "2"), rack("b", "r2", "1"), rack("c", "r2", "3"), node("d"))
    members = [member(f"p{i}", cpu="1") for i in range(4)]
    result = attempt(pod_group(min_count=2, topology="rack"), members, snapshot)
    assert sorted(nodes_of(result).values()) == ["b", "c", "c", "c"]
    snapshot.set(member("old", cpu="1", node="a"))
    assert set(nodes_of(attempt(pod_group(topology="rack"), members, snapshot)).values()) == {"a"}
    off = snapshot_of(node("d"), gates=Gates.of({"TopologyAwareWorkloadScheduling": False}))
    assert set(nodes_of(attempt(pod_group(topology="rack"), members, off)).values()) == {"d"}


def test_a_topology_constraint_without_nodes() -> None:
    result = attempt(pod_group(min_count=1, topology="rack"), [member("p")], snapshot_of(node("a")))
    assert result.reason is not None
    assert result.reason.message is GangMessage.NO_DOMAIN


def test_members_with_several_scheduler_names_are_refused() -> None:
    members = [member("p0", schedulerName="a"), member("p1", schedulerName="b")]
    result = attempt(pod_group(min_count=2), members, snapshot_of(node("n")))
    assert result.reason is not None
    assert result.reason.message is GangMessage.SCHEDULER_NAMES


def test_members_with_affinity_to_each_other_are_placed() -> None:
    term = {"labelSelector": {"matchLabels": {"role": "leader"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    host = {"kubernetes.io/hostname": "a"}
    snapshot = snapshot_of(node("a", cpu="2", labels=host), node("b", cpu="2"))
    follower = member("follower", cpu="1", affinity=affinity)
    leader = member("leader", cpu="1", labels={"role": "leader"})
    result = attempt(pod_group(min_count=2), [follower, leader], snapshot)
    assert nodes_of(result) == {"leader": "a", "follower": "a"}


@pytest.mark.parametrize(
    ("objects", "queued", "message"),
    [
        ([], 2, GangMessage.GROUP_MISSING),
        ([pod_group(min_count=3)], 2, GangMessage.TOO_FEW_PODS),
        ([pod_group(min_count=3), node("a"), member("old", node="a")], 2, None),
        ([pod_group(min_count=2)], 2, None),
        ([pod_group()], 1, None),
    ],
)
def test_a_group_waits_for_its_pods(objects: list[Any], queued: int, message: GangMessage | None) -> None:
    found = hold_reason(("default", "gang"), snapshot_of(*objects), {f"uid-{i}" for i in range(queued)})
    assert (found.message if found is not None else None) is message


# -- against a naive search

Member = tuple[int, str]  # CPU, and the device: "", "any" or "big"
Machine = tuple[int, tuple[str, ...]]  # CPU, and the sizes of its devices


def naive(machines: list[Machine], members: list[Member], needed: int) -> bool:
    """Report whether `needed` members fit at once, trying every subset, node and device."""
    if needed <= 0:
        return True
    if not members:
        return False
    (cpu, wanted), rest = members[0], members[1:]
    for index, (free, sizes) in enumerate(machines):
        if free < cpu:
            continue
        choices = [None] if not wanted else [i for i, size in enumerate(sizes) if wanted in ("any", size)]
        for choice in choices:
            left = sizes if choice is None else (*sizes[:choice], *sizes[choice + 1 :])
            after = [*machines[:index], (free - cpu, left), *machines[index + 1 :]]
            if naive(after, rest, needed - 1):
                return True
    return naive(machines, rest, needed)


MACHINES = st.lists(
    st.tuples(st.integers(1, 4), st.lists(st.sampled_from(["big", "small"]), max_size=2).map(tuple)),
    min_size=1,
    max_size=3,
)
MEMBERS = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "any", "big"])), min_size=1, max_size=4)


@settings(max_examples=examples(60), deadline=None)
@given(MACHINES, MEMBERS, st.data())
def test_the_search_finds_a_placement_exactly_if_one_exists(
    machines: list[Machine], members: list[Member], data: Any
) -> None:
    needed = data.draw(st.integers(1, len(members)))
    snapshot = snapshot_of(device_class())
    for index, (cpu, sizes) in enumerate(machines):
        devices = [device(f"{size}{i}", size=size) for i, size in enumerate(sizes)]
        snapshot.set(node(f"n{index}", cpu=str(cpu)))
        snapshot.set(resource_slice(devices, f"n{index}"))
    pods = []
    for index, (cpu, wanted) in enumerate(members):
        if wanted:
            request = exactly() if wanted == "any" else exactly(select=BIG)
            snapshot.set(claim(f"c{index}", request))
        pods.append(member(f"p{index}", cpu=str(cpu), claims=[f"c{index}"] if wanted else []))
    result = attempt(pod_group(min_count=needed), pods, snapshot, steps=100_000)
    assert result.is_scheduled == naive(machines, members, needed)
    assert not result.gave_up


@settings(max_examples=examples(40), deadline=None)
@given(MACHINES, MEMBERS, st.integers(1, 20))
def test_a_limited_search_never_places_a_part(
    machines: list[Machine], members: list[Member], steps: int
) -> None:
    snapshot = snapshot_of(*(node(f"n{i}", cpu=str(cpu)) for i, (cpu, _) in enumerate(machines)))
    pods = [member(f"p{i}", cpu=str(cpu)) for i, (cpu, _) in enumerate(members)]
    result = attempt(pod_group(min_count=len(pods)), pods, snapshot, steps=steps)
    assert not result.is_scheduled or len(result.placements) == len(pods)
    if result.is_scheduled:
        plain = [(cpu, "") for cpu, _ in members]
        assert naive([(cpu, ()) for cpu, _ in machines], plain, len(plain))


# -- errors of selectors


def errors_on(*speeds: int | None) -> Snapshot:
    """Return a snapshot of nodes with a device each; None is one for which the selector fails."""
    fast = f'device.attributes["{DRIVER}"].speed > 5'
    objects: list[Any] = [device_class(), claim("c", exactly("r", select=fast))]
    for number, speed in enumerate(speeds):
        known = device("d") if speed is None else device("d", speed=speed)
        objects += [node(f"n{number}", cpu="2"), resource_slice([known], f"n{number}")]
    return snapshot_of(*objects)


def test_an_error_of_a_member_is_an_error_of_the_gang() -> None:
    members = [member("failing", claims=["c"]), member("other", cpu="1")]
    result = attempt(pod_group(min_count=2), members, errors_on(None, 9))
    assert not result.is_scheduled
    assert result.error is not None
    assert list(result.failures) == ["uid-failing"]


def test_a_search_does_not_place_a_member_whose_selector_fails() -> None:
    """A member on the node that fails would hide the error."""
    members = [member("failing", cpu="1", claims=["c"]), member("big", cpu="2")]
    result = attempt(pod_group(min_count=2), members, errors_on(None, 9))
    assert not result.is_scheduled
    assert result.error is not None


def test_a_gang_that_is_complete_without_a_failing_member_is_placed() -> None:
    members = [member("failing", claims=["c"]), member("other", cpu="1")]
    result = attempt(pod_group(min_count=1), members, errors_on(None, 9))
    assert result.is_scheduled
    assert list(nodes_of(result)) == ["other"]
