"""Request options: ListOptions, CreateOptions, UpdateOptions, PatchOptions and DeleteOptions.

Read from the query (and, for deletions, from the body) with the errors of the API server. Unknown parameters
are ignored, as upstream.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plimsoll.api.durations import parse_duration
from plimsoll.apiserver.status import bad_request
from plimsoll.apiserver.status import invalid as invalid_object
from plimsoll.apiserver.validation.field_errors import (
    FieldError,
    FieldPath,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from plimsoll.errors import ApiError

_BOOLEANS = {
    **dict.fromkeys(("true", "True", "TRUE", "1", "t", "T", ""), True),
    **dict.fromkeys(("false", "False", "FALSE", "0", "f", "F"), False),
}
_MATCHES = ("", "Exact", "NotOlderThan")
_VALIDATIONS = ("", "Ignore", "Warn", "Strict")
_PROPAGATIONS = ("Orphan", "Background", "Foreground")
_MAX_INT64 = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ListOptions:
    """Options of a list or watch. `resource_version` is None if not given; 0 means any."""

    label_selector: str = ""
    field_selector: str = ""
    watch: bool = False
    allow_bookmarks: bool = False
    resource_version: int | None = None
    resource_version_match: str = ""
    limit: int = 0
    continue_token: str = ""
    timeout_seconds: int | None = None
    send_initial_events: bool | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """Options of a create, update or patch."""

    dry_run: bool = False
    field_manager: str = ""  #: as requested, else from the user agent
    field_validation: str = "Warn"
    force: bool | None = None
    requested_manager: str = ""


@dataclass(frozen=True, slots=True)
class DeletionOptions:
    """Options of a delete: preconditions, grace period, propagation policy."""

    dry_run: bool = False
    grace_period_seconds: int | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation_policy: str = ""


_NO_LIST_OPTIONS = ListOptions()


def first_values(query: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the query as a mapping; of repeated parameters the first counts."""
    values: dict[str, str] = {}
    for name, value in query:
        values.setdefault(name, value)
    return values


def parse_timeout(text: str) -> float | None:
    """Parse the `timeout` of a request, a duration as Go writes them; None for no limit, ApiError 400."""
    if not text:
        return None
    nanos = parse_duration(text)
    if nanos is None:
        what = "missing unit in" if text.isdigit() else "invalid"
        raise bad_request(
            f'invalid timeout specified in the request URL - time: {what} duration "{text[:64]}"'
        )
    return nanos / 1e9 if nanos > 0 else None


def parse_list_options(query: Mapping[str, str]) -> ListOptions:
    """Parse the ListOptions of a request; ApiError 400 or 422."""
    if not query:
        return _NO_LIST_OPTIONS
    text = query.get("resourceVersion", "")
    version = _number(text, "resourceVersion") if text else None
    options = ListOptions(
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        watch=_boolean(query, "watch") or False,
        allow_bookmarks=_boolean(query, "allowWatchBookmarks") or False,
        resource_version=version,
        resource_version_match=query.get("resourceVersionMatch", ""),
        limit=max(0, _number(query.get("limit") or "0", "limit", signed=True)),
        continue_token=query.get("continue", ""),
        timeout_seconds=_number(query["timeoutSeconds"], "timeoutSeconds")
        if query.get("timeoutSeconds")
        else None,
        send_initial_events=_boolean(query, "sendInitialEvents"),
    )
    _check_list(options, "resourceVersion" in query and text != "")
    return options


def _check_list(options: ListOptions, has_version: bool) -> None:
    match = options.resource_version_match

    def refuse(field: str, why: str) -> ApiError:
        return _invalid_options("ListOptions", forbidden(FieldPath(field), why))

    if match not in _MATCHES:
        raise _invalid_options(
            "ListOptions", not_supported(FieldPath("resourceVersionMatch"), match, _MATCHES[1:])
        )
    if options.watch:
        if options.continue_token:
            raise refuse("continue", "may not be set on a watch")
        if options.send_initial_events is not None and match != "NotOlderThan":
            raise refuse(
                "resourceVersionMatch",
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            )
        if options.send_initial_events is None and match:
            raise refuse(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
            )
        if options.send_initial_events and not options.allow_bookmarks:
            raise refuse(
                "allowWatchBookmarks", "sendInitialEvents requires setting allowWatchBookmarks to true"
            )
        return
    if options.send_initial_events is not None:
        raise refuse("sendInitialEvents", "sendInitialEvents is forbidden for list")
    if match and not has_version:
        raise refuse("resourceVersionMatch", "is forbidden unless resourceVersion is provided")
    if match and options.continue_token:
        raise refuse("resourceVersionMatch", "is forbidden when continue is provided")
    if match == "Exact" and options.resource_version == 0:
        raise refuse("resourceVersionMatch", 'Exact is forbidden for resourceVersion "0"')
    if options.continue_token and options.resource_version:
        raise bad_request("specifying resource version is not allowed when using continue")


