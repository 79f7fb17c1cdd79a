"""API errors of reads, writes and watches, with the codes, reasons and texts of Kubernetes."""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.storage.records import ObjectKey
from plimsoll.errors import ApiError


def not_found(key: ObjectKey) -> ApiError:
    return ApiError(404, "NotFound", f'{key.resource} "{key.name}" not found', _details(key))


def already_exists(key: ObjectKey) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{key.resource} "{key.name}" already exists', _details(key))


def conflict(key: ObjectKey) -> ApiError:
    message = (
        f'Operation cannot be fulfilled on {key.resource} "{key.name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    return ApiError(409, "Conflict", message, _details(key))


def list_expired() -> ApiError:
    return ApiError(410, "Expired", "The resourceVersion for the provided list is too old.")


def watch_expired(since: int, floor: int) -> ApiError:
    return ApiError(410, "Expired", f"too old resource version: {since} ({floor})")


def too_large(revision: int, current: int) -> ApiError:
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    message = f"Timeout: Too large resource version: {revision}, current: {current}"
    return ApiError(504, "Timeout", message, {"causes": [cause], "retryAfterSeconds": 1})


def _details(key: ObjectKey) -> dict[str, Any]:
    plural, _, group = key.resource.partition(".")
    return {"name": key.name, "group": group, "kind": plural} if group else {"name": key.name, "kind": plural}


def object_too_large(size: int, most: int) -> ApiError:
    message = f"the object takes {size} bytes; at most {most} can be stored"
    return ApiError(413, "RequestEntityTooLarge", message)
