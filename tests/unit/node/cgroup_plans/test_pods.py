"""Cgroup plans of pods, sandboxes and QoS tiers."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, Form
from plimsoll.ledger.charges import read_charges
from plimsoll.node.cgroup_plans import (
    CgroupSettings,
    MemoryReservationPolicy,
    plan_pod,
    plan_qos_cgroups,
    plan_sandbox,
)
from tests.build import container, pod, sidecar
from tests.unit.ledger.samples import charge, charged_pods

MIB = 1 << 20
NODE = CgroupSettings(memory_capacity=1 << 40, single_process_oom_kill=True)
OLD = replace(NODE, form=Form.V1_36)
PROTECTING = replace(NODE, memory_qos=True, reservation=MemoryReservationPolicy.TIERED)
BOTH = {"cpu": "1", "memory": "100Mi"}


# -- pods


def test_a_guaranteed_pod_has_everything_set() -> None:
    found = plan_pod(
        pod("p", container("a", limits=BOTH, **BOTH), overhead={"cpu": "1", "memory": "28Mi"}), NODE
    )
    assert found.cpu_shares == 2048
    assert (found.cpu_quota, found.cpu_period, found.memory) == (200_000, 100_000, 128 * MIB)


def test_claims_raise_the_limits_of_a_pod() -> None:
    claims = [charge("x", "a", cpu="1", memory="100Mi", hugepages_2Mi="4Mi")]
    found = plan_pod(pod("p", container("a", limits=BOTH, **BOTH)), NODE, claims)
    assert (found.cpu_shares, found.cpu_quota, found.memory) == (2048, 200_000, 200 * MIB)
    assert found.huge_pages == {2 * MIB: 4 * MIB}
    ignored = plan_pod(pod("p", container("a", limits=BOTH, **BOTH)), OLD, claims)
    assert (ignored.cpu_shares, ignored.cpu_quota, ignored.memory) == (1024, 100_000, 100 * MIB)
    assert ignored.huge_pages == {}


def test_a_best_effort_pod_has_the_least_shares_whatever_its_claims() -> None:
    found = plan_pod(pod("p", container("a")), NODE, [charge("x", "a", cpu="8", hugepages_2Mi="4Mi")])
    assert found.cpu_shares == 2
    assert (found.cpu_quota, found.memory) == (None, None)
    assert found.huge_pages == {2 * MIB: 4 * MIB}


def test_a_burstable_pod_is_limited_where_every_container_is() -> None:
    half = pod(
        "p", container("a", limits={"cpu": "1", "memory": "100Mi"}), container("b", limits={"cpu": "2"})
    )
    found = plan_pod(half, NODE)
    assert (found.cpu_quota, found.memory) == (300_000, None)
    whole = pod(
        "p", container("a", cpu="1"), resources={"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    )
    assert plan_pod(whole, NODE).memory == 1 << 30
    assert plan_pod(whole, replace(NODE, pod_level=False)).memory is None


def test_in_1_36_a_sidecar_declares_for_the_init_containers_after_it() -> None:
    given_pod = pod(
        "p",
        container("a", limits={"cpu": "1"}),
        init=(sidecar("s", limits={"cpu": "1"}), container("i", cpu="1")),
    )
    assert plan_pod(given_pod, OLD).cpu_quota == 200_000
    assert plan_pod(given_pod, NODE).cpu_quota is None


def test_quotas_can_be_off() -> None:
    limited = pod("p", container("a", limits=BOTH, **BOTH))
    assert plan_pod(limited, replace(NODE, cfs_quota=False)).cpu_quota == -1
    assert plan_pod(limited, NODE, exclusive=["a"]).cpu_quota == -1


def test_policies_change_a_pod_as_their_charges_do() -> None:
    pair = pod("p", container("a", limits=BOTH, **BOTH), container("b", limits=BOTH, **BOTH))
    wanted = {"AddPerClaim": 12, "AddPerReference": 22, "Max": 10, "ConsumeFrom": 2}
    for policy, cpus in wanted.items():
        found = plan_pod(pair, NODE, [charge("x", "a", "b", policy=policy, cpu="10")])
        assert (found.cpu_quota, found.cpu_shares) == (cpus * 100_000, cpus * 1024), policy


def test_requests_with_claims_are_protected() -> None:
    claims = [charge("x", "a", memory="28Mi")]
    assert plan_pod(pod("p", container("a", limits=BOTH, **BOTH)), PROTECTING, claims).unified == {
        "memory.min": str(128 * MIB)
    }
    burstable = pod("p", container("a", memory="100Mi"))
    assert plan_pod(burstable, PROTECTING, claims).unified == {"memory.low": str(128 * MIB)}
    assert plan_pod(burstable, NODE, claims).unified == {}
    assert plan_pod(pod("p", container("a", cpu="1")), PROTECTING).unified == {}


def test_a_pod_with_resources_of_its_own_is_throttled_as_a_whole() -> None:
    resources = {"requests": {"memory": "100Mi"}, "limits": {"memory": "200Mi"}}
    whole = pod("p", container("a"), resources=resources)
    assert plan_pod(whole, PROTECTING).memory_high == 190 * MIB
    assert plan_pod(whole, replace(PROTECTING, form=Form.V1_36)).memory_high is None
    assert plan_pod(whole, NODE).memory_high is None
    assert plan_pod(whole, replace(PROTECTING, throttling=None)).memory_high is None
    assert plan_pod(pod("p", container("a", limits=BOTH, **BOTH)), PROTECTING).memory_high is None
    equal = pod("p", container("a"), resources={"requests": {"memory": "1Mi"}, "limits": {"memory": "1Mi"}})
    assert plan_pod(equal, PROTECTING).memory_high is None
    undeclared = pod("p", container("a"), resources={"requests": {"memory": "1Mi"}})
    assert plan_pod(undeclared, PROTECTING).memory_high is None


def test_pod_memory_high_counts_claims() -> None:
    given_pod = pod(
        "p", container("a", limits={"memory": "200Mi"}, memory="100Mi"), resources={"limits": {"cpu": "1"}}
    )
    assert plan_pod(given_pod, PROTECTING).memory_high == 190 * MIB
    assert plan_pod(given_pod, PROTECTING, [charge("x", "a", memory="100Mi")]).memory_high == 290 * MIB


@given(charged_pods())
def test_claims_never_lower_a_pods_plan(case: tuple[Pod, tuple[ClaimCharge, ...]]) -> None:
    given_pod, charges = case
    before, after = plan_pod(given_pod, NODE, ()), plan_pod(given_pod, NODE, charges)
    assert before.cpu_shares <= after.cpu_shares
    assert (before.cpu_quota is None) == (after.cpu_quota is None)
    assert (before.cpu_quota or 0) <= (after.cpu_quota or 0)
    assert (before.memory is None) == (after.memory is None)
    assert (before.memory or 0) <= (after.memory or 0)
    assert all(limit <= after.huge_pages[size] for size, limit in before.huge_pages.items())


# -- sandboxes


def test_a_sandbox_receives_overhead_separately() -> None:
    given_pod = pod("p", container("a", limits=BOTH, **BOTH), overhead={"cpu": "500m", "memory": "28Mi"})
    found = plan_sandbox(given_pod, NODE, [charge("x", "a", cpu="1")])
    assert (found.resources.cpu_shares, found.resources.cpu_quota) == (2048, 200_000)
    assert found.resources.memory_limit == 100 * MIB
    assert found.overhead is not None
    assert (found.overhead.cpu_shares, found.overhead.cpu_quota) == (512, 50_000)
    assert found.overhead.memory_limit == 28 * MIB
    assert plan_sandbox(pod("p", container("a")), NODE).overhead is None


def test_a_sandbox_without_requests_takes_its_limits() -> None:
    given_pod = pod("p", container("a", limits={"cpu": "2"}))
    assert plan_sandbox(given_pod, NODE).resources.cpu_shares == 2048
    assert plan_sandbox(given_pod, NODE, exclusive=["a"]).resources.cpu_quota == -1
    oom = replace(NODE, single_process_oom_kill=False)
    assert plan_sandbox(given_pod, oom).resources.unified == {"memory.oom.group": "1"}


# -- tiers


def test_tiers_sum_up_their_pods() -> None:
    entry = {"resourceClaimName": "x", "containers": ["a"], "resources": {"cpu": "1", "memory": "1Mi"}}
    status = {"nodeAllocatableResourceClaimStatuses": [entry]}
    running = [
        pod("p", container("a", limits=BOTH, **BOTH)),
        pod("p", container("a", cpu="2", memory="7Mi"), status=status),
        pod("p", container("a", cpu="500m")),
        pod("p", container("a"), status=status),
    ]
    found = plan_qos_cgroups(running, NODE)
    assert (found.burstable_shares, found.best_effort_shares) == (3584, 2)
    assert found.memory_requests == {"Guaranteed": 100 * MIB, "Burstable": 8 * MIB}
    assert plan_qos_cgroups(running, OLD).burstable_shares == 2560
    assert plan_qos_cgroups(running, NODE, read_charges) == found
    assert plan_qos_cgroups(running, NODE, lambda _: ()).burstable_shares == 2560
    assert plan_qos_cgroups([], NODE).burstable_shares == 2


def test_parents_are_protected_with_their_pods() -> None:
    running = [pod("p", container("a", limits=BOTH, **BOTH)), pod("p", container("a", memory="7Mi"))]
    both, low = str(107 * MIB), str(7 * MIB)
    found = plan_qos_cgroups(running, PROTECTING)
    assert found.root_unified == {"memory.min": both, "memory.low": low}
    assert found.burstable_unified == {"memory.low": low}
    old = plan_qos_cgroups(running, replace(PROTECTING, form=Form.V1_36))
    assert old.root_unified == {"memory.min": both}
    off = plan_qos_cgroups(running, NODE)
    assert off.root_unified == {"memory.min": "0", "memory.low": "0"}
    assert plan_qos_cgroups(running, OLD).root_unified == {}
    assert plan_qos_cgroups(running, replace(PROTECTING, cgroup_version=1)).root_unified == {}


def test_the_recorded_qos_class_decides_the_tier() -> None:
    odd = pod("p", container("a", cpu="1"), status={"qosClass": "BestEffort"})
    assert plan_qos_cgroups([odd], NODE).burstable_shares == 2
