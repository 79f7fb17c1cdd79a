"""Streams of pods: the `log`, `exec`, `attach` and `portforward` subresources, passed on to kubelets.

An upgraded connection is passed on as it is, WebSocket or SPDY: client and kubelet negotiate the protocol
with each other. Clients need the verb of their method, and `create` for exec, attach and port-forward
whatever the method, as in kube-apiserver 1.36.

DIFF: admission policies are not called for the operation CONNECT (test_connect_calls_no_policies).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.handlers.options import first_values
from plimsoll.apiserver.handlers.read import get_stored
from plimsoll.apiserver.kubelet.client import KubeletClient
from plimsoll.apiserver.kubelet.location import (
    KubeletLocation,
    container_of,
    kubelet_of,
    log_path,
    log_query,
    stream_path,
    stream_query,
    unbound_error,
)
from plimsoll.apiserver.log_websocket import LOG_TYPE
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import bad_request, not_found, service_unavailable
from plimsoll.apiserver.storage import ObjectKey, Store
from plimsoll.common.json_tree import branch, text

#: Subresources that upgrade the connection.
CONNECT = frozenset({"exec", "attach", "portforward"})
STREAMS = CONNECT | {"log"}


class PodStreamHandler:
    """Handler of pods' streams."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Set by the process that serves the API; None: there are no kubelets.
        self.kubelets: KubeletClient | None = None

    async def handle(self, info: RequestInfo, request: ApiRequest) -> ApiResponse:
        """Handle a request; ApiError if the pod, its container or its node does not allow it."""
        if self.kubelets is None:
            raise service_unavailable("this API server has no connection to kubelets")
        pod = codec.decode_tree(get_stored(self._store, info).raw)
        if info.subresource == "log":
            response = await self._log(info, first_values(request.query), pod, self.kubelets)
            if request.initialized is not None:
                request.initialized()  # a log that is followed takes no capacity from other requests
            return response
        given = dict(reversed(request.query))
        container = ""
        if info.subresource != "portforward":
            container = container_of(pod, given.get("container", ""))
        node = text(branch(pod, "spec"), "nodeName")
        if not node:
            raise unbound_error(info.name)
        query = stream_query(info.subresource, request.query)
        location = self._locate(node, stream_path(pod, info.subresource, container), query)
        if "upgrade" not in request.header("connection").lower():
            raise bad_request("Upgrade request required")
        return ApiResponse(101, b"", upgrade=location)

    async def _log(
        self, info: RequestInfo, query: Mapping[str, str], pod: dict[str, Any], kubelets: KubeletClient
    ) -> ApiResponse:
        parameters = log_query(info.name, query)
        container = container_of(pod, query.get("container", ""))
        node = text(branch(pod, "spec"), "nodeName")
        if not node:
            return ApiResponse(200, b"", LOG_TYPE)
        body = await kubelets.read(self._locate(node, log_path(pod, container), parameters))
        return ApiResponse(200, body, LOG_TYPE)

    def _locate(self, node: str, path: str, query: list[tuple[str, str]]) -> KubeletLocation:
        stored = self._store.get(ObjectKey("nodes", "", node))
        if stored is None:
            raise not_found("", "nodes", node)
        return kubelet_of(codec.decode_tree(stored.raw), path, query)
