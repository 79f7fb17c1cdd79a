"""The kinds that controllers read and the rest of Plimsoll does not.

Owns read projections of namespaces and leases, and of templates as they are copied. Like the views of `api`,
they never lose anything: objects are changed by patches.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api.meta import Condition, ObjectMeta, Wire


class TemplateSpec(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None  #: copied into claims as it is


class Template(Wire, frozen=True):
    """A ResourceClaimTemplate to copy from."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: TemplateSpec = TemplateSpec()


class NamespaceSpec(Wire, frozen=True):
    finalizers: tuple[str, ...] = ()


class NamespaceStatus(Wire, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class Namespace(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpec = NamespaceSpec()
    status: NamespaceStatus = NamespaceStatus()


class LeaseSpec(Wire, frozen=True):
    holder_identity: str = ""
    renew_time: str | None = None


class Lease(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()
