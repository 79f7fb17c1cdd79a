"""The subresource `proxy`: names, targets and rights."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.kubelet.client import KubeletClient
from plimsoll.apiserver.kubelet.proxy_target import (
    ProxyName,
    direct_target,
    find_service_endpoint,
    node_target,
    parse_proxy_name,
    pod_target,
)
from plimsoll.apiserver.request_info import parse_request_info
from plimsoll.common.http_forward import is_forwarded
from plimsoll.errors import ApiError
from tests.coroutines import run_by
from tests.unit.apiserver.build import PODS, ApiHarness, run
from tests.unit.apiserver.build import pod as new_pod

Tree = dict[str, Any]


def node(runtime: str = "containerd://2", port: int | None = 10250) -> Tree:
    endpoints = {"kubeletEndpoint": {"Port": port}} if port else {}
    return {
        "metadata": {"name": "n"},
        "status": {
            "nodeInfo": {"containerRuntimeVersion": runtime},
            "daemonEndpoints": endpoints,
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        },
    }


def pod(*ports: int, ip: str = "10.1.0.7") -> Tree:
    container = {"name": "c", "ports": [{"containerPort": port} for port in ports]}
    return {
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"containers": [container]},
        "status": {"podIP": ip},
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("p", ProxyName("", "p", "")),
        ("p:80", ProxyName("", "p", "80")),
        ("https:p:web", ProxyName("https", "p", "web")),
        ("http:p:", ProxyName("http", "p", "")),
    ],
)
def test_names(given: str, expected: ProxyName) -> None:
    assert parse_proxy_name("pod", given) == expected


@pytest.mark.parametrize("given", ["", ":80", "ftp:p:21", "a:b:c:d", "http::80"])
def test_invalid_names(given: str) -> None:
    with pytest.raises(ApiError, match="invalid pod request"):
        parse_proxy_name("pod", given)


@pytest.mark.parametrize(
    ("path", "name", "rest"),
    [
        ("/api/v1/namespaces/n/pods/p/proxy", "p", ""),
        ("/api/v1/namespaces/n/pods/p:80/proxy/", "p:80", "/"),
        ("/api/v1/namespaces/n/services/https:s:web/proxy/a//b/", "https:s:web", "/a//b/"),
        ("/api/v1/nodes/proxy/proxy/proxy/x", "proxy", "/proxy/x"),
    ],
)
def test_the_rest_of_the_path_is_kept(path: str, name: str, rest: str) -> None:
    info = parse_request_info("PUT", path)
    assert info is not None
    assert (info.name, info.subresource, info.verb, info.proxy_path) == (name, "proxy", "update", rest)


def test_other_subresources_have_no_further_path() -> None:
    with pytest.raises(ApiError):
        parse_request_info("GET", "/api/v1/namespaces/n/pods/p/log/x")


def test_a_pod_is_reached_at_its_address() -> None:
    def url(wanted: str, *ports: int, path: str = "/a b") -> str:
        target = pod_target(pod(*ports), node(), parse_proxy_name("pod", wanted), path, [("q", "1")])
        assert not target.is_kubelet
        return target.url

    assert url("p", 8080, 9090) == "http://10.1.0.7:8080/a%20b?q=1"
    assert url("p:81", 8080) == "http://10.1.0.7:81/a%20b?q=1"
    assert url("https:p:", path="") == "https://10.1.0.7:443/?q=1"
    assert url("p") == "http://10.1.0.7:80/a%20b?q=1"
    with pytest.raises(ApiError, match="invalid port"):
        url("p:web")


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "169.254.169.254", "0.0.0.0", "224.0.0.1", "x", ""])
def test_addresses_of_the_machine_are_refused(address: str) -> None:
    with pytest.raises(ApiError) as refused:
        direct_target(address, "http", "80", "/", [])
    assert refused.value.code == 400


def test_a_pod_without_a_network_of_its_own_is_reached_through_its_node() -> None:
    wanted = ProxyName("", "p", "8080")
    target = pod_target(pod(ip="127.0.0.1"), node("process://1"), wanted, "/x", [("q", "1")])
    assert target.url == "https://10.0.0.1:10250/podProxy/ns/p/http/8080/x?q=1"
    assert target.is_kubelet
    for path in ("/../../../pods", "/a/./b", ".."):
        with pytest.raises(ApiError, match="must not have"):
            pod_target(pod(), node("process://1"), wanted, path, [])
    with pytest.raises(ApiError, match="is simulated"):
        pod_target(pod(), node("none://1", None), wanted, "/", [])


def test_of_a_node_only_the_kubelet_is_reached() -> None:
    given = node(port=38483)
    for port in ("", "10250", "38483"):  # agents that share a machine have other ports than the default
        target = node_target(given, ProxyName("", "n", port), "/pods", [])
        assert (target.url, target.is_kubelet) == ("https://10.0.0.1:38483/pods", True)
    with pytest.raises(ApiError, match="only the kubelet's port 38483"):
        node_target(given, ProxyName("", "n", "22"), "/", [])


def test_endpoints_of_services() -> None:
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"name": "web", "port": 80}]}}
    endpoints = [{"addresses": ["10.1.0.1"], "conditions": {"ready": False}}, {"addresses": ["10.1.0.2"]}]
    slices = [{"ports": [{"name": "web", "port": 8080}], "endpoints": endpoints}]
    for port in ("", "80", "web"):
        endpoint, number = find_service_endpoint(service, slices, ProxyName("", "s", port))
        assert (endpoint["addresses"], number) == (["10.1.0.2"], "8080")
    given: tuple[tuple[str, list[Tree]], ...] = (
        ("81", slices),
        ("", []),
        ("web", [{**slices[0], "endpoints": endpoints[:1]}]),
    )
    for port, found in given:
        with pytest.raises(ApiError) as refused:
            find_service_endpoint(service, found, ProxyName("", "s", port))
        assert (refused.value.code, refused.value.headers) == (503, {})


def test_credentials_are_not_passed_on() -> None:
    kept = ("Accept", "Content-Type", "X-Custom", "Cookie")
    dropped = ("Authorization", "Impersonate-User", "X-Remote-User", "Host", "Connection", "Upgrade")
    assert all(map(is_forwarded, kept))
    assert not any(map(is_forwarded, dropped))


@run_by(run)
async def test_rights_and_refusals(harness: ApiHarness) -> None:
    assert (await harness.request("GET", f"{PODS}/p/proxy/"))[0] == 503  # there are no kubelets
    harness.api.pod_streams.kubelets = KubeletClient(ssl.create_default_context())
    await harness.request("POST", PODS, new_pod("p"))
    code, status = await harness.request("GET", f"{PODS}/p/proxy/x", user=User("other"))
    assert code == 403
    assert 'cannot get resource "pods/proxy"' in status["message"]
    code, status = await harness.request("POST", f"{PODS}/p/proxy/x")
    assert (code, status["message"]) == (400, "pod p does not have a host assigned")
    assert (await harness.request("GET", f"{PODS}/q/proxy/x"))[0] == 404
    assert (await harness.request("GET", "/api/v1/nodes/x/proxy/pods"))[0] == 404
    assert (await harness.request("GET", "/api/v1/namespaces/default/services/x/proxy/"))[0] == 404
    code, status = await harness.request(
        "GET", f"{PODS}/p/proxy/x", connection="Upgrade", upgrade="websocket"
    )
    assert (code, status["message"]) == (
        400,
        "the proxy does not upgrade connections; use port-forward",
    )
