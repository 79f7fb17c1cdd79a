"""Cgroup planner: from a pod to all cgroup values, in both forms and with policies."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.forms import POD_KEY, Form, format_charges_annotation, read_pod
from plimsoll.node.cgroup_planner import CgroupPlanner
from plimsoll.node.cgroup_plans import CgroupSettings, plan_qos_cgroups
from tests.build import container, pod, sidecar
from tests.unit.ledger.samples import amounts, charge

GI = 1 << 30
MAPPED = {"resourceClaimName": "x", "containers": ["a"], "mapping": [{"name": "cpu", "quantity": "2"}]}
CLAIMED = {"nodeAllocatableResourceClaimStatuses": [MAPPED]}
OWN = container("a", limits={"cpu": "1", "memory": "2Gi"}, cpu="1", memory="1Gi")


def enforcement(form: Form = Form.V1_37, **more: Any) -> CgroupPlanner:
    return CgroupPlanner(CgroupSettings(memory_capacity=8 * GI, form=form, **more))


def test_claims_count_since_1_37_only() -> None:
    charged = pod("p", OWN, status=CLAIMED)
    old, new = (enforcement(form).plan(charged) for form in (Form.V1_36, Form.V1_37))
    assert (old.pod.cpu_shares, old.pod.cpu_quota) == (1024, 100_000)
    assert (new.pod.cpu_shares, new.pod.cpu_quota) == (3072, 300_000)
    assert (old.containers["a"].cpu_quota, new.containers["a"].cpu_quota) == (100_000, 300_000)
    assert (old.qos, new.qos) == ("Burstable", "Burstable")


def test_charges_in_an_annotation_are_counted() -> None:
    """Stock clusters have no field for them."""
    text = format_charges_annotation([charge("x", "a", cpu="2")])
    claims = [{"name": "x", "resourceClaimName": "x"}]
    stock = pod("p", OWN, resourceClaims=claims, metadata={"annotations": {POD_KEY: text}})
    assert read_pod(stock)
    assert enforcement().plan(stock) == enforcement().plan(pod("p", OWN, status=CLAIMED))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"claims": 5}', '[{"resources": {"cpu": "x"}}]', "null", "[1]"]
)
def test_an_annotation_that_cannot_be_read_charges_nothing(text: str) -> None:
    claims = [{"name": "x", "resourceClaimName": "x"}]
    plan = enforcement().plan(pod("p", OWN, resourceClaims=claims, metadata={"annotations": {POD_KEY: text}}))
    assert plan == enforcement().plan(pod("p", OWN))


def test_policies_decide_what_is_added() -> None:
    def quota(policy: str) -> int | None:
        item = {"name": "cpu", "quantity": "2", "accountingPolicy": policy}
        entry = {"resourceClaimName": "x", "containers": ["a", "b"], "mapping": [item]}
        both = pod(
            "p",
            container("a", limits={"cpu": "1", "memory": "1Gi"}, cpu="1", memory="1Gi"),
            container("b", limits={"cpu": "1", "memory": "1Gi"}, cpu="1", memory="1Gi"),
            status={"nodeAllocatableResourceClaimStatuses": [entry]},
        )
        return enforcement().plan(both).pod.cpu_quota

    assert quota("AddPerClaim") == 400_000
    assert quota("AddPerReference") == 600_000
    assert quota("Max") == 200_000  # the two request as much as the claim gives
    assert quota("ConsumeFrom") == 200_000


def test_containers_with_exclusive_cpus_have_no_quota() -> None:
    two = pod(
        "p",
        container("a", limits={"cpu": "1", "memory": "1Gi"}, cpu="1", memory="1Gi"),
        container("b", limits={"cpu": "1", "memory": "1Gi"}, cpu="1", memory="1Gi"),
    )
    settings = CgroupSettings(memory_capacity=8 * GI)
    plan = CgroupPlanner(settings, exclusive=lambda pod: {"a"}).plan(two)
    assert (plan.containers["a"].cpu_quota, plan.containers["b"].cpu_quota) == (-1, 100_000)
    assert (plan.pod.cpu_quota, plan.sandbox.resources.cpu_quota) == (-1, -1)
    assert plan.pod.cpu_shares == 2048


def test_a_pod_with_claims_only_is_burstable_with_their_weight() -> None:
    """DRANodeAllocatableResourcesQoS: the class, the pod, its container and the tier agree."""
    only = pod("p", container("a"), status={**CLAIMED, "qosClass": "BestEffort"})
    off, on = enforcement(), enforcement(claims_in_qos=True)
    plan = on.plan(only)
    assert (off.plan(only).qos, off.plan(only).pod.cpu_shares) == ("BestEffort", 2)
    assert (plan.qos, plan.pod.cpu_shares, plan.containers["a"].cpu_shares) == ("Burstable", 2048, 2048)
    assert (plan.pod.cpu_quota, plan.pod.memory) == (None, None), "claims create no limits"
    assert (off.tiers([only]).burstable_shares, on.tiers([only]).burstable_shares) == (2, 2048)


def test_every_container_has_a_plan_in_the_order_they_start() -> None:
    plan = enforcement().plan(pod("p", container("c"), init=(container("a"), sidecar("b"))))
    assert list(plan.containers) == ["a", "b", "c"]
    assert plan.qos == "BestEffort"
    assert {p.oom_score_adj for p in plan.containers.values()} == {1000}


def test_tiers_are_those_of_the_ledger() -> None:
    pods = [pod("p", OWN, status=CLAIMED), pod("p", container("b"))]
    one = enforcement()
    assert one.tiers(pods) == plan_qos_cgroups(pods, one.settings)
    assert one.tiers(pods).burstable_shares == 3072


def test_the_pods_cgroup_has_allocatable_resources() -> None:
    one = enforcement(huge_page_sizes=("2MB",))
    available = amounts(cpu="3500m", memory="6Gi", hugepages_2Mi="8Mi", hugepages_1Gi="1Gi", pid="900")
    limits = one.root(available)
    assert (limits.cpu_shares, limits.memory_limit, limits.pids) == (3584, 6 * GI, 900)
    assert limits.huge_pages == {"2MB": 8 << 20}
    assert one.root({}).memory_limit is None


def test_any_pod_json_is_planned() -> None:
    odd = codec.convert(json.loads('{"spec": {"containers": [{}], "overhead": {"cpu": "-5"}}}'), Pod)
    assert enforcement().plan(odd).qos == "BestEffort"
