"""Read-only views of kinds that only controllers read: namespaces, leases, templates, pool status requests.

Objects are changed by patches, so that fields missing in a view are never lost.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.api.meta import Condition, ObjectMeta, Wire


class ClaimTemplateSpecView(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Any = None  #: copied into claims unchanged


class ClaimTemplateView(Wire, frozen=True):
    """View of a ResourceClaimTemplate."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimTemplateSpecView = ClaimTemplateSpecView()


class NamespaceSpecView(Wire, frozen=True):
    finalizers: tuple[str, ...] = ()


class NamespaceStatusView(Wire, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class NamespaceView(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: NamespaceSpecView = NamespaceSpecView()
    status: NamespaceStatusView = NamespaceStatusView()


class LeaseSpecView(Wire, frozen=True):
    holder_identity: str = ""
    renew_time: str | None = None


class LeaseView(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpecView = LeaseSpecView()


class RootCAView(Wire, frozen=True):
    """Data of the ConfigMap that publishes the root CA."""

    certificates: str | None = msgspec.field(default=None, name="ca.crt")


class ConfigMapView(Wire, frozen=True):
    """View of a ConfigMap; of its data only what controllers read."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    data: RootCAView = RootCAView()


class PoolStatusRequestSpecView(Wire, frozen=True):
    driver: str = ""
    pool_name: str = ""
    limit: int | None = None


class PoolStatusRequestStatusView(Wire, frozen=True):
    conditions: tuple[Condition, ...] = ()


class PoolStatusRequestView(Wire, frozen=True):
    """View of a ResourcePoolStatusRequest; its status is None until it is answered."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PoolStatusRequestSpecView = PoolStatusRequestSpecView()
    status: PoolStatusRequestStatusView | None = None
