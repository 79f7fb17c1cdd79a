"""Events and masks."""

from __future__ import annotations

import pytest

from plimsoll.protocols.messages import nri
from plimsoll.protocols.nri.events import (
    ALL_EVENTS,
    NOTIFICATIONS,
    NriEvent,
    mask_of,
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
