"""Watches: the frames of the events that a client selected, in order."""

from __future__ import annotations

from collections.abc import Callable

from plimsoll.api import codec
from plimsoll.apiserver.status import to_status
from plimsoll.errors import ApiError
from tests.simulation.api.kinds import Kind
from tests.simulation.api.selectors import Selection
from tests.simulation.api.store import StoreEvent, Tree


def _do_nothing() -> None:
    pass


class Watch:
    """Watch of one client, from its start until `close`; `ended` if the server has ended it.

    `on_event` is called when frames are waiting, except for those that a new watch already has.
    """

    def __init__(
        self, kind: Kind, selection: Selection, *, bookmarks: bool, on_close: Callable[[Watch], None]
    ) -> None:
        self.on_event: Callable[[], None] = _do_nothing
        self.ended = False
        self.bookmarks = bookmarks
        self.kind = kind
        self._selection = selection
        self._selects_all = not selection.namespace and not selection.has_conditions
        self._frames: list[bytes] = []
        self._on_close = on_close

    def take(self) -> list[bytes]:
        """Return the frames since the last call."""
        frames, self._frames = self._frames, []
        return frames

    def close(self) -> None:
        self._on_close(self)

    def send(self, frame: bytes) -> None:
        self._frames.append(frame)
        self.on_event()

    def send_event(self, event: StoreEvent) -> None:
        """Send an event if it concerns the selection, where it may be an addition or a removal."""
        if self._selects_all:
            self.send(event.frame(event.type))
            return
        matches, namespace = self._selection.matches, event.key[0]
        was = event.old is not None and matches(namespace, event.old.tree)
        if event.type != "DELETED" and matches(namespace, event.new.tree):
            self.send(event.frame("MODIFIED" if was else "ADDED"))
        elif was:
            self.send(event.frame("DELETED"))

    def send_bookmark(self, revision: int, *, ends_initial_events: bool = False) -> None:
        metadata: Tree = {"resourceVersion": str(revision), "creationTimestamp": None}
        if ends_initial_events:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        raw = self.kind.head + b'"metadata":' + codec.encode(metadata) + b"}"
        self.send(b'{"type":"BOOKMARK","object":%b}\n' % raw)

    def end(self, error: ApiError) -> None:
        """Send an error as the last frame."""
        self.ended = True
        self.send(b'{"type":"ERROR","object":%b}\n' % codec.encode(to_status(error)))
