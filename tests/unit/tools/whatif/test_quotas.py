"""ResourceQuotas and added pods: the API refuses what exceeds them."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll import Whatif
from plimsoll.api.codec import convert
from plimsoll.api.core import Pod
from plimsoll.api.quantity import ZERO
from plimsoll.api.quota import ResourceQuota
from plimsoll.api.resource import ResourceClaim
from plimsoll.controllers.quota.usage import CLAIMS, PODS, QuotaContext, compute_usage
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.whatif import WhatifPlan, run_whatif
from plimsoll.tools.whatif.whatif import WhatifOperations
from tests.build import device, device_class, node, pod, resource_slice
from tests.unit.tools.whatif.workloads import CLAIMING, TEMPLATE, owned, workload


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> ResourceQuota:
    status = {} if used is None else {"hard": hard, "used": used}
    tree = {
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"hard": hard, **spec},
        "status": status,
    }
    return convert(tree, ResourceQuota)


def whatif(*objects: Any) -> Whatif:
    return Whatif(ClusterState(ClusterObjects([node("n", cpu="64"), *objects])))


def refused(operations: WhatifOperations) -> list[str]:
    return [each.name[1] for each in operations.refused]


@pytest.mark.parametrize(
    ("hard", "fits"),
    [
        ({"pods": "3"}, 2),
        ({"requests.cpu": "3500m"}, 2),
        ({"cpu": "2"}, 1),
        ({"count/pods": "1"}, 0),
        ({"limits.cpu": "100"}, 0),  # no container has a limit: "must specify limits.cpu"
        ({"count/configmaps": "0"}, 3),
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_pods_beyond_a_quota_are_not_created(hard: dict[str, str], fits: int, known: bool) -> None:
    used = {"pods": "1", "requests.cpu": "1", "cpu": "1", "count/pods": "1", "limits.cpu": "0"}
    status = {name: used.get(name, "0") for name in hard} if known else None
    with whatif(quota(hard, status), pod("old", cpu="1", node="n")) as w:
        w.add(pod("new", cpu="1"), replicas=3)
        assert len(refused(w)) == 3 - fits
        assert len(w.schedule().placed) == fits


def test_a_pod_of_another_scope_is_not_counted() -> None:
    with whatif(quota({"pods": "0"}, scopes=["BestEffort"])) as w:
        w.add(pod("asks", cpu="1"), pod("none"))
        assert refused(w) == ["none"]


def test_what_is_removed_is_free_again_and_undone_with_its_branch() -> None:
    with whatif(quota({"pods": "1"}, {"pods": "1"}), pod("old", node="n")) as w:
        with w.branch() as b:
            b.remove("pod/old")
            b.add(pod("new"))
            assert refused(b) == []
        w.add(pod("other"))
        assert refused(w) == ["other"]


def test_a_claim_beyond_the_quota_of_its_class_is_not_created() -> None:
    hard = {"gpu.deviceclass.resource.k8s.io/devices": "1"}
    devices = resource_slice([device("a"), device("b")], "n")
    with whatif(quota(hard), device_class("gpu"), devices) as w:
        w.add(TEMPLATE, CLAIMING, replicas=2)
        outcome = w.schedule()
        assert (len(outcome.placed), len(outcome.pending)) == (1, 1)
        assert "exceeded quota: q" in outcome.pending[0].why


def test_a_deployment_that_the_quota_does_not_allow_has_no_pods() -> None:
    with whatif(quota({"count/deployments.apps": "1"}, {"count/deployments.apps": "1"})) as w:
        w.add({**workload("Deployment", "apps/v1", replicas=2), "metadata": {"name": "w"}})
        assert [(each.kind, bool(each.why)) for each in w.refused] == [
            ("Deployment", True),
            ("Pod", False),
            ("Pod", False),
        ]
        assert w.pending == []


def test_the_report_says_that_the_pod_is_refused() -> None:
    state = ClusterState(ClusterObjects([node("n"), quota({"pods": "0"})]))
    report = run_whatif(state, WhatifPlan(add=(pod("new"),)))
    assert not report.all_placed
    assert report.verdict.refused == (("default", "new"),)
    assert "exceeded quota: q" in report.as_json()["refused"][0]["why"]


def test_capacity_for_more_ends_at_the_quota() -> None:
    state = ClusterState(ClusterObjects([node("n", cpu="64"), quota({"pods": "5"})]))
    (more,) = run_whatif(state, WhatifPlan(add=(pod("new", cpu="1"),))).more
    assert more.count == 4
    assert more.refusal.startswith("exceeded quota: q")


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_usage_is_that_of_the_objects_after_any_changes(seed: int) -> None:
    """The running usage equals what is measured from scratch."""
    random = Random(seed)
    hard = {"pods": "50", "requests.cpu": "90", "count/resourceclaims.resource.k8s.io": "60"}
    hard |= {"gpu.deviceclass.resource.k8s.io/devices": "60"}
    devices = resource_slice([device(f"d{number}") for number in range(4)], "n")
    held = [pod(f"old-{number}", cpu="1", node="n", metadata=owned()) for number in range(3)]
    with whatif(quota(hard), device_class("gpu"), devices, *held) as w:
        w.add(TEMPLATE)
        for number in range(8):
            match random.randrange(4):
                case 0:
                    w.add(pod(f"p{number}", cpu=str(random.randrange(1, 4))))
                case 1:
                    w.add({**CLAIMING, "metadata": {"name": f"c{number}"}}, replicas=2)
                case 2:
                    w.schedule()
                case _ if found := [each.metadata.name for each in w.cluster_state.pods]:
                    w.remove(f"pod/{random.choice(found)}")
        objects = w.cluster_state.objects
        expected = dict.fromkeys(hard, ZERO)
        for kind, resource in ((Pod, PODS), (ResourceClaim, CLAIMS)):
            for thing in objects.all(kind):
                usage = compute_usage(resource, thing, QuotaContext(datetime(2000, 1, 1, tzinfo=UTC)))
                for name in hard:
                    expected[name] += usage.get(name, ZERO)
        (stored,) = w.cluster.quotas.quotas_of("default")
        assert stored.status.used == expected
