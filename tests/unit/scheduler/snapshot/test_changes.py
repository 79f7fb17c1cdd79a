"""Changes of objects that matter to scheduling."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from plimsoll.api.resource import ResourceClaim
from plimsoll.scheduler.snapshot.changes import is_older, scheduling_fields
from tests.build import claim, exactly, node


def version(text: str) -> ResourceClaim:
    one = claim("a", exactly("r"))
    return replace(one, metadata=replace(one.metadata, resource_version=text))


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [("9", "10", True), ("10", "9", False), ("9", "9", False), ("", "9", False), ("9", "x", False)],
)
def test_a_claim_is_older_only_if_both_versions_are_numbers(new: str, old: str, expected: bool) -> None:
    assert is_older(version(new), version(old)) is expected


def test_a_heartbeat_changes_no_field_that_scheduling_reads() -> None:
    one = node("n")
    beat = replace(one, metadata=replace(one.metadata, resource_version="2"))
    labeled = replace(one, metadata=replace(one.metadata, labels={"a": "b"}))
    assert scheduling_fields(one) == scheduling_fields(beat)
    assert scheduling_fields(one) != scheduling_fields(labeled)
