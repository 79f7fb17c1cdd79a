"""OOM scores (oom_score_adj)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, Form
from plimsoll.ledger.claim_shares import compute_claim_shares
from plimsoll.ledger.qos import BEST_EFFORT, GUARANTEED, qos_class
from plimsoll.node.cgroup_plans import CgroupSettings, oom_score_adj
from plimsoll.node.cgroup_plans.oom import is_critical_pod, is_node_critical_pod
from tests.build import container, pod, sidecar
from tests.unit.ledger.samples import charge, charged_pods

NODE = CgroupSettings(memory_capacity=10 << 30)
OLD = CgroupSettings(memory_capacity=10 << 30, form=Form.V1_36)


def scores(given_pod: Pod, settings: CgroupSettings = NODE, *charges: ClaimCharge) -> list[int]:
    shares = compute_claim_shares(given_pod, charges)
    containers = (*given_pod.spec.init_containers, *given_pod.spec.containers)
    return [oom_score_adj(given_pod, c, settings, shares) for c in containers]


def test_scores_by_qos_class() -> None:
    both = {"cpu": "1", "memory": "1Gi"}
    assert scores(pod("p", container("a", limits=both, **both))) == [-997]
    assert scores(pod("p", container("a"))) == [1000]
    assert scores(pod("p", container("a", memory="1Gi"))) == [900]
    assert scores(pod("p", container("a", cpu="1"))) == [999]
    assert scores(pod("p", container("a", memory="20Gi"))) == [3]


def test_memory_of_claims_counts_as_requested() -> None:
    pair = pod("p", container("a", memory="1Gi"), container("b"))
    assert scores(pair) == [900, 999]
    assert scores(pair, NODE, charge("x", "a", "b", memory="2Gi")) == [800, 900]
    assert scores(pair, NODE, charge("x", "b", memory="2Gi")) == [900, 800]
    assert scores(pair, NODE, charge("x", memory="2Gi")) == [900, 999]
    assert scores(pair, NODE, charge("x", "a", "b", policy="ConsumeFrom", memory="2Gi")) == [900, 999]
    # a claim alone leaves the pod BestEffort
    assert scores(pod("p", container("a")), NODE, charge("x", "a", memory="2Gi")) == [1000]


def test_pod_level_memory_beyond_the_containers_is_shared() -> None:
    whole = {"requests": {"memory": "5Gi"}}
    given_pod = pod("p", container("a", memory="1Gi"), container("b"), resources=whole)
    assert scores(given_pod) == [700, 800]
    assert scores(given_pod, NODE, charge("x", "b", memory="2Gi")) == [800, 700]


def test_pod_level_request_below_the_sum_of_its_containers() -> None:
    whole = {"requests": {"memory": "1Gi"}}
    given_pod = pod("p", container("a", memory="2Gi"), container("b", memory="1Gi"), resources=whole)
    assert scores(given_pod, OLD) == [900, 999]
    assert scores(given_pod, NODE) == [800, 900]


def test_a_sidecar_is_not_killed_before_the_containers_it_serves() -> None:
    given_pod = pod(
        "p", container("a", memory="3Gi"), container("b", memory="2Gi"), init=(sidecar("s"), container("i"))
    )
    assert scores(given_pod) == [800, 999, 700, 800]
    big = pod("p", container("a", memory="1Gi"), init=(sidecar("s", memory="5Gi"),))
    assert scores(big) == [500, 900]


@pytest.mark.parametrize(
    ("spec", "critical", "node_critical"),
    [
        ({}, False, False),
        ({"priority": 2_000_000_000}, True, False),
        ({"priority": 1_999_999_999, "priorityClassName": "system-node-critical"}, False, False),
        ({"priority": 2_000_001_000, "priorityClassName": "system-node-critical"}, True, True),
        ({"metadata": {"annotations": {"kubernetes.io/config.source": "file"}}}, True, False),
        ({"metadata": {"annotations": {"kubernetes.io/config.source": "api"}}}, False, False),
        ({"metadata": {"annotations": {"kubernetes.io/config.mirror": ""}}}, True, False),
    ],
)
def test_critical_pods(spec: dict[str, Any], critical: bool, node_critical: bool) -> None:
    given_pod = pod("p", container("a"), **spec)
    assert is_critical_pod(given_pod) is critical
    assert is_node_critical_pod(given_pod) is node_critical
    assert scores(given_pod) == [-997 if node_critical else 1000]


@given(charged_pods())
def test_burstable_scores_lie_between_the_others(case: tuple[Pod, tuple[ClaimCharge, ...]]) -> None:
    given_pod, charges = case
    fixed = {GUARANTEED: -997, BEST_EFFORT: 1000}.get(qos_class(given_pod.spec, Form.V1_37))
    for score in scores(given_pod, NODE, *charges):
        assert score == fixed if fixed is not None else 3 <= score <= 999
