"""Quotas and shares of namespaces."""

from __future__ import annotations

from typing import Any

from plimsoll.api.codec import convert
from plimsoll.api.quota import ResourceQuota
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.report import as_text
from plimsoll.tools.top import namespace_rows
from plimsoll.tools.top.top import top
from tests.build import node, pod


def quota(name: str, namespace: str, hard: dict[str, str], used: dict[str, str] | None = None) -> Any:
    status = {} if used is None else {"hard": hard, "used": used}
    tree = {"metadata": {"name": name, "namespace": namespace}, "spec": {"hard": hard}, "status": status}
    return convert(tree, ResourceQuota)


def state() -> ClusterState:
    return ClusterState(
        ClusterObjects(
            [
                node("n", cpu="8", memory="32Gi"),
                pod("a", cpu="2", memory="8Gi", node="n", namespace="shop"),
                pod("b", cpu="1", node="n", namespace="ml"),
                quota("q", "shop", {"requests.cpu": "2", "pods": "10"}, {"requests.cpu": "2", "pods": "1"}),
                quota("new", "empty", {"cpu": "1500m"}),
            ]
        )
    )


def test_shares_are_of_what_all_nodes_have_allocatable() -> None:
    rows = {row.namespace: row for row in namespace_rows(state())}
    assert (rows["shop"].share("cpu"), rows["shop"].share("memory")) == ("25%", "25%")
    assert (rows["ml"].share("cpu"), rows["empty"].share("cpu")) == ("12%", "0%")
    assert rows["shop"].as_json()["resources"][0]["share"] == "25%"


def test_quotas_are_shown_with_their_usage() -> None:
    rows = {row.namespace: row for row in namespace_rows(state())}
    assert [(each.resource, each.is_full) for each in rows["shop"].quotas] == [
        ("pods", False), ("requests.cpu", True),
    ]  # fmt: skip
    assert rows["empty"].quotas[0].used is None
    text = as_text(top(state(), "namespaces"))
    lines = {tuple(line.split()) for line in text.splitlines()}
    assert lines >= {
        ("empty", "new", "cpu", "-", "1.5", "-"),
        ("shop", "q", "pods", "1", "10", "10%"),
        ("shop", "q", "requests.cpu", "2", "2", "100%"),
    }
    assert namespace_rows(state(), "shop")[0].quotas == rows["shop"].quotas


def test_without_quotas_there_is_no_table() -> None:
    things = [each for each in state().objects if not isinstance(each, ResourceQuota)]
    assert "QUOTA" not in as_text(top(ClusterState(ClusterObjects(things)), "namespaces"))
