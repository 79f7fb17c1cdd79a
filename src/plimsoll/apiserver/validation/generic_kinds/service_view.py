"""Views of Service, Endpoints, EndpointSlice, NetworkPolicy and IngressClass, for validation.

They have the fields that a default, a rule or a stored form depends on; all other fields are preserved
unchanged.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.api.meta import Int32, IntOrString, LabelSelector, ObjectMeta, Wire

# -- Service


class FullServicePort(Wire, frozen=True):
    name: str = ""
    protocol: str = ""
    port: Int32 = 0
    target_port: IntOrString = 0
    node_port: Int32 = 0


class ClientIPConfig(Wire, frozen=True):
    timeout_seconds: Int32 | None = None


class SessionAffinityConfig(Wire, frozen=True):
    client_ip: ClientIPConfig | None = msgspec.field(name="clientIP", default=None)


class FullServiceSpec(Wire, frozen=True):
    type: str = ""
    ports: tuple[FullServicePort, ...] = ()
    selector: dict[str, str] = {}
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    cluster_ips: tuple[str, ...] = msgspec.field(name="clusterIPs", default=())
    external_ips: tuple[str, ...] = msgspec.field(name="externalIPs", default=())
    external_name: str = ""
    session_affinity: str = ""
    session_affinity_config: SessionAffinityConfig | None = None
    external_traffic_policy: str = ""
    internal_traffic_policy: str | None = None
    health_check_node_port: Int32 = 0
    ip_families: tuple[str, ...] = ()
    ip_family_policy: str | None = None
    allocate_load_balancer_node_ports: bool | None = None
    load_balancer_class: str | None = None


class LoadBalancerIngress(Wire, frozen=True):
    ip: str = ""
    ip_mode: str | None = None


class LoadBalancerStatus(Wire, frozen=True):
    ingress: tuple[LoadBalancerIngress, ...] = ()


class ServiceStatus(Wire, frozen=True):
    load_balancer: LoadBalancerStatus = LoadBalancerStatus()


class FullService(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: FullServiceSpec = FullServiceSpec()
    status: ServiceStatus = ServiceStatus()


# -- Endpoints and EndpointSlice


class EndpointPort(Wire, frozen=True):
    name: str | None = None
    protocol: str | None = None
    port: Int32 | None = None


class EndpointSubset(Wire, frozen=True):
    ports: tuple[EndpointPort, ...] = ()


class Endpoints(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    subsets: tuple[EndpointSubset, ...] = ()


class ServiceEndpoint(Wire, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: Any = None
    node_name: str | None = None
    deprecated_topology: dict[str, str] = {}


class EndpointSlice(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    address_type: str = ""
    endpoints: tuple[ServiceEndpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()


# -- policies


class NetworkPolicyPort(Wire, frozen=True):
    protocol: str | None = None


class NetworkPolicyRule(Wire, frozen=True):
    ports: tuple[NetworkPolicyPort, ...] = ()


class NetworkPolicySpec(Wire, frozen=True):
    pod_selector: LabelSelector = LabelSelector()
    ingress: tuple[NetworkPolicyRule, ...] = ()
    egress: tuple[NetworkPolicyRule, ...] = ()
    policy_types: tuple[str, ...] = ()


class NetworkPolicy(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NetworkPolicySpec = NetworkPolicySpec()


class IngressClassParameters(Wire, frozen=True):
    scope: str | None = None


class IngressClassSpec(Wire, frozen=True):
    parameters: IngressClassParameters | None = None


class IngressClass(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: IngressClassSpec = IngressClassSpec()
