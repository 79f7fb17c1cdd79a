"""Order in which deferred resizes are checked again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from plimsoll.node.agent import order_deferred_resizes
from tests.build import pod


def worker(name: str, since: float | None, *, priority: int = 0, qos: str = "Burstable") -> Any:
    made = pod(name, priority=priority, status={"qosClass": qos})
    return SimpleNamespace(pod=made, deferred_since=since)


def test_priority_then_class_then_time() -> None:
    workers = [
        worker("late", 9.0),
        worker("early", 1.0),
        worker("idle", None, priority=100),
        worker("best-effort", 0.0, qos="BestEffort"),
        worker("guaranteed", 8.0, qos="Guaranteed"),
        worker("important", 9.0, priority=10, qos="BestEffort"),
    ]
    ordered = order_deferred_resizes(cast(Any, workers))
    assert [each.pod.metadata.name for each in ordered] == [
        "important", "guaranteed", "early", "late", "best-effort",
    ]  # fmt: skip
