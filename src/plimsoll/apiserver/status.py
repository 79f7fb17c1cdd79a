"""API errors: `ApiError` constructors and Status objects with the codes, reasons and texts of Kubernetes.

kubectl and client libraries know these texts; some of them parse them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plimsoll.api.go_text import quote_go
from plimsoll.apiserver.validation.field_errors import FieldError
from plimsoll.errors import ApiError


def to_status(error: ApiError) -> dict[str, Any]:
    """Return the Status object of an error."""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": error.list_metadata,
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        "code": error.code,
    }
    if not error.reason:
        del status["reason"]
    if error.details:
        status["details"] = error.details
    return status


def success_status(**more: Any) -> dict[str, Any]:
    """Return the Status object of an operation that leaves no object behind."""
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", **more}


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized", headers={"WWW-Authenticate": "Bearer"})


def forbidden(group: str, plural: str, name: str, why: str) -> ApiError:
    what = _qualified(group, plural)
    shown = f'{what} "{name}" is forbidden: {why}' if name else f"{what} is forbidden: {why}"
    return ApiError(403, "Forbidden", shown, _details(group, plural, name))


def path_not_found() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def not_found(group: str, plural: str, name: str) -> ApiError:
    return ApiError(
        404, "NotFound", f'{_qualified(group, plural)} "{name}" not found', _details(group, plural, name)
    )


def method_not_supported(verb: str, group: str, plural: str) -> ApiError:
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", f"{message}: {verb} of {_qualified(group, plural)}")


def not_acceptable(offered: Iterable[str]) -> ApiError:
    message = f"only the following media types are accepted: {', '.join(offered)}"
    return ApiError(406, "NotAcceptable", message)


def already_exists(group: str, plural: str, name: str) -> ApiError:
    return ApiError(
        409,
        "AlreadyExists",
        f'{_qualified(group, plural)} "{name}" already exists',
        _details(group, plural, name),
    )


def conflict(group: str, plural: str, name: str, why: str) -> ApiError:
    message = f'Operation cannot be fulfilled on {_qualified(group, plural)} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(group, plural, name))


OPTIMISTIC_LOCK_MESSAGE = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def resource_expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def continue_expired(token: str) -> ApiError:
    """Create the error of an old continue token; `token` continues at the current state of the cluster."""
    why = "The provided continue parameter is too old to display a consistent list result."
    how = "Start a new list without the continue parameter, or continue with the token in this response"
    note = "objects that changed since the first page may then be missing or of different age"
    return ApiError(410, "Expired", f"{why} {how}; {note}.", list_metadata={"continue": token})


#: etcd's limit on one request, and so the largest object of any cluster.
MAX_OBJECT_BYTES = 3 << 19


def request_entity_too_large(message: str) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", message)


def unsupported_media_type(offered: Iterable[str]) -> ApiError:
    message = (
        "the body of the request was in an unknown format - accepted media types include: "
        f"{', '.join(offered)}"
    )
    return ApiError(415, "UnsupportedMediaType", message)


def invalid(group: str, kind: str, name: str, problems: Iterable[FieldError]) -> ApiError:
    """Create the error of an invalid object: each violated rule is a cause with the field's path."""
    listed = list(problems)
    causes = [
        {"reason": str(problem.type), "message": _message(problem), "field": problem.field}
        for problem in listed
    ]
    texts = [f"{problem.field}: {_message(problem)}" for problem in listed]
    shown = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {**_details(group, kind, name), "causes": causes}
    what = f"{kind}.{group}" if group else kind
    return ApiError(422, "Invalid", f'{what} "{name}" is invalid: {shown}', details)


def unprocessable(message: str) -> ApiError:
    return ApiError(422, "Invalid", message)


def too_many_requests(message: str, wait: int = 1) -> ApiError:
    """Create error 429. Clients retry after `wait` seconds by themselves; 0 leaves that to their callers."""
    if not wait:
        return ApiError(429, "TooManyRequests", message)
    return ApiError(
        429, "TooManyRequests", message, {"retryAfterSeconds": wait}, headers={"Retry-After": str(wait)}
    )


def resource_version_too_large(requested: int, current: int) -> ApiError:
    """Create the error of a list at a resourceVersion that the server has not reached: the client retries."""
    details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    message = f"Timeout: Too large resource version: {requested}, current: {current}"
    return ApiError(504, "Timeout", message, details, headers={"Retry-After": "1"})


def timeout(message: str) -> ApiError:
    """Create the error of a request that took too long; it may have been carried out."""
    return ApiError(504, "Timeout", f"Timeout: {message}")


def service_unavailable(message: str, wait: int = 0) -> ApiError:
    """Create error 503. Clients retry after `wait` seconds by themselves; 0 leaves that to their callers, as
    kube-apiserver does for kubelets and Services that do not respond.
    """
    if not wait:
        return ApiError(503, "ServiceUnavailable", message)
    return ApiError(
        503, "ServiceUnavailable", message, {"retryAfterSeconds": wait}, headers={"Retry-After": str(wait)}
    )


_PREFIXES = {
    "FieldValueRequired": "Required value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueNotFound": "Not found",
    "InternalError": "Internal error",
}


def _message(problem: FieldError) -> str:
    prefix = _PREFIXES[str(problem.type)]
    if problem.value is None:
        return f"{prefix}: {problem.detail}" if problem.detail else prefix
    value = quote_go(problem.value) if isinstance(problem.value, str) else str(problem.value)
    return f"{prefix}: {value}: {problem.detail}" if problem.detail else f"{prefix}: {value}"


def _qualified(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural


def _details(group: str, plural: str, name: str) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": plural}
    return {key: value for key, value in details.items() if value}
