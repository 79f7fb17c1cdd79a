"""Device status entries of claims: comparison and merging, compared with a naive version."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.drivers.plugin import ClaimRef, DeviceCondition, DeviceStatus
from plimsoll.drivers.plugin.claim_status import (
    ClaimDeviceStatuses,
    Tree,
    build_entries,
    build_patch,
    contains_entries,
    get_device_key,
    is_current,
    read_device_statuses,
)

REF = ClaimRef("default", "c", "u1")
DRIVER = "widgets.example.com"
SHARE = "a671734a-e8e5-11e4-8fde-42010af09327"


def test_entries_equal_the_servers_normalized_form() -> None:
    ready = DeviceCondition("Ready", True, "Pinned")
    status = DeviceStatus(REF, "p", "d", SHARE, {"n": 1}, [ready], {"interfaceName": "eth1"})
    claims, errors = build_entries(DRIVER, [status, DeviceStatus(REF, "p", "a")])
    assert not errors
    assert claims == {
        "u1": (
            REF,
            (
                {"driver": DRIVER, "pool": "p", "device": "a"},
                {
                    "driver": DRIVER,
                    "pool": "p",
                    "device": "d",
                    "shareID": SHARE,
                    "data": {"n": 1},
                    "networkData": {"interfaceName": "eth1"},
                    "conditions": [{"type": "Ready", "status": "True", "reason": "Pinned", "message": ""}],
                },
            ),
        )
    }


def test_invalid_fields_are_left_out() -> None:
    bad: list[Any] = [["a"], {"o": object()}, "text"]
    statuses = [DeviceStatus(REF, "p", f"d{n}", data=data) for n, data in enumerate(bad)]
    odd: Any = DeviceCondition("Ready", "yes", "R")  # type: ignore[arg-type]
    statuses += [DeviceStatus(REF, "p", "d8", conditions=[odd]), DeviceStatus(REF, "p", "d9")]
    claims, errors = build_entries(DRIVER, statuses)
    (entry,) = claims["u1"][1]
    assert entry["device"] == "d9"
    assert sorted(error.device for error in errors) == ["d0", "d1", "d2", "d8"]
    assert "claim default/c: invalid status of device d0: data is list" in str(errors[0])


JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata",
                    "uid",
                    "status",
                    "allocation",
                    "devices",
                    "results",
                    "conditions",
                    "type",
                    "pool",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["metadata", "status", "spec"]), JUNK, max_size=3))
def test_any_claim_can_be_compared(tree: dict[str, Any]) -> None:
    current = read_device_statuses(tree, DRIVER)
    assert not current.allocated
    for unallocated in (current, read_device_statuses(_own(tree), DRIVER)):
        build_patch(REF, unallocated, (), "now")
        assert is_current(unallocated, unallocated.entries)
        assert contains_entries(unallocated, unallocated.entries)


def _own(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the same entries, all of the driver."""
    status = tree.get("status")
    devices = status.get("devices") if isinstance(status, dict) else None
    found = devices if isinstance(devices, list) else []
    mine = [{**each, "driver": DRIVER} for each in found if isinstance(each, dict)]
    return {**tree, "status": {"devices": mine}}


TYPES = st.sampled_from(["Ready", "Attached", "Warm"])


@st.composite
def entries(draw: st.DrawFn, times: bool) -> tuple[Tree, ...]:
    """Generate entries with unique keys and conditions of unique types."""
    keys = draw(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["", "s1", "s2"])), unique=True))
    found = []
    for device, share in keys:
        entry: Tree = {"driver": DRIVER, "pool": "p", "device": device}
        if share:
            entry["shareID"] = share
        if draw(st.booleans()):
            entry["data"] = {"n": draw(st.integers(0, 1))}
        conditions = [
            {
                "type": type_,
                "status": draw(st.sampled_from(["True", "False"])),
                "reason": "R",
                "message": "",
                **({"lastTransitionTime": draw(st.sampled_from(["t1", "t2"]))} if times else {}),
            }
            for type_ in draw(st.lists(TYPES, unique=True))
        ]
        if conditions:
            entry["conditions"] = conditions
        found.append(entry)
    return tuple(found)


def _naive(entry: Tree) -> set[str]:
    """Return the content of an entry as a set of facts."""
    key = get_device_key(entry)
    facts = {f"{key}"} | {f"{key} {name}={entry[name]}" for name in ("data", "networkData") if name in entry}
    for each in entry.get("conditions", ()):
        facts.add(f"{key} {each['type']} {each['status']} {each['reason']} {each['message']}")
    return facts


@given(entries(True), entries(False))
def test_comparison_matches_a_naive_model(allocated: tuple[Tree, ...], desired: tuple[Tree, ...]) -> None:
    current = ClaimDeviceStatuses("u1", "7", frozenset(), allocated)
    has = set().union(*map(_naive, allocated)) if allocated else set()
    wants = set().union(*map(_naive, desired)) if desired else set()
    assert is_current(current, desired) == (has == wants)
    assert contains_entries(current, desired) == (wants <= has)


@given(entries(True), entries(False))
def test_transition_times_change_with_the_condition(
    allocated: tuple[Tree, ...], desired: tuple[Tree, ...]
) -> None:
    patch = build_patch(REF, ClaimDeviceStatuses("u1", "7", frozenset(), allocated), desired, "now")
    assert patch["metadata"] == {"name": "c", "namespace": "default", "resourceVersion": "7"}
    written = patch["status"].get("devices", [])
    assert is_current(ClaimDeviceStatuses("u1", "8", frozenset(), tuple(written)), desired)
    for entry in written:
        for each in entry.get("conditions", ()):
            before = [
                old["lastTransitionTime"]
                for other in allocated
                if get_device_key(other) == get_device_key(entry)
                for old in other.get("conditions", ())
                if (old["type"], old["status"]) == (each["type"], each["status"])
            ]
            assert each["lastTransitionTime"] == (before[0] if before else "now")
