"""Preparation and validation of CertificateSigningRequest."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from plimsoll.api.names import dns_label, dns_subdomain
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    invalid,
    not_supported,
    required,
    too_long,
    validate_unique,
)
from plimsoll.apiserver.validation.generic_kinds.certificate_status_rules import validate_request_status
from plimsoll.apiserver.validation.generic_kinds.kind_rules import KindRules, default_if_empty
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree, subtree
from plimsoll.apiserver.validation.write_context import WriteContext

_SPEC = FieldPath("spec")
_DECISIONS = ("Approved", "Denied")
_PEM_START = b"-----BEGIN CERTIFICATE REQUEST-----"
_MIN_SECONDS = 600
_MAX_DOMAIN = 253
_LEGACY_SIGNER = "kubernetes.io/legacy-unknown"
_USAGES = (
    "any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
    "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system",
    "ipsec tunnel", "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc",
    "ocsp signing", "s/mime", "server auth", "signing", "timestamping",
)  # fmt: skip


def _validate_request(write: WriteContext[View]) -> FieldErrors:
    """Validate a new request; its spec is immutable afterwards."""
    if not write.is_create:
        return
    spec = write.new.spec
    problem = _request_problem(spec.request)
    if problem:
        yield invalid(_SPEC.child("request"), spec.request, problem)
    usages = _SPEC.child("usages")
    if not spec.usages:
        yield required(usages)
    for index, usage in enumerate(spec.usages):
        if usage not in _USAGES:
            yield not_supported(usages.index(index), usage, _USAGES)
    yield from validate_unique(spec.usages, usages)
    yield from _validate_signer(spec.signer_name, _SPEC.child("signerName"))
    seconds = spec.expiration_seconds
    if seconds is not None and seconds < _MIN_SECONDS:
        why = "may not specify a duration less than 600 seconds (10 minutes)"
        yield invalid(_SPEC.child("expirationSeconds"), seconds, why)


def _request_problem(encoded: str) -> str:
    """Return why a request is not a signed PKCS #10 request in PEM, or ""."""
    try:
        pem = base64.b64decode(encoded)
    except binascii.Error:
        return "is not base64"
    from cryptography import x509  # noqa: PLC0415 - every command would load it
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm  # noqa: PLC0415

    start = pem.find(b"-----BEGIN ")
    if start < 0 or not pem.startswith(_PEM_START, start):
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        request = x509.load_pem_x509_csr(pem[start:])
        if not request.is_signature_valid:
            return "the signature is not that of the request's key"
    except (ValueError, TypeError, UnsupportedAlgorithm, InvalidSignature) as error:
        return f"is not a certificate request: {str(error)[:100]}"
    return ""


def _validate_signer(name: str, path: FieldPath) -> FieldErrors:
    if not name:
        yield required(path)
        return
    if name == _LEGACY_SIGNER:
        yield invalid(path, name, "the legacy signerName is not allowed via this API version")
        return
    segments = name.split("/")
    if len(segments) != 2:
        yield invalid(
            path, name, "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        )
        return
    domain, rest = segments
    if len(domain) > _MAX_DOMAIN:
        yield too_long(path, _MAX_DOMAIN)
    yield from _validate_labels(domain, dns_label, path)
    if "." not in domain:
        yield invalid(path, domain, "should be a domain with at least two segments separated by dots")
    yield from _validate_labels(rest, dns_subdomain, path)


def _validate_labels(text: str, check: Any, path: FieldPath) -> FieldErrors:
    """Validate the parts between dots, up to the first invalid one."""
    for label in text.split("."):
        problems = check(label)
        for problem in problems:
            yield invalid(path, text, f'validating label "{label[:64]}": {problem}')
        if problems:
            return


def _normalize_request(write: WriteContext[View]) -> None:
    """Reset the spec of a request, which is immutable."""
    if not write.is_create:
        write.restore_fields("spec")


def _normalize_request_status(write: WriteContext[View], subresource: str) -> None:
    """Restrict `approval` writes to conditions and keep approval decisions on `status` writes; set
    condition times.
    """
    status, old = write.tree.setdefault("status", {}), subtree(write.old_tree, "status")
    conditions = status.get("conditions", [])
    if subresource == "approval":
        status = copy_tree(old)
        write.tree["status"] = status
    else:
        decided = [one for one in old.get("conditions", ()) if one.get("type") in _DECISIONS]
        kept = [one for one in conditions if one.get("type") not in _DECISIONS]
        conditions = [*copy_tree(decided), *kept]
    for condition in conditions:
        _set_condition_times(condition, old.get("conditions", ()), write.now)
    status.pop("conditions", None)
    if conditions:
        status["conditions"] = conditions


def _set_condition_times(condition: Tree, before: Any, now: str) -> None:
    default_if_empty(condition, lastUpdateTime=now)
    since = [
        one["lastTransitionTime"]
        for one in before
        if (one.get("type"), one.get("status")) == (condition.get("type"), condition.get("status"))
        and one.get("lastTransitionTime")
    ]
    default_if_empty(condition, lastTransitionTime=since[0] if since else now)


CERTIFICATE_RULES: Mapping[str, KindRules] = {
    "CertificateSigningRequest": KindRules(
        "certificates.v1",
        prepare=_normalize_request,
        validate=_validate_request,
        prepare_status=_normalize_request_status,
        validate_status=validate_request_status,
    )
}
