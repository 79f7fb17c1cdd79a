"""`describe_events`: the recent events of an object, the latest first."""

from __future__ import annotations

from typing import Any

from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.related import event_message, event_time, section_of
from plimsoll.tools.explain.text import StatementKind
from plimsoll.tools.explain.tree import Statement
from plimsoll.tools.explain.verdict import ExplanationSection

#: Events that are shown, and characters of a message.
MAX_EVENTS, MAX_MESSAGE = 5, 300


def describe_events(
    cluster_state: ClusterState, kind: str, namespace: str, name: str, uid: str = ""
) -> tuple[ExplanationSection, ...]:
    """Return the section of recent events; none if there are no events."""
    found = list(cluster_state.objects.related.events_about(kind, namespace, name, uid))
    found.sort(key=event_time, reverse=True)
    if not found:
        return ()
    more = f" ({MAX_EVENTS} of {len(found)})" if len(found) > MAX_EVENTS else ""
    statements = tuple(map(_describe_event, found[:MAX_EVENTS]))
    return (ExplanationSection(f"events of {kind} {name}, latest first{more}", statements),)


def _describe_event(event: dict[str, Any]) -> Statement:
    message = event_message(event)
    counts = (section_of(event, "series").get("count"), event.get("count"), event.get("deprecatedCount"), 1)
    count = next(filter(None, counts))
    source = event.get("reportingComponent") or event.get("reportingController")
    facts = {
        "time": event_time(event) or "unknown time",
        "type": str(event.get("type", "")),
        "reason": str(event.get("reason", "")),
        "count": count,
        "times": f" ({count} times)" if count != 1 else "",
        "source": str(source or section_of(event, "source").get("component") or "unknown source"),
        "message": message if len(message) <= MAX_MESSAGE else message[: MAX_MESSAGE - 3] + "...",
    }
    return Statement(StatementKind.EVENT, facts)
