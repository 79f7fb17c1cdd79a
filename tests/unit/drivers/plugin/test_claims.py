"""Claims as an API server tells of them, whatever it tells."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.drivers.plugin import AllocatedClaim, ClaimRef, DeviceHealth, PreparedDevice, Refusal
from plimsoll.drivers.plugin.claims import check_ref, look, read_claim
from plimsoll.drivers.plugin.services import clean, write_health, write_prepared
from plimsoll.protocols.messages import dra_v1, dra_v1beta1, health_v1
from tests.unit.drivers.plugin.world import DRIVER, run, world

REF = ClaimRef("ns", "c", "u1")
MEMBERS = st.sampled_from(
    ["metadata", "uid", "status", "allocation", "devices", "results", "config", "opaque", "driver", "request"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["u1", DRIVER, ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(MEMBERS, inner),
)


@given(JSON | st.fixed_dictionaries({"metadata": st.just({"uid": "u1"}), "status": JSON}))
def test_whatever_an_api_server_says_is_a_claim_or_a_refusal(tree: Any) -> None:
    found = look(json.dumps(tree).encode(), REF, DRIVER)
    assert isinstance(found, (AllocatedClaim, Refusal))


@pytest.mark.parametrize("raw", [b"", b"\xff", b"[" * 100_000, b'{"a":' * 100_000])
def test_what_is_no_json(raw: bytes) -> None:
    found = look(raw, REF, DRIVER)
    assert isinstance(found, Refusal)
    assert found.message.startswith("retrieve claim ns/c: ")


def test_an_api_server_that_does_not_answer() -> None:
    async def story() -> None:
        async with world() as earth:
            ref = await earth.add_claim("c", "w0")

            async def wait(request: Any) -> Any:
                await asyncio.sleep(60)

            earth.wire.send = wait  # type: ignore[method-assign]
            found = await read_claim(earth.client, ref, DRIVER, timeout=0.05)
            assert found == Refusal("retrieve claim default/c: no answer in 0.05 s", "Unreachable")

    run(story)


@pytest.mark.parametrize(
    ("ref", "fine"),
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
def test_names_that_become_parts_of_paths(ref: ClaimRef, fine: bool) -> None:
    assert (check_ref(ref) is None) is fine


@given(st.text(), st.text())
def test_any_text_goes_over_the_wire(message: str, name: str) -> None:
    odd = "\ud800" + message
    assert clean(odd).encode()
    for messages in (dra_v1, dra_v1beta1):
        answer = write_prepared(messages, {"u": Refusal(odd), "v": (PreparedDevice("p", "d"),)})
        assert answer.SerializeToString()
        assert answer.claims["u"].error
    report = write_health(health_v1, [DeviceHealth("p", "d", "bogus", odd, -5)], 1)  # type: ignore[arg-type]
    assert (report.devices[0].health, report.devices[0].health_check_timeout_seconds) == (0, 0)


def test_a_refusal_without_words_is_still_one() -> None:
    assert write_prepared(dra_v1, {"u": Refusal("", "Full")}).claims["u"].error == "Full"
