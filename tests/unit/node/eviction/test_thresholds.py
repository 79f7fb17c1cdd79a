"""Eviction thresholds from a node's settings."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.errors import ConfigError
from plimsoll.node.eviction.thresholds import ALLOCATABLE_MEMORY, Threshold, parse_thresholds, sort_by_urgency
from plimsoll.node.machine.machine import EVICTION_HARD

GI = 1 << 30


def test_default_thresholds_are_those_of_the_kubelet() -> None:
    memory, all_pods = parse_thresholds()
    assert memory == Threshold("memory.available", "100Mi")
    assert all_pods == Threshold(ALLOCATABLE_MEMORY, "100Mi")
    assert memory.is_hard


def test_disk_thresholds_are_optional() -> None:
    assert all("fs." not in threshold.signal for threshold in parse_thresholds())
    found = {threshold.signal for threshold in parse_thresholds(EVICTION_HARD)}
    assert "nodefs.available" in found


def test_soft_thresholds_have_a_grace_period() -> None:
    (hard, soft, _) = parse_thresholds(
        {"memory.available": "1Gi"},
        {"memory.available": "2Gi"},
        {"memory.available": 90},
        {"memory.available": "512Mi"},
    )
    assert (hard.grace, soft.grace) == (0, 90)
    assert str(soft.amount_to_reclaim(8 * GI)) == "2560Mi"
    assert hard.is_hard
    assert not soft.is_hard


def test_percentages_refer_to_the_capacity() -> None:
    assert Threshold("memory.available", "25%").amount(4 * GI).value() == GI
    assert parse_thresholds({"memory.available": "0%"}) == ()
    assert parse_thresholds({"memory.available": "100%"}) == ()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (({"memory.free": "1Gi"},), "memory.free"),
        (({"memory.available": "lots"},), "lots"),
        (({"memory.available": "101%"},), "101%"),
        (({"memory.available": "-1Gi"},), "-1Gi"),
        (({}, {"memory.available": "1Gi"}), "grace period must be specified"),
        (({}, {"memory.available": "1Gi"}, {"memory.available": -1}), "must not be negative"),
        (({}, {}, {"x": 1}), "unsupported eviction signal x"),
        (({}, {}, {}, {"memory.available": "?"}), "minimum reclaim"),
    ],
)
def test_invalid_thresholds_are_refused(arguments: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        parse_thresholds(*arguments)


def test_memory_thresholds_are_ordered_first() -> None:
    thresholds = [Threshold("pid.available", "5"), Threshold("memory.available", "5")]
    assert [t.resource for t in sort_by_urgency(thresholds)] == ["memory", "pids"]


@pytest.mark.parametrize(
    ("signal", "resource", "condition"),
    [
        ("memory.available", "memory", "MemoryPressure"),
        ("allocatableMemory.available", "memory", "MemoryPressure"),
        ("pid.available", "pids", "PIDPressure"),
        ("nodefs.available", "ephemeral-storage", "DiskPressure"),
        ("nodefs.inodesFree", "inodes", "DiskPressure"),
        ("imagefs.available", "ephemeral-storage", "DiskPressure"),
    ],
)
def test_resources_and_conditions_of_signals(signal: str, resource: str, condition: str) -> None:
    threshold = Threshold(signal, "1")
    assert (threshold.resource, threshold.condition) == (resource, condition)
