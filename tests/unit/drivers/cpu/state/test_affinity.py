"""CPUs near the other devices of a claim."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.cpuset import CpuSet
from plimsoll.drivers.cpu.state.affinity import find_affinity, needs_affinity
from plimsoll.drivers.plugin.driver import AllocatedClaim
from tests.unit.drivers.cpu.state.fixtures import (
    NICS,
    NUMA,
    ROOT,
    AllocationSpec,
    make_claim,
    make_rooted,
    slice_of,
)


def constraints(
    *nics: str, attribute: str = ROOT, requests: tuple[str, ...] = (), **more: Any
) -> AllocatedClaim:
    others = [AllocationSpec(nic, request=f"nic-{nic}", driver="nic.example.com") for nic in nics]
    constraint = {"matchAttribute": attribute, "requests": list(requests)}
    return make_claim(1, AllocationSpec("cpudevnuma000", "2"), *others, constraints=[constraint], **more)


@pytest.mark.parametrize(
    ("claim", "affinity"),
    [
        (constraints("eth0"), "2-3"),
        (constraints("eth1"), "4-7"),
        (constraints("eth0", attribute=NUMA), "0-3"),
        (constraints("eth1", attribute="dra.net/numaNode"), ""),
        (constraints("eth0", "eth1"), "2-7"),  # near either: no CPU is near both
        (constraints("eth0", "eth1", requests=("cpus", "nic-eth0")), "2-3"),
        (constraints("bare"), ""),
        (constraints("far"), ""),
        (constraints("unknown"), ""),
    ],
)
def test_cpus_near_a_device(claim: AllocatedClaim, affinity: str) -> None:
    assert needs_affinity(claim)
    found = find_affinity(claim, [NICS], make_rooted())
    assert found == ({"cpus": CpuSet.parse(affinity)} if affinity else {})


@pytest.mark.parametrize(
    "claim",
    [
        make_claim(1, AllocationSpec("cpudevnuma000", "2")),
        make_claim(1, allocated=False),
        constraints("eth0", attribute="nic.example.com/speed"),
        constraints("eth0", requests=("cpus", "other")),
        constraints("eth0", requests=("nic-eth0",)),
        constraints(),
    ],
)
def test_claims_without_match_attribute_constraints(claim: AllocatedClaim) -> None:
    assert not needs_affinity(claim)
    assert find_affinity(claim, [NICS], make_rooted()) == {}


def test_two_constraints_of_one_request() -> None:
    others = [AllocationSpec("eth0", request="a", driver="nic.example.com")]
    both = [{"matchAttribute": NUMA}, {"matchAttribute": ROOT}]
    claim = make_claim(1, AllocationSpec("cpudevnuma000", "2"), *others, constraints=both)
    assert find_affinity(claim, [NICS], make_rooted()) == {"cpus": CpuSet([2, 3])}


def test_subrequests_have_the_constraints_of_their_parent() -> None:
    others = [AllocationSpec("eth0", request="nic/fast", driver="nic.example.com")]
    constraint = {"matchAttribute": ROOT, "requests": ["cpus", "nic"]}
    claim = make_claim(
        1, AllocationSpec("cpudevnuma000", "2", "cpus/many"), *others, constraints=[constraint]
    )
    assert find_affinity(claim, [NICS], make_rooted()) == {"cpus": CpuSet([2, 3])}


def test_the_newest_slice_counts() -> None:
    new = slice_of(2, eth0={ROOT: {"string": "pci0000:00"}})
    for slices in ([NICS, new], [new, NICS]):
        assert find_affinity(constraints("eth0"), slices, make_rooted()) == {"cpus": CpuSet([0, 1])}
    other = slice_of(9, driver="other.example.com", eth0={ROOT: {"string": "pci0000:30"}})
    assert find_affinity(constraints("eth0"), [NICS, other], make_rooted()) == {"cpus": CpuSet([2, 3])}