def parse_write_options(query: Mapping[str, str], *, user_agent: str, applies: bool = False) -> WriteOptions:
    """Parse the CreateOptions, UpdateOptions or PatchOptions of a request."""
    manager = query.get("fieldManager", "")
    force = _boolean(query, "force")
    validation = query.get("fieldValidation", "") or "Warn"
    kind = "PatchOptions" if applies or force is not None else "CreateOptions"
    path = FieldPath("fieldManager")
    if validation not in _VALIDATIONS:
        raise _invalid_options(
            kind, not_supported(FieldPath("fieldValidation"), validation, _VALIDATIONS[1:])
        )
    if len(manager.encode()) > 128:
        raise _invalid_options(kind, too_long(path, 128))
    if not manager.isprintable():
        raise _invalid_options(kind, invalid(path, manager, "should only contain printable characters"))
    if applies and not manager:
        raise _invalid_options(kind, required(path, "is required for apply patch"))
    if not applies and force is not None:
        raise _invalid_options(
            kind, forbidden(FieldPath("force"), "may not be specified for non-apply patch")
        )
    return WriteOptions(
        _dry_run(query.get("dryRun")),
        manager or _manager_from_user_agent(user_agent),
        validation,
        force,
        manager,
    )


def parse_delete_options(query: Mapping[str, str], body: Any) -> DeletionOptions:
    """Parse DeleteOptions from the body if there is one, else from the query."""
    if body is None:
        body = {
            "dryRun": [query["dryRun"]] if "dryRun" in query else None,
            "gracePeriodSeconds": _number(query["gracePeriodSeconds"], "gracePeriodSeconds", signed=True)
            if query.get("gracePeriodSeconds")
            else None,
            "propagationPolicy": query.get("propagationPolicy"),
            "orphanDependents": _boolean(query, "orphanDependents"),
        }
    if not isinstance(body, dict):
        raise bad_request("the body of a deletion must be a DeleteOptions object")
    if body.get("kind") not in (None, "", "DeleteOptions"):
        raise bad_request(f"the body of a deletion must be DeleteOptions, not {body['kind']}")
    conditions = body.get("preconditions") or {}
    dry = body.get("dryRun") or []
    grace, propagation = body.get("gracePeriodSeconds"), body.get("propagationPolicy") or ""
    orphan = body.get("orphanDependents")
    if not isinstance(conditions, dict) or not isinstance(dry, list):
        raise bad_request("preconditions must be an object and dryRun a list")
    if grace is not None and (isinstance(grace, bool) or not isinstance(grace, int)):
        raise bad_request("gracePeriodSeconds must be an integer")
    if orphan is not None and propagation:
        why = "orphanDependents and propagationPolicy cannot be both set"
        raise _invalid_options("DeleteOptions", invalid(FieldPath("propagationPolicy"), propagation, why))
    if propagation and propagation not in _PROPAGATIONS:
        problem = not_supported(FieldPath("propagationPolicy"), propagation, _PROPAGATIONS)
        raise _invalid_options("DeleteOptions", problem)
    if orphan is not None:
        propagation = "Orphan" if orphan else "Background"
    return DeletionOptions(
        any(_dry_run(value) for value in dry),
        grace,
        _text(conditions, "uid"),
        _text(conditions, "resourceVersion"),
        propagation,
    )


def _dry_run(value: Any) -> bool:
    if value in (None, ""):
        return False
    if value != "All":
        raise _invalid_options("CreateOptions", not_supported(FieldPath("dryRun"), value, ("All",)))
    return True


def _text(tree: Mapping[str, Any], name: str) -> str | None:
    value = tree.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_request(f"preconditions.{name} must be a string")
    return value


def _manager_from_user_agent(user_agent: str) -> str:
    """Return the default field manager: the User-Agent up to the first slash."""
    name = user_agent.split("/", maxsplit=1)[0]
    if not name.isprintable():
        name = "".join(c for c in name if c.isprintable())
    return name[:128] or "unknown"


def _number(text: str, name: str, *, signed: bool = False) -> int:
    digits = text[1:] if signed and text.startswith("-") else text
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or int(digits) > _MAX_INT64:
        raise bad_request(f"{name}: Invalid value: {text[:64]!r}: must be a whole number")
    return int(text)


def _boolean(query: Mapping[str, str], name: str) -> bool | None:
    if name not in query:
        return None
    value = _BOOLEANS.get(query[name])
    # Anything else counts as true, as upstream.
    return True if value is None else value


def _invalid_options(kind: str, problem: FieldError) -> ApiError:
    return invalid_object("meta.k8s.io", kind, "", [problem])
