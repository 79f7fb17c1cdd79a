"""`plimsoll explain` without a pod: causes, fixes, and the pods that fit together."""

from __future__ import annotations

import time
from collections import Counter
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.tools.colors import PLAIN
from plimsoll.tools.explain import PendingGroup, PendingList, explain_pending, explain_pod
from plimsoll.tools.explain.verdict import ExplainVerdict
from plimsoll.tools.fixes import apply_fix
from tests.build import claim, device, device_class, exactly, node, pod, resource_slice
from tests.cases.cases import case_objects, case_state
from tests.unit.tools.explain.symptoms import make_cluster_state

MESSY, GPUS = "real/messy-cluster.json.gz", "real/gpu-cluster.json.gz"


@cache
def overview(name: str) -> PendingList:
    return explain_pending(case_state(name))


def group_of(found: PendingList, pod_name: str) -> PendingGroup:
    (group,) = [each for each in found.groups if any(name.endswith(f"/{pod_name}") for name in each.pods)]
    return group


def test_every_pending_pod_is_in_one_group() -> None:
    for name in (MESSY, GPUS):
        pending = Counter(
            f"{tree['metadata']['namespace']}/{tree['metadata']['name']}"
            for tree in case_objects(name)
            if tree["kind"] == "Pod" and not tree["spec"].get("nodeName")
        )
        assert Counter(each for group in overview(name).groups for each in group.pods) == pending


def test_pods_that_need_different_changes_are_not_one_group() -> None:
    names = ("p15-cpuclaim", "p11-numa", "p10-nic", "p12-a100x8", "p01-cpu", "p03-taint")
    groups = [group_of(overview(MESSY), name) for name in names]
    assert len({group.pods for group in groups}) == len(names)
    assert len({(group.why, group.found.fixes[0].text) for group in groups}) == len(names)


def test_pods_of_one_cause_are_one_group_although_names_differ() -> None:
    trees = case_objects(GPUS)
    templates = {
        (tree["metadata"]["namespace"], tree["metadata"]["name"])
        for tree in trees
        if tree["kind"] == "ResourceClaimTemplate"
    }
    lacking = {
        f"{tree['metadata']['namespace']}/{tree['metadata']['name']}"
        for tree in trees
        if tree["kind"] == "Pod"
        for each in tree["spec"].get("resourceClaims", ())
        if "resourceClaimTemplateName" in each
        and (tree["metadata"]["namespace"], each["resourceClaimTemplateName"]) not in templates
    }
    assert len(lacking) > 5
    first = overview(GPUS)
    (group,) = [each for each in first.groups if lacking & set(each.pods)]
    assert set(group.pods) == lacking
    assert len(group.found.hints) == len(lacking)
    for stem in (
        "nvidia-gpu-test4/",
        "nvidia-gpu-test6/",
        "dranet-resourceclaimtemplate/",
        "nvidia-imex-test1/",
    ):
        assert len([each for each in first.groups if any(name.startswith(stem) for name in each.pods)]) == 1


def test_the_fix_of_a_group_is_that_of_its_pods() -> None:
    """The first fix is proven for the first pod; `apply_fix` and the scheduling cycle agree."""
    state = case_state(MESSY)
    for group in overview(MESSY).groups:
        if group.found.fixes:
            namespace, _, name = group.pods[0].partition("/")
            copy, fixed = apply_fix(state, state.pod(name, namespace), group.found.fixes[0])
            assert explain_pod(copy, fixed).verdict is ExplainVerdict.FITS, group.pods


