"""Claims as read from an API server, including invalid ones."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.drivers.plugin import AllocatedClaim, ClaimError, ClaimRef, DeviceHealth, PreparedDevice
from plimsoll.drivers.plugin.claim_reader import check_ref, decode_claim, read_claim
from plimsoll.drivers.plugin.services import encode_health, encode_prepared, to_valid_utf8
from plimsoll.protocols.messages import dra_v1, dra_v1beta1, health_v1
from tests.coroutines import run_by
from tests.unit.drivers.plugin.fixtures import DRIVER, cluster_fixture, run

REF = ClaimRef("ns", "c", "u1")
MEMBERS = st.sampled_from(
    ["metadata", "uid", "status", "allocation", "devices", "results", "config", "opaque", "driver", "request"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["u1", DRIVER, ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner),
)


@given(JSON | st.fixed_dictionaries({"metadata": st.just({"uid": "u1"}), "status": JSON}))
def test_any_api_response_is_a_claim_or_an_error(tree: Any) -> None:
    found = decode_claim(json.dumps(tree).encode(), REF, DRIVER)
    assert isinstance(found, (AllocatedClaim, ClaimError))


@pytest.mark.parametrize("raw", [b"", b"\xff", b"[" * 100_000, b'{"a":' * 100_000])
def test_invalid_json_is_an_error(raw: bytes) -> None:
    found = decode_claim(raw, REF, DRIVER)
    assert isinstance(found, ClaimError)
    assert found.message.startswith("retrieve claim ns/c: ")


@run_by(run)
async def test_an_api_server_that_does_not_answer() -> None:
    async with cluster_fixture() as cluster:
        ref = await cluster.add_claim("c", "w0")

        async def wait(request: Any) -> Any:
            await asyncio.sleep(60)

        cluster.transport.send = wait  # type: ignore[method-assign]
        found = await read_claim(cluster.client, ref, DRIVER, timeout=0.05)
        assert found == ClaimError("retrieve claim default/c: no response within 0.05 s", "Unreachable")


@pytest.mark.parametrize(
    ("ref", "accept"),
    [
        (ClaimRef("default", "c", "11111111-2222-3333-4444-555555555555"), True),
        (ClaimRef("default", "a.b-c", "u"), True),
        (ClaimRef("", "c", "u"), False),
        (ClaimRef("default", "", "u"), False),
        (ClaimRef("default", "..", "u"), False),
        (ClaimRef("default", "a/b", "u"), False),
        (ClaimRef("default", "c", ""), False),
        (ClaimRef("default", "c", "../x"), False),
        (ClaimRef("default", "c\n", "u"), False),
        (ClaimRef("default", "x" * 254, "u"), False),
    ],
)
def test_names_that_become_parts_of_paths(ref: ClaimRef, accept: bool) -> None:
    assert (check_ref(ref) is None) is accept


@given(st.text(), st.text())
def test_any_text_can_be_encoded(message: str, name: str) -> None:
    odd = "\ud800" + message
    assert to_valid_utf8(odd).encode()
    for messages in (dra_v1, dra_v1beta1):
        answer = encode_prepared(messages, {"u": ClaimError(odd), "v": (PreparedDevice("p", "d"),)})
        assert answer.SerializeToString()
        assert answer.claims["u"].error
    report = encode_health(health_v1, [DeviceHealth("p", "d", "bogus", odd, -5)], 1)  # type: ignore[arg-type]
    assert (report.devices[0].health, report.devices[0].health_check_timeout_seconds) == (0, 0)


def test_an_error_without_message_uses_its_code() -> None:
    assert encode_prepared(dra_v1, {"u": ClaimError("", "Full")}).claims["u"].error == "Full"
