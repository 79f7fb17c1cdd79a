"""Views of ConfigMap, Secret, RoleBinding, ServiceAccount and CertificateSigningRequest, for validation.

They have the fields that a default, a rule or a stored form depends on; all other fields are preserved
unchanged.
"""

from __future__ import annotations

from plimsoll.api.meta import ObjectMeta, Wire


class ConfigMap(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    immutable: bool | None = None
    data: dict[str, str] = {}
    binary_data: dict[str, str] = {}


class Secret(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    immutable: bool | None = None
    data: dict[str, str] = {}
    string_data: dict[str, str] = {}
    type: str = ""


class RoleRef(Wire, frozen=True):
    api_group: str = ""
    kind: str = ""
    name: str = ""


class Subject(Wire, frozen=True):
    api_group: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""


class RoleBinding(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    role_ref: RoleRef = RoleRef()
    subjects: tuple[Subject, ...] = ()


class SecretReference(Wire, frozen=True):
    name: str = ""


class ServiceAccount(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    secrets: tuple[SecretReference, ...] = ()


class CertificateSigningRequestCondition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    last_update_time: str | None = None
    last_transition_time: str | None = None


class CertificateSigningRequestStatus(Wire, frozen=True):
    conditions: tuple[CertificateSigningRequestCondition, ...] = ()


class CertificateSigningRequest(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    status: CertificateSigningRequestStatus = CertificateSigningRequestStatus()
