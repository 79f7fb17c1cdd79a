"""Views of the kinds that make pods reachable: services, endpoints, and policies of the network.

Owns their fields as far as a default, a rule or a stored spelling depends on them; what is left out is kept
as it came.
"""

from __future__ import annotations

from typing import Any

import msgspec

from plimsoll.api.meta import Int32, IntOrString, LabelSelector, ObjectMeta, Wire

# -- Service


class ServicePort(Wire, frozen=True):
    name: str = ""
    protocol: str = ""
    port: Int32 = 0
    target_port: IntOrString = 0
    node_port: Int32 = 0


class ClientAffinity(Wire, frozen=True):
    timeout_seconds: Int32 | None = None


class AffinityConfig(Wire, frozen=True):
    client_ip: ClientAffinity | None = msgspec.field(name="clientIP", default=None)


class ServiceSpec(Wire, frozen=True):
    type: str = ""
    ports: tuple[ServicePort, ...] = ()
    selector: dict[str, str] = {}
    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    cluster_ips: tuple[str, ...] = msgspec.field(name="clusterIPs", default=())
    external_ips: tuple[str, ...] = msgspec.field(name="externalIPs", default=())
    external_name: str = ""
    session_affinity: str = ""
    session_affinity_config: AffinityConfig | None = None
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


class Service(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: ServiceSpec = ServiceSpec()
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


class Endpoint(Wire, frozen=True):
    addresses: tuple[str, ...] = ()
    conditions: Any = None
    node_name: str | None = None
    deprecated_topology: dict[str, str] = {}


class EndpointSlice(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    address_type: str = ""
    endpoints: tuple[Endpoint, ...] = ()
    ports: tuple[EndpointPort, ...] = ()


# -- policies


class PolicyPort(Wire, frozen=True):
    protocol: str | None = None


class NetworkPolicyRule(Wire, frozen=True):
    ports: tuple[PolicyPort, ...] = ()


class NetworkPolicySpec(Wire, frozen=True):
    pod_selector: LabelSelector = LabelSelector()
    ingress: tuple[NetworkPolicyRule, ...] = ()
    egress: tuple[NetworkPolicyRule, ...] = ()
    policy_types: tuple[str, ...] = ()


class NetworkPolicy(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: NetworkPolicySpec = NetworkPolicySpec()


class ClassParameters(Wire, frozen=True):
    scope: str | None = None


class IngressClassSpec(Wire, frozen=True):
    parameters: ClassParameters | None = None


class IngressClass(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: IngressClassSpec = IngressClassSpec()
