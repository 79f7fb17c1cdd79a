"""Cgroup plans of containers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, Form
from plimsoll.errors import InputError
from plimsoll.ledger.containers import ContainerRole
from plimsoll.node.cgroup_plans import CgroupSettings, ContainerPlan, plan_containers
from tests.build import container, pod, sidecar
from tests.unit.ledger.samples import charge, charged_pods

GIB = 1 << 30
NODE = CgroupSettings(memory_capacity=64 * GIB, huge_page_sizes=("2MB", "1GB"), single_process_oom_kill=True)
OLD = CgroupSettings(memory_capacity=64 * GIB, form=Form.V1_36, huge_page_sizes=("2MB", "1GB"))
CLAIM = charge("x", "a", cpu="2", memory="1Gi", hugepages_2Mi="8Mi")


def plan(
    given_pod: Pod, settings: CgroupSettings = NODE, *charges: ClaimCharge, **options: Any
) -> ContainerPlan:
    return plan_containers(given_pod, settings, charges, **options)[-1]


def test_claims_come_on_top_of_a_containers_own_limits() -> None:
    limited = pod("p", container("a", limits={"cpu": "2", "memory": "1Gi", "hugepages-2Mi": "2Mi"}, cpu="1"))
    found = plan(limited, NODE, CLAIM)
    assert (found.cpu_shares, found.cpu_quota, found.cpu_period) == (1024, 400_000, 100_000)
    assert found.memory_limit == 2 * GIB
    assert found.huge_pages == {"2MB": 10 << 20, "1GB": 0}
    without = plan(limited, NODE)
    assert (without.cpu_shares, without.cpu_quota, without.memory_limit) == (1024, 200_000, GIB)
    assert without.huge_pages == {"2MB": 2 << 20, "1GB": 0}


def test_a_container_without_limits_stays_unlimited_but_gets_its_huge_pages() -> None:
    found = plan(pod("p", container("a", cpu="1")), NODE, CLAIM)
    assert (found.cpu_quota, found.memory_limit) == (0, 0)
    assert found.huge_pages == {"2MB": 8 << 20, "1GB": 0}


QOS = CgroupSettings(memory_capacity=64 * GIB, claims_in_qos=True)


def test_claims_count_in_the_weight_of_their_containers() -> None:
    """Two CPUs of the claim on top of the request, or of the limit that stands for it."""
    for own, shares in (
        (container("a"), 2048),
        (container("a", cpu="1"), 3072),
        (container("a", limits={"cpu": "3"}), 5120),
        (container("a", limits={"cpu": "3"}, cpu="1"), 3072),
        (container("a", cpu="0"), 2048),
    ):
        assert plan(pod("p", own), QOS, CLAIM).cpu_shares == shares
    assert plan(pod("p", container("b", cpu="1")), QOS, CLAIM).cpu_shares == 1024
    assert plan(pod("p", container("a", cpu="1")), NODE, CLAIM).cpu_shares == 1024, "the gate is off"
    old = CgroupSettings(memory_capacity=64 * GIB, form=Form.V1_36, claims_in_qos=True)
    assert plan(pod("p", container("a", cpu="1")), old, CLAIM).cpu_shares == 1024


def test_a_pod_level_limit_contains_the_cpus_of_claims() -> None:
    whole = pod("p", container("a"), resources={"limits": {"cpu": "4"}})
    assert plan(whole, QOS, CLAIM).cpu_shares == plan(whole, QOS).cpu_shares == 4096


def test_a_container_with_claims_only_is_killed_after_best_effort_ones() -> None:
    only = pod("p", container("a"), container("b"))
    first, second = plan_containers(only, QOS, (charge("x", "a", cpu="2", memory="16Gi"),))
    assert (first.oom_score_adj, second.oom_score_adj) == (750, 999)
    assert {each.oom_score_adj for each in plan_containers(only, NODE, (CLAIM,))} == {1000}
    cpu = plan_containers(only, QOS, (charge("x", "a", cpu="2"),))
    assert {each.oom_score_adj for each in cpu} == {999}


@given(charged_pods())
def test_no_container_loses_weight_by_its_claims(found: tuple[Pod, tuple[ClaimCharge, ...]]) -> None:
    given_pod, charges = found
    before, after = (plan_containers(given_pod, settings, charges) for settings in (NODE, QOS))
    for was, now in zip(before, after, strict=True):
        assert now.cpu_shares >= was.cpu_shares
        assert (now.cpu_quota, now.memory_limit) == (was.cpu_quota, was.memory_limit), "limits are the same"


def test_claims_are_ignored_in_1_36_and_where_they_are_switched_off() -> None:
    limited = pod("p", container("a", limits={"cpu": "2", "memory": "1Gi"}))
    off = CgroupSettings(memory_capacity=64 * GIB, count_claims=False)
    for settings in (OLD, off):
        found = plan(limited, settings, CLAIM)
        assert (found.cpu_shares, found.cpu_quota, found.memory_limit) == (2048, 200_000, GIB)


def test_charges_are_read_from_the_status_unless_given() -> None:
    entry = {"resourceClaimName": "x", "containers": ["a"], "mapping": [{"name": "cpu", "quantity": "1"}]}
    charged = pod(
        "p", container("a", limits={"cpu": "1"}), status={"nodeAllocatableResourceClaimStatuses": [entry]}
    )
    assert plan_containers(charged, NODE)[0].cpu_quota == 200_000
    assert plan_containers(charged, NODE, ())[0].cpu_quota == 100_000


def test_shares_follow_the_limit_without_claims_where_there_is_no_request() -> None:
    assert plan(pod("p", container("a", limits={"cpu": "1"})), NODE, CLAIM).cpu_shares == 1024
    assert plan(pod("p", container("a", limits={"cpu": "1"}, cpu="0")), NODE, CLAIM).cpu_shares == 2


def test_pod_level_limits_replace_missing_container_limits() -> None:
    whole = {"limits": {"cpu": "3", "memory": "2Gi", "hugepages-2Mi": "4Mi", "hugepages-1Gi": "1Gi"}}
    found = plan(pod("p", container("a", limits={"hugepages-2Mi": "2Mi"}), resources=whole), NODE, CLAIM)
    assert (found.cpu_shares, found.cpu_quota, found.memory_limit) == (3072, 300_000, 2 * GIB)
    # own limit and claim; limit of the pod
    assert found.huge_pages == {"2MB": 10 << 20, "1GB": GIB}
    covered = plan(pod("p", container("a"), resources=whole), NODE, CLAIM)
    assert covered.huge_pages == {"2MB": 4 << 20, "1GB": GIB}
    gate_off = CgroupSettings(memory_capacity=GIB, pod_level=False)
    assert plan(pod("p", container("a"), resources=whole), gate_off).memory_limit == 0


def test_quotas_can_be_off() -> None:
    limited = pod("p", container("a", limits={"cpu": "2"}))
    off = CgroupSettings(memory_capacity=GIB, cfs_quota=False)
    assert (plan(limited, off).cpu_quota, plan(limited, off).cpu_period) == (0, 0)
    assert plan(limited, NODE, exclusive=["a"]).cpu_quota == -1
    assert plan(limited, NODE, exclusive=["b"]).cpu_quota == 200_000
    assert plan(limited, off, exclusive=["a"]).cpu_quota == 0


def test_oom_group_is_the_default() -> None:
    lonely = pod("p", container("a"))
    assert plan(lonely, OLD).unified == {"memory.oom.group": "1"}
    assert plan(lonely, CgroupSettings(memory_capacity=1, form=Form.V1_36, cgroup_version=1)).unified == {}
    assert plan(lonely, NODE).unified == {"memory.high": "max"}


def test_policies_change_limits_as_their_charges_do() -> None:
    """P28: AddPerClaim and Max excess like a mapping, AddPerReference per container, ConsumeFrom nothing."""
    pair = pod(
        "p", container("a", limits={"cpu": "1"}, cpu="1"), container("b", limits={"cpu": "3"}, cpu="3")
    )
    wanted = {"AddPerClaim": (11, 13), "AddPerReference": (11, 13), "Max": (7, 9), "ConsumeFrom": (1, 3)}
    for policy, cpus in wanted.items():
        found = plan_containers(pair, NODE, [charge("x", "a", "b", policy=policy, cpu="10")])
        assert tuple(c.cpu_quota // 100_000 for c in found) == cpus, policy


def test_order_and_roles() -> None:
    given_pod = pod("p", container("a"), init=(container("i"), sidecar("s")))
    found = plan_containers(given_pod, NODE)
    assert [(c.name, c.role) for c in found] == [
        ("i", ContainerRole.INIT),
        ("s", ContainerRole.SIDECAR),
        ("a", ContainerRole.REGULAR),
    ]


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(InputError, match="memory_capacity must be positive"):
        CgroupSettings(memory_capacity=0)
    with pytest.raises(InputError, match="cfs_period must be positive"):
        CgroupSettings(memory_capacity=1, cfs_period=0)


@given(charged_pods())
def test_claims_never_lower_a_limit(case: tuple[Pod, tuple[ClaimCharge, ...]]) -> None:
    given_pod, charges = case
    before, after = plan_containers(given_pod, NODE, ()), plan_containers(given_pod, NODE, charges)
    for one, other in zip(before, after, strict=True):
        assert one.cpu_shares == other.cpu_shares
        assert one.cpu_quota <= other.cpu_quota
        assert one.memory_limit <= other.memory_limit
        assert (one.memory_limit == 0) == (other.memory_limit == 0)
        assert all(limit <= other.huge_pages[size] for size, limit in one.huge_pages.items())
        assert one.oom_score_adj >= other.oom_score_adj or given_pod.spec.resources is not None
