"""OpenAPI documents for kubectl and other clients.

Serves `/openapi/v2` and `/openapi/v3`. `schemas` converts schemas to definitions, `paths` lists the
operations, `documents` combines and caches both, `gnostic` is the protobuf form of version 2. `kubectl
apply`, `explain` and client-side validation of kubectl 1.20 and newer work with them; a document is built
once, has an ETag, and its URL changes with its content.
"""

from __future__ import annotations

from plimsoll.apiserver.openapi import documents
from plimsoll.apiserver.request import ApiRequest, ApiResponse
from plimsoll.apiserver.status import not_acceptable, path_not_found

__all__ = ["respond"]

_JSON = "application/json"
_GNOSTIC_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
#: Older clients write the version with an at sign.
_GNOSTIC_V2_NAMES = (_GNOSTIC_V2, "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")


def respond(request: ApiRequest, parts: list[str]) -> ApiResponse:
    """Respond to `/openapi/...`, split into `parts`; ApiError 404 or 406."""
    if parts[1:] == ["v2"]:
        return _respond_v2(request)
    if parts[1:2] == ["v3"]:
        return _respond_v3(request, "/".join(parts[2:]))
    raise path_not_found()


def _respond_v2(request: ApiRequest) -> ApiResponse:
    for media in _medias(request.header("accept")):
        if media in _GNOSTIC_V2_NAMES:
            return _respond(request, documents.v2_protobuf(), _GNOSTIC_V2)
        if media in ("*/*", "application/*", _JSON):
            return _respond(request, documents.v2(), _JSON)
    raise not_acceptable((_JSON, _GNOSTIC_V2))


def _respond_v3(request: ApiRequest, path: str) -> ApiResponse:
    if not any(media in ("*/*", "application/*", _JSON) for media in _medias(request.header("accept"))):
        raise not_acceptable((_JSON,))
    if not path:
        return _respond(request, documents.v3_index(), _JSON)
    document = documents.v3(path)
    if document is None:
        raise path_not_found()
    wanted = dict(request.query).get("hash", "")
    if wanted and wanted != document.digest:
        location = documents.v3_address(path)
        return ApiResponse(301, b"", _JSON, {"Location": location, "ETag": document.tag, "Vary": "Accept"})
    found = _respond(request, document, _JSON)
    if wanted:
        found.headers["Cache-Control"] = "public, immutable"
    return found


def _medias(header: str) -> list[str]:
    """Return the media types of an Accept header; everything if it is empty."""
    return [part.split(";")[0].strip().lower() for part in header.split(",")[:64]] if header else ["*/*"]


def _respond(request: ApiRequest, document: documents.Document, media: str) -> ApiResponse:
    headers = {"ETag": document.tag, "Vary": "Accept"}
    if document.tag in (part.strip() for part in request.header("if-none-match").split(",")):
        return ApiResponse(304, b"", media, headers)
    return ApiResponse(200, document.body, media, headers)
