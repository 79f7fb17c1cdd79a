"""Cache of serialized responses, rebuilt only where something has changed.

Guarantees that a pod's message is built once for as long as its resources stay the same, whatever happens to
other pods; that List is the concatenation of the Get responses, byte for byte, so that they cannot disagree;
and that all responses of one revision describe the same state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from google.protobuf.message import Message

from plimsoll.api.core import Pod
from plimsoll.node.podresources.pod_view import (
    CollectedResources,
    PodResourcesGates,
    PodResourcesView,
    build_allocatable_message,
    build_alpha_pod_message,
    build_pod_message,
    collect_resources,
    view_pod,
)
from plimsoll.node.podresources.source import PodResourcesSource

_FIELD_1 = b"\x0a"


@dataclass(slots=True)
class _Entry:
    pod: Pod
    collected: CollectedResources
    view: PodResourcesView
    active: bool
    #: The pod as field 1 of a message, which is both the response of Get and an element of List.
    row: bytes
    alpha: bytes | None = None


class ResponseCache:
    """Responses of one node."""

    def __init__(
        self, source: PodResourcesSource, gates: PodResourcesGates, *, active_only: bool = True
    ) -> None:
        self._source = source
        self._gates = gates
        self._active_only = active_only
        self._revision: object = None
        self._known = False
        self._entries: dict[str, _Entry] = {}
        self._by_name: dict[tuple[str, str], _Entry] = {}
        self._list: bytes | None = None
        self._alpha: bytes | None = None
        self._allocatable: bytes | None = None
        #: Number of pod messages built so far.
        self.made = 0

    def list(self) -> bytes:
        """Return a ListPodResourcesResponse."""
        self._refresh()
        if self._list is None:
            entries = self._entries.values()
            self._list = b"".join(e.row for e in entries if e.active or not self._active_only)
        return self._list

    def get(self, namespace: str, name: str) -> bytes | None:
        """Return a GetPodResourcesResponse; None if the pod does not exist or has terminated."""
        self._refresh()
        entry = self._by_name.get((namespace, name))
        return None if entry is None else entry.row

    def list_alpha(self) -> bytes:
        """Return a v1alpha1 ListPodResourcesResponse: all pods, terminated ones included."""
        self._refresh()
        if self._alpha is None:
            self._alpha = b"".join(map(_alpha_row, self._entries.values()))
        return self._alpha

    def allocatable(self) -> bytes:
        """Return an AllocatableResourcesResponse."""
        self._refresh()
        if self._allocatable is None:
            self._allocatable = build_allocatable_message(self._source.allocatable()).SerializeToString()
        return self._allocatable

    def _refresh(self) -> None:
        revision = self._source.revision()
        if self._known and revision == self._revision:
            return
        entries: dict[str, _Entry] = {}
        by_name: dict[tuple[str, str], _Entry] = {}
        for pod in self._source.pods():
            entry = entries[_key(pod)] = self._update_entry(pod)
            if entry.active:
                by_name[entry.view.namespace, entry.view.name] = entry
        self._entries, self._by_name = entries, by_name
        self._list = self._alpha = self._allocatable = None
        self._revision, self._known = revision, True

    def _update_entry(self, pod: Pod) -> _Entry:
        collected = collect_resources(pod, self._source, self._gates)
        active = self._source.is_active(pod)
        old = self._entries.get(_key(pod))
        if old is not None and old.pod is pod and old.active == active and old.collected == collected:
            return old
        view = view_pod(pod, collected, self._gates)
        if old is not None and old.view == view:
            return replace(old, pod=pod, collected=collected, active=active)
        self.made += 1
        return _Entry(pod, collected, view, active, frame(build_pod_message(view)))


def _key(pod: Pod) -> str:
    return pod.metadata.uid or pod.metadata.full_name


def _alpha_row(entry: _Entry) -> bytes:
    if entry.alpha is None:
        entry.alpha = frame(build_alpha_pod_message(entry.view))
    return entry.alpha


def frame(message: Message) -> bytes:
    """Serialize a message as field 1 of the enclosing one."""
    data = message.SerializeToString()
    return b"".join((_FIELD_1, bytes(_varint(len(data))), data))


def _varint(number: int) -> Iterable[int]:
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number
