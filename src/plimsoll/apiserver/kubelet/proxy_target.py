"""Targets of the subresource `proxy`: the address of a pod, a Service or a kubelet. Pure.

Names may have a scheme and a port, as in kube-apiserver: NAME, NAME:PORT or SCHEME:NAME:PORT.

DIFF: pods of the runtime `process` have the network of their machine, so requests to them go through their
node's agent, which connects only to ports on which a process of the pod listens
(test_a_pod_without_a_network_of_its_own_is_reached_through_its_node).
DIFF: of a node only the kubelet's port is reached (test_of_a_node_only_the_kubelet_is_reached).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from plimsoll.apiserver.kubelet.location import KubeletLocation, is_simulated, kubelet_of
from plimsoll.apiserver.status import bad_request, service_unavailable
from plimsoll.common.json_tree import branch, items, text

Tree = Mapping[str, Any]
#: Runtime of nodes whose pods have the network of the machine, in `nodeInfo.containerRuntimeVersion`.
_PROCESSES = "process://"
#: Default port of kubelets, which clients use without reading that of the node.
_KUBELET_PORT = "10250"
_SCHEMES = ("", "http", "https")
Query = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ProxyName:
    """Name in the path of a request, with its scheme and port."""

    scheme: str
    name: str
    port: str


@dataclass(frozen=True, slots=True)
class ProxyTarget:
    """URL of the target; `is_kubelet` if it is to be trusted as one."""

    url: str
    is_kubelet: bool = False


def parse_proxy_name(kind: str, given: str) -> ProxyName:
    """Parse NAME, NAME:PORT or SCHEME:NAME:PORT; ApiError 400."""
    parts = given.split(":")
    if len(parts) == 1:
        parts = ["", *parts, ""]
    elif len(parts) == 2:
        parts = ["", *parts]
    if len(parts) != 3 or parts[0] not in _SCHEMES or not parts[1]:
        raise bad_request(f'invalid {kind} request "{given[:100]}"')
    return ProxyName(*parts)


def node_target(node: Tree, wanted: ProxyName, path: str, query: Query) -> ProxyTarget:
    """Return the kubelet of a node, by its own or the default port; ApiError if another one is wanted, or
    there is no kubelet.
    """
    location = kubelet_of(node, "/" + quote(path.removeprefix("/")), query)
    if wanted.port not in ("", str(location.port), _KUBELET_PORT):
        raise bad_request(f"only the kubelet's port {location.port} of node {location.node} can be reached")
    return _kubelet_target(location)


def pod_target(pod: Tree, node: Tree, wanted: ProxyName, path: str, query: Query) -> ProxyTarget:
    """Return the address of a pod, by default at the first port that its containers name; ApiError 400."""
    meta, spec = branch(pod, "metadata"), branch(pod, "spec")
    ports = (port.get("containerPort") for each in items(spec, "containers") for port in items(each, "ports"))
    port = wanted.port or str(next(ports, "") or ("443" if wanted.scheme == "https" else "80"))
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 1 << 16):
        raise bad_request(f'invalid port "{port[:20]}"')
    runtime = text(branch(node, "status", "nodeInfo"), "containerRuntimeVersion")
    scheme, path = wanted.scheme or "http", "/" + quote(path.removeprefix("/"))
    if is_simulated(node) or runtime.startswith(_PROCESSES):
        if not {".", ".."}.isdisjoint(path.split("/")):
            raise bad_request('the path must not have "." or ".."')  # it must not leave that of the pod
        names = f"{quote(text(meta, 'namespace'), safe='')}/{quote(text(meta, 'name'), safe='')}"
        return _kubelet_target(kubelet_of(node, f"/podProxy/{names}/{scheme}/{port}{path}", query))
    return direct_target(text(branch(pod, "status"), "podIP"), scheme, port, path, query)


def direct_target(address: str, scheme: str, port: str, path: str, query: Query) -> ProxyTarget:
    """Return a target by its address; ApiError 400 for addresses of the machine itself."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        raise bad_request("address not allowed" if address else "the pod has no address yet") from None
    if ip.is_loopback or ip.is_link_local or ip.is_multicast or ip.is_unspecified:
        raise bad_request("address not allowed")
    host = f"[{ip}]" if ip.version == 6 else str(ip)
    suffix = f"?{urlencode(query)}" if query else ""
    return ProxyTarget(f"{scheme or 'http'}://{host}:{port}{path}{suffix}")


def find_service_endpoint(
    service: Tree, slices: Iterable[Tree], wanted: ProxyName
) -> tuple[Mapping[str, Any], str]:
    """Return a ready endpoint of a Service and its port; ApiError if there is none."""
    name, ports = text(branch(service, "metadata"), "name"), items(branch(service, "spec"), "ports")
    if wanted.port:
        ports = [each for each in ports if wanted.port in (text(each, "name"), str(each.get("port")))]
        if not ports:
            raise service_unavailable(f'no service port "{wanted.port[:63]}" found for service "{name}"')
    elif len(ports) != 1:
        raise service_unavailable(f'no endpoints available for service "{name}"')
    for each in slices:
        for port in items(each, "ports"):
            if text(port, "name") == text(ports[0], "name") and isinstance(port.get("port"), int):
                for endpoint in items(each, "endpoints"):
                    if branch(endpoint, "conditions").get("ready") is not False:
                        return endpoint, str(port["port"])
    raise service_unavailable(f'no endpoints available for service "{name}"')


def _kubelet_target(location: KubeletLocation) -> ProxyTarget:
    host = f"[{location.host}]" if ":" in location.host else location.host
    return ProxyTarget(f"https://{host}:{location.port}{location.target}", is_kubelet=True)
