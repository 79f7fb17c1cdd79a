"""ConfigMaps and Secrets."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.validation.generic_kinds.config_map_and_secret_rules import (
    DATA_MAX,
    decoded_size,
    read_bytes,
)
from plimsoll.errors import DecodeError
from tests.unit.apiserver.validation.generic_objects import created, edit, field_errors, minimal, write


def _encode(data: bytes) -> str:
    return b64encode(data).decode()


@given(st.lists(st.binary(max_size=40)))
def test_sizes_are_those_of_the_bytes(values: list[bytes]) -> None:
    assert decoded_size(map(_encode, values)) == sum(map(len, values))


@pytest.mark.parametrize("text", ["!", "eA", "eA=", "e A==", "_-8=", "eA==x", "=", "é", "eA==eA=="])
def test_invalid_base64_is_rejected(text: str) -> None:
    with pytest.raises(DecodeError):
        read_bytes(text, "data[a]")
    for kind, name in (("Secret", "data"), ("ConfigMap", "binaryData")):
        with pytest.raises(DecodeError, match="base64"):
            write(minimal(kind, {name: {"a": text}}))


def test_base64_is_stored_in_canonical_form() -> None:
    values = {"a": "eA==\n", "b": "eB==", "c": "e\r\nA==", "d": ""}
    assert created("Secret", {"data": values})["data"] == {"a": "eA==", "b": "eA==", "c": "eA==", "d": ""}
    assert created("ConfigMap", {"binaryData": {"z": "eB=="}})["binaryData"] == {"z": "eA=="}


def test_string_data_is_merged_into_data() -> None:
    secret = created("Secret", {"stringData": {"a": "y", "b": "zä"}})
    assert "stringData" not in secret
    assert secret["data"] == {"a": _encode(b"y"), "b": _encode("zä".encode())}
    assert secret["type"] == "Opaque"


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"data": {"?": "eA=="}}, ["data[?] Invalid"]),
        ({"stringData": {"..": "x"}}, ["data[..] Invalid"]),
        ({"data": {"a": _encode(b"x" * DATA_MAX)}}, []),
        ({"data": {"a": _encode(b"x" * DATA_MAX), "b": _encode(b"y")}}, ["data TooLong"]),
        ({"type": "kubernetes.io/tls"}, ["data[tls.crt] Required", "data[tls.key] Required"]),
        ({"type": "kubernetes.io/tls", "stringData": {"tls.crt": "", "tls.key": ""}}, []),
        (
            {"type": "kubernetes.io/basic-auth"},
            ["data[password] Required", "data[username] Required"],
        ),
        ({"type": "kubernetes.io/basic-auth", "stringData": {"username": ""}}, []),
        (
            {"type": "kubernetes.io/ssh-auth", "data": {"ssh-privatekey": ""}},
            ["data[ssh-privatekey] Required"],
        ),
        ({"type": "kubernetes.io/dockercfg"}, ["data[.dockercfg] Required"]),
        (
            {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "[]"}},
            ["data[.dockerconfigjson] Invalid"],
        ),
        ({"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{}"}}, []),
        (
            {"type": "kubernetes.io/service-account-token"},
            ["metadata.annotations[kubernetes.io/service-account.name] Required"],
        ),
        ({"type": "example.com/anything"}, []),
    ],
)
def test_secrets(changes: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(minimal("Secret", changes)) == errors


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"data": {"?": "x"}}, ["data[?] Invalid"]),
        ({"binaryData": {"a": "eA=="}}, ["data[a] Invalid"]),
        ({"binaryData": {"..": "eA=="}}, ["binaryData[..] Invalid"]),
        ({"data": {"a": "é" * (DATA_MAX // 2)}}, []),
        ({"data": {"a": "é" * (DATA_MAX // 2)}, "binaryData": {"b": "eA=="}}, ["[] TooLong"]),
    ],
)
def test_config_maps(changes: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(minimal("ConfigMap", changes)) == errors


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
def test_immutable_data(kind: str) -> None:
    old = created(kind, {"immutable": True})
    value = "eQ==" if kind == "Secret" else "c"
    assert field_errors(edit(old, {"metadata.labels": {"a": "b"}}), old) == []
    assert field_errors(edit(old, {"data": {"a": value}}), old) == ["data Forbidden"]
    assert field_errors(edit(old, {"immutable": False}), old) == ["immutable Forbidden"]
    free = created(kind)
    assert field_errors(edit(free, {"data": {"a": value}, "immutable": True}), free) == []


def test_immutable_binary_data() -> None:
    old = created("ConfigMap", {"immutable": True})
    assert field_errors(edit(old, {"binaryData": {"b": "eA=="}}), old) == ["binaryData Forbidden"]


def test_a_secret_keeps_its_type() -> None:
    old = created("Secret")
    assert field_errors(edit(old, {"type": "example.com/other"}), old) == ["type Invalid"]
    frozen = created("Secret", {"immutable": True})
    assert field_errors(edit(frozen, {"stringData": {"a": "x"}}), frozen) == []
    assert field_errors(edit(frozen, {"stringData": {"a": "y"}}), frozen) == ["data Forbidden"]
