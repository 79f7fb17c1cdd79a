"""Allocation of cluster IPs and node ports to Services.

What is in use follows from the stored Services: there is no other record that could disagree with them.
Addresses given by a client are checked, others are chosen at random, so that a freed one is not reused at
once. The lower part of the range is left to addresses that clients choose, as upstream does.

DIFF: no IPAddress object is stored for an address, and ServiceCIDR objects do not extend the range
(test_addresses_follow_from_services_alone).
"""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

from plimsoll.api import codec
from plimsoll.apiserver.json_values import items, mapping
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import invalid as invalid_object
from plimsoll.apiserver.storage import ObjectKey, Store
from plimsoll.apiserver.validation.field_errors import FieldError, FieldPath, invalid

Tree = dict[str, Any]

SERVICE_CIDR = "10.96.0.0/16"
NODE_PORTS = range(30000, 32768)
_NETWORK = ipaddress.ip_network(SERVICE_CIDR)
#: First address for the API server itself; the lowest ones are not chosen at random.
API_SERVICE_IP = str(_NETWORK[1])
_RESERVED_ADDRESSES = min(max(16, _NETWORK.num_addresses // 16), 256)
_RESERVED_PORTS = min(max(16, len(NODE_PORTS) // 32), 128)
_ATTEMPTS = 64
_INSIDE = ("ClusterIP", "NodePort", "LoadBalancer")
_HEADLESS = "None"
_SPEC = FieldPath("spec")


class _Used(NamedTuple):
    """Addresses and node ports of one Service."""

    revision: int
    addresses: tuple[str, ...]
    ports: tuple[int, ...]


class ServiceAddresses:
    """Allocator of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[ObjectKey, _Used] = {}

    def allocate(self, info: RequestInfo, tree: Tree, old: Tree | None) -> None:
        """Give a prepared Service the addresses and ports it lacks; ApiError 422 if a new one it has is taken
        or out of range.
        """
        spec = tree["spec"]
        if not _needs_address(spec) and not _needs_node_ports(spec):
            return
        name = tree["metadata"].get("name", "")
        addresses, ports = self._used_by_others(ObjectKey("services", info.namespace, name))
        before = _read_used(0, old or {})
        errors = [
            *_assign_address(spec, addresses, before.addresses),
            *_assign_node_ports(spec, ports, before.ports),
        ]
        if errors:
            raise invalid_object(info.group, info.resource.kind, name, errors)

    def _used_by_others(self, key: ObjectKey) -> tuple[set[str], set[int]]:
        known: dict[ObjectKey, _Used] = {}
        for stored in self._store.list("services").items:
            used = self._known.get(stored.key)
            if used is None or used.revision != stored.revision:
                used = _read_used(stored.revision, codec.decode_tree(stored.raw))
            known[stored.key] = used
        self._known = known
        others = [used for other, used in known.items() if other != key]
        return (
            {address for used in others for address in used.addresses},
            {port for used in others for port in used.ports},
        )


def _read_used(revision: int, tree: Tree) -> _Used:
    spec = mapping(tree.get("spec"))
    addresses = [address for address in spec.get("clusterIPs") or () if address != _HEADLESS]
    ports = [port["nodePort"] for port in items(spec.get("ports")) if port.get("nodePort")]
    if spec.get("healthCheckNodePort"):
        ports.append(spec["healthCheckNodePort"])
    return _Used(revision, tuple(addresses), tuple(ports))


# -- cluster IPs


def _needs_address(spec: Tree) -> bool:
    return spec.get("type") in _INSIDE and spec.get("clusterIP") != _HEADLESS


def _assign_address(spec: Tree, used: Collection[str], own: Collection[str]) -> Iterator[FieldError]:
    if not _needs_address(spec):
        return
    path = _SPEC.child("clusterIPs")
    given = spec.get("clusterIPs") or []
    if given:
        for index, text in enumerate(given):
            address = _parse(text)
            if text in own:
                continue
            if address is None or address not in _NETWORK or not _is_assignable(address):
                why = f"the provided IP ({text}) is not in the valid range. The range of valid IPs is"
                yield invalid(path.index(index), text, f"{why} {SERVICE_CIDR}")
            elif text in used:
                yield invalid(path.index(index), text, "provided IP is already allocated")
        return
    family = (spec.get("ipFamilies") or ["IPv4"])[0]
    if family != f"IPv{_NETWORK.version}":
        yield invalid(_SPEC.child("ipFamilies").index(0), family, "not configured on this cluster")
        return
    chosen = _choose(_RESERVED_ADDRESSES, _NETWORK.num_addresses - 1, lambda n: str(_NETWORK[n]) not in used)
    if chosen is None:
        yield invalid(_SPEC.child("clusterIP"), "", f"all addresses of {SERVICE_CIDR} are allocated")
        return
    spec["clusterIP"] = str(_NETWORK[chosen])
    spec["clusterIPs"] = [spec["clusterIP"]]


def _parse(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def _is_assignable(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return address not in (_NETWORK.network_address, _NETWORK.broadcast_address)


# -- node ports


def _needs_node_ports(spec: Tree) -> bool:
    kind = spec.get("type")
    return kind == "NodePort" or (
        kind == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False
    )


def _assign_node_ports(spec: Tree, used: Collection[int], own: Collection[int]) -> Iterator[FieldError]:
    """Check the given node ports and choose the missing ones.

    Ports of one Service that differ in their protocol alone share a node port.
    """
    taken = set(used)
    by_port: dict[int, int] = {}
    path = _SPEC.child("ports")
    ports = list(items(spec.get("ports")))
    for index, port in enumerate(ports):
        if port.get("nodePort"):
            if port["nodePort"] not in own:
                yield from _check_node_port(port["nodePort"], used, path.index(index).child("nodePort"))
            by_port.setdefault(port.get("port", 0), port["nodePort"])
    taken |= {port["nodePort"] for port in ports if port.get("nodePort")}
    if _needs_node_ports(spec):
        for index, port in enumerate(ports):
            if port.get("nodePort"):
                continue
            number = by_port.get(port.get("port", 0)) or _choose_node_port(taken)
            if number is None:
                yield invalid(path.index(index).child("nodePort"), 0, "all node ports are allocated")
                return
            port["nodePort"] = by_port[port.get("port", 0)] = number
            taken.add(number)
    if spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local":
        yield from _assign_health_check_port(spec, used, taken, own)


def _assign_health_check_port(
    spec: Tree, used: Collection[int], taken: Collection[int], own: Collection[int]
) -> Iterator[FieldError]:
    path, given = _SPEC.child("healthCheckNodePort"), spec.get("healthCheckNodePort")
    if given:
        if given not in own:
            yield from _check_node_port(given, used, path)
        return
    number = _choose_node_port(taken)
    if number is None:
        yield invalid(path, 0, "all node ports are allocated")
    else:
        spec["healthCheckNodePort"] = number


def _check_node_port(number: int, used: Collection[int], path: FieldPath) -> Iterator[FieldError]:
    if number not in NODE_PORTS:
        shown = f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}"
        why = f"provided port is not in the valid range. The range of valid ports is {shown}"
        yield invalid(path, number, why)
    elif number in used:
        yield invalid(path, number, "provided port is already allocated")


def _choose_node_port(taken: Collection[int]) -> int | None:
    chosen = _choose(_RESERVED_PORTS, len(NODE_PORTS), lambda n: NODE_PORTS[n] not in taken)
    return None if chosen is None else NODE_PORTS[chosen]


def _choose(reserved: int, end: int, is_free: Callable[[int], bool]) -> int | None:
    """Choose a free number below `end`: at random above the reserved ones, else the first; None if none is
    free.
    """
    for _ in range(_ATTEMPTS):
        number = random.randrange(reserved, end)
        if is_free(number):
            return number
    everything = (*range(reserved, end), *range(1, reserved))
    return next((number for number in everything if is_free(number)), None)
