"""The replies as bytes, made anew only where something has changed.

Owns `Answers`. Promises: a pod's message is made once for as long as what it holds stays the same, whatever
becomes of the other pods; List is the replies of Get one after the other, byte for byte, so the two cannot
disagree; all replies of one revision speak of one moment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from google.protobuf.message import Message

from plimsoll.api.core import Pod
from plimsoll.node.podresources.pod_view import (
    Holdings,
    PodView,
    Switches,
    gather,
    view_pod,
    write_allocatable,
    write_pod,
    write_pod_alpha,
)
from plimsoll.node.podresources.source import Source

_FIELD_1 = b"\x0a"


@dataclass(slots=True)
class _Entry:
    pod: Pod
    holdings: Holdings
    view: PodView
    active: bool
    #: The pod as field 1 of a message, which is what both the reply of Get and a row of List are.
    row: bytes
    alpha: bytes | None = None


class Answers:
    """The replies of one node."""

    def __init__(self, source: Source, switches: Switches, *, active_only: bool = True) -> None:
        self._source = source
        self._switches = switches
        self._active_only = active_only
        self._revision: object = None
        self._known = False
        self._entries: dict[str, _Entry] = {}
        self._by_name: dict[tuple[str, str], _Entry] = {}
        self._list: bytes | None = None
        self._alpha: bytes | None = None
        self._allocatable: bytes | None = None
        #: How many messages of pods were made so far.
        self.made = 0

    def list(self) -> bytes:
        """A ListPodResourcesResponse."""
        self._refresh()
        if self._list is None:
            entries = self._entries.values()
            self._list = b"".join(e.row for e in entries if e.active or not self._active_only)
        return self._list

    def get(self, namespace: str, name: str) -> bytes | None:
        """A GetPodResourcesResponse; None if there is no such pod, or it has ended."""
        self._refresh()
        entry = self._by_name.get((namespace, name))
        return None if entry is None else entry.row

    def list_alpha(self) -> bytes:
        """A ListPodResourcesResponse of v1alpha1: all pods, ended ones too."""
        self._refresh()
        if self._alpha is None:
            self._alpha = b"".join(map(_alpha_row, self._entries.values()))
        return self._alpha

    def allocatable(self) -> bytes:
        """An AllocatableResourcesResponse."""
        self._refresh()
        if self._allocatable is None:
            self._allocatable = write_allocatable(self._source.allocatable()).SerializeToString()
        return self._allocatable

    def _refresh(self) -> None:
        revision = self._source.revision()
        if self._known and revision == self._revision:
            return
        entries: dict[str, _Entry] = {}
        by_name: dict[tuple[str, str], _Entry] = {}
        for pod in self._source.pods():
            entry = entries[_key(pod)] = self._enter(pod)
            if entry.active:
                by_name[entry.view.namespace, entry.view.name] = entry
        self._entries, self._by_name = entries, by_name
        self._list = self._alpha = self._allocatable = None
        self._revision, self._known = revision, True

    def _enter(self, pod: Pod) -> _Entry:
        holdings = gather(pod, self._source, self._switches)
        active = self._source.is_active(pod)
        old = self._entries.get(_key(pod))
        if old is not None and old.pod is pod and old.active == active and old.holdings == holdings:
            return old
        view = view_pod(pod, holdings, self._switches)
        if old is not None and old.view == view:
            return replace(old, pod=pod, holdings=holdings, active=active)
        self.made += 1
        return _Entry(pod, holdings, view, active, frame(write_pod(view)))


def _key(pod: Pod) -> str:
    return pod.metadata.uid or f"{pod.metadata.namespace}/{pod.metadata.name}"


def _alpha_row(entry: _Entry) -> bytes:
    if entry.alpha is None:
        entry.alpha = frame(write_pod_alpha(entry.view))
    return entry.alpha


def frame(message: Message) -> bytes:
    """A message as field 1 of the one around it."""
    data = message.SerializeToString()
    return b"".join((_FIELD_1, bytes(_varint(len(data))), data))


def _varint(number: int) -> Iterable[int]:
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number
