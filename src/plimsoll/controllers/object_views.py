"""Read-only views of kinds that only controllers read: namespaces, leases, templates, pool status requests.

Objects are changed by patches, so that fields missing in a view are never lost.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.api.meta import Condition, IntOrString, ObjectMeta, Wire
from plimsoll.api.quota import CountedService, CountedServicePort, CountedServiceSpec

#: Namespaces that always exist.
DEFAULT_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


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


class ServicePortView(CountedServicePort, frozen=True):
    name: str = ""
    port: int = 0
    protocol: str = ""
    app_protocol: str = ""
    target_port: IntOrString = 0


class ServiceSpecView(CountedServiceSpec, frozen=True):
    ports: tuple[ServicePortView, ...] = ()
    selector: dict[str, str] = {}  # noqa: RUF012 - a frozen view
    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    ip_families: tuple[str, ...] = ()
    publish_not_ready_addresses: bool = False


class ServiceView(CountedService, frozen=True):
    """View of a Service: what quotas count, and what selects its endpoints."""

    spec: ServiceSpecView = ServiceSpecView()


class EndpointSliceView(Wire, frozen=True):
    """View of an EndpointSlice; endpoints and ports are plain JSON."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    endpoints: tuple[Any, ...] = ()
    ports: tuple[Any, ...] = ()
