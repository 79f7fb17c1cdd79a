"""Memory QoS: memory.min, memory.low and memory.high."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import assume, given
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.api.forms import ClaimCharge, Form
from plimsoll.node.cgroup_plans import CgroupSettings, MemoryReservationPolicy, plan_containers
from plimsoll.node.cgroup_plans.memory import compute_memory_high
from tests.build import container, pod
from tests.unit.ledger.samples import charge

MIB = 1 << 20
NODE = CgroupSettings(
    memory_capacity=2048 * MIB,
    allocatable_memory=1000 * MIB,
    memory_qos=True,
    reservation=MemoryReservationPolicy.TIERED,
    single_process_oom_kill=True,
)
OLD = replace(NODE, form=Form.V1_36)


def unified(given_pod: Pod, settings: CgroupSettings = NODE, *charges: ClaimCharge) -> dict[str, str]:
    return dict(plan_containers(given_pod, settings, charges)[-1].unified)


def test_requests_are_protected_by_class() -> None:
    burstable = pod("p", container("a", limits={"memory": "200Mi"}, memory="100Mi"))
    assert unified(burstable)["memory.low"] == str(100 * MIB)
    guaranteed = pod("p", container("a", limits={"cpu": "1", "memory": "100Mi"}, cpu="1", memory="100Mi"))
    assert unified(guaranteed) == {"memory.min": str(100 * MIB)}
    unprotected = replace(NODE, reservation=MemoryReservationPolicy.NONE)
    assert unified(guaranteed, unprotected) == {"memory.min": "0", "memory.low": "0"}


def test_throttling_starts_short_of_the_limit() -> None:
    burstable = pod("p", container("a", limits={"memory": "200Mi"}, memory="100Mi"))
    assert unified(burstable)["memory.high"] == str(190 * MIB)
    assert unified(burstable, OLD)["memory.high"] == str(190 * MIB)
    unlimited = pod("p", container("a", memory="100Mi"))
    assert unified(unlimited)["memory.high"] == str(910 * MIB)
    unknown = replace(NODE, allocatable_memory=0)
    assert "memory.high" not in unified(unlimited, unknown)
    assert "memory.high" not in unified(burstable, replace(NODE, throttling=None))


def test_a_container_without_a_request_is_throttled_since_1_37() -> None:
    bare = pod("p", container("a", cpu="1"))
    assert "memory.high" not in unified(bare, OLD)
    assert unified(bare)["memory.high"] == str(900 * MIB)


def test_claims_raise_memory_high_but_not_memory_min() -> None:
    burstable = pod("p", container("a", limits={"memory": "200Mi"}, memory="100Mi"))
    found = unified(burstable, NODE, charge("x", "a", memory="100Mi"))
    assert found == {"memory.low": str(100 * MIB), "memory.high": str(280 * MIB)}
    guaranteed = pod("p", container("a", limits={"cpu": "1", "memory": "100Mi"}, cpu="1", memory="100Mi"))
    assert unified(guaranteed, NODE, charge("x", "a", memory="1Gi")) == {"memory.min": str(100 * MIB)}


def test_the_part_of_a_claim_is_protected_where_claims_count_for_qos() -> None:
    """The two containers share the claim: each has half of it."""
    node = replace(NODE, claims_in_qos=True)
    both = pod("p", *(container(name, limits={"memory": "200Mi"}, memory="100Mi") for name in "ab"))
    found = unified(both, node, charge("x", "a", "b", memory="100Mi"))
    # from 150Mi nine tenths of the way to the limit with the whole claim
    assert found == {"memory.low": str(150 * MIB), "memory.high": str(285 * MIB)}
    bare = unified(pod("p", container("a")), node, charge("x", "a", memory="100Mi"))
    assert bare["memory.low"] == str(100 * MIB)


def test_a_pod_limited_as_a_whole_is_throttled_as_a_whole() -> None:
    whole = pod("p", container("a", memory="100Mi"), resources={"limits": {"memory": "200Mi"}})
    assert "memory.high" not in unified(whole)
    assert unified(whole, OLD)["memory.high"] == str(910 * MIB)
    assert unified(whole, replace(NODE, pod_level=False))["memory.high"] == str(910 * MIB)


def test_disabling_memory_qos_resets_memory_high_since_1_37() -> None:
    burstable = pod("p", container("a", limits={"memory": "200Mi"}, memory="100Mi"))
    assert unified(burstable, replace(NODE, memory_qos=False)) == {"memory.high": "max"}
    assert unified(burstable, replace(OLD, memory_qos=False)) == {}
    assert unified(burstable, replace(NODE, cgroup_version=1)) == {}


def test_memory_high_is_exact() -> None:
    factor = Fraction(57, 100)
    limit = 100 * 4096
    assert compute_memory_high(0, limit, factor, 4096) == 57 * 4096
    # floating point lands a hair below the page and would give the one before it
    assert int(limit * 0.57 / 4096) * 4096 == 56 * 4096
    assert compute_memory_high(1, 2**62, Fraction(9, 10), 1) == 1 + (2**62 - 1) * 9 // 10


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_memory_high_equals_the_kubelets_float_result_for_the_default_factor(
    request: int, limit: int
) -> None:
    assume(request <= limit)
    high = int((request + (limit - request) * 0.9) // 4096 * 4096)
    assert compute_memory_high(request, limit, Fraction(9, 10), 4096) == (high if high > request else None)
