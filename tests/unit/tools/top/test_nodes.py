"""Rows of nodes, pods and namespaces add up exactly to the amounts of the ledgers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.errors import InputError
from plimsoll.ledger.claims import ChargedClaim
from plimsoll.ledger.entries import LedgerEntry
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.top import format_amount, holders, namespace_rows, node_rows, pod_rows
from plimsoll.tools.top.nodes import entry_columns, entry_holders, node_row_of
from tests.build import charging_device, claim, container, node, pod, resource_slice, result
from tests.sizes import examples
from tests.unit.ledger.samples import bodies, charged_pods, make_pod, on, rules

SHARING = AccountingProfile(name="sharing", share_per_claim=True)


@st.composite
def cluster_states(draw: st.DrawFn) -> ClusterState:
    """One node with pods that share claims under any policies, and a pod of another node."""
    devices = [charging_device(f"d{i}", **draw(rules())) for i in range(5)]
    claims = [claim(f"claim-{i}", results=[result(f"d{i}")]) for i in range(5)]
    pods = [on(make_pod(f"p{i}", draw(bodies()))) for i in range(draw(st.integers(0, 4)))]
    pods.append(on(pod("stray", container("c", cpu="1")), "nowhere"))
    profile = SHARING if draw(st.booleans()) else AccountingProfile.default()
    return ClusterState(
        ClusterObjects([node(cpu="9"), resource_slice(devices), *claims, *pods]), profile=profile
    )


@settings(max_examples=examples(80), deadline=None)
@given(cluster_states())
def test_rows_add_up_to_the_charges(cluster_state: ClusterState) -> None:
    (node_row,) = node_rows(cluster_state)
    place = cluster_state.snapshot.row_of("node-1")
    assert place is not None
    ledger = cluster_state.snapshot.ledger(place)
    assert {row.resource: row.used for row in node_row.rows if row.used} == {
        name: amount for name, amount in ledger.requested.items() if amount
    }
    assert {row.resource: row.free for row in node_row.rows} == {
        name: left for name, left in ledger.headroom().items() if name != "pods"
    }
    assert node_row.pods == len(ledger)
    totals: dict[str, int] = {}
    for holder in holders(cluster_state, "node-1"):
        totals[holder.resource] = totals.get(holder.resource, 0) + holder.amount
    assert {n: t for n, t in totals.items() if t} == {n: t for n, t in ledger.requested.items() if t}


@settings(max_examples=examples(60), deadline=None)
@given(cluster_states())
def test_pods_and_namespaces_add_up_to_the_same(cluster_state: ClusterState) -> None:
    (node_row,) = node_rows(cluster_state)
    of_pods: dict[str, int] = {}
    for row in pod_rows(cluster_state):
        if row.node:
            for name, parts in row.amounts.items():
                of_pods[name] = of_pods.get(name, 0) + sum(parts)
    of_spaces: dict[str, int] = {}
    for space in namespace_rows(cluster_state):
        for name, parts in space.amounts.items():
            of_spaces[name] = of_spaces.get(name, 0) + sum(parts)
    charged = {row.resource: row.used for row in node_row.rows if row.used}
    assert {name: amount for name, amount in of_pods.items() if amount} == charged
    assert of_spaces == of_pods


@settings(max_examples=examples(80), deadline=None)
@given(charged_pods(), st.booleans())
def test_columns_and_holders_add_up_to_the_charges(found: tuple[Pod, Any], share: bool) -> None:
    made, charges = found
    ledger = NodeLedger(node(cpu="9"), profile=SHARING if share else None)
    entry = ledger.add(made, [ChargedClaim(charge) for charge in charges])
    sums = {name: sum(parts) for name, parts in entry_columns(entry).items()}
    assert {n: t for n, t in sums.items() if t} == {n: t for n, t in entry.units.items() if t}
    held: dict[str, int] = {}
    for holder in entry_holders(entry):
        held[holder.resource] = held.get(holder.resource, 0) + holder.amount
    assert {n: t for n, t in held.items() if t} == {n: t for n, t in entry.units.items() if t}


def tidy(columns: dict[str, tuple[int, int, int]]) -> dict[str, tuple[int, int, int]]:
    return {name: parts for name, parts in columns.items() if any(parts)}


def entry_of(made: Pod, *charged_claims: ChargedClaim) -> LedgerEntry:
    return NodeLedger(node(cpu="9")).add(made, charged_claims)


def test_what_is_drawn_from_a_pool_is_not_requested_of_the_node() -> None:
    shared = charging_device("d0", cpu={"allocationMultiplier": "4", "accountingPolicy": "ConsumeFrom"})
    pods = [on(pod(f"p{i}", container("c", "pool", cpu="1"))) for i in range(2)]
    cluster_state = ClusterState(
        ClusterObjects(
            [node(cpu="9"), resource_slice([shared]), claim("pool", results=[result("d0")]), *pods]
        )
    )
    (node_row,) = node_rows(cluster_state)
    row = node_row.row("cpu")
    assert (row.requests, row.claims, row.overhead, row.free) == (0, 4000, 0, 5000)
    whole = holders(cluster_state, "node-1", "cpu")[0]
    assert (whole.amount, whole.pod, whole.claim, whole.rule) == (4000, "", "pool", "ConsumeFrom")


def test_headroom_past_the_line_is_negative() -> None:
    pods = [on(pod("big", container("c", cpu="10")))]
    (node_row,) = node_rows(ClusterState(ClusterObjects([node(cpu="9"), *pods])))
    assert node_row.past == ("cpu",)
    assert node_row.row("cpu").free == -1000


def test_devices_of_charges_in_a_status_come_from_the_claim() -> None:
    status = {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "x", "resources": {"cpu": "2"}}]}
    made = on(pod("p", container("c", "x"), status=status))
    cluster_state = ClusterState(
        ClusterObjects(
            [
                node(cpu="9"),
                resource_slice([charging_device("d0", cpu="2")]),
                claim("x", results=[result("d0")]),
                made,
            ]
        )
    )
    (holder,) = holders(cluster_state, "node-1")
    assert [str(each) for each in holder.devices] == ["gpu.example.com/p/d0"]


def test_an_unknown_node_has_no_holders() -> None:
    with pytest.raises(InputError, match="node x not found"):
        holders(ClusterState(ClusterObjects([node(cpu="9")])), "x")


def test_ledgers_of_some_nodes() -> None:
    cluster_state = ClusterState(ClusterObjects([*map(node, "bac")]))
    assert [node_row.name for node_row in node_rows(cluster_state)] == ["a", "b", "c"]
    assert [node_row.name for node_row in node_rows(cluster_state, names=["c", "a", "x"])] == ["a", "c"]


def test_a_node_without_conditions_is_ready() -> None:
    assert node_row_of(NodeLedger(node(cpu="9"))).ready


@pytest.mark.parametrize(
    ("resource", "units", "text"),
    [("cpu", 1500, "1500m"), ("cpu", -2000, "-2"), ("memory", 2**30, "1Gi"), ("pods", 7, "7")],
)
def test_amounts_are_written_as_kubernetes_does(resource: str, units: int, text: str) -> None:
    assert format_amount(resource, units) == text
