"""Non-resource paths: health, metrics, version, discovery, OpenAPI and the service account issuer."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api import codec
from plimsoll.apiserver import openapi
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.handlers import discovery
from plimsoll.apiserver.metrics import CONTENT_TYPE, RequestMetrics
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.request_info import split_path
from plimsoll.apiserver.status import method_not_supported, path_not_found

_HEALTH = ("healthz", "livez", "readyz")


class NonResourceHandler:
    """Handler of the paths that name no resource."""

    def __init__(self, context: ApiContext, metrics: RequestMetrics) -> None:
        self._context = context
        self._metrics = metrics

    def handle(self, request: ApiRequest, query: Mapping[str, str]) -> ApiResponse:
        parts = split_path(request.path)
        if request.method not in ("GET", "HEAD"):
            raise method_not_supported(request.method.lower(), "", request.path)
        if not parts:
            return ApiResponse(200, codec.encode({"paths": list(discovery.list_paths())}))
        head = parts[0]
        if head in _HEALTH:
            return self._health(parts, query)
        if head == "metrics" and len(parts) == 1:
            return ApiResponse(200, self._metrics.expose(), CONTENT_TYPE)
        if head == "version" and len(parts) == 1:
            return ApiResponse(200, codec.encode(discovery.build_version()))
        if parts in (["openid", "v1", "jwks"], [".well-known", "openid-configuration"]):
            return self._issuer(parts)
        if head == "openapi":
            return openapi.respond(request, parts)
        if head in ("api", "apis"):
            return discovery.handle_discovery(request, parts)
        raise path_not_found()

    def _issuer(self, parts: list[str]) -> ApiResponse:
        """Serve OpenID Connect discovery, by which others verify service account tokens."""
        accounts = self._context.service_accounts
        if parts[0] == "openid":
            return ApiResponse(200, codec.encode(accounts.jwks()), "application/jwk-set+json")
        return ApiResponse(200, codec.encode(accounts.configuration()))

    def _health(self, parts: list[str], query: Mapping[str, str]) -> ApiResponse:
        """Serve health checks; the server is ready as long as the store can be written."""
        checks = {"ping": "", "store": self._context.store.write_error}
        if len(parts) > 2 or (len(parts) == 2 and parts[1] not in checks):
            raise path_not_found()
        if len(parts) == 2:
            checks = {parts[1]: checks[parts[1]]}
        if parts[0] == "livez":
            checks.pop("store", None)  # a full disk is no reason to be killed
        failed = [name for name, trouble in checks.items() if trouble]
        if not failed and "verbose" not in query:
            return ApiResponse(200, b"ok", "text/plain")
        lines = [f"[{'-' if trouble else '+'}]{name} {trouble or 'ok'}" for name, trouble in checks.items()]
        lines.append(f"{parts[0]} check {'failed' if failed else 'passed'}")
        return ApiResponse(503 if failed else 200, "\n".join(lines).encode() + b"\n", "text/plain")