def test_pods_of_the_messy_cluster_that_fit_together() -> None:
    """Three pods want the four H100 of a node, and two nodes are left."""
    trees = case_objects(MESSY)
    partly_held = {
        (each["pool"], "-".join(each["device"].split("-")[:2]))
        for tree in trees
        if tree["kind"] == "ResourceClaim"
        for each in tree.get("status", {}).get("allocation", {}).get("devices", {}).get("results", ())
    }
    places = 0
    for tree in trees:
        name = tree["metadata"]["name"]
        if tree["kind"] == "Node" and name.startswith("h100") and not tree["spec"].get("unschedulable"):
            places += all((name, f"gpu-{number}") not in partly_held for number in range(4))
    found = overview(MESSY)
    wanting = [group_of(found, name) for name in ("p04-frag", "p17-a100x8-nt", "p18-h100x4-c")]
    assert all(each.fits for each in wanting)
    assert sum(each.together for each in wanting) == places == 2
    other = group_of(found, "p14-other")
    assert (other.scheduler, other.together, other.pods) == ("volcano", True, ("ml/p14-other",))
    assert "volcano" in other.why
    assert found.fitting == places + 1


@pytest.mark.parametrize("name", [MESSY, GPUS])
def test_an_overview_is_computed_quickly(name: str) -> None:
    state = case_state(name)
    state.compute_ledgers(lambda *_: None)
    began = time.process_time()
    explain_pending(state)
    # About 4 s on a quiet machine, 6 on a busy one.
    assert time.process_time() - began < 15


# -- small clusters


def one_node(devices: int, *pods: tuple[int, int]) -> Any:
    """Return a node with devices, and pending pods by priority and number of devices."""
    objects: list[Any] = [
        node("n", cpu="100"),
        device_class(),
        resource_slice([device(f"g{number}") for number in range(devices)], "n"),
    ]
    for number, (priority, count) in enumerate(pods):
        name = f"p{number}"
        objects += [
            claim(f"c-{name}", exactly(count=count)),
            pod(name, claims=[f"c-{name}"], priority=priority),
        ]
    return make_cluster_state(objects)


def greedy(devices: int, pods: tuple[tuple[int, int], ...]) -> set[str]:
    """Return the pods that fit one after the other, highest priority first."""
    fitting = set()
    for number, (_, count) in sorted(enumerate(pods), key=lambda each: (-each[1][0], each[0])):
        if count <= devices:
            devices -= count
            fitting.add(f"default/p{number}")
    return fitting


@given(st.integers(0, 6), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=6))
def test_fits_now_counts_pods_that_fit_together(devices: int, wanted: list[tuple[int, int]]) -> None:
    found = explain_pending(one_node(devices, *wanted))
    together = {name for group in found.groups if group.together for name in group.pods}
    alone = {name for group in found.groups if group.fits for name in group.pods}
    assert together == greedy(devices, tuple(wanted))
    assert found.fitting == len(together)
    assert alone == {f"default/p{number}" for number, (_, count) in enumerate(wanted) if count <= devices}


def test_two_pods_that_compete_do_not_both_fit_now() -> None:
    state = one_node(1, (0, 1), (5, 1))
    before = state.snapshot.generations.last
    found = explain_pending(state)
    assert (found.count, found.fitting) == (2, 1)
    assert group_of(found, "p1").together
    assert not group_of(found, "p0").together
    assert next(iter(found.lines(PLAIN))).startswith("2 pods pending; one of them")
    assert not any(each.spec.node_name for each in state.pods)
    assert state.snapshot.generations.last >= before


def test_names_of_requests_and_claims_do_not_separate_pods() -> None:
    objects: list[Any] = [node("n"), device_class(), resource_slice([device("g")], "n")]
    for name in ("a", "gpu", "n"):
        objects += [claim(f"{name}-x", exactly(f"r-{name}", count=3)), pod(name, claims=[f"{name}-x"])]
    objects += [claim("other", exactly("r", count=3)), pod("b", claims=["other"], cpu="9")]
    found = explain_pending(make_cluster_state(objects))
    assert [group.pods for group in found.groups] == [
        ("default/a", "default/gpu", "default/n"),
        ("default/b",),
    ]


def test_the_same_message_about_different_classes_is_not_one_cause() -> None:
    objects: list[Any] = [node("n"), device_class("one"), device_class("two")]
    for name in ("one", "two"):
        objects += [claim(f"c-{name}", exactly(device_class=name)), pod(name, claims=[f"c-{name}"])]
    found = explain_pending(make_cluster_state(objects))
    assert len(found.groups) == 2
    assert len({group.why for group in found.groups}) == 1
