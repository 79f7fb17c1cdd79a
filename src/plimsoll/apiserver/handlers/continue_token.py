"""Continue tokens of lists: the last object of a page, the revision of all pages, and when the list began.

A token expires, as upstream's do when the history is compacted: clients that page for longer see changes.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, NamedTuple

from plimsoll.api import codec
from plimsoll.apiserver.status import bad_request
from plimsoll.errors import ApiError, InputError

#: Age at which tokens expire: the interval at which upstream compacts its history.
CONTINUE_SECONDS = 300
#: Revision of tokens that continue at the current state instead of that of the first page.
CURRENT_STATE = -1


class ContinueToken(NamedTuple):
    """Position in a list; `started` is the time of its first page in seconds."""

    revision: int
    namespace: str
    name: str
    started: int

    def encode(self) -> str:
        tree = {"rv": self.revision, "ns": self.namespace, "name": self.name, "t": self.started}
        return base64.urlsafe_b64encode(codec.encode(tree)).decode().rstrip("=")


def decode_continue_token(token: str) -> ContinueToken:
    """Decode a token; ApiError 400 if it is not one."""
    try:
        padded = token + "=" * (-len(token) % 4)
        tree: Any = codec.decode_tree(base64.urlsafe_b64decode(padded.encode("ascii")))
        found = ContinueToken(tree["rv"], tree["ns"], tree["name"], tree["t"])
    except (InputError, ValueError, binascii.Error, KeyError, TypeError):
        raise _invalid() from None
    numbers, texts = (found.revision, found.started), (found.namespace, found.name)
    if not all(type(each) is int for each in numbers) or not all(isinstance(each, str) for each in texts):
        raise _invalid()
    return found


def _invalid() -> ApiError:
    return bad_request("continue key is not valid: pass the token of the previous page unchanged")
