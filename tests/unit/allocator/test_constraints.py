"""matchAttribute and distinctAttribute constraints."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.allocator import Allocation, AllocationFault, AllocationOutcome, DeviceId, Features, Refusal
from plimsoll.allocator.devices.attributes import build_tables, read_published
from plimsoll.api.codec import convert
from plimsoll.api.resource import Device, DeviceAttribute
from tests.build import DRIVER, claim, device, exactly, first_available, resource_slice
from tests.unit.allocator.allocate import attempt, picked
from tests.unit.allocator.reference_rules import PublishedDevice, do_differ, do_match, values_of

OFF = Features(list_attributes=False)


def match(attribute: str = "grp", *requests: str) -> dict[str, Any]:
    return {"matchAttribute": f"{DRIVER}/{attribute}", **({"requests": list(requests)} if requests else {})}


def distinct(attribute: str = "grp", *requests: str) -> dict[str, Any]:
    return {
        "distinctAttribute": f"{DRIVER}/{attribute}",
        **({"requests": list(requests)} if requests else {}),
    }


def having(*values: Any) -> list[dict[str, Any]]:
    """Return devices d0, d1, ... with these values of `grp`; None leaves it out."""
    return [
        device(f"d{number}", **{} if value is None else {"grp": value}) for number, value in enumerate(values)
    ]


def ask(
    devices: list[dict[str, Any]], count: int, *constraints: Any, features: Features | None = None
) -> AllocationOutcome:
    wanted = claim("c", exactly(count=count), constraints=list(constraints))
    return attempt([resource_slice(devices)], wanted, features=features)


# -- match


def test_matching_devices_have_the_same_value() -> None:
    assert picked(ask(having("a", "b", "b", "a"), 2, match())) == [["d0", "d3"]]
    assert picked(ask(having("a", "b", "c", "b"), 2, match())) == [["d1", "d3"]]
    assert isinstance(ask(having("a", "b", "c"), 2, match()), Refusal)


def test_a_device_without_the_attribute_never_matches() -> None:
    assert picked(ask(having(None, "a"), 1, match())) == [["d1"]]
    assert picked(ask(having(None, "a"), 1, distinct())) == [["d1"]]
    assert isinstance(ask(having(None, None), 1, match()), Refusal)


def test_values_of_different_types_are_different() -> None:
    devices = [
        device("d0", fields={"attributes": {"grp": {"string": "1"}}}),
        device("d1", fields={"attributes": {"grp": {"int": 1}}}),
        device("d2", fields={"attributes": {"grp": {"bool": True}}}),
        device("d3", fields={"attributes": {"grp": {"version": "1.0.0"}}}),
        device("d4", fields={"attributes": {"grp": {"string": "1.0.0"}}}),
    ]
    assert isinstance(ask(devices, 2, match()), Refusal)
    assert picked(ask(devices, 5, distinct())) == [["d0", "d1", "d2", "d3", "d4"]]
    assert picked(ask(devices, 5, distinct(), features=OFF)) == [["d0", "d1", "d2", "d3", "d4"]]


def test_versions_are_compared_as_they_are_written() -> None:
    devices = [
        device(f"d{n}", fields={"attributes": {"grp": {"version": text}}})
        for n, text in enumerate(["1.0.0", "1.0.0+build", "1.0.0"])
    ]
    assert picked(ask(devices, 2, match())) == [["d0", "d2"]]


def test_a_bare_name_stands_for_the_drivers_domain() -> None:
    devices = [
        device("d0", fields={"attributes": {"grp": {"string": "a"}}}),
        device("d1", fields={"attributes": {f"{DRIVER}/grp": {"string": "a"}}}),
        device("d2", fields={"attributes": {"other.example.com/grp": {"string": "a"}}}),
    ]
    assert picked(ask(devices, 2, match())) == [["d0", "d1"]]
    other = {"matchAttribute": "other.example.com/grp"}
    assert picked(ask(devices, 1, other)) == [["d2"]]
    assert isinstance(ask(devices, 2, other), Refusal)


def test_a_bare_name_of_another_driver_is_another_attribute() -> None:
    slices = [
        resource_slice([device("d0", grp="a")], name="a"),
        resource_slice([device("d0", grp="a")], name="b", driver="nic.example.com"),
        resource_slice(
            [device("d1", fields={"attributes": {f"{DRIVER}/grp": {"string": "a"}}})],
            name="c",
            driver="nic.example.com",
            pool="q",
        ),
    ]
    assert picked(attempt(slices, claim("c", exactly(count=2), constraints=[match()]))) == [["d0", "d1"]]


# -- distinct


def test_distinct_devices_have_different_values() -> None:
    assert picked(ask(having("a", "a", "b", "c"), 3, distinct())) == [["d0", "d2", "d3"]]
    assert isinstance(ask(having("a", "a", "b", "b"), 3, distinct()), Refusal)


def test_both_kinds_at_once() -> None:
    """Different cards, all on one NUMA node."""
    devices = [
        device("d0", card="x", numa=0),
        device("d1", card="x", numa=1),
        device("d2", card="x", numa=1),
        device("d3", card="y", numa=1),
    ]
    assert picked(ask(devices, 2, match("numa"), distinct("card"))) == [["d1", "d3"]]
    assert isinstance(ask(devices, 3, match("numa"), distinct("card")), Refusal)


# -- lists


def test_lists_match_if_all_have_a_value_in_common() -> None:
    """Pairwise is not enough: d0 and d1 share 1, d1 and d2 share 2, d0 and d2 share 3."""
    assert isinstance(ask(having([1, 3], [1, 2], [2, 3]), 3, match()), Refusal)
    assert picked(ask(having([1, 3], [1, 2], [2, 3], [1, 4]), 3, match())) == [["d0", "d1", "d3"]]


def test_a_scalar_is_a_list_of_one() -> None:
    assert picked(ask(having([0, 1], 2, 1), 2, match())) == [["d0", "d2"]]
    assert picked(ask(having([0, 1], 1, 2), 2, distinct())) == [["d0", "d2"]]


def test_lists_are_distinct_without_common_values() -> None:
    assert picked(ask(having([0, 1], [1, 2], [2, 3]), 2, distinct())) == [["d0", "d2"]]
    assert isinstance(ask(having([0, 1], [1, 2], [2, 0]), 2, distinct()), Refusal)


def test_with_the_gate_off_a_list_never_matches() -> None:
    """A list is accepted as the first device; after it nothing matches, and no second list differs."""
    assert picked(ask(having([0, 1]), 1, match(), features=OFF)) == [["d0"]]
    assert isinstance(ask(having([0, 1], [0, 1]), 2, match(), features=OFF), Refusal)
    assert isinstance(ask(having([0, 1], [2, 3]), 2, distinct(), features=OFF), Refusal)
    assert picked(ask(having([0, 1], 0), 2, distinct(), features=OFF)) == [["d0", "d1"]]
    assert isinstance(ask(having(0, [0, 1]), 2, distinct(), features=OFF), Refusal)


values = st.one_of(
    st.none(),
    st.sampled_from([{"int": 0}, {"int": 1}, {"string": "0"}, {"bool": True}, {"version": "1.0.0"}]),
    st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True).map(lambda some: {"ints": some}),
    st.lists(st.sampled_from(["0", "a"]), min_size=1, max_size=2, unique=True).map(
        lambda some: {"strings": some}
    ),
)


@given(st.lists(values, max_size=5), st.booleans())
def test_value_bits_agree_with_sets(raw: list[dict[str, Any] | None], lists: bool) -> None:
    """The table of an attribute agrees with the definition for every pair of devices."""
    features = Features(list_attributes=lists)
    devices: list[Device] = [
        Device(name=f"d{n}", attributes={} if each is None else {"grp": convert(each, DeviceAttribute)})
        for n, each in enumerate(raw)
    ]
    source = read_published([(DRIVER, each) for each in devices], f"{DRIVER}/grp", lists)
    (table,) = build_tables([source], lists)
    slice = resource_slice([])
    sets = [
        values_of(PublishedDevice(DeviceId(DRIVER, "p", each.name), each, slice), f"{DRIVER}/grp", features)
        for each in devices
    ]
    assert [bits is None for bits in table.sets] == [each is None for each in sets]
    for first, mine in zip(table.sets, sets, strict=True):
        for second, theirs in zip(table.sets, sets, strict=True):
            if first is None or second is None or mine is None or theirs is None:
                continue
            assert bool(first & second) == bool(mine & theirs)
            assert do_match([mine, theirs]) == bool(first & second)
            assert do_differ([mine, theirs], lists) == (bool(second) and not first & second)


# -- requests of a constraint


def test_a_constraint_concerns_all_requests_of_its_claim() -> None:
    slices = [resource_slice(having("a", "b", "a"))]
    wanted = claim("c", exactly("x"), exactly("y"), constraints=[match()])
    assert picked(attempt(slices, wanted)) == [["d0", "d2"]]


def test_a_constraint_concerns_only_the_requests_it_names() -> None:
    slices = [resource_slice(having("a", "b", "c", "b"))]
    wanted = claim("c", exactly("x"), exactly("y"), exactly("z"), constraints=[match("grp", "y", "z")])
    assert picked(attempt(slices, wanted)) == [["d0", "d1", "d3"]]


def test_a_constraint_ends_with_its_claim() -> None:
    slices = [resource_slice(having("a", "b"))]
    one = claim("c", exactly(), constraints=[match()])
    assert picked(attempt(slices, one, one)) == [["d0"], ["d1"]]


@pytest.mark.parametrize(
    ("named", "found"), [("r", ["d0", "d2"]), ("r/second", ["d0", "d2"]), ("r/first", ["d0", "d1"])]
)
def test_alternatives_are_named_by_their_request_or_in_full(named: str, found: list[str]) -> None:
    """The first alternative is unavailable; a constraint on it alone applies to no other request."""
    slices = [resource_slice(having("a", "b", "a"))]
    never = exactly("first", count=9)
    wanted = claim(
        "c",
        exactly("x"),
        first_available("r", never, exactly("second")),
        constraints=[match("grp", "x", named)],
    )
    assert picked(attempt(slices, wanted)) == [found]


def test_an_alternative_that_breaks_a_constraint_is_skipped() -> None:
    devices = [device("d0", grp="a"), device("d1", grp="b", kind="fast"), device("d2", grp="a", kind="slow")]

    def kind(text: str) -> str:
        return f'device.attributes["{DRIVER}"].?kind.orValue("") == "{text}"'

    wanted = claim(
        "c",
        exactly("x", select=kind("")),
        first_available("r", exactly("fast", select=kind("fast")), exactly("slow", select=kind("slow"))),
        constraints=[match()],
    )
    outcome = attempt([resource_slice(devices)], wanted)
    assert picked(outcome) == [["d0", "d2"]]
    assert isinstance(outcome, Allocation)
    assert outcome.alternatives == ((0, 1),)


# -- all


def test_all_devices_that_break_a_constraint_are_a_fault() -> None:
    """A request for all devices cannot be satisfied then."""
    slices = [resource_slice(having("a", "b"))]
    outcome = attempt(slices, claim("c", exactly(mode="All"), constraints=[match()]))
    assert isinstance(outcome, AllocationFault)
    assert outcome.kind == "all-constraint"
    assert f"cannot add device {DRIVER}/p/d1 because a claim constraint would not be satisfied" in str(
        outcome
    )
    listed = claim(
        "c", first_available("r", exactly("all", mode="All"), exactly("one")), constraints=[match()]
    )
    assert isinstance(attempt(slices, listed), AllocationFault)
    assert picked(attempt(slices, claim("c", exactly(mode="All"), constraints=[distinct()]))) == [
        ["d0", "d1"]
    ]


def test_an_empty_constraint_is_a_fault() -> None:
    outcome = attempt([resource_slice(having("a"))], claim("c", exactly(), constraints=[match(), {}]))
    assert isinstance(outcome, AllocationFault)
    assert outcome.kind == "unsupported-constraint"
    assert "constraint #1" in str(outcome)


# -- going back


def test_the_search_backtracks_over_requests_and_claims() -> None:
    """The first choice of the first request fits nothing that the last one can have."""
    devices = [
        device("d0", grp="a"),
        device("d1", grp="b"),
        device("d2", grp="c", last=True),
        device("d3", grp="c"),
    ]
    last = f'device.attributes["{DRIVER}"].?last.orValue(false)'
    wanted = claim("c", exactly("x"), exactly("y", select=last), constraints=[match()])
    assert picked(attempt([resource_slice(devices)], wanted)) == [["d3", "d2"]]
    # The first claim makes way for the second.
    first, second = claim("c", exactly()), claim("second", exactly(count=2), constraints=[match()])
    assert picked(attempt([resource_slice(having("a", "b", "a"))], first, second)) == [["d1"], ["d0", "d2"]]
