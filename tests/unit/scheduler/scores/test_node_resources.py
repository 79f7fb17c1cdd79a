"""Scores by free resources: kube-scheduler's numbers, and documented differences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.scheduler.profile import SchedulerProfile, Strategy
from plimsoll.scheduler.scores.node_resources import BalancedAllocationScorer, NodeResourcesFitScorer
from tests.build import DRIVER, charging_device, claim, device_class, exactly, node, pod, resource_slice
from tests.unit.scheduler.scores.node_resource_scores import LEAST, doubles, scores
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of

MOST = SchedulerProfile(strategy=Strategy.MOST_ALLOCATED)


def test_least_and_most_allocated() -> None:
    snapshot = snapshot_of(
        node("empty", cpu="4", memory="10000"),
        node("half", cpu="4", memory="10000"),
        node("large", cpu="40", memory="100000"),
        node("past", cpu="1", memory="1000"),
    )
    snapshot.set(pod("on-half", cpu="1", memory="3000", node="half"))
    wanting = pod("w", cpu="1", memory="2000")
    # cpu (4000-1000)*100/4000 = 75, memory (10000-2000)*100/10000 = 80; the mean is 77
    least = {"empty": 77, "half": (50 + 50) // 2, "large": (97 + 98) // 2, "past": 0}
    assert scores(NodeResourcesFitScorer, wanting, snapshot) == least
    most = {"empty": (25 + 20) // 2, "half": 50, "large": (2 + 2) // 2, "past": 100}
    assert scores(NodeResourcesFitScorer, wanting, snapshot, MOST) == most


def test_containers_without_requests_count_for_a_little() -> None:
    snapshot = snapshot_of(node("n", cpu="1", memory=str(2000 << 20)))
    # 100m of 1000m and 200Mi of 2000Mi
    assert scores(NodeResourcesFitScorer, pod("w"), snapshot) == {"n": 90}
    snapshot.set(pod("other", node="n"))
    assert scores(NodeResourcesFitScorer, pod("w"), snapshot) == {"n": 80}
    assert scores(NodeResourcesFitScorer, pod("w", cpu="500m"), snapshot) == {"n": (40 + 80) // 2}
    overall = pod("w", resources={"requests": {"cpu": "300m"}})
    assert scores(NodeResourcesFitScorer, overall, snapshot) == {"n": (60 + 80) // 2}


def test_scores_count_what_claims_charge() -> None:
    result = {"request": "r", "driver": DRIVER, "pool": "charged", "device": "cpus"}
    snapshot = snapshot_of(
        node("charged", cpu="8"),
        node("free", cpu="8"),
        resource_slice([charging_device("cpus", cpu="6")], "charged"),
        device_class("cpu"),
        claim("c", exactly(device_class="cpu"), results=[result], node="charged"),
        pod("holder", node="charged", claims=["c"]),
        pod("other", node="free"),
    )
    found = scores(NodeResourcesFitScorer, pod("w", cpu="1", memory="1Mi"), snapshot)
    assert found["free"] - found["charged"] == (87 - 11) // 2 - 1  # 7/8 less 100m against 1/8 less 100m


def test_resources_and_weights_of_a_profile() -> None:
    gpu = "example.com/gpu"
    settings = SchedulerProfile(resources={"cpu": 1, gpu: 3})
    snapshot = snapshot_of(node("with", cpu="4", extended={gpu: "4"}), node("without", cpu="4"))
    # pods that do not ask for an extended resource are not scored by it; nodes without it neither
    assert scores(NodeResourcesFitScorer, pod("w", cpu="1"), snapshot, settings) == {
        "with": 75,
        "without": 75,
    }
    asking = pod("w", cpu="1", requests={gpu: "2"})
    assert scores(NodeResourcesFitScorer, asking, snapshot, settings) == {
        "with": (75 + 3 * 50) // 4,
        "without": 75,
    }
    only_gpu = SchedulerProfile(resources={gpu: 1})
    pod_info = pod_info_of(pod("w", cpu="1"), snapshot)
    assert NodeResourcesFitScorer.pre_score(pod_info, snapshot, only_gpu) is None


# -- balance


def test_balanced_allocation_prefers_even_usage() -> None:
    snapshot = snapshot_of(
        *(node(name, cpu="10", memory="10000") for name in ("cpu-heavy", "memory-heavy", "even"))
    )
    snapshot.set(pod("a", cpu="6", memory="2000", node="cpu-heavy"))
    snapshot.set(pod("b", cpu="2", memory="6000", node="memory-heavy"))
    found = scores(BalancedAllocationScorer, pod("w", cpu="100m", memory="4000"), snapshot)
    # the shares go from 0.6 and 0.2 to 0.61 and 0.6; from 0.2 and 0.6, or from nothing, further apart by 0.39
    assert found == {"cpu-heavy": 85, "memory-heavy": 65, "even": 65}


def test_pods_without_requests_do_not_balance() -> None:
    snapshot = snapshot_of(node("n"))
    assert BalancedAllocationScorer.pre_score(pod_info_of(pod("w"), snapshot), snapshot, LEAST) is None
    alone = SchedulerProfile(balanced=("cpu",))
    assert (
        BalancedAllocationScorer.pre_score(pod_info_of(pod("w", cpu="1"), snapshot), snapshot, alone) is None
    )


@pytest.mark.parametrize("count", [2, 3])
@given(data=st.data())
def test_balanced_allocation_agrees_with_floating_point(count: int, data: st.DataObject) -> None:
    """Within one because of rounding, and exactly without it."""
    names = ("memory", "ephemeral-storage", "example.com/gpu")[:count]
    amounts = st.lists(st.integers(1, 5000), min_size=count, max_size=count)
    lines, used, wanted = data.draw(amounts), data.draw(amounts), data.draw(amounts)
    line = dict(zip(names, map(str, lines), strict=True))
    held = dict(zip(names, map(str, used), strict=True))
    asked = dict(zip(names, map(str, wanted), strict=True))
    snapshot = snapshot_of(
        node("n", extended=line),
        pod("other", node="n", requests=held),
    )
    settings = SchedulerProfile(balanced=names)
    found = scores(BalancedAllocationScorer, pod("w", requests=asked), snapshot, settings)["n"]
    assert abs(found - doubles(lines, used, wanted)) <= 1


def test_balanced_allocation_is_exact_without_rounding() -> None:
    snapshot = snapshot_of(node("n", cpu="10", memory="10000"), pod("a", cpu="2", memory="6000", node="n"))
    # shares 0.2 and 0.6 become 0.8 and 0.6: 80 before, 90 after
    assert scores(BalancedAllocationScorer, pod("w", cpu="6"), snapshot) == {"n": 50 + (50 + 90 - 80) // 2}
