"""CertificateSigningRequests: what a new one must have."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from plimsoll.apiserver.auth.certificates import CertificateAuthority
from tests.unit.apiserver.signing_requests import SIGNED_REQUEST
from tests.unit.apiserver.validation.generic_objects import created, minimal, write


def forged_request() -> bytes:
    """Return a request with a changed signature."""
    lines = base64.b64decode(SIGNED_REQUEST).splitlines(keepends=True)
    der = bytearray(base64.b64decode(b"".join(lines[1:-1])))
    der[-1] ^= 1
    return lines[0] + base64.encodebytes(bytes(der)) + lines[-1]


def errors(**changes: Any) -> set[str]:
    spec = {
        "request": SIGNED_REQUEST,
        "signerName": "kubernetes.io/kube-apiserver-client",
        "usages": ["client auth"],
    }
    tree = minimal("CertificateSigningRequest", {"spec": {**spec, **changes}})
    return {error.field for error in write(tree).errors}


def test_a_signed_request_is_valid() -> None:
    assert errors() == set()
    text = b"some text before\n" + base64.b64decode(SIGNED_REQUEST)
    assert errors(request=base64.b64encode(text).decode(), expirationSeconds=600) == set()


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"x",
        b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE REQUEST-----\nAA==\n-----END CERTIFICATE REQUEST-----\n",
        b"-----BEGIN CERTIFICATE REQUEST-----\n",
        forged_request(),
    ],
)
def test_requests_that_are_not_signed_pem_are_invalid(pem: bytes) -> None:
    assert errors(request=base64.b64encode(pem).decode()) == {"spec.request"}


@pytest.mark.parametrize(
    ("usages", "field"),
    [
        ([], "spec.usages"),
        (["fly"], "spec.usages[0]"),
        (["client auth", "any", "client auth"], "spec.usages[2]"),
    ],
)
def test_usages(usages: list[str], field: str) -> None:
    assert errors(usages=usages) == {field}


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a",
        "kubernetes.io",
        "a/b",
        "a.b/c/d",
        "A.b/c",
        "a.b/C",
        "a..b/c",
        "a.b/",
        "kubernetes.io/legacy-unknown",
    ],
)
def test_signer_names(name: str) -> None:
    assert errors(signerName=name) == {"spec.signerName"}


def test_short_lifetimes_are_refused() -> None:
    assert errors(expirationSeconds=599) == {"spec.expirationSeconds"}


def condition(type: str, status: str = "True") -> dict[str, Any]:
    return {"type": type, "status": status}


def status_errors(before: dict[str, Any], after: dict[str, Any], subresource: str = "status") -> list[str]:
    """Return the fields with errors of a write of the status."""
    spec = {"request": SIGNED_REQUEST, "signerName": "example.com/signer", "usages": ["client auth"]}
    old = {**created("CertificateSigningRequest", {"spec": spec}), "status": before}
    return [error.field for error in write({**old, "status": after}, old, subresource).errors]


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        ([], [condition("Approved")], []),
        ([], [condition("Approved", "False")], ["status.conditions[0].status"]),
        ([], [condition("Other", "Perhaps")], ["status.conditions[0].status"]),
        ([], [condition("Other", "")], ["status.conditions[0].status"]),
        ([], [condition("")], ["status.conditions[0].type"]),
        ([], [condition("Approved"), condition("Denied")], ["status.conditions"]),
        ([], [condition("A"), condition("A")], ["status.conditions[1].type"]),
        ([condition("Approved")], [], ["status.conditions"]),
        ([condition("Other")], [], []),
        ([condition("A"), condition("A")], [condition("A"), condition("A")], []),
    ],
)
def test_conditions_of_a_request(before: list[Any], after: list[Any], fields: list[str]) -> None:
    assert status_errors({"conditions": before}, {"conditions": after}, "approval") == fields


def test_an_issued_certificate(tmp_path: Path) -> None:
    authority = CertificateAuthority.load_or_create(tmp_path)
    pem = base64.b64encode(authority.certificate).decode()
    assert status_errors({}, {"certificate": pem}) == []
    assert status_errors({"certificate": pem}, {"certificate": pem}) == []
    for text in (b"x", b"-----BEGIN X-----\nAA==\n-----END X-----\n", b"-----BEGIN CERTIFICATE-----\nAA==\n"):
        assert status_errors({}, {"certificate": base64.b64encode(text).decode()}) == ["status.certificate"]
    assert status_errors({"certificate": pem}, {}) == ["status.certificate"]
