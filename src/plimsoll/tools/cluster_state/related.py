"""`RelatedObjects`: events and workloads, which no rule reads; encoded, for explanations and dumps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from plimsoll.api import codec
from plimsoll.client import endpoints as at
from plimsoll.client.endpoints import Endpoint

Tree = dict[str, Any]
EVENT = "Event"
#: Workloads by kind.
WORKLOADS: Mapping[str, Endpoint] = {
    endpoint.kind: endpoint
    for endpoint in (
        at.DEPLOYMENTS,
        at.REPLICA_SETS,
        at.STATEFUL_SETS,
        at.DAEMON_SETS,
        at.JOBS,
        at.CRON_JOBS,
        at.REPLICATION_CONTROLLERS,
    )
}
#: API groups of events.
_EVENT_GROUPS = ("", "events.k8s.io")
#: Maximum number of events that are kept.
MAX_EVENTS = 50_000


class RelatedObjects:
    """Events and workloads by kind, namespace and name."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[tuple[str, str], bytes]] = {}
        #: Keys of events by kind, namespace and name of the object that they are about.
        self._events: dict[tuple[str, str, str], list[tuple[str, str]]] = {}

    def add(self, tree: Tree) -> None:
        """Keep an object if it is an event or a workload."""
        metadata = tree.get("metadata")
        if is_related(tree.get("kind"), tree.get("apiVersion")) and isinstance(metadata, dict):
            key = str(metadata.get("namespace") or "default"), str(metadata.get("name", ""))
            known = self._kinds.setdefault(tree["kind"], {})
            if tree["kind"] == EVENT and len(known) >= MAX_EVENTS:
                return
            if tree["kind"] == EVENT and key not in known:
                self._events.setdefault(event_subject(tree), []).append(key)
            known[key] = codec.encode(tree)

    def find(self, kind: str, namespace: str, name: str) -> Tree | None:
        raw = self._kinds.get(kind, {}).get((namespace, name))
        return None if raw is None else codec.decode_tree(raw)

    def names(self, kind: str) -> list[tuple[str, str]]:
        """Return the namespaces and names of a kind."""
        return list(self._kinds.get(kind, ()))

    def events_about(self, kind: str, namespace: str, name: str, uid: str = "") -> Iterator[Tree]:
        """Yield the events about an object; those about an earlier one of the same name are left out."""
        for key in self._events.get((kind, namespace, name), ()):
            event = codec.decode_tree(self._kinds[EVENT][key])
            known = (section_of(event, "involvedObject") or section_of(event, "regarding")).get("uid")
            if not uid or known in (None, "", uid):
                yield event

    def scheduling_failure(self, pod: tuple[str, str], uid: str) -> str:
        """Return the message of the latest FailedScheduling event of a pod."""
        events = (
            each for each in self.events_about("Pod", *pod, uid) if each.get("reason") == "FailedScheduling"
        )
        latest = max(events, key=event_time, default=None)
        return "" if latest is None else event_message(latest)


def is_related(kind: Any, api_version: Any) -> bool:
    """Return whether an object is an event or a workload."""
    group = api_version.rpartition("/")[0] if isinstance(api_version, str) else None
    return group in _EVENT_GROUPS if kind == EVENT else kind in WORKLOADS and WORKLOADS[kind].group == group


def event_subject(event: Tree) -> tuple[str, str, str]:
    """Return kind, namespace and name of the object that an event is about."""
    about = section_of(event, "involvedObject") or section_of(event, "regarding")
    return str(about.get("kind")), str(about.get("namespace") or ""), str(about.get("name"))


def event_time(event: Tree) -> str:
    """Return the time of the last occurrence in RFC 3339, which sorts as text."""
    series = section_of(event, "series")
    fields = ("lastTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp")
    times = [series.get("lastObservedTime"), *(event.get(field) for field in fields)]
    times.append(section_of(event, "metadata").get("creationTimestamp"))
    return str(next(filter(None, times), ""))


def event_message(event: Tree) -> str:
    return str(event.get("message") or event.get("note") or "")


def section_of(tree: Tree, field: str) -> Tree:
    """Return a field that should be an object; an empty one if it is anything else."""
    value = tree.get(field)
    return value if isinstance(value, dict) else {}
