"""Events and masks."""

from __future__ import annotations

import pytest

from plimsoll.errors import InputError
from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri.events import (
    ALL_EVENTS,
    NOTIFICATIONS,
    NriEvent,
    mask_of,
    parse_events,
)


def test_numbers_are_those_of_the_protocol() -> None:
    numbers = nri.DESCRIPTOR.enum_types_by_name["Event"].values_by_number
    assert {int(event): event.name for event in NriEvent} == {n: v.name for n, v in numbers.items() if n}
    assert ALL_EVENTS == 0x3FFF


@pytest.mark.parametrize("event", NriEvent)
def test_every_event_has_a_call_and_its_messages(event: NriEvent) -> None:
    assert event.descriptor.input_type.name == f"{event.method}Request"
    assert event.descriptor.output_type.name == f"{event.method}Response"
    assert event.request().DESCRIPTOR.name == f"{event.method}Request"
    assert event.response().DESCRIPTOR.name == f"{event.method}Response"
    # Nothing is answered to news.
    assert (event in NOTIFICATIONS) <= (not event.response.DESCRIPTOR.fields)


def test_masks() -> None:
    assert mask_of([NriEvent.CREATE_CONTAINER, NriEvent.RUN_POD_SANDBOX]) == 0b1001


def test_masks_from_text() -> None:
    assert parse_events("CreateContainer, stopcontainer,RUN_POD_SANDBOX") == 0b1000001001
    assert parse_events("all") == ALL_EVENTS
    assert parse_events("") == 0
    assert parse_events("pod") | parse_events("container") == ALL_EVENTS
    assert parse_events("pod") == mask_of(event for event in NriEvent if "POD" in event.name)
    with pytest.raises(InputError, match="'Nonsense' is not an NRI event"):
        parse_events("all,Nonsense")
