"""Validation of Service: ports, type, IPs and traffic policies.

Covers what controllers rely on when they create endpoints. Not validated: source ranges, external IPs,
traffic distribution, and Ingress, NetworkPolicy and endpoints beyond their schema.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.names import dns_label, dns_subdomain
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.addresses import validate_address
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    validate_unique,
)
from plimsoll.apiserver.validation.generic_kinds.kind_rules import KindRules
from plimsoll.apiserver.validation.generic_kinds.service_defaults import (
    HEADLESS,
    is_externally_accessible,
    normalize_endpoint_slice,
    normalize_service,
    set_network_policy_defaults,
    set_service_defaults,
)
from plimsoll.apiserver.validation.metadata import IMMUTABLE, validate_labels
from plimsoll.apiserver.validation.name_formats import port_name, port_number, validate_format
from plimsoll.apiserver.validation.object_trees import subtree
from plimsoll.apiserver.validation.write_context import WriteContext

_SPEC = FieldPath("spec")
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITIES = ("ClientIP", "None")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_FAMILIES = ("IPv4", "IPv6")
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_TRAFFIC = ("Cluster", "Local")
_AFFINITY_MAX = 24 * 60 * 60


def _validate_service(write: WriteContext[View]) -> FieldErrors:
    spec = write.new.spec
    if not write.is_create:
        yield from _validate_cluster_ips_unchanged(spec, write.old.spec)
    headless = HEADLESS in spec.cluster_ips[:1]
    if not spec.ports and not headless and spec.type != "ExternalName":
        yield required(_SPEC.child("ports"))
    if spec.type in ("LoadBalancer", "NodePort") and headless:
        detail = f"may not be set to 'None' for {spec.type} services"
        yield invalid(_SPEC.child("clusterIPs").index(0), HEADLESS, detail)
    elif spec.type == "ExternalName":
        yield from _validate_external_name(spec)
    yield from _validate_ports(spec)
    yield from validate_labels(spec.selector, _SPEC.child("selector"))
    yield from _validate_affinity(spec)
    if spec.type != "ExternalName":
        yield from _validate_addresses(spec)
    if spec.type not in _TYPES:
        yield not_supported(_SPEC.child("type"), spec.type, _TYPES)
    if spec.allocate_load_balancer_node_ports is not None and spec.type != "LoadBalancer":
        at = _SPEC.child("allocateLoadBalancerNodePorts")
        yield forbidden(at, "may only be used when `type` is 'LoadBalancer'")
    yield from _validate_traffic(spec, is_externally_accessible(subtree(write.tree, "spec")))


def _validate_external_name(spec: View) -> FieldErrors:
    for name, value in (
        ("clusterIPs", spec.cluster_ips),
        ("ipFamilies", spec.ip_families),
        ("ipFamilyPolicy", spec.ip_family_policy),
    ):
        if value:
            yield forbidden(_SPEC.child(name), "may not be set for ExternalName services")
    name = spec.external_name.removesuffix(".")
    if name:
        yield from validate_format(name, _SPEC.child("externalName"), dns_subdomain)
    else:
        yield required(_SPEC.child("externalName"))


def _validate_ports(spec: View) -> FieldErrors:
    path = _SPEC.child("ports")
    names: set[str] = set()
    for index, port in enumerate(spec.ports):
        at = path.index(index)
        yield from _validate_port(port, at, named=len(spec.ports) > 1)
        if port.name and port.name in names:
            yield duplicate(at.child("name"), port.name)
        names.add(port.name)
    if spec.type == "ClusterIP":
        for index, port in enumerate(spec.ports):
            if port.node_port:
                at = path.index(index).child("nodePort")
                yield forbidden(at, "may not be used when `type` is 'ClusterIP'")
    yield from _validate_distinct(
        [(port.protocol, port.node_port) if port.node_port else None for port in spec.ports],
        [path.index(index).child("nodePort") for index in range(len(spec.ports))],
    )
    yield from _validate_distinct(
        [(port.protocol, port.port) for port in spec.ports],
        [path.index(index) for index in range(len(spec.ports))],
    )


def _validate_port(port: View, path: FieldPath, *, named: bool) -> FieldErrors:
    if port.name:
        yield from validate_format(port.name, path.child("name"), dns_label)
    elif named:
        yield required(path.child("name"))
    for message in port_number(port.port):
        yield invalid(path.child("port"), port.port, message)
    if port.protocol not in _PROTOCOLS:
        yield not_supported(path.child("protocol"), port.protocol, _PROTOCOLS)
    target = port.target_port
    messages = port_name(target) if isinstance(target, str) else port_number(target)
    for message in messages:
        yield invalid(path.child("targetPort"), target, message)


def _validate_distinct(keys: list[tuple[str, int] | None], paths: list[FieldPath]) -> FieldErrors:
    seen: set[tuple[str, int]] = set()
    for key, path in zip(keys, paths, strict=True):
        if key is not None and key in seen:
            yield duplicate(path, "/".join(map(str, key)))
        elif key is not None:
            seen.add(key)


def _validate_affinity(spec: View) -> FieldErrors:
    if spec.session_affinity not in _AFFINITIES:
        yield not_supported(_SPEC.child("sessionAffinity"), spec.session_affinity, _AFFINITIES)
    elif spec.session_affinity == "ClientIP":
        config = spec.session_affinity_config
        seconds = config.client_ip.timeout_seconds if config and config.client_ip else None
        if seconds is None or not 0 < seconds <= _AFFINITY_MAX:
            at = _SPEC.child("sessionAffinityConfig", "clientIP", "timeoutSeconds")
            yield invalid(at, seconds, f"must be greater than 0 and at most {_AFFINITY_MAX}")


def _validate_addresses(spec: View) -> FieldErrors:
    path, addresses, families = _SPEC.child("clusterIPs"), spec.cluster_ips, spec.ip_families
    shown = ", ".join(addresses)
    if spec.cluster_ip and addresses[:1] != (spec.cluster_ip,):
        yield invalid(path, shown, "first value must match `clusterIP`")
    elif addresses and not spec.cluster_ip:
        yield invalid(path, shown, "must be empty when `clusterIP` is not specified")
    at = _SPEC.child("ipFamilies")
    for index, family in enumerate(families):
        if family not in _FAMILIES:
            yield not_supported(at.index(index), family, _FAMILIES)
    yield from validate_unique(families, at)
    if spec.ip_family_policy not in (None, *_FAMILY_POLICIES):
        yield not_supported(_SPEC.child("ipFamilyPolicy"), spec.ip_family_policy, _FAMILY_POLICIES)
    elif spec.ip_family_policy == "SingleStack" and max(len(addresses), len(families)) > 1:
        detail = "must be 'RequireDualStack' or 'PreferDualStack' for two families"
        yield invalid(_SPEC.child("ipFamilyPolicy"), spec.ip_family_policy, detail)
    if len(addresses) > 2:
        yield invalid(path, shown, "may only hold up to 2 values")
    for index, address in enumerate(addresses[:2]):
        if address == HEADLESS and not index:
            if len(addresses) > 1:
                yield invalid(path, shown, "'None' must be the first and only value")
            continue
        yield from validate_address(address, path.index(index))
        if index < len(families) and families[index] != _FAMILIES[":" in address]:
            detail = f"expected an {families[index]} value as indicated by `ipFamilies[{index}]`"
            yield invalid(path.index(index), address, detail)


def _validate_cluster_ips_unchanged(spec: View, old: View) -> FieldErrors:
    """Validate that an allocated cluster IP does not change."""
    if "ExternalName" in (spec.type, old.type):
        return
    for index, (before, now) in enumerate(zip(old.cluster_ips, spec.cluster_ips, strict=False)):
        if before != now:
            yield invalid(_SPEC.child("clusterIPs").index(index), now, "may not change once set")


def _validate_traffic(spec: View, is_externally_accessible: bool) -> FieldErrors:
    path, policy = _SPEC.child("externalTrafficPolicy"), spec.external_traffic_policy
    if policy and not is_externally_accessible:
        yield invalid(path, policy, "may only be set for externally-accessible services")
    elif is_externally_accessible and policy not in _TRAFFIC:
        yield not_supported(path, policy, _TRAFFIC)
    inside = spec.internal_traffic_policy
    if inside is not None and inside not in _TRAFFIC:
        yield not_supported(_SPEC.child("internalTrafficPolicy"), inside, _TRAFFIC)


def _validate_endpoint_slice(write: WriteContext[View]) -> FieldErrors:
    kind = write.new.address_type
    if not kind:
        yield required(FieldPath("addressType"))
    elif not write.is_create and kind != write.old.address_type:
        yield invalid(FieldPath("addressType"), kind, IMMUTABLE)


SERVICE_RULES: Mapping[str, KindRules] = {
    "Service": KindRules(
        "core.v1",
        set_service_defaults,
        normalize_service,
        _validate_service,
    ),
    "Endpoints": KindRules("core.v1"),
    "EndpointSlice": KindRules(
        "discovery.v1", prepare=normalize_endpoint_slice, validate=_validate_endpoint_slice
    ),
    "NetworkPolicy": KindRules("networking.v1", set_network_policy_defaults),
    "IngressClass": KindRules("networking.v1"),
}
