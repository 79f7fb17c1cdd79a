"""Messages of the WebSocket subprotocols, and the streams of a request."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.node.kubelet_api.channels import (
    PROTOCOLS,
    V4,
    V5,
    ChannelMessage,
    decode_message,
    encode_message,
    ended_channel,
)
from plimsoll.node.kubelet_api.remote_command import (
    StreamOptions,
    TerminalSize,
    exit_status,
    parse_size,
    parse_stream_options,
)


@given(st.integers(0, 4), st.binary(max_size=100), st.sampled_from(PROTOCOLS))
def test_messages_round_trip(channel: int, data: bytes, protocol: str) -> None:
    message = ChannelMessage(channel, data)
    assert decode_message(encode_message(message, protocol), protocol) == message


@given(st.binary(max_size=20), st.sampled_from(PROTOCOLS))
def test_any_message_is_decoded_or_none(data: bytes, protocol: str) -> None:
    found = decode_message(data, protocol)
    assert found is None or encode_message(found, protocol)


def test_only_version_5_ends_channels() -> None:
    message = ChannelMessage(255, b"\0")
    assert ended_channel(message, V5) == 0
    assert ended_channel(message, V4) is None
    assert ended_channel(ChannelMessage(255, b""), V5) is None


def test_a_terminal_has_no_error_output() -> None:
    query = {"input": "1", "output": "1", "error": "1", "tty": "1"}
    assert parse_stream_options(query) == StreamOptions(True, True, False, True)
    assert parse_stream_options({}).problem == "you must specify at least 1 of stdin, stdout, stderr"


def test_sizes_of_terminals() -> None:
    assert parse_size(b'{"Width":80,"Height":24}') == TerminalSize(80, 24)
    for wrong in (b"", b"[]", b'{"Width":-1,"Height":1}', b'{"Width":1}', b'{"Width":"1","Height":70000}'):
        assert parse_size(wrong) is None


def test_exit_codes_are_causes() -> None:
    assert exit_status(0)["status"] == "Success"
    failure = exit_status(3)
    assert failure["reason"] == "NonZeroExitCode"
    assert failure["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
