"""Formats of names (docs/spec/api.md, "Names and formats")."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api import names as formats
from plimsoll.api.resource import DeviceAttribute
from plimsoll.apiserver.validation import name_formats
from plimsoll.apiserver.validation.device_attributes import is_plain, validate_attribute
from plimsoll.apiserver.validation.field_errors import FieldPath
from plimsoll.apiserver.validation.name_formats import Format


@pytest.mark.parametrize(
    ("format", "text", "complaints"),
    [
        (formats.dns_label, "gpu-0", 0),
        (formats.dns_label, "0", 0),
        (formats.dns_label, "a" * 63, 0),
        (formats.dns_label, "a" * 64, 1),
        (formats.dns_label, "", 1),
        (formats.dns_label, "Gpu", 1),
        (formats.dns_label, "a_b", 1),
        (formats.dns_label, "-a", 1),
        (formats.dns_label, "a-", 1),
        (formats.dns_label, "a\n", 1),
        (formats.dns_label, "a.b", 1),
        (formats.dns_label, "A" * 64, 2),
        (formats.dns_label, "a" * 60 + ".bcd", 2),
        (formats.dns_label, "é" * 32, 2),  # bytes count
        (formats.dns_subdomain, "gpu.example.com", 0),
        (formats.dns_subdomain, "a" * 253, 0),
        (formats.dns_subdomain, "a" * 254, 1),
        (formats.dns_subdomain, "a..b", 1),
        (formats.dns_subdomain, "a.b.", 1),
        (formats.dns_subdomain, "", 1),
        (formats.dns_subdomain, "A.b" * 100, 2),
        (formats.label_key, "Name_1.x", 0),
        (formats.label_key, "example.com/Name", 0),
        (formats.label_key, "a" * 63, 0),
        (formats.label_key, "a" * 253 + "/" + "b" * 63, 0),
        (formats.label_key, "", 2),
        (formats.label_key, "/a", 1),
        (formats.label_key, "a/", 2),
        (formats.label_key, "a/b/c", 1),
        (formats.label_key, "A/b", 1),
        (formats.label_key, "a b", 1),
        (formats.label_key, "-" * 64, 2),
        (formats.label_key, "a" * 64, 1),
        (formats.label_key, "A" * 254 + "/", 4),
        (formats.label_value, "", 0),
        (formats.label_value, "Yes_1.2-x", 0),
        (formats.label_value, "a b", 1),
        (formats.label_value, "-", 1),
        (formats.label_value, "a" * 64, 1),
        (formats.label_value, " " * 64, 2),
        (name_formats.condition_reason, "NetworkReady", 0),
        (name_formats.condition_reason, "A,B:C_", 0),
        (name_formats.condition_reason, "A,", 1),
        (name_formats.condition_reason, "1a", 1),
        (name_formats.canonical_uuid, "6f1c1c2e-7a57-4c3b-9d7e-0d5d1f6f7a01", 0),
        (name_formats.canonical_uuid, "6F1C1C2E-7a57-4c3b-9d7e-0d5d1f6f7a01", 1),
        (name_formats.canonical_uuid, "{6f1c1c2e-7a57-4c3b-9d7e-0d5d1f6f7a01}", 1),
        (name_formats.canonical_uuid, "urn:uuid:6f1c1c2e-7a57-4c3b-9d7e-0d5d1f6f7a01", 1),
        (name_formats.canonical_uuid, "6f1c1c2e7a574c3b9d7e0d5d1f6f7a01", 1),
        (name_formats.canonical_uuid, "", 1),
        (name_formats.semantic_version, "1.2.3", 0),
        (name_formats.semantic_version, "0.0.0-0.a-b.-1+001.x", 0),
        (name_formats.semantic_version, "1.2.3+a-b", 0),
        (name_formats.semantic_version, "1.2", 1),
        (name_formats.semantic_version, "v1.2.3", 1),
        (name_formats.semantic_version, "01.2.3", 1),
        (name_formats.semantic_version, "1.2.3-01", 1),
        (name_formats.semantic_version, "1.2.3-", 1),
        (name_formats.semantic_version, "1.2.3-a..b", 1),
        (name_formats.semantic_version, "1.2.3+", 1),
        (name_formats.semantic_version, "1.2.3+a+b", 1),
        (name_formats.semantic_version, "1.2.٣", 1),
        (name_formats.interface_address, "10.9.8.7/24", 0),
        (name_formats.interface_address, "0.0.0.0/0", 0),
        (name_formats.interface_address, "fd00::5/64", 0),
        (name_formats.interface_address, "::1/128", 0),
        (name_formats.interface_address, "10.9.8.7", 1),
        (name_formats.interface_address, "10.9.8.7/33", 1),
        (name_formats.interface_address, "10.9.8.7/024", 1),
        (name_formats.interface_address, "10.9.8.07/24", 1),
        (name_formats.interface_address, "10.9.8.7/255.255.255.0", 1),
        (name_formats.interface_address, "FD00::5/64", 1),
        (name_formats.interface_address, "fd00:0:0::5/64", 1),
        (name_formats.interface_address, "::ffff:10.9.8.7/120", 1),
        (name_formats.interface_address, "::ffff:a09:807/120", 1),
        (name_formats.interface_address, "fe80::1%eth0/64", 1),
        (name_formats.interface_address, "::10.9.8.7/64", 1),
        (name_formats.interface_address, "fd00::5/129", 1),
        (name_formats.interface_address, "/24", 1),
    ],
)
def test_format(format: Format, text: str, complaints: int) -> None:
    assert len(format(text)) == complaints, format(text)


@pytest.mark.parametrize(
    ("name", "errors"),
    [
        ("model", []),
        ("gpu.example.com/model", []),
        ("GPU.example.com/_m1", []),  # domains follow driver names
        ("a/b/c", []),  # not looked at
        ("", ["Invalid"]),
        ("1a", ["Invalid"]),
        ("a-b", ["Invalid"]),
        ("/a", ["Invalid"]),
        ("a/", ["Invalid"]),
        ("/", ["Invalid", "Invalid"]),
        ("a_b/c", ["Invalid"]),
        ("a" * 33, ["TooLong"]),
        ("a" * 64 + "/b", ["TooLong"]),
        ("a-" * 32 + "/" + "b-" * 32, ["Invalid", "Invalid", "TooLong", "TooLong"]),
    ],
)
def test_qualified_name(name: str, errors: list[str]) -> None:
    found = name_formats.validate_qualified_name(name, FieldPath("x"))
    assert sorted(error.type.value.removeprefix("FieldValue") for error in found) == errors


def test_fully_qualified_name_has_a_domain() -> None:
    assert len(list(name_formats.validate_fully_qualified_name("model", FieldPath("x")))) == 1
    assert not list(name_formats.validate_fully_qualified_name("a/b", FieldPath("x")))
    assert not list(name_formats.validate_fully_qualified_name("a/b/c", FieldPath("x")))


@pytest.mark.parametrize(
    ("name", "errors"),
    [
        ("gpu.example.com", []),
        ("GPU.Example.com", []),
        ("a" * 63, []),
        ("", ["Required"]),
        ("a b", ["Invalid"]),
        ("a" * 64, ["TooLong"]),
        ("-" * 64, ["Invalid", "TooLong"]),
        ("a" * 254, ["Invalid", "TooLong"]),
    ],
)
def test_driver_name(name: str, errors: list[str]) -> None:
    found = name_formats.validate_driver(name, FieldPath("x"))
    assert sorted(error.type.value.removeprefix("FieldValue") for error in found) == errors


@pytest.mark.parametrize(
    ("name", "errors"),
    [
        ("node-1", []),
        ("rack.a/node-1/x", []),
        ("", ["Required"]),
        ("a//b", ["Invalid"]),
        ("/", ["Invalid", "Invalid"]),
        ("A", ["Invalid"]),
        ("a/" * 126 + "ab", ["TooLong"]),
        ("a" * 254, ["Invalid", "TooLong"]),
    ],
)
def test_pool_name(name: str, errors: list[str]) -> None:
    found = name_formats.validate_pool(name, FieldPath("x"))
    assert sorted(error.type.value.removeprefix("FieldValue") for error in found) == errors


def test_work_for_a_hostile_pool_name_is_bounded() -> None:
    assert len(list(name_formats.validate_pool("/" * 1_000_000, FieldPath("x")))) < 1000


@pytest.mark.parametrize(
    ("name", "node", "extended"),
    [
        ("cpu", True, False),
        ("", True, False),
        ("requests.cpu", True, False),
        ("kubernetes.io/batteries", True, False),
        ("x.kubernetes.io/y", True, False),
        ("example.com/gpu", False, True),
        ("requests.example.com/gpu", False, False),
        ("example.com/", False, False),
        ("Example.com/gpu", False, False),
        ("a/b/c", False, False),
        ("a" * 253 + "/b", False, False),  # too long once a quota names it
    ],
)
def test_resource_names(name: str, node: bool, extended: bool) -> None:
    assert name_formats.is_node_allocatable(name) is node
    assert name_formats.is_extended_resource(name) is extended


@pytest.mark.parametrize(
    "text", ["a" * 200_000 + "!", "-" * 200_000, "a." * 100_000, "1.2.3-" + "0" * 200_000]
)
def test_formats_are_linear_in_length(text: str) -> None:
    for format in (formats.dns_label, formats.dns_subdomain, formats.label_key, formats.label_value):
        assert format(text)
    assert name_formats.semantic_version(text)
    assert name_formats.condition_reason(text)
    assert name_formats.interface_address(text)


# -- fast path


TEXTS = st.text(alphabet="aA0-_./é", max_size=12) | st.sampled_from(["", "a" * 63, "a" * 64, "a" * 254])


@given(TEXTS)
def test_cached_formats_agree_with_uncached_ones(text: str) -> None:
    path = FieldPath("x")
    for check, format in (
        (name_formats.validate_label, formats.dns_label),
        (name_formats.validate_subdomain, formats.dns_subdomain),
        (name_formats.validate_label_key, formats.label_key),
    ):
        for _ in range(2):
            assert [error.detail for error in check(text, path)] == format(text)
    once, twice = (list(name_formats.validate_qualified_name(text, path)) for _ in range(2))
    assert once == twice


@given(
    st.builds(
        DeviceAttribute,
        string_value=st.none() | st.sampled_from(["", "x", "x" * 64, "x" * 65, "é" * 33]),
        int_value=st.none() | st.just(1),
        bool_value=st.none() | st.just(False),
        version_value=st.none() | st.sampled_from(["1.2.3", "1.2", "1.2.3-" + "a" * 60]),
        string_values=st.none() | st.just(()) | st.just(("a",)),
    )
)
def test_plain_attributes_have_no_errors(attribute: DeviceAttribute) -> None:
    errors = list(validate_attribute(attribute, FieldPath("x")))
    if is_plain(attribute):
        assert errors == []
    elif attribute.string_values is None and (attribute.string_value or "").isascii():
        assert errors != []
