"""Exclusive CPUs of containers, from the runtime and from claims."""

from __future__ import annotations

import pytest

from plimsoll.api.core import Pod
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.exclusive_cpus import containers_with_claimed_cpus
from tests.build import container, pod


def charged(cpu: str, **fields: str) -> Pod:
    entry = {"resourceClaimName": "x", "containers": ["a"], "mapping": [{"name": "cpu", "quantity": cpu}]}
    entry |= fields
    return pod(
        "p",
        container("a"),
        container("b"),
        uid="p",
        status={"nodeAllocatableResourceClaimStatuses": [entry]},
    )


def state(
    name: str, cpus: str, pod: str = "p", phase: ContainerPhase = ContainerPhase.RUNNING
) -> ContainerInfo:
    return ContainerInfo(id=f"{pod}-{name}", pod=pod, name=name, attempt=0, phase=phase, cpus=cpus)


@pytest.mark.parametrize(
    ("cpu", "states", "expected"),
    [
        ("2", (state("a", "2-3"), state("b", "0-1")), {"a"}),
        ("2", (state("a", "2-3"), state("b", "0-2")), set()),  # not its own
        ("2", (state("a", "2-3"), state("b", "")), set()),  # the other one may run anywhere
        ("2", (state("a", "2-3"), state("b", "0-3", phase=ContainerPhase.EXITED)), {"a"}),
        ("1", (state("a", "0-3"),), set()),  # alone on shared CPUs
        ("2", (state("b", "2-3"),), set()),  # does not refer to the claim
        ("2", (state("a", "2-3", pod="other"), state("a", "0-1")), {"a"}),
        ("2", (state("a", "2-3", pod="other"), state("b", "0-1")), set()),
    ],
)
def test_exclusive_cpus_come_from_claims(
    cpu: str, states: tuple[ContainerInfo, ...], expected: set[str]
) -> None:
    assert containers_with_claimed_cpus(charged(cpu), states) == expected
