"""Requests that are passed on to the streaming server of a runtime."""

from __future__ import annotations

import pytest

from plimsoll.errors import InputError
from plimsoll.node.kubelet_api.streaming_proxy import parse_ports


def test_ports_of_a_plain_websocket() -> None:
    assert parse_ports([]) == []
    assert parse_ports(["80", "81,82"]) == [80, 81, 82]


@pytest.mark.parametrize("value", ["0", "65536", "x", "80,-1", "\u0663"])
def test_invalid_ports_are_refused(value: str) -> None:
    with pytest.raises(InputError, match="as a port"):
        parse_ports([value])
