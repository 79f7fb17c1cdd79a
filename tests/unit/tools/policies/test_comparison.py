"""Comparison of the four policies, against ledgers of objects with the policy in their slices."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api import codec
from plimsoll.api.resource import ResourceSlice
from plimsoll.ledger.verdict import Cause
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState, Source, read_cluster_state
from plimsoll.tools.colors import PLAIN, Paint
from plimsoll.tools.policies import AS_IS, COLUMNS, POLICIES, compare_policies
from tests.build import charging_device, claim, container, node, pod, resource_slice, result
from tests.dumps import USECASES, usecase_dump
from tests.outputs import GOLDEN_DIR, check_json_fields, check_output
from tests.sizes import examples
from tests.unit.ledger.samples import bodies, make_pod, on, rules

FIXTURE = str(GOLDEN_DIR.parents[1] / "examples" / "top" / "cluster.yaml")


def with_policy(resource_slice: ResourceSlice, policy: str) -> ResourceSlice:
    """Return the slice with this policy in every mapping."""
    tree: Any = codec.to_tree(resource_slice)
    for each in tree["spec"].get("devices") or ():
        for rule in each.get("nodeAllocatableResourceMappings", {}).values():
            rule["accountingPolicy"] = policy
    return codec.convert(tree, ResourceSlice)


@st.composite
def clusters(draw: st.DrawFn) -> list[Any]:
    devices = [charging_device(f"d{i}", **draw(rules())) for i in range(5)]
    claims = [claim(f"claim-{i}", results=[result(f"d{i}")]) for i in range(5)]
    pods = [on(make_pod(f"p{i}", draw(bodies()))) for i in range(draw(st.integers(1, 3)))]
    return [node(cpu="9"), resource_slice(devices), *claims, *pods]


@settings(max_examples=examples(60), deadline=None)
@given(clusters())
def test_a_column_equals_a_ledger_with_that_policy(objects: list[Any]) -> None:
    """Reference: write the policy into the slices and charge them in a snapshot."""
    report = compare_policies(ClusterState(ClusterObjects(objects)))
    for policy in POLICIES:
        changed = [with_policy(e, policy.value) if isinstance(e, ResourceSlice) else e for e in objects]
        snapshot = ClusterState(ClusterObjects(changed)).snapshot
        place = snapshot.row_of("node-1")
        assert place is not None
        charged = snapshot.ledger(place).requested
        for row in report.nodes:
            assert row.charged[policy.value] == charged.get(row.resource, 0), (policy, row)
    snapshot = ClusterState(ClusterObjects(objects)).snapshot
    place = snapshot.row_of("node-1")
    assert place is not None
    for row in report.nodes:
        assert row.charged[AS_IS] == snapshot.ledger(place).requested.get(row.resource, 0)


@settings(max_examples=examples(60), deadline=None)
@given(clusters())
def test_pods_and_pools_add_up_to_the_node(objects: list[Any]) -> None:
    """Pods with claims, shared pools and pods without claims add up to the node's charge."""
    cluster_state = ClusterState(ClusterObjects(objects))
    report = compare_policies(cluster_state)
    place = cluster_state.snapshot.row_of("node-1")
    assert place is not None
    for row in report.nodes:
        for column in COLUMNS:
            mine = [each.charged[column] for each in report.pods if each.resource == row.resource]
            rows = {each.pod for each in report.pods if each.resource == row.resource}
            rest = sum(
                entry.units.get(row.resource, 0)
                for entry in cluster_state.snapshot.ledger(place).entries.values()
                if entry.pod.metadata.name not in rows
            )
            assert sum(mine) + rest == row.charged[column]


def small(*containers: Any, policy: str = "", amount: str = "4", pods: int = 1, **spec: Any) -> ClusterState:
    mapping = {"allocationMultiplier": amount, **({"accountingPolicy": policy} if policy else {})}
    made = [on(pod(f"p{i}", *containers, **spec)) for i in range(pods)]
    return ClusterState(
        ClusterObjects(
            [
                node(cpu="9"),
                resource_slice([charging_device("d0", cpu=mapping)]),
                claim("c", results=[result("d0")]),
                *made,
            ]
        )
    )


