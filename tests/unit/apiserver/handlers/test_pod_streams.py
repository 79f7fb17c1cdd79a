"""Streams of pods: containers, nodes, rights and kubelets that refuse."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.kubelet.client import KubeletClient, kubelet_error
from plimsoll.apiserver.kubelet.location import container_of, kubelet_of, log_query, stream_query
from plimsoll.apiserver.request import ApiRequest
from plimsoll.common.http_tunnel import forwarded_headers
from plimsoll.errors import ApiError
from tests.coroutines import run_by
from tests.unit.apiserver.build import ADMIN, ApiHarness, pod, run

BASE = "/api/v1/namespaces/default/pods/p"
UPGRADE = {"connection": "Upgrade", "upgrade": "websocket"}


def a_node(port: int = 0, runtime: str = "process://1", *addresses: tuple[str, str]) -> dict[str, Any]:
    return {
        "metadata": {"name": "n"},
        "status": {
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "addresses": [{"type": type, "address": address} for type, address in addresses],
            "nodeInfo": {"containerRuntimeVersion": runtime},
        },
    }


async def harness_with_pod(harness: ApiHarness, node: str = "n", **spec: Any) -> None:
    harness.api.pod_streams.kubelets = KubeletClient(ssl.create_default_context())
    if node:
        await harness.request("POST", "/api/v1/nodes", {"kind": "Node", "metadata": {"name": "n"}})
        status = a_node(1, "process://1", ("InternalIP", "127.0.0.1"))["status"]
        del status["nodeInfo"]
        media = "application/merge-patch+json"
        await harness.request("PATCH", "/api/v1/nodes/n/status", {"status": status}, content_type=media)
        spec["nodeName"] = node
    await harness.request("POST", "/api/v1/namespaces/default/pods", pod(**spec))


@run_by(run)
async def test_an_upgrade_is_passed_on_to_the_kubelet(harness: ApiHarness) -> None:
    await harness_with_pod(harness)
    query = [("command", "ls"), ("command", "-l"), ("stdout", "true"), ("stdin", "false")]
    answer = await harness.api.handle(ApiRequest("GET", f"{BASE}/exec", ADMIN, query, UPGRADE))
    assert answer.upgrade is not None
    assert answer.upgrade.target == "/exec/default/p/c?output=1&command=ls&command=-l"
    answer = await harness.api.handle(ApiRequest("POST", f"{BASE}/portforward", ADMIN, (), UPGRADE))
    assert answer.upgrade is not None
    assert (answer.upgrade.host, answer.upgrade.port) == ("127.0.0.1", 1)
    assert answer.upgrade.target == "/portForward/default/p"
    code, body = await harness.request("POST", f"{BASE}/attach", query=query)
    assert (code, body["message"]) == (400, "Upgrade request required")


@run_by(run)
async def test_a_kubelet_that_cannot_be_reached_is_an_error(harness: ApiHarness) -> None:
    await harness_with_pod(harness)
    code, body = await harness.request("GET", f"{BASE}/log")
    assert code == 503
    assert "the kubelet of node n at 127.0.0.1:1 cannot be reached" in body["message"]
    kubelets = harness.api.pod_streams.kubelets
    assert kubelets is not None
    await kubelets.close()


@run_by(run)
async def test_pods_without_a_node(harness: ApiHarness) -> None:
    await harness_with_pod(harness, node="")
    assert await harness.request("GET", f"{BASE}/log") == (200, b"")
    code, body = await harness.request("POST", f"{BASE}/exec", query=[("command", "ls")])
    assert (code, body["message"]) == (400, "pod p does not have a host assigned")


@pytest.mark.parametrize(
    ("verbs", "resource", "method", "path", "code"),
    [
        (("get",), "pods/log", "GET", "log", 503),
        (("create",), "pods/log", "GET", "log", 403),
        (("get",), "pods/exec", "GET", "exec", 403),
        (("create",), "pods/exec", "GET", "exec", 403),
        (("get", "create"), "pods/exec", "GET", "exec", 101),
        (("create",), "pods/exec", "POST", "exec", 101),
        (("create",), "pods/exec", "POST", "attach", 403),
        (("create",), "pods/portforward", "POST", "portforward", 101),
    ],
)
@run_by(run)
async def test_rights_to_streams(
    harness: ApiHarness, *, verbs: tuple[str, ...], resource: str, method: str, path: str, code: int
) -> None:
    await harness_with_pod(harness)
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "r"}}
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": list(verbs)}]
    base = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    await harness.request("POST", f"{base}/roles", {**role, "kind": "Role", "rules": rules})
    binding = {
        **role,
        "kind": "RoleBinding",
        "subjects": [{"kind": "User", "name": "bob", "apiGroup": "rbac.authorization.k8s.io"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
    }
    await harness.request("POST", f"{base}/rolebindings", binding)
    query = [("command", "ls"), ("stdout", "1")]
    request = ApiRequest(method, f"{BASE}/{path}", User("bob"), query, UPGRADE)
    assert (await harness.api.handle(request)).status == code
    kubelets = harness.api.pod_streams.kubelets
    assert kubelets is not None
    await kubelets.close()


@run_by(run)
async def test_connect_calls_no_policies(harness: ApiHarness) -> None:
    await harness_with_pod(harness)
    group = {"apiVersion": "admissionregistration.k8s.io/v1"}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods/exec"]}
    policy = {
        **group,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "never"},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "false"}],
        },
    }
    bind = {
        **group,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "never"},
        "spec": {"policyName": "never", "validationActions": ["Deny"]},
    }
    base = "/apis/admissionregistration.k8s.io/v1"
    assert (await harness.request("POST", f"{base}/validatingadmissionpolicies", policy))[0] == 201
    assert (await harness.request("POST", f"{base}/validatingadmissionpolicybindings", bind))[0] == 201
    query = [("command", "ls"), ("stdout", "1")]
    answer = await harness.api.handle(ApiRequest("POST", f"{BASE}/exec", ADMIN, query, UPGRADE))
    assert answer.status == 101


def test_the_internal_address_is_preferred() -> None:
    node = a_node(
        10250, "process://1", ("Hostname", "h"), ("InternalIP", "10.0.0.1"), ("InternalIP", "10.0.0.2")
    )
    location = kubelet_of(node, "/healthz")
    assert (location.host, location.port) == ("10.0.0.1", 10250)


@pytest.mark.parametrize(
    ("node", "code", "text"),
    [
        (a_node(0, "none://1"), 400, "node n is simulated"),
        (a_node(0), 503, "node n serves no kubelet API"),
        (a_node(10250), 503, "node n has no address"),
    ],
)
def test_nodes_that_cannot_be_asked(node: dict[str, Any], code: int, text: str) -> None:
    with pytest.raises(ApiError, match=text) as found:
        kubelet_of(node, "/healthz")
    assert found.value.code == code
    assert "Retry-After" not in found.value.headers, "clients would repeat the request by themselves"


def test_containers_of_requests() -> None:
    tree = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "a"}], "initContainers": [{"name": "i"}]},
    }
    assert [container_of(tree, name) for name in ("", "a", "i")] == ["a", "a", "i"]
    with pytest.raises(ApiError, match="container b is not valid for pod p"):
        container_of(tree, "b")
    tree["spec"]["containers"].append({"name": "b"})  # type: ignore[index]
    with pytest.raises(ApiError, match=r"must be specified for pod p, choose one of: \[i a b\]"):
        container_of(tree, "")


def test_parameters_are_checked_and_translated() -> None:
    assert log_query("p", {"follow": "true", "tailLines": "3"}) == [("follow", "true"), ("tailLines", "3")]
    for wrong in ({"tailLines": "-1"}, {"limitBytes": "0"}, {"sinceSeconds": "1", "sinceTime": "x"}):
        with pytest.raises(ApiError) as found:
            log_query("p", wrong)
        assert found.value.code == 422
    assert stream_query("portforward", [("ports", "1"), ("ports", "2")]) == [("port", "1,2")]


def test_no_credentials_are_passed_on() -> None:
    sent = [
        ("Authorization", "Bearer x"),
        ("Cookie", "x"),
        ("Sec-WebSocket-Key", "k"),
        ("Upgrade", "websocket"),
    ]
    assert forwarded_headers(sent) == sent[2:]
    token = "base64url.bearer.authorization.k8s.io.c2VjcmV0"
    offered = [("Sec-WebSocket-Protocol", f"{token}, v5.channel.k8s.io,v4.channel.k8s.io")]
    assert forwarded_headers(offered) == [("Sec-WebSocket-Protocol", "v5.channel.k8s.io, v4.channel.k8s.io")]


def test_a_refusal_of_the_server_itself_is_not_the_clients() -> None:
    assert kubelet_error(403, b"Forbidden").code == 500
    assert kubelet_error(404, b"gone").code == 404
    assert kubelet_error(502, b"").code == 500


@run_by(run)
async def test_an_api_without_kubelets_has_no_streams(harness: ApiHarness) -> None:
    await harness.request("POST", "/api/v1/namespaces/default/pods", pod())
    assert (await harness.request("GET", f"{BASE}/log"))[0] == 503
