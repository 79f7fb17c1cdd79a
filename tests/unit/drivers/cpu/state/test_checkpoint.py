"""Checkpoint of CPU allocations."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.cpuset import CpuSet
from plimsoll.common.checkpoint import render
from plimsoll.drivers.cpu.allocation.options import Algorithm, AssignOptions, Sorting
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.drivers.cpu.state.checkpoint import (
    AllocationEncoder,
    decode_allocations,
    open_checkpoint,
)
from plimsoll.drivers.cpu.state.claim_allocation import AssignmentSource, ClaimAllocation, CpuAssignment
from plimsoll.protocols.dra import ClaimRef
from tests.unit.drivers.cpu.state.fixtures import uid_of

cpusets = st.lists(st.integers(0, 600), max_size=6).map(CpuSet)
names = st.text(max_size=12)
options = st.builds(
    AssignOptions,
    st.sampled_from(Algorithm),
    st.sampled_from(Sorting),
    st.integers(1, 8),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
assignments = st.builds(
    CpuAssignment,
    names,
    names,
    names,
    cpusets,
    share_id=st.none() | names,
    source=st.sampled_from(AssignmentSource),
    options=st.none() | options,
)
allocations = st.builds(
    ClaimAllocation,
    st.builds(ClaimRef, names, names, st.integers(0, 99).map(uid_of)),
    st.lists(assignments, max_size=3).map(tuple),
    adopted=st.booleans(),
    disputed=names,
    include_shared=st.none() | st.booleans(),
    contested=cpusets,
    per_request=st.booleans(),
)


def encode_plainly(by_uid: dict[str, ClaimAllocation]) -> Any:
    """Encode all allocations anew, without bytes that are encoded already."""
    return json.loads(msgspec.json.encode(AllocationEncoder().encode(by_uid)))


@given(st.lists(allocations, max_size=4))
def test_a_checkpoint_survives_a_round_trip(given_holdings: list[ClaimAllocation]) -> None:
    by_uid = {allocation.ref.uid: allocation for allocation in given_holdings}
    body = encode_plainly(by_uid)
    assert decode_allocations(body) == by_uid


@given(st.lists(st.lists(allocations, max_size=4), max_size=4))
def test_kept_encodings_are_those_of_all_claims(saves: list[list[ClaimAllocation]]) -> None:
    encoder = AllocationEncoder()
    by_uid: dict[str, ClaimAllocation] = {}
    for each in saves:
        # Some stay, some are replaced, some are released.
        by_uid = {uid: by_uid[uid] for uid in list(by_uid)[1:]} | {one.ref.uid: one for one in each}
        assert render("k", 1, encoder.encode(by_uid)) == render("k", 1, encode_plainly(by_uid))


GOOD: dict[str, Any] = {
    "claims": [
        {
            "uid": uid_of(1),
            "namespace": "default",
            "name": "c",
            "grants": [
                {
                    "request": "a",
                    "pool": "n",
                    "device": "d",
                    "cpus": "0-3",
                    "how": "assigned",
                    "options": {
                        "algorithm": "packed",
                        "sorting": "packed",
                        "groupSize": 1,
                        "alignL3": True,
                        "fullCores": False,
                    },
                }
            ],
        }
    ]
}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ((), None),
        ((), []),
        (("claims",), None),
        (("claims",), {"a": 1}),
        (("claims", 0), "x"),
        (("claims", 0, "uid"), 7),
        (("claims", 0, "uid"), "../../etc"),
        (("claims", 0, "grants"), None),
        (("claims", 0, "grants", 0), None),
        (("claims", 0, "grants", 0, "cpus"), "x"),
        (("claims", 0, "grants", 0, "cpus"), 3),
        (("claims", 0, "grants", 0, "cpus"), "0-99999999999999"),
        (("claims", 0, "grants", 0, "how"), "guessed"),
        (("claims", 0, "grants", 0, "shareID"), 1),
        (("claims", 0, "grants", 0, "options"), None),
        (("claims", 0, "grants", 0, "options", "groupSize"), True),
        (("claims", 0, "grants", 0, "options", "algorithm"), "random"),
        (("claims", 0, "mix"), "yes"),
        (("claims", 0, "adopted"), 1),
        (("claims", 0, "contested"), "-"),
        (("claims",), GOOD["claims"] * 2),
    ],
)
def test_malformed_checkpoints_are_refused(path: tuple[Any, ...], value: Any) -> None:
    body: Any = {"body": copy.deepcopy(GOOD)}
    decode_allocations(body["body"])
    place: Any = body
    for step in ("body", *path)[:-1]:
        place = place[step]
    place[("body", *path)[-1]] = value
    with pytest.raises(ValueError, match=r"."):
        decode_allocations(body["body"])


def test_the_checkpoint_is_in_the_driver_directory(tmp_path: Path) -> None:
    file = open_checkpoint(CpuSettings(node="n", kubelet_root=tmp_path))
    file.save(GOOD)
    assert (tmp_path / "plugins" / "dra.cpu" / "cpus.json").is_file()
    assert file.load().value == decode_allocations(GOOD)
