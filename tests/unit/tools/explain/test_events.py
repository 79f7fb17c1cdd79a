"""Events in explanations: from files and from a cluster, the latest of the right object, a few of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plimsoll.tools.cluster_state import ClusterState, Source, read_cluster_state
from plimsoll.tools.cluster_state.objects import ClusterObjects
from plimsoll.tools.cluster_state.related_query import add_related
from plimsoll.tools.dump import collect_objects
from plimsoll.tools.dump.dump import MAX_EVENTS as MAX_DUMPED
from plimsoll.tools.explain import explain_pod
from plimsoll.tools.explain.events import MAX_EVENTS, MAX_MESSAGE
from plimsoll.tools.explain.text import StatementKind
from plimsoll.tools.explain.tree import Statement
from tests.dumps import big_cluster, write_dump
from tests.unit.tools.cluster_state.fake_api_server import FakeApiServer

POD = "waiting-0000"


def event(number: int, name: str = POD, **fields: Any) -> dict[str, Any]:
    about = {"kind": "Pod", "namespace": "work", "name": name}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{number}", "namespace": "work"},
        "involvedObject": about,
        "reason": f"Reason{number}",
        "message": "m",
        "type": "Warning",
        "lastTimestamp": f"2026-01-01T00:{number:02}:00Z",
        **fields,
    }


def events_of(state: ClusterState, name: str = POD) -> list[Statement]:
    sections = explain_pod(state, state.pod(name)).sections
    found = [branch for section in sections for branch in section.branches]
    return [each for each in found if each.kind is StatementKind.EVENT]


def read(directory: Path, *events: dict[str, Any], form: str = "json") -> ClusterState:
    path = write_dump([*big_cluster(1), *events], directory / f"dump.{form}", form)
    return read_cluster_state(Source((str(path),)))


@pytest.mark.parametrize("form", ["json", "yaml"])
def test_the_latest_events_of_the_pod_are_shown(tmp_path: Path, form: str) -> None:
    given = [event(number) for number in range(9)] + [event(20, "waiting-0001")]
    found = events_of(read(tmp_path, *given, form=form))
    assert [each.facts["reason"] for each in found] == [f"Reason{8 - number}" for number in range(MAX_EVENTS)]


def test_events_of_both_versions_are_read(tmp_path: Path) -> None:
    new = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "new", "namespace": "work"},
        "regarding": {"kind": "Pod", "namespace": "work", "name": POD},
        "note": "x" * 2 * MAX_MESSAGE,
        "series": {"count": 7, "lastObservedTime": "2026-01-01T00:59:00.000000Z"},
        "reportingController": "kubelet",
    }
    first, second = events_of(read(tmp_path, event(1, count=3), new))
    assert (first.facts["source"], first.facts["count"], second.facts["count"]) == ("kubelet", 7, 3)
    assert len(str(first.facts["message"])) == MAX_MESSAGE


def test_events_of_an_earlier_pod_of_the_name_are_left_out(tmp_path: Path) -> None:
    about = {"kind": "Pod", "namespace": "work", "name": POD, "uid": "of-another"}
    assert events_of(read(tmp_path, event(1, involvedObject=about))) == []


@pytest.mark.parametrize("broken", [{"series": []}, {"source": 3}, {"message": None}, {"involvedObject": []}])
def test_a_malformed_event_does_no_harm(tmp_path: Path, broken: dict[str, Any]) -> None:
    assert len(events_of(read(tmp_path, event(1, **broken), event(2)))) in (1, 2)


def test_events_and_a_workload_of_a_cluster_are_read() -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": POD, "namespace": "work"},
    }
    server = FakeApiServer([event(1), deployment])
    objects = ClusterObjects()
    asyncio.run(add_related(server.client(), objects, "work", [POD], "Deployment"))
    assert list(objects.related.events_about("Pod", "work", POD)) == [event(1)]
    assert objects.related.find("Deployment", "work", POD) == deployment


def test_events_that_may_not_be_listed_are_left_out() -> None:
    server, objects = FakeApiServer([event(1)]), ClusterObjects()
    server.refused["/api/v1/namespaces/work/events"] = 403
    asyncio.run(add_related(server.client(), objects, "work", [POD]))
    assert list(objects.related.events_about("Pod", "work", POD)) == []


def test_a_dump_has_the_latest_events_of_its_objects(tmp_path: Path) -> None:
    given = [event(number) for number in range(30)] + [event(1, "deleted")]
    path = write_dump([*big_cluster(1), *given], tmp_path / "dump.json", "json")
    trees, _ = collect_objects(Source((str(path),)))
    times = [tree["lastTimestamp"] for tree in trees if tree["kind"] == "Event"]
    assert sorted(times) == [each["lastTimestamp"] for each in given[:30]][-MAX_DUMPED:]
