"""Validation of host names, DNS settings, host aliases and host ports of pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plimsoll.api.names import byte_length
from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.addresses import parse_address, validate_address
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    duplicate,
    forbidden,
    internal,
    invalid,
    not_supported,
    required,
    too_long,
)
from plimsoll.apiserver.validation.name_formats import (
    search_domain,
    validate_format,
    validate_label,
    validate_subdomain,
)

NAMESERVERS_MAX = 3
SEARCHES_MAX = 32
SEARCH_TEXT_MAX = 2048
HOSTNAME_MAX = 64

_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")


def validate_network(spec: View, path: FieldPath) -> FieldErrors:
    yield from _validate_host_ports(spec, path.child("containers"))
    if not spec.dns_policy:
        yield required(path.child("dnsPolicy"))
    elif spec.dns_policy not in _POLICIES:
        yield not_supported(path.child("dnsPolicy"), spec.dns_policy, _POLICIES)
    yield from _validate_dns(spec.dns_config, spec.dns_policy, path.child("dnsConfig"))
    yield from _validate_override(spec, path.child("hostnameOverride"))
    if spec.hostname:
        yield from validate_label(spec.hostname, path.child("hostname"))
    if spec.subdomain:
        yield from validate_label(spec.subdomain, path.child("subdomain"))
    for index, alias in enumerate(spec.host_aliases):
        at = path.child("hostAliases").index(index)
        yield from validate_address(alias.ip, at.child("ip"))
        for position, name in enumerate(alias.hostnames):
            yield from validate_subdomain(name, at.child("hostnames").index(position))


def _validate_host_ports(spec: View, path: FieldPath) -> FieldErrors:
    """Validate that host ports equal container ports on the host network."""
    if not spec.host_network:
        return
    for index, container in enumerate(spec.containers):
        for position, port in enumerate(container.ports):
            if port.host_port != port.container_port:
                at = path.index(index).child("ports").index(position).child("hostPort")
                detail = "must match `containerPort` when `hostNetwork` is true"
                yield invalid(at, port.host_port, detail)


def validate_port_conflicts(containers: Iterable[tuple[int, View]], path: FieldPath) -> FieldErrors:
    """Reject duplicate host ports among these containers."""
    taken: set[tuple[str, str, int]] = set()
    for index, container in containers:
        for position, port in enumerate(container.ports):
            if not port.host_port:
                continue
            key = (port.protocol, port.host_ip, port.host_port)
            if key in taken:
                at = path.index(index).child("ports").index(position).child("hostPort")
                yield duplicate(at, "/".join(map(str, key)))
            taken.add(key)


def _validate_dns(config: View | None, policy: str, path: FieldPath) -> FieldErrors:
    if policy == "None" and (config is None or not config.nameservers):
        at = path if config is None else path.child("nameservers")
        yield required(at, "must provide at least one DNS nameserver when `dnsPolicy` is None")
        return
    if config is None:
        return
    servers, searches = path.child("nameservers"), path.child("searches")
    if len(config.nameservers) > NAMESERVERS_MAX:
        detail = f"must not have more than {NAMESERVERS_MAX} nameservers"
        yield invalid(servers, len(config.nameservers), detail)
    for index, server in enumerate(config.nameservers):
        yield from validate_address(server, servers.index(index))
    if len(config.searches) > SEARCHES_MAX:
        yield invalid(searches, len(config.searches), f"must not have more than {SEARCHES_MAX} search paths")
    if byte_length(" ".join(config.searches)) > SEARCH_TEXT_MAX:
        detail = f"must not have more than {SEARCH_TEXT_MAX} characters (including spaces) in the search list"
        yield invalid(searches, len(config.searches), detail)
    for index, search in enumerate(config.searches):
        if search != ".":
            yield from validate_format(search.removesuffix("."), searches.index(index), search_domain)
    for index, option in enumerate(config.options):
        if not option.name:
            yield required(path.child("options").index(index), "must not be empty")


def _validate_override(spec: View, path: FieldPath) -> FieldErrors:
    name = spec.hostname_override
    if name is None:
        return
    if spec.set_hostname_as_fqdn:
        yield forbidden(path, "may not be specified when setHostnameAsFQDN is true")
    if spec.host_network:
        yield forbidden(path, "may not be specified when hostNetwork is true")
    if byte_length(name) > HOSTNAME_MAX:
        yield too_long(path, HOSTNAME_MAX)
    yield from validate_subdomain(name, path)


def validate_addresses(addresses: Sequence[str], stored: Sequence[str], path: FieldPath) -> FieldErrors:
    """Validate pod or host IPs: at most one for each IP family; stored addresses are accepted."""
    kept = frozenset(stored)
    for index, address in enumerate(addresses):
        if address not in kept:
            yield from validate_address(address, path.index(index))
    if len(addresses) > 1:
        parsed = [parse_address(address) for address in addresses]
        if None in parsed:
            yield internal(path, "failed to check for dual stack: one of them is not an IP address")
        families = {":" in address for address in parsed if address is not None}
        if None in parsed or len(families) != 2 or len(addresses) > 2:
            detail = "may specify no more than one IP for each IP family"
            yield invalid(path, ", ".join(addresses), detail)
