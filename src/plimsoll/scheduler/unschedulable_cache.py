"""Negative cache of scheduling results, keyed by pod signature.

Many identical unschedulable pods cost one attempt. A cached result holds until an event can help the pod, by
the queueing hints of its rules. Changes that can free something increase the snapshot's generation; those
that only consume something (a pod is assigned, a node is removed) help few pods: they are recorded here and
evaluated by the hints of the rules that rejected the pod.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import islice

from plimsoll.api.codec import encode
from plimsoll.api.core import Node, Pod
from plimsoll.api.pod_volumes import placement_spec
from plimsoll.scheduler.devices import needs_capacity
from plimsoll.scheduler.devices.exact import reassign_reasons
from plimsoll.scheduler.events import ClusterEvent, EventKind
from plimsoll.scheduler.filters.queueing_hint import WaitingPod
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.queueing_hints import affected_rules, any_event_helps, make_waiting_pod
from plimsoll.scheduler.result import FitError
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.topology.default_constraints import DefaultSelectors

#: Number of cached results.
MAX_RESULTS = 1024
#: Number of events that are kept; a result that missed more is dropped if they can matter to it.
MAX_EVENTS = 256
#: Events that do not count for the snapshot's generation.
UNCOUNTED_EVENTS = (ClusterEvent(EventKind.POD_ASSIGNED), ClusterEvent(EventKind.NODE_REMOVED))
_UNCOUNTED_RULES = affected_rules(UNCOUNTED_EVENTS[0]) | affected_rules(UNCOUNTED_EVENTS[1])


@dataclass(slots=True)
class _CachedResult:
    fit_error: FitError
    waiting_pod: WaitingPod
    generation: int
    events_seen: int  #: number of events up to which the result is known to hold


class UnschedulableCache(SnapshotIndex):
    """Failed attempts by pod signature."""

    def __init__(self) -> None:
        self._results: dict[bytes, _CachedResult] = {}
        self._events: deque[ClusterEvent] = deque(maxlen=MAX_EVENTS)
        self._event_count = 0

    def pod_added(self, row: int, pod: Pod) -> None:
        if self._results:  # a later result does not depend on it
            self._add_event(ClusterEvent(EventKind.POD_ASSIGNED, new=pod))

    def node_removed(self, row: int, node: Node) -> None:
        self._add_event(ClusterEvent(EventKind.NODE_REMOVED, node))

    def _add_event(self, event: ClusterEvent) -> None:
        self._events.append(event)
        self._event_count += 1

    def get(self, pod_info: PodInfo, snapshot: Snapshot) -> FitError | None:
        """Return the result for pods with the same signature if it still holds."""
        if not self._results:
            return None
        cached = self._results.get(_key(pod_info, snapshot))
        if cached is None or cached.generation != snapshot.generations.last or self._is_helped(cached):
            return None
        found = cached.fit_error
        reasons, counts = zip(*found.reasons, strict=True) if found.reasons else ((), ())
        own = reassign_reasons(reasons, found.pod_info, pod_info)
        return replace(found, pod_info=pod_info, reasons=tuple(zip(own, counts, strict=True)))

    def _is_helped(self, cached: _CachedResult) -> bool:
        """Return whether an event since the result was last checked may help the pod."""
        missed = self._event_count - cached.events_seen
        rules = cached.waiting_pod.rules
        if missed and (not rules or rules & _UNCOUNTED_RULES):
            if missed > MAX_EVENTS:
                return True
            if any_event_helps(islice(self._events, len(self._events) - missed, None), cached.waiting_pod):
                return True
        cached.events_seen = self._event_count
        return False

    def put(self, pod_info: PodInfo, snapshot: Snapshot, fit_error: FitError) -> FitError:
        """Cache a result and return it."""
        key = _key(pod_info, snapshot)
        self._results.pop(key, None)
        waiting_pod = make_waiting_pod(
            pod_info.pod, fit_error.rules, needs_capacity(fit_error), pod_info.profile
        )
        self._results[key] = _CachedResult(
            fit_error, waiting_pod, snapshot.generations.last, self._event_count
        )
        if len(self._results) > MAX_RESULTS:
            del self._results[next(iter(self._results))]
        return fit_error


def _key(pod_info: PodInfo, snapshot: Snapshot) -> bytes:
    """Return the signature of a pod, with the selector of its default constraints."""
    signature = pod_signature(pod_info)
    if pod_info.pod.spec.topology_spread_constraints or not pod_info.profile.default_constraints:
        return signature
    selector = snapshot.index(DefaultSelectors).selector_of(pod_info.pod, snapshot)
    return signature + repr(selector.requirements).encode()


def pod_signature(pod_info: PodInfo, pod: Pod | None = None) -> bytes:
    """Return a key that is equal for pods that scheduling treats alike; `pod` replaces that of `pod_info`."""
    pod = pod_info.pod if pod is None else pod
    spec = placement_spec(pod.spec)
    own = (pod.metadata.namespace, pod.metadata.labels, spec, pod_info.resource_signature)
    return encode((*own, pod.status.nominated_node_name, pod_info.profile.filter_key))
