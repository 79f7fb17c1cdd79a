"""Host ports: the ports a pod needs, and conflicts."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.ledger.verdict import VerdictCode
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.filters.node_ports import NodePortsFilter, host_sockets
from plimsoll.scheduler.reasons import render
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import container, node, pod, sidecar
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of


def port(number: int, address: str = "", protocol: str = "") -> dict[str, Any]:
    return {"containerPort": number, "hostPort": number, "hostIP": address, "protocol": protocol}


def fits(snapshot: Snapshot, *wanted: dict[str, Any]) -> bool:
    rule = NodePortsFilter.pre_filter(pod_info_of(pod("p", host_ports=wanted), snapshot), snapshot)
    assert isinstance(rule, Filter)
    for reason in rule.filter_node(0):
        assert render(reason) == "node(s) didn't have free ports for the requested pod ports"
        assert reason.code is VerdictCode.UNSCHEDULABLE
    return bool(rule.filter()[0])


@pytest.mark.parametrize(
    ("used", "wanted", "free"),
    [
        (port(80), port(81), True),
        (port(80), port(80), False),
        (port(80), port(80, protocol="TCP"), False),
        (port(80), port(80, protocol="UDP"), True),
        (port(80, "10.0.0.1"), port(80, "10.0.0.2"), True),
        (port(80, "10.0.0.1"), port(80, "10.0.0.1"), False),
        (port(80, "10.0.0.1"), port(80, "0.0.0.0"), False),
        (port(80, "10.0.0.1"), port(80), False),
        (port(80), port(80, "10.0.0.1"), False),
        (port(80, "0.0.0.0", "SCTP"), port(80, "10.0.0.1", "SCTP"), False),
    ],
)
def test_collisions(used: dict[str, Any], wanted: dict[str, Any], free: bool) -> None:
    snapshot = snapshot_of(node("n"), pod("user", node="n", host_ports=[used]))
    assert fits(snapshot, wanted) is free
    assert not fits(snapshot, port(8080), used)
    snapshot.remove(pod("user"))
    assert fits(snapshot, wanted)


def test_host_ports_of_all_containers() -> None:
    made = pod(
        "p",
        container("a", host_ports=[80, 80, {"containerPort": 90}]),
        init=[sidecar("side", host_ports=[81]), container("init", host_ports=[82])],
    )
    assert host_sockets(made) == (("0.0.0.0", ("TCP", 81)), ("0.0.0.0", ("TCP", 80)))


def test_on_the_hosts_network_every_port_is_a_host_port() -> None:
    made = pod("p", container("a", host_ports=[{"containerPort": 90}]), host_network=True)
    assert host_sockets(made) == (("0.0.0.0", ("TCP", 90)),)
    assert (
        NodePortsFilter.pre_filter(pod_info_of(pod("p", host_network=True), snapshot_of()), snapshot_of())
        is None
    )


def test_a_port_is_free_when_its_last_user_is_gone() -> None:
    snapshot = snapshot_of(node("n"), pod("one", node="n", host_ports=[80]))
    assert not fits(snapshot, port(80))
    snapshot.set(pod("two", node="n", host_ports=[80]))
    snapshot.remove(pod("one"))
    assert not fits(snapshot, port(80))
    snapshot.remove(pod("two"))
    assert fits(snapshot, port(80))
