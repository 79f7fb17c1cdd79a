"""Validation of plugin and driver responses: every message becomes a value."""

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
    PluginInfo,
    RegistrationRefusal,
    choose_health,
    validate_plugin_info,
)
from plimsoll.node.plugins.responses import MAX_DEVICES, MAX_NAMES, read_prepared, read_unprepared
from plimsoll.protocols.messages import dra_v1, dra_v1beta1
from tests.unit.node.plugins.peers import DRIVER, claim

SOCKET = "/r/plugins_registry/reg.sock"
CLAIMS = [claim("a"), claim("b")]


def prepared(messages: Any = dra_v1, **devices: Any) -> Any:
    response = messages.NodePrepareResourcesResponse()
    for name, device in devices.items():
        response.claims[f"uid-{name}"].devices.append(messages.Device(**device))
    return response


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
        response = prepared(messages, a=fields, b={})
        assert read_prepared(DRIVER, CLAIMS, response) == {"uid-a": (device,), "uid-b": (empty,)}
    share = "6b0c4c5e-2b6e-4c7d-a2f3-1d2c3b4a5968"
    (read,) = read_prepared(DRIVER, CLAIMS[:1], prepared(a=fields | {"share_id": share})).values()
    assert isinstance(read, tuple)
    assert read[0].share_id == share


def test_errors_missing_claims_and_unknown_claims() -> None:
    response = prepared(a={})
    response.claims["uid-b"].error = "no such device" + "!" * 5000
    found = read_prepared(DRIVER, [*CLAIMS, claim("c"), claim("d")], response)
    assert found["uid-a"] == (PreparedDevice("", ""),)
    refused = found["uid-b"]
    assert isinstance(refused, DriverFault)
    assert refused.kind == "refused"
    assert refused.message.startswith("no such device!!!")
    assert len(refused.message) == 1024
    skipped = DriverFault(DRIVER, "skipped", "NodePrepareResources skipped 2 ResourceClaims")
    assert found["uid-c"] == found["uid-d"] == skipped

    response.claims["uid-x"].SetInParent()
    text = "NodePrepareResources returned result for unknown claim UID uid-x"
    assert set(read_prepared(DRIVER, CLAIMS, response).values()) == {DriverFault(DRIVER, "malformed", text)}

    released = dra_v1.NodeUnprepareResourcesResponse()
    released.claims["uid-a"].SetInParent()
    text = "NodeUnprepareResources skipped 1 ResourceClaims"
    assert read_unprepared(DRIVER, CLAIMS, released) == {
        "uid-a": None,
        "uid-b": DriverFault(DRIVER, "skipped", text),
    }
    released.claims["uid-b"].error = "still in use"
    fault = read_unprepared(DRIVER, CLAIMS, released)["uid-b"]
    assert fault == DriverFault(DRIVER, "refused", "still in use")
    released.claims["uid-x"].SetInParent()
    text = "NodeUnprepareResources returned result for unknown claim UID uid-x"
    assert set(read_unprepared(DRIVER, CLAIMS, released).values()) == {DriverFault(DRIVER, "malformed", text)}


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
        ({"request_names": ["r"] * (MAX_NAMES + 1)}, f"at most {MAX_NAMES} are accepted"),
        ({"cdi_device_ids": ["gpu0"]}, '"gpu0" is not the name of a CDI device'),
        ({"cdi_device_ids": ["vendor/class=device,other"]}, "is not the name of a CDI device"),
        ({"cdi_device_ids": ["1vendor/class=0"]}, "is not the name of a CDI device"),
        ({"cdi_device_ids": ["vendor/class=" + "0" * 600]}, "is not the name of a CDI device"),
        ({"cdi_device_ids": ["v/c=0"] * (MAX_NAMES + 1)}, f"at most {MAX_NAMES} are accepted"),
        ({"share_id": ""}, '"" is not a share ID'),
        ({"share_id": "\x1b[31m"}, r'"\u001b[31m" is not a share ID'),
    ],
)
def test_malformed_responses_are_faults(device: dict[str, Any], text: str) -> None:
    found = read_prepared(DRIVER, CLAIMS, prepared(a=device, b={}))
    fault = found["uid-a"]
    assert isinstance(fault, DriverFault)
    assert (fault.driver, fault.kind) == (DRIVER, "malformed")
    assert fault.message.startswith("NodePrepareResources returned for ResourceClaim a: device 0: ")
    assert fault.message.endswith(text)
    assert len(fault.message) < 1024
    assert found["uid-b"] == (PreparedDevice("", ""),)  # the others are not to blame


