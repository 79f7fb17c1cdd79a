"""The subresource `proxy` of pods, Services and nodes: requests that are passed on to them.

Clients need the verb of their method on `pods/proxy`, `services/proxy` or `nodes/proxy`. Their credentials
are not passed on; kubelets see the API server's.

DIFF: connections are not upgraded; `kubectl port-forward` does that (test_rights_and_refusals).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.handlers.pod_streams import PodStreamHandler
from plimsoll.apiserver.kubelet.location import unbound_error
from plimsoll.apiserver.kubelet.proxy_target import (
    ProxyName,
    ProxyTarget,
    direct_target,
    find_service_endpoint,
    node_target,
    parse_proxy_name,
    pod_target,
)
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import bad_request, not_found, service_unavailable
from plimsoll.apiserver.storage import ObjectKey, Store
from plimsoll.common.json_tree import branch, text

_SLICES = "endpointslices.discovery.k8s.io"
_SERVICE_LABEL = "kubernetes.io/service-name"
#: Headers that every response of this server has once.
_SINGLE = ("content-type", "cache-control")


class ProxyHandler:
    """Handler of `proxy`."""

    def __init__(self, store: Store, streams: PodStreamHandler) -> None:
        self._store = store
        self._streams = streams

    async def handle(self, info: RequestInfo, request: ApiRequest) -> ApiResponse:
        """Pass a request on; ApiError if there is no target, or it does not respond."""
        if self._streams.kubelets is None:
            raise service_unavailable("this API server has no connection to kubelets")
        if "upgrade" in request.header("connection").lower():
            raise bad_request("the proxy does not upgrade connections; use port-forward")
        wanted = parse_proxy_name(info.resource.kind.lower(), info.name)
        target = self._find_target(info, wanted, request.query)
        if request.initialized is not None:
            request.initialized()  # a slow target takes no capacity from other requests
        try:
            response = await self._streams.kubelets.forward(
                request.method, target, list(request.headers.items()), request.body
            )
        except OSError as error:
            problem = str(error) or "timed out"
            raise service_unavailable(f"error trying to reach service: {problem}") from None
        found = ApiResponse(response.status, b"", "application/octet-stream", length=response.length)
        found.more_headers = [pair for pair in response.headers if pair[0].lower() not in _SINGLE]
        for name, value in response.headers:
            if name.lower() == "content-type":
                found.content_type = value
            elif name.lower() == "cache-control":
                found.headers["Cache-Control"] = value
        if response.length == 0:
            await response.body.aclose()
        else:
            found.body = response.body
        return found

    def _find_target(
        self, info: RequestInfo, wanted: ProxyName, query: Sequence[tuple[str, str]]
    ) -> ProxyTarget:
        kind = info.resource.key
        if kind == "nodes":
            return node_target(self._require("nodes", "", wanted.name), wanted, info.proxy_path, query)
        if kind == "pods":
            pod = self._require("pods", info.namespace, wanted.name)
            return self._pod_target(pod, wanted, info.proxy_path, query)
        service = self._require("services", info.namespace, wanted.name)
        found = (codec.decode_tree(each.raw) for each in self._store.list(_SLICES, info.namespace).items)
        slices = (
            each for each in found if text(branch(each, "metadata", "labels"), _SERVICE_LABEL) == wanted.name
        )
        endpoint, port = find_service_endpoint(service, slices, wanted)
        reference = branch(endpoint, "targetRef")
        if text(reference, "kind") == "Pod":
            pod = self._require("pods", info.namespace, text(reference, "name"))
            named = ProxyName(wanted.scheme, text(reference, "name"), port)
            return self._pod_target(pod, named, info.proxy_path, query)
        addresses = endpoint.get("addresses") or [""]
        return direct_target(str(addresses[0]), wanted.scheme, port, info.proxy_path, query)

    def _pod_target(
        self, pod: dict[str, Any], wanted: ProxyName, path: str, query: Sequence[tuple[str, str]]
    ) -> ProxyTarget:
        node = text(branch(pod, "spec"), "nodeName")
        if not node:
            raise unbound_error(wanted.name)
        return pod_target(pod, self._require("nodes", "", node), wanted, path, query)

    def _require(self, resource: str, namespace: str, name: str) -> dict[str, Any]:
        stored = self._store.get(ObjectKey(resource, namespace, name))
        if stored is None:
            raise not_found("", resource, name)
        tree: dict[str, Any] = codec.decode_tree(stored.raw)
        return tree
