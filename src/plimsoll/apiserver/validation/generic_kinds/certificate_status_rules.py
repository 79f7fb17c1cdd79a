"""Validation of the status of CertificateSigningRequest: conditions and the issued certificate.

What a stored status violates already is not reported again, as upstream does.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections import Counter
from typing import Any

from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.write_context import WriteContext

_CONDITIONS = FieldPath("status").child("conditions")
_CERTIFICATE = FieldPath("status").child("certificate")
_APPROVED, _DENIED, _FAILED = "Approved", "Denied", "Failed"
#: Types whose status is always True, and which stay once they are set.
_FINAL = (_APPROVED, _DENIED, _FAILED)
_STATUSES = ("False", "True", "Unknown")
_BLOCK = re.compile(rb"-----BEGIN ([^\n]*?)-----\s*\n(.*?)-----END \1-----", re.DOTALL)


def validate_request_status(write: WriteContext[View], subresource: str) -> FieldErrors:
    """Validate a write of `status` or `approval`."""
    status, old = subtree(write.tree, "status"), subtree(write.old_tree, "status")
    conditions, before = status.get("conditions") or [], old.get("conditions") or []
    yield from _validate_conditions(conditions, before)
    certificate, issued = status.get("certificate") or "", old.get("certificate") or ""
    if certificate != issued and not certificate_problem(issued):
        problem = certificate_problem(certificate)
        if problem:
            yield invalid(_CERTIFICATE, "<certificate data>", problem)
    types, had = _count_types(conditions), _count_types(before)
    for name in _FINAL:
        if types[name] < had[name]:
            yield forbidden(_CONDITIONS, f'updates may not remove a condition of type "{name}"')
    if certificate != issued and subresource != "status":
        yield forbidden(_CERTIFICATE, "updates may not set certificate content")
    elif certificate != issued and issued:
        yield forbidden(_CERTIFICATE, "updates may not modify existing certificate content")


def _validate_conditions(conditions: list[Tree], before: list[Tree]) -> FieldErrors:
    had = _count_types(before)
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        path, name, value = _CONDITIONS.index(index), _type(condition), condition.get("status") or ""
        if not name and not had[""]:
            yield required(path.child("type"))
        allowed = ("True",) if name in _FINAL else _STATUSES
        if not value:
            yield required(path.child("status"))
        elif value not in allowed:
            yield not_supported(path.child("status"), value, allowed)
        other = {_APPROVED: _DENIED, _DENIED: _APPROVED}.get(name)
        if other in seen and not (had[_APPROVED] and had[_DENIED]):
            yield invalid(_CONDITIONS, name, "Approved and Denied conditions are mutually exclusive")
        if name in seen and max(had.values(), default=0) < 2:
            yield duplicate(path.child("type"), name)
        seen.add(name)


def _type(condition: Tree) -> str:
    return str(condition.get("type") or "")


def _count_types(conditions: list[Tree]) -> Counter[str]:
    return Counter(map(_type, conditions))


def certificate_problem(encoded: Any) -> str:
    """Return why a text is no certificates in PEM, or ""; nothing is valid."""
    if not encoded:
        return ""
    try:
        pem = base64.b64decode(encoded)
    except (binascii.Error, TypeError, ValueError):
        return "is not base64"
    from cryptography import x509  # noqa: PLC0415 - every command would load it

    found = _BLOCK.findall(pem)
    for kind, content in found:
        if kind != b"CERTIFICATE":
            return f'only CERTIFICATE PEM blocks are allowed, found "{kind.decode(errors="replace")[:64]}"'
        if b":" in content:
            return "no PEM block headers are permitted"
        try:
            x509.load_der_x509_certificate(base64.b64decode(content))
        except (binascii.Error, ValueError) as error:
            return f"is not a certificate: {str(error)[:100]}"
    return "" if found else "must contain at least one CERTIFICATE PEM block"