def charged(cluster_state: ClusterState) -> dict[str, int]:
    (row,) = [row for row in compare_policies(cluster_state).nodes if row.resource == "cpu"]
    return dict(row.charged)


def test_the_numbers_of_kep_5517() -> None:
    """Requests of 1 and 2, a claim of 4 that both containers refer to."""
    cluster_state = small(container("a", "c", cpu="1"), container("b", "c", cpu="2"))
    assert charged(cluster_state) == {
        AS_IS: 7000,
        "AddPerClaim": 7000,
        "AddPerReference": 11000,
        "Max": 4000,
        "ConsumeFrom": 4000,
    }


def test_the_recorded_status_is_not_compared() -> None:
    status = {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "c", "resources": {"cpu": "1"}}]}
    found = charged(small(container("a", "c", cpu="1"), status=status))
    assert found[AS_IS] == 2000
    assert found["AddPerClaim"] == 5000


def test_a_missing_claim_is_read_from_the_pod_status() -> None:
    status = {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "c", "resources": {"cpu": "3"}}]}
    made = on(pod("p", container("a", "c", cpu="1"), status=status))
    report = compare_policies(ClusterState(ClusterObjects([node(cpu="9"), made])))
    (row,) = [row for row in report.nodes if row.resource == "cpu"]
    assert row.charged["AddPerClaim"] == 4000
    assert report.believed == (("default/p", "c"),)


@pytest.mark.parametrize(
    ("cluster_state", "column", "cause"),
    [
        (small(container("a", "c"), pods=2), "AddPerClaim", Cause.SHARED_BY_SEVERAL),
        (small(container("a", "c"), pods=2), "Max", Cause.SHARED_BY_SEVERAL),
        (small(container("a", "c", cpu="5")), "ConsumeFrom", Cause.POOL_EXHAUSTED),
        (
            small(container("a", "c"), resources={"requests": {"cpu": "6"}}),
            "ConsumeFrom",
            Cause.POOL_UNDER_POD_LEVEL,
        ),
        (
            small(container("a", "c"), resources={"requests": {"cpu": "1"}}),
            "AddPerClaim",
            Cause.POD_LEVEL_REQUEST,
        ),
    ],
)
def test_pods_that_a_policy_refuses(cluster_state: ClusterState, column: str, cause: Cause) -> None:
    found = {(each.column, each.reason.cause) for each in compare_policies(cluster_state).refusals}
    assert (column, cause) in found


def test_nodes_past_their_line() -> None:
    report = compare_policies(small(container("a", "c", cpu="2"), container("b", "c"), container("d", "c")))
    assert {column: report.past(column) for column in COLUMNS} == {
        AS_IS: [],
        "AddPerClaim": [],
        "AddPerReference": ["node-1"],
        "Max": [],
        "ConsumeFrom": [],
    }


def test_without_claims_there_is_nothing_to_compare() -> None:
    report = compare_policies(
        ClusterState(ClusterObjects([node(cpu="9"), on(pod("p", container("a", cpu="1")))]))
    )
    assert [*report.lines(PLAIN)] == [
        "No scheduled pod has a claim that is charged to its node: all policies are equal."
    ]


def test_the_output() -> None:
    report = compare_policies(read_cluster_state(Source((FIXTURE,))))
    text = "".join(f"{line}\n" for line in report.lines(PLAIN))
    check_output("policies/policies.txt", text)
    check_output("policies/wide.txt", "".join(f"{line}\n" for line in report.lines(PLAIN, wide=True)))
    check_json_fields("policies/json-fields.txt", report.as_json())
    terminal = report.lines(Paint(width=100, is_terminal=True))
    assert all(len(line) <= 100 for line in terminal)


def test_a_namespace_keeps_the_nodes() -> None:
    cluster_state = read_cluster_state(Source((FIXTURE,)))
    report = compare_policies(cluster_state, namespace="web")
    assert {row.namespace for row in report.pods} == {"web"}
    assert len({row.node for row in report.nodes}) == 3


@pytest.mark.parametrize("name", USECASES)
def test_observed_use_cases(name: str) -> None:
    report = compare_policies(read_cluster_state(Source((str(usecase_dump(name)),))))
    assert list(report.lines(PLAIN))
    json.dumps(report.as_json())
