"""Form of the events of a watch: the media type and the rendering of objects that the client asked for.

Bookmarks have the form of the objects: an informer of metadata or tables decodes both in the same way. Errors
are always Status objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.handlers.negotiation import JSON
from plimsoll.apiserver.protobuf import CONTENT_TYPE as PROTOBUF
from plimsoll.apiserver.protobuf import encode_frame
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.status import to_status
from plimsoll.errors import ApiError

#: Renders the stored bytes of an object for the client of a watch.
Render = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class WatchFormat:
    """Encoder of events; without `render`, objects are sent as stored."""

    resource: Resource
    render: Render | None = None
    media: str = JSON

    @property
    def content_type(self) -> str:
        return JSON if self.media == JSON else f"{self.media};stream=watch"

    @property
    def is_stored_form(self) -> bool:
        """True if events are sent as stored, so that all watches can share their frames."""
        return self.render is None and self.media == JSON

    def encode_event(self, type: str, raw: bytes) -> bytes:
        """Encode an event of a stored object."""
        return self._encode(type, raw if self.render is None else self.render(raw))

    def encode_bookmark(self, metadata: dict[str, Any]) -> bytes:
        head = {"apiVersion": self.resource.api_version(), "kind": self.resource.kind}
        return self.encode_event("BOOKMARK", codec.encode({**head, "metadata": metadata}))

    def encode_error(self, error: ApiError) -> bytes:
        return self._encode("ERROR", codec.encode(to_status(error)))

    def _encode(self, type: str, raw: bytes) -> bytes:
        if self.media == PROTOBUF:
            return encode_frame(type, codec.decode_tree(raw))
        return b'{"type":"%s","object":%s}\n' % (type.encode(), raw)
