"""CertificateSigningRequests: what a new one must have."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from tests.unit.apiserver.signing_requests import SIGNED_REQUEST
from tests.unit.apiserver.validation.generic_objects import minimal, write


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
