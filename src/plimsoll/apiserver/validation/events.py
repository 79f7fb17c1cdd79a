"""Strategies of Event: legacy validation for core/v1, strict validation for events.k8s.io/v1.

All validation works on the core/v1 form, in which events are stored (`event_conversion.py`). An event with an
`eventTime` follows the strict rules.
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.names import byte_length, dns_subdomain, label_key
from plimsoll.api.timestamps import ZERO_MICRO_TIME, ZERO_TIME
from plimsoll.apiserver.registry.schema_view import View, view_of
from plimsoll.apiserver.validation.equality import semantic_equal
from plimsoll.apiserver.validation.event_conversion import event_to_core, event_to_events
from plimsoll.apiserver.validation.field_errors import FieldErrors, FieldPath, invalid, required
from plimsoll.apiserver.validation.metadata import IMMUTABLE, validate_metadata, validate_metadata_update
from plimsoll.apiserver.validation.name_formats import validate_format
from plimsoll.apiserver.validation.write_context import WriteContext, WriteStrategy

_VIEW = view_of("core.v1.Event")

SHORT_MAX = 128
NOTE_MAX = 1024

_NO_MATCH = "does not match event.namespace"
_UNSET = (None, ZERO_TIME, ZERO_MICRO_TIME)


def _prepare(write: WriteContext[View]) -> None:
    """Do nothing: no field of an event is owned by the server."""


def _is_strict(write: WriteContext[View]) -> bool:
    return write.api_version == "events.k8s.io/v1"


def _validate_create(write: WriteContext[View]) -> FieldErrors:
    event = write.new
    yield from _validate_any(event, strict=_is_strict(write))
    if not _is_strict(write):
        return
    yield from validate_metadata(write.metadata, namespaced=True)
    yield from _validate_series(event)
    if event.event_time in _UNSET:
        yield required(FieldPath("eventTime"))
    if event.type not in ("Normal", "Warning"):
        yield invalid(FieldPath("type"), "", f"has invalid value: {event.type}")
    for name, is_set in (
        ("firstTimestamp", event.first_timestamp not in _UNSET),
        ("lastTimestamp", event.last_timestamp not in _UNSET),
        ("count", event.count != 0),
        ("source", bool(event.source.component or event.source.host)),
    ):
        if is_set:
            yield invalid(FieldPath(name), "", "needs to be unset")


def _validate_update(write: WriteContext[View]) -> FieldErrors:
    event, old = write.new, write.old
    yield from _validate_any(event, strict=_is_strict(write))
    if not _is_strict(write):
        return
    yield from validate_metadata_update(write.metadata, write.old_metadata)
    if not semantic_equal(old.series, event.series):
        yield from _validate_series(event)
    for name, before, now in (
        ("involvedObject", old.involved_object, event.involved_object),
        ("reason", old.reason, event.reason),
        ("message", old.message, event.message),
        ("source", old.source, event.source),
        ("firstTimestamp", _set_time(old.first_timestamp), _set_time(event.first_timestamp)),
        ("lastTimestamp", _set_time(old.last_timestamp), _set_time(event.last_timestamp)),
        ("count", old.count, event.count),
        ("reason", old.reason, event.reason),  # twice, as in Kubernetes 1.36
        ("type", old.type, event.type),
        ("eventTime", _set_time(old.event_time), _set_time(event.event_time)),
        ("action", old.action, event.action),
        ("related", old.related, event.related),
        ("reportingController", old.reporting_component, event.reporting_component),
        ("reportingInstance", old.reporting_instance, event.reporting_instance),
    ):
        if not semantic_equal(before, now):
            yield invalid(FieldPath(name), now if isinstance(now, (str, int)) else None, IMMUTABLE)


def _set_time(time: str | None) -> str | None:
    return None if time in _UNSET else time


def _validate_series(event: View) -> FieldErrors:
    if event.series is None:
        return
    if event.series.count < 2:
        yield invalid(FieldPath("series.count"), "", "should be at least 2")
    if event.series.last_observed_time in _UNSET:
        yield required(FieldPath("series.lastObservedTime"))


def _validate_any(event: View, *, strict: bool) -> FieldErrors:
    """Validate the fields that all events have, whichever API they are written through."""
    namespace, about = event.metadata.namespace, event.involved_object.namespace
    mismatch = invalid(FieldPath("involvedObject").child("namespace"), about, _NO_MATCH)
    if event.event_time in _UNSET:
        if namespace not in ((about,) if about else ("", "default")):
            yield mismatch
    else:
        if not about and namespace not in ("default", "kube-system"):
            yield mismatch
        yield from _validate_reporter(
            event, FieldPath("reportingController" if strict else "reportingComponent")
        )
        for name, text, limit in (
            ("reportingInstance", event.reporting_instance, SHORT_MAX),
            ("action", event.action, SHORT_MAX),
            ("reason", event.reason, SHORT_MAX),
        ):
            if not text:
                yield required(FieldPath(name))
            yield from _validate_length(name, text, limit)
        yield from _validate_length("message", event.message, NOTE_MAX)
    yield from validate_format(namespace, FieldPath("namespace"), dns_subdomain)


def _validate_reporter(event: View, path: FieldPath) -> FieldErrors:
    if not event.reporting_component:
        yield required(path)
    yield from validate_format(event.reporting_component, path, label_key)


def _validate_length(name: str, text: str, limit: int) -> FieldErrors:
    if byte_length(text) > limit:
        yield invalid(FieldPath(name), "", f"can have at most {limit} characters")


_IN = event_to_core
_OUT = event_to_events

EVENT_STRATEGIES: Mapping[tuple[str, str, str], WriteStrategy] = {
    ("create", "Event", ""): WriteStrategy(
        _VIEW, _prepare, _validate_create, to_internal=_IN, from_internal=_OUT
    ),
    ("update", "Event", ""): WriteStrategy(
        _VIEW, _prepare, _validate_update, to_internal=_IN, from_internal=_OUT
    ),
}
