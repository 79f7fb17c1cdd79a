"""Containers whose logs a request means, by the status of their pod."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.node.kubelet_api.pod_lookup import HttpRefusal, find_container_id

RUNNING: dict[str, Any] = {"running": {}}
ENDED: dict[str, Any] = {"terminated": {"containerID": "process://old"}}


def find(state: dict[str, Any], last: dict[str, Any], *, previous: bool = False) -> str | HttpRefusal:
    entry = {"name": "c", "containerID": "process://new", "state": state, "lastState": last}
    return find_container_id({"containerStatuses": [entry]}, "p", "c", previous=previous)


@pytest.mark.parametrize(
    ("state", "last", "previous", "id"),
    [
        (RUNNING, {}, False, "new"),
        (RUNNING, ENDED, True, "old"),
        (ENDED, {}, False, "old"),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, ENDED, False, "old"),
        ({"waiting": {"reason": "CrashLoopBackOff"}}, ENDED, True, "old"),
    ],
)
def test_logs_of_containers(state: dict[str, Any], last: dict[str, Any], previous: bool, id: str) -> None:
    assert find(state, last, previous=previous) == id


@pytest.mark.parametrize(
    ("state", "previous", "text"),
    [
        (RUNNING, True, 'previous terminated container "c" in pod "p" not found'),
        ({"waiting": {"reason": "ContainerCreating"}}, False, "is waiting to start: ContainerCreating"),
        ({"terminated": {}}, False, "is terminated"),
        ({}, False, "no logs yet"),
    ],
)
def test_refusals_are_the_kubelets(state: dict[str, Any], previous: bool, text: str) -> None:
    refusal = find(state, {}, previous=previous)
    assert isinstance(refusal, HttpRefusal)
    assert refusal.code == 400
    assert text in refusal.message


def test_a_container_without_status() -> None:
    refusal = find_container_id({}, "p", "c", previous=False)
    assert refusal == HttpRefusal(400, 'container "c" in pod "p" is not available')
