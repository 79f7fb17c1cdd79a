"""What plugins and drivers say, read with care: every text they may send becomes a value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.node.claim_info import ClaimRef, DriverFault, PreparedDevice
from plimsoll.node.plugins.plugin_info import (
    HEALTH_V1,
    HEALTH_V1ALPHA1,
    V1,
    V1BETA1,
    Offer,
    Refusal,
    choose_health,
    judge_offer,
)
from plimsoll.node.plugins.responses import MOST_DEVICES, MOST_NAMES, read_prepared, read_released
from plimsoll.protocols.messages import dra_v1, dra_v1beta1
from tests.unit.node.plugins.peers import DRIVER, claim

SOCKET = "/r/plugins_registry/reg.sock"
CLAIMS = [claim("a"), claim("b")]


def prepared(messages: Any = dra_v1, **devices: Any) -> Any:
    answer = messages.NodePrepareResourcesResponse()
    for name, device in devices.items():
        answer.claims[f"uid-{name}"].devices.append(messages.Device(**device))
    return answer


def test_devices_are_read_in_both_versions() -> None:
    fields = {
        "pool_name": "node-1/rack",
        "device_name": "gpu-0",
        "request_names": ["gpu", "gpu/big"],
        "cdi_device_ids": ["example.com/gpu=0", "k8s.gpu.example.com/claim=uid_a:1"],
    }
    device = PreparedDevice(
        "node-1/rack", "gpu-0", ("gpu", "gpu/big"), ("example.com/gpu=0", "k8s.gpu.example.com/claim=uid_a:1")
    )
    empty = PreparedDevice("", "")
    for messages in (dra_v1, dra_v1beta1):
        answer = prepared(messages, a=fields, b={})
        assert read_prepared(DRIVER, CLAIMS, answer) == {"uid-a": (device,), "uid-b": (empty,)}
    share = "6b0c4c5e-2b6e-4c7d-a2f3-1d2c3b4a5968"
    (read,) = read_prepared(DRIVER, CLAIMS[:1], prepared(a=fields | {"share_id": share})).values()
    assert isinstance(read, tuple)
    assert read[0].share_id == share


def test_errors_skipped_claims_and_strange_ones() -> None:
    answer = prepared(a={})
    answer.claims["uid-b"].error = "no such device" + "!" * 5000
    found = read_prepared(DRIVER, [*CLAIMS, claim("c"), claim("d")], answer)
    assert found["uid-a"] == (PreparedDevice("", ""),)
    refused = found["uid-b"]
    assert isinstance(refused, DriverFault)
    assert refused.kind == "refused"
    assert refused.message.startswith("no such device!!!")
    assert len(refused.message) == 1024
    skipped = DriverFault(DRIVER, "skipped", "NodePrepareResources skipped 2 ResourceClaims")
    assert found["uid-c"] == found["uid-d"] == skipped

    answer.claims["uid-x"].SetInParent()
    text = "NodePrepareResources returned result for unknown claim UID uid-x"
    assert set(read_prepared(DRIVER, CLAIMS, answer).values()) == {DriverFault(DRIVER, "malformed", text)}

    released = dra_v1.NodeUnprepareResourcesResponse()
    released.claims["uid-a"].SetInParent()
    text = "NodeUnprepareResources skipped 1 ResourceClaims"
    assert read_released(DRIVER, CLAIMS, released) == {
        "uid-a": None,
        "uid-b": DriverFault(DRIVER, "skipped", text),
    }
    released.claims["uid-b"].error = "still in use"
    fault = read_released(DRIVER, CLAIMS, released)["uid-b"]
    assert fault == DriverFault(DRIVER, "refused", "still in use")
    released.claims["uid-x"].SetInParent()
    text = "NodeUnprepareResources returned result for unknown claim UID uid-x"
    assert set(read_released(DRIVER, CLAIMS, released).values()) == {DriverFault(DRIVER, "malformed", text)}


@pytest.mark.parametrize(
    ("device", "text"),
    [
        ({"pool_name": "../../etc"}, '"../../etc" is not the name of a pool'),
        ({"pool_name": "p" * 254}, "is not the name of a pool"),
        ({"device_name": "Gpu"}, '"Gpu" is not the name of a device'),
        ({"device_name": "d" * 64}, "is not the name of a device"),
        ({"device_name": "d\n"}, r'"d\n" is not the name of a device'),
        ({"request_names": ["a/b/c"]}, '"a/b/c" is not the name of a request'),
        ({"request_names": [""]}, '"" is not the name of a request'),
        ({"request_names": ["r"] * (MOST_NAMES + 1)}, f"at most {MOST_NAMES} are taken"),
        ({"cdi_device_ids": ["gpu0"]}, '"gpu0" is not the name of a CDI device'),
        ({"cdi_device_ids": ["vendor/class=device,other"]}, "is not the name of a CDI device"),
        ({"cdi_device_ids": ["1vendor/class=0"]}, "is not the name of a CDI device"),
        ({"cdi_device_ids": ["vendor/class=" + "0" * 600]}, "is not the name of a CDI device"),
        ({"cdi_device_ids": ["v/c=0"] * (MOST_NAMES + 1)}, f"at most {MOST_NAMES} are taken"),
        ({"share_id": ""}, '"" is not a share ID'),
        ({"share_id": "\x1b[31m"}, r'"\u001b[31m" is not a share ID'),
    ],
)
def test_answers_that_cannot_be_used(device: dict[str, Any], text: str) -> None:
    found = read_prepared(DRIVER, CLAIMS, prepared(a=device, b={}))
    fault = found["uid-a"]
    assert isinstance(fault, DriverFault)
    assert (fault.driver, fault.kind) == (DRIVER, "malformed")
    assert fault.message.startswith("NodePrepareResources returned for ResourceClaim a: device 0: ")
    assert fault.message.endswith(text)
    assert len(fault.message) < 1024
    assert found["uid-b"] == (PreparedDevice("", ""),)  # the others are not to blame


def test_too_many_devices() -> None:
    answer = dra_v1.NodePrepareResourcesResponse()
    for _ in range(MOST_DEVICES):
        answer.claims["uid-a"].devices.add()
    assert isinstance(read_prepared(DRIVER, CLAIMS[:1], answer)["uid-a"], tuple)
    answer.claims["uid-a"].devices.add()
    fault = read_prepared(DRIVER, CLAIMS[:1], answer)["uid-a"]
    assert isinstance(fault, DriverFault)
    assert fault.message.endswith(f"{MOST_DEVICES + 1} devices, at most {MOST_DEVICES} are taken")


@given(st.binary(max_size=200), st.sampled_from([dra_v1, dra_v1beta1]), st.booleans())
def test_whatever_can_be_parsed_is_answered_for_every_claim(data: bytes, messages: Any, known: bool) -> None:
    claims = CLAIMS
    for kind, read in (
        (messages.NodePrepareResourcesResponse, read_prepared),
        (messages.NodeUnprepareResourcesResponse, read_released),
    ):
        answer = kind()
        try:
            answer.MergeFromString(data)
        except Exception:
            continue
        if known:
            claims = [ClaimRef("n", "x", uid) for uid in answer.claims] or CLAIMS
        found = read(DRIVER, claims, answer)
        assert set(found) == {claim.uid for claim in claims}


_TEXT = st.text(max_size=200) | st.sampled_from(
    ["gpu0", "a", "..", "v/c=d", "\0", "a/b", "x" * 300, "6b0c4c5e-2b6e-4c7d-a2f3-1d2c3b4a5968"]
).map(str)


@given(
    st.lists(
        st.tuples(st.lists(_TEXT, max_size=3), _TEXT, _TEXT, st.lists(_TEXT, max_size=3), st.none() | _TEXT),
        max_size=4,
    ),
    _TEXT,
)
def test_any_texts_become_devices_or_a_short_fault(devices: list[tuple[Any, ...]], error: str) -> None:
    def clean(text: str) -> str:
        return text.encode(errors="replace").decode()

    answer = dra_v1.NodePrepareResourcesResponse()
    entry = answer.claims["uid-a"]
    entry.error = clean(error) if len(devices) > 3 else ""
    for requests, pool, name, cdi, share in devices:
        device = entry.devices.add(pool_name=clean(pool), device_name=clean(name))
        device.request_names.extend(map(clean, requests))
        device.cdi_device_ids.extend(map(clean, cdi))
        if share is not None:
            device.share_id = clean(share)
    found = read_prepared(DRIVER, CLAIMS[:1], answer)["uid-a"]
    if isinstance(found, DriverFault):
        assert len(found.message) <= 1100
        return
    for taken in found:
        assert all(text.isprintable() for text in (*taken.requests, *taken.cdi, taken.pool, taken.device))


# -- offers


def judge(
    type: str = "DRAPlugin",
    name: str = DRIVER,
    endpoint: str = "/p/dra.sock",
    versions: tuple[str, ...] = (V1,),
) -> Offer | Refusal:
    return judge_offer(type, name, endpoint, versions, SOCKET)


def test_what_is_taken() -> None:
    assert judge() == Offer(DRIVER, "/p/dra.sock", V1)
    assert judge(endpoint="") == Offer(DRIVER, SOCKET, V1)
    assert judge(endpoint="/somewhere/else/a b.sock") == Offer(DRIVER, "/somewhere/else/a b.sock", V1)
    assert judge(versions=(V1BETA1, V1, HEALTH_V1ALPHA1, HEALTH_V1)) == Offer(
        DRIVER, "/p/dra.sock", V1BETA1, HEALTH_V1
    )


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"type": "DevicePlugin"}, "no handler registered for plugin type: DevicePlugin at socket " + SOCKET),
        ({"type": "x" * 9999}, "xxx... at socket " + SOCKET),
        ({"versions": ()}, "empty list of supported gRPC services (aka supported versions)"),
        (
            {"versions": ("v2.DRAPlugin",) * 100},
            '...) are supported by the kubelet (["v1.DRAPlugin" "v1beta1.',
        ),
        ({"versions": ("v1",)}, 'none of services supported by the plugin (["v1"]) are supported'),
        ({"name": ""}, '"" is not the name of a driver'),
        ({"name": "../x"}, '"../x" is not the name of a driver'),
        ({"name": "a" * 64}, "is not the name of a driver"),
        ({"name": "a\n"}, r'"a\n" is not the name of a driver'),
        ({"endpoint": "relative/dra.sock"}, 'endpoint "relative/dra.sock" is not the absolute path'),
        ({"endpoint": "/p/\0.sock"}, r'endpoint "/p/\u0000.sock" is not the absolute path of a socket'),
        ({"endpoint": "/p/"}, "is not the absolute path of a socket"),
        ({"endpoint": "/" + "p" * 107}, "has 108 bytes, a socket's path has at most 107 bytes"),
    ],
)
def test_what_is_refused(asked: dict[str, Any], text: str) -> None:
    refusal = judge(**asked)
    assert isinstance(refusal, Refusal)
    assert refusal.message.startswith("RegisterPlugin error -- ")
    assert text.replace("...)", " ...])") in refusal.message
    assert len(refusal.message) < 4096


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300), st.lists(st.text(), max_size=70))
def test_any_offer_is_judged(type: str, name: str, endpoint: str, versions: list[str]) -> None:
    for kind in (type, "DRAPlugin"):
        for driver in (name, DRIVER):
            for services in (versions, [*versions, V1]):
                found = judge_offer(kind, driver, endpoint, services, SOCKET)
                assert isinstance(found, Offer) or len(found.message) < 8192


def test_the_newest_health_service_is_taken() -> None:
    assert choose_health([V1]) == ""
    assert choose_health([HEALTH_V1ALPHA1, V1]) == HEALTH_V1ALPHA1
    assert choose_health([HEALTH_V1ALPHA1, HEALTH_V1]) == HEALTH_V1
