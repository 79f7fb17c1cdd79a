"""Explanations of pending pods on the clusters of `../shared/cases`."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from plimsoll.api.resource import ResourceClaim
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.explain import PodExplanation, explain_pod
from plimsoll.tools.explain.text import StatementKind
from plimsoll.tools.explain.tree import Statement
from tests.cases.cases import case_objects, case_state
from tests.dumps import make_cluster_state

ROOT = "resource.kubernetes.io/pcieRoot"


def explain(*names: str, pod: str = "d/p") -> tuple[ClusterState, PodExplanation]:
    state = case_state(*names)
    return state, explain_pod(state, state.pod(pod))


def statements(*branches: Statement) -> Iterator[Statement]:
    for branch in branches:
        yield branch
        yield from statements(*branch.children)


def all_statements(explanation: PodExplanation) -> list[Statement]:
    groups = [each for group in explanation.groups for each in statements(*group.branches)]
    return groups + [each for section in explanation.sections for each in statements(*section.branches)]


def of_kind(explanation: PodExplanation, kind: StatementKind) -> list[Statement]:
    return [each for each in all_statements(explanation) if each.kind is kind]


@pytest.mark.parametrize("names", [("small/min-align.yaml",), ("small/min-align.yaml", "small/nic.yaml")])
def test_a_constraint_is_named_with_the_values_present(names: tuple[str, ...]) -> None:
    _, explanation = explain(*names)
    nearest = explanation.groups[0]
    first = nearest.branches[0]
    assert nearest.nodes == ("n1",)
    assert first.kind is StatementKind.CONSTRAINT_UNMET
    assert (first.facts["attribute"], first.facts["index"], first.facts["node"]) == (ROOT, 0, "n1")
    assert all(value in str(first.facts["values"]) for value in ("pci0000:15", "pci0000:3d"))
    assert "2 of 2" not in first.text


def test_a_device_of_another_driver_is_no_candidate() -> None:
    _, explanation = explain("small/min-align.yaml", "small/nic.yaml")
    (other,) = [group for group in explanation.groups if group.nodes == ("n2",)]
    assert [each.kind for each in other.branches] == [StatementKind.NO_DRIVER]
    assert other.branches[0].facts["driver"] == "gpu.nvidia.com"
    assert "eth1" not in " ".join(each.text for each in all_statements(explanation))


@pytest.mark.parametrize("name", ["min-class", "min-sel"])
def test_a_selector_names_attribute_wanted_value_and_values_present(name: str) -> None:
    _, explanation = explain(f"small/{name}.yaml")
    (found,) = of_kind(explanation, StatementKind.ATTRIBUTE)
    expected = {"attribute": "type", "wanted": "mig", "driver": "gpu.nvidia.com", "node": "n1"}
    assert {key: found.facts[key] for key in expected} == expected
    assert found.facts["values"] == ("gpu (2)",)


def test_the_devices_of_a_pool_of_two_nodes_are_counted_once() -> None:
    _, explanation = explain("small/min-net.yaml")
    (found,) = of_kind(explanation, StatementKind.NOWHERE)
    assert found.facts["devices"] == 2
    (why,) = of_kind(explanation, StatementKind.WANTS_SHARED)
    assert why.facts["driver"] == "imex.nvidia.com"


def test_an_incomplete_pool_of_another_driver_is_no_reason() -> None:
    _, explanation = explain("small/newcomer-1.json", pod="p")
    assert not of_kind(explanation, StatementKind.POOL)
    state = case_state("real/messy-cluster.json.gz")
    for pod in state.pending:
        wanted = {body.device_class_name for body in _requests(state, pod)}
        for pool in of_kind(explain_pod(state, pod), StatementKind.POOL):
            driver: Any = pool.facts["pool"]
            assert any(driver.driver in _selectors(state, name) for name in wanted), pod.metadata.name


def _requests(state: ClusterState, pod: Any) -> list[Any]:
    names = {each.resource_claim_name for each in pod.status.resource_claim_statuses}
    names |= {each.resource_claim_name for each in pod.spec.resource_claims}
    claims = [
        each for each in state.objects.all(ResourceClaim) if each.metadata.namespace == pod.metadata.namespace
    ]
    return [
        request.exactly
        for claim in claims
        if claim.metadata.name in names
        for request in claim.spec.devices.requests
        if request.exactly is not None
    ]


def _selectors(state: ClusterState, name: str) -> str:
    found = state.snapshot.classes.get(name)
    return " ".join(each.cel.expression for each in found.spec.selectors if each.cel) if found else ""


def test_a_device_that_the_plugin_may_have_given_out() -> None:
    _, explanation = explain("small/dual.yaml", pod="d/next")
    assert explanation.node == ""
    (plugin,) = of_kind(explanation, StatementKind.PLUGIN)
    assert plugin.facts["resource"] == "nvidia.com/gpu"
    assert any("kube-scheduler would place it on node n1" in note for note in explanation.notes)
    (total,) = of_kind(explanation, StatementKind.EVERYWHERE)
    assert {key: total.facts[key] for key in ("all", "taken", "closed", "free")} == {
        "all": 2,
        "taken": 1,
        "closed": 1,
        "free": 0,
    }


def test_an_extended_resource_that_nothing_provides() -> None:
    state = case_state("real/gpu-cluster.json.gz")
    name = "intel-deployment-extended-resources"
    (pod,) = [each for each in state.pending if each.metadata.namespace == name]
    explanation = explain_pod(state, pod)
    (found,) = of_kind(explanation, StatementKind.UNPROVIDED)
    assert found.facts["resource"] == "intel.com/gaudi"


def test_no_class_of_another_device_is_proposed() -> None:
    state = case_state("real/gpu-cluster.json.gz")
    named = [each for each in state.pending if each.metadata.namespace == "intel-deployment-inline"]
    explanation = explain_pod(state, next(each for each in named if "qat" in each.metadata.name))
    found = explanation.found
    text = " ".join([*(fix.text for fix in found.fixes), *(hint.text for hint in found.hints)])
    assert "qat.intel.com" in text
    assert "gaudi.intel.com" not in text


def test_a_group_of_tainted_nodes_is_shown_by_the_node_nearest_to_fitting() -> None:
    """p03-taint wants 600Gi: of the nodes with a taint, those of the fix have that much."""
    state = case_state("real/messy-cluster.json.gz")
    (pod,) = [each for each in state.pending if each.metadata.name == "p03-taint"]
    explanation = explain_pod(state, pod)
    tainted = max(explanation.groups, key=lambda group: "taint" in group.message and group.count)
    assert tainted.count == 18
    assert tainted.nearest in explanation.found.fixes[0].nodes


def test_an_error_of_a_selector_on_an_allocated_device_is_shown() -> None:
    """All devices of the class in `dual` are in use or withheld; none has the attribute."""
    trees = deepcopy(case_objects("small/dual.yaml"))
    (wanted,) = [tree for tree in trees if tree["metadata"]["name"] == "wanted"]
    selector = {"cel": {"expression": "device.attributes['gpu.nvidia.com'].vram > 20"}}
    wanted["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = [selector]
    state = make_cluster_state(trees)
    explanation = explain_pod(state, state.pod("d/next"))
    (failed,) = of_kind(explanation, StatementKind.FAILS_ON)
    assert "no such key: vram" in str(failed.facts["error"])