def test_too_many_devices_are_a_fault() -> None:
    response = dra_v1.NodePrepareResourcesResponse()
    for _ in range(MAX_DEVICES):
        response.claims["uid-a"].devices.add()
    assert isinstance(read_prepared(DRIVER, CLAIMS[:1], response)["uid-a"], tuple)
    response.claims["uid-a"].devices.add()
    fault = read_prepared(DRIVER, CLAIMS[:1], response)["uid-a"]
    assert isinstance(fault, DriverFault)
    assert fault.message.endswith(f"{MAX_DEVICES + 1} devices, at most {MAX_DEVICES} are accepted")


@given(st.binary(max_size=200), st.sampled_from([dra_v1, dra_v1beta1]), st.booleans())
def test_any_parsed_response_has_a_result_for_every_claim(data: bytes, messages: Any, known: bool) -> None:
    claims = CLAIMS
    for kind, read in (
        (messages.NodePrepareResourcesResponse, read_prepared),
        (messages.NodeUnprepareResourcesResponse, read_unprepared),
    ):
        response = kind()
        try:
            response.MergeFromString(data)
        except Exception:
            continue
        if known:
            claims = [ClaimRef("n", "x", uid) for uid in response.claims] or CLAIMS
        found = read(DRIVER, claims, response)
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
def test_any_text_is_a_device_or_a_short_fault(devices: list[tuple[Any, ...]], error: str) -> None:
    def clean(text: str) -> str:
        return text.encode(errors="replace").decode()

    response = dra_v1.NodePrepareResourcesResponse()
    entry = response.claims["uid-a"]
    entry.error = clean(error) if len(devices) > 3 else ""
    for requests, pool, name, cdi, share in devices:
        device = entry.devices.add(pool_name=clean(pool), device_name=clean(name))
        device.request_names.extend(map(clean, requests))
        device.cdi_device_ids.extend(map(clean, cdi))
        if share is not None:
            device.share_id = clean(share)
    found = read_prepared(DRIVER, CLAIMS[:1], response)["uid-a"]
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
) -> PluginInfo | RegistrationRefusal:
    return validate_plugin_info(type, name, endpoint, versions, SOCKET)


def test_accepted_registrations() -> None:
    assert judge() == PluginInfo(DRIVER, "/p/dra.sock", V1)
    assert judge(endpoint="") == PluginInfo(DRIVER, SOCKET, V1)
    assert judge(endpoint="/somewhere/else/a b.sock") == PluginInfo(DRIVER, "/somewhere/else/a b.sock", V1)
    assert judge(versions=(V1BETA1, V1, HEALTH_V1ALPHA1, HEALTH_V1)) == PluginInfo(
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
        ({"endpoint": "/" + "p" * 107}, "has 108 bytes, at most 107 are possible"),
    ],
)
def test_refused_registrations(asked: dict[str, Any], text: str) -> None:
    refusal = judge(**asked)
    assert isinstance(refusal, RegistrationRefusal)
    assert refusal.message.startswith("RegisterPlugin error -- ")
    assert text.replace("...)", " ...])") in refusal.message
    assert len(refusal.message) < 4096


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300), st.lists(st.text(), max_size=70))
def test_any_registration_is_accepted_or_refused(
    type: str, name: str, endpoint: str, versions: list[str]
) -> None:
    for kind in (type, "DRAPlugin"):
        for driver in (name, DRIVER):
            for services in (versions, [*versions, V1]):
                found = validate_plugin_info(kind, driver, endpoint, services, SOCKET)
                assert isinstance(found, PluginInfo) or len(found.message) < 8192


def test_the_newest_health_service_is_used() -> None:
    assert choose_health([V1]) == ""
    assert choose_health([HEALTH_V1ALPHA1, V1]) == HEALTH_V1ALPHA1
    assert choose_health([HEALTH_V1ALPHA1, HEALTH_V1]) == HEALTH_V1
