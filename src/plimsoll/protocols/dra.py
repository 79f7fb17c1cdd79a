"""What nodes and drivers tell each other about claims, as values, whatever the version on the wire.

Owns `ClaimRef` and `PreparedDevice`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim as a driver is told of it."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """A device that a driver made ready; no request names: for all requests of the claim.

    `metadata` is for the files that containers find about their devices; it does not go over the wire. None:
    there are none; else `{"attributes": {name: value}, "networkData": {..}}`, either of them left out. `data`
    is for the claim's status; it does not go over the wire either.
    """

    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share_id: str | None = None
    metadata: Mapping[str, Any] | None = field(default=None, hash=False, compare=False)
    data: Mapping[str, Any] | None = field(default=None, hash=False, compare=False)
