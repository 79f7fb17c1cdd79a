"""The rules of services: ports that can be told apart, a type that exists, an address that stays.

Owns what a controller relies on when it makes endpoints. Not checked: source ranges, external addresses,
traffic distribution, and anything of Ingress, NetworkPolicy and endpoints beyond their shape.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.names import dns_label, dns_subdomain
from plimsoll.apiserver.validation.addresses import check_address
from plimsoll.apiserver.validation.field_errors import (
    Path,
    Problems,
    check_unique,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.generic_kinds.kind_rules import Rules
from plimsoll.apiserver.validation.generic_kinds.service_defaults import (
    HEADLESS,
    fill_endpoint_slice,
    fill_endpoints,
    fill_ingress_class,
    fill_network_policy,
    fill_service,
    is_open,
    settle_endpoint_slice,
    settle_service,
)
from plimsoll.apiserver.validation.generic_kinds.service_view import (
    Endpoints,
    EndpointSlice,
    IngressClass,
    NetworkPolicy,
    Service,
    ServicePort,
    ServiceSpec,
)
from plimsoll.apiserver.validation.metadata import IMMUTABLE, check_labels
from plimsoll.apiserver.validation.name_formats import check_format, port_name, port_number
from plimsoll.apiserver.validation.object_trees import part
from plimsoll.apiserver.validation.write_context import Job

_SPEC = Path("spec")
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITIES = ("ClientIP", "None")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_FAMILIES = ("IPv4", "IPv6")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_TRAFFIC = ("Cluster", "Local")
_AFFINITY_MAX = 24 * 60 * 60


def _check_service(job: Job[Service]) -> Problems:
    spec = job.decode().spec
    if not job.creates:
        yield from _check_address_stays(spec, job.old.spec)
    headless = HEADLESS in spec.cluster_ips[:1]
    if not spec.ports and not headless and spec.type != "ExternalName":
        yield required(_SPEC.child("ports"))
    if spec.type in ("LoadBalancer", "NodePort") and headless:
        detail = f"may not be set to 'None' for {spec.type} services"
        yield invalid(_SPEC.child("clusterIPs").index(0), HEADLESS, detail)
    elif spec.type == "ExternalName":
        yield from _check_external_name(spec)
    yield from _check_ports(spec)
    yield from check_labels(spec.selector, _SPEC.child("selector"))
    yield from _check_affinity(spec)
    if spec.type != "ExternalName":
        yield from _check_addresses(spec)
    if spec.type not in _TYPES:
        yield not_supported(_SPEC.child("type"), spec.type, _TYPES)
    if spec.allocate_load_balancer_node_ports is not None and spec.type != "LoadBalancer":
        at = _SPEC.child("allocateLoadBalancerNodePorts")
        yield forbidden(at, "may only be used when `type` is 'LoadBalancer'")
    yield from _check_traffic(spec, is_open(part(job.tree, "spec")))


def _check_external_name(spec: ServiceSpec) -> Problems:
    for name, value in (
        ("clusterIPs", spec.cluster_ips),
        ("ipFamilies", spec.ip_families),
        ("ipFamilyPolicy", spec.ip_family_policy),
    ):
        if value:
            yield forbidden(_SPEC.child(name), "may not be set for ExternalName services")
    name = spec.external_name.removesuffix(".")
    if name:
        yield from check_format(name, _SPEC.child("externalName"), dns_subdomain)
    else:
        yield required(_SPEC.child("externalName"))


def _check_ports(spec: ServiceSpec) -> Problems:
    path = _SPEC.child("ports")
    names: set[str] = set()
    for place, port in enumerate(spec.ports):
        at = path.index(place)
        yield from _check_port(port, at, named=len(spec.ports) > 1)
        if port.name and port.name in names:
            yield duplicate(at.child("name"), port.name)
        names.add(port.name)
    if spec.type == "ClusterIP":
        for place, port in enumerate(spec.ports):
            if port.node_port:
                at = path.index(place).child("nodePort")
                yield forbidden(at, "may not be used when `type` is 'ClusterIP'")
    yield from _check_distinct(
        [(port.protocol, port.node_port) if port.node_port else None for port in spec.ports],
        [path.index(place).child("nodePort") for place in range(len(spec.ports))],
    )
    yield from _check_distinct(
        [(port.protocol, port.port) for port in spec.ports],
        [path.index(place) for place in range(len(spec.ports))],
    )


def _check_port(port: ServicePort, path: Path, *, named: bool) -> Problems:
    if port.name:
        yield from check_format(port.name, path.child("name"), dns_label)
    elif named:
        yield required(path.child("name"))
    for complaint in port_number(port.port):
        yield invalid(path.child("port"), port.port, complaint)
    if port.protocol not in _PROTOCOLS:
        yield not_supported(path.child("protocol"), port.protocol, _PROTOCOLS)
    target = port.target_port
    complaints = port_name(target) if isinstance(target, str) else port_number(target)
    for complaint in complaints:
        yield invalid(path.child("targetPort"), target, complaint)


def _check_distinct(keys: list[tuple[str, int] | None], paths: list[Path]) -> Problems:
    seen: set[tuple[str, int]] = set()
    for key, path in zip(keys, paths, strict=True):
        if key is not None and key in seen:
            yield duplicate(path, "/".join(map(str, key)))
        elif key is not None:
            seen.add(key)


def _check_affinity(spec: ServiceSpec) -> Problems:
    if spec.session_affinity not in _AFFINITIES:
        yield not_supported(_SPEC.child("sessionAffinity"), spec.session_affinity, _AFFINITIES)
    elif spec.session_affinity == "ClientIP":
        config = spec.session_affinity_config
        seconds = config.client_ip.timeout_seconds if config and config.client_ip else None
        if seconds is None or not 0 < seconds <= _AFFINITY_MAX:
            at = _SPEC.child("sessionAffinityConfig", "clientIP", "timeoutSeconds")
            yield invalid(at, seconds, f"must be greater than 0 and at most {_AFFINITY_MAX}")


def _check_addresses(spec: ServiceSpec) -> Problems:
    path, addresses, families = _SPEC.child("clusterIPs"), spec.cluster_ips, spec.ip_families
    shown = ", ".join(addresses)
    if spec.cluster_ip and addresses[:1] != (spec.cluster_ip,):
        yield invalid(path, shown, "first value must match `clusterIP`")
    elif addresses and not spec.cluster_ip:
        yield invalid(path, shown, "must be empty when `clusterIP` is not specified")
    at = _SPEC.child("ipFamilies")
    for place, family in enumerate(families):
        if family not in _FAMILIES:
            yield not_supported(at.index(place), family, _FAMILIES)
    yield from check_unique(families, at)
    if spec.ip_family_policy not in (None, *_FAMILY_POLICIES):
        yield not_supported(_SPEC.child("ipFamilyPolicy"), spec.ip_family_policy, _FAMILY_POLICIES)
    elif spec.ip_family_policy == "SingleStack" and max(len(addresses), len(families)) > 1:
        detail = "must be 'RequireDualStack' or 'PreferDualStack' for two families"
        yield invalid(_SPEC.child("ipFamilyPolicy"), spec.ip_family_policy, detail)
    if len(addresses) > 2:
        yield invalid(path, shown, "may only hold up to 2 values")
    for place, address in enumerate(addresses[:2]):
        if address == HEADLESS and not place:
            if len(addresses) > 1:
                yield invalid(path, shown, "'None' must be the first and only value")
            continue
        yield from check_address(address, path.index(place))
        if place < len(families) and families[place] != _FAMILIES[":" in address]:
            detail = f"expected an {families[place]} value as indicated by `ipFamilies[{place}]`"
            yield invalid(path.index(place), address, detail)


def _check_address_stays(spec: ServiceSpec, old: ServiceSpec) -> Problems:
    """An address that somebody may have learned is not exchanged for another."""
    if "ExternalName" in (spec.type, old.type):
        return
    for place, (before, now) in enumerate(zip(old.cluster_ips, spec.cluster_ips, strict=False)):
        if before != now:
            yield invalid(_SPEC.child("clusterIPs").index(place), now, "may not change once set")


def _check_traffic(spec: ServiceSpec, is_open: bool) -> Problems:
    path, policy = _SPEC.child("externalTrafficPolicy"), spec.external_traffic_policy
    if policy and not is_open:
        yield invalid(path, policy, "may only be set for externally-accessible services")
    elif is_open and policy not in _TRAFFIC:
        yield not_supported(path, policy, _TRAFFIC)
    inside = spec.internal_traffic_policy
    if inside is not None and inside not in _TRAFFIC:
        yield not_supported(_SPEC.child("internalTrafficPolicy"), inside, _TRAFFIC)


def _check_endpoint_slice(job: Job[EndpointSlice]) -> Problems:
    kind = job.decode().address_type
    if not kind:
        yield required(Path("addressType"))
    elif not job.creates and kind != job.old.address_type:
        yield invalid(Path("addressType"), kind, IMMUTABLE)


SERVICE_RULES: Mapping[str, Rules] = {
    "Service": Rules(
        Service, fill_service, settle_service, _check_service, first_status={"loadBalancer": {}}
    ),
    "Endpoints": Rules(Endpoints, fill_endpoints),
    "EndpointSlice": Rules(EndpointSlice, fill_endpoint_slice, settle_endpoint_slice, _check_endpoint_slice),
    "NetworkPolicy": Rules(NetworkPolicy, fill_network_policy),
    "IngressClass": Rules(IngressClass, fill_ingress_class),
    "Ingress": Rules(first_status={"loadBalancer": {}}),
}
