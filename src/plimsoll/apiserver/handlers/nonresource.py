"""Non-resource paths: health, metrics, version, discovery, OpenAPI and the service account issuer."""

from __future__ import annotations

from plimsoll.api import codec
from plimsoll.apiserver import openapi
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.handlers import discovery, health
from plimsoll.apiserver.metrics import RequestMetrics, expose_checks
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.request_info import split_path
from plimsoll.apiserver.status import method_not_supported, path_not_found
from plimsoll.apiserver.time_slices import TimeSlice
from plimsoll.common.metrics import CONTENT_TYPE


class NonResourceHandler:
    """Handler of the paths that name no resource."""

    def __init__(self, context: ApiContext, metrics: RequestMetrics) -> None:
        self._context = context
        self._metrics = metrics

    async def handle(self, request: ApiRequest, time_slice: TimeSlice) -> ApiResponse:
        parts = split_path(request.path)
        if request.method not in ("GET", "HEAD"):
            raise method_not_supported(request.method.lower(), "", request.path)
        if not parts:
            return ApiResponse(200, codec.encode({"paths": list(discovery.list_paths())}))
        head = parts[0]
        if head in health.ENDPOINTS:
            error = self._context.store.write_error
            return health.report_health(head, "/".join(parts[1:]), request.query, error)
        if head == "metrics" and len(parts) == 1:
            with time_slice:
                return ApiResponse(200, await self._metrics.expose(time_slice), CONTENT_TYPE)
        if parts == ["metrics", "slis"]:
            results = health.check_results(self._context.store.write_error)
            return ApiResponse(200, expose_checks(results), CONTENT_TYPE)
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
