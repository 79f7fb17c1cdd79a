"""Values of the DRA plugin protocol, independent of the wire version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """Claim as passed to a driver."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PreparedDevice:
    """Device prepared by a driver; without request names it is for all requests of the claim.

    Neither `metadata` nor `data` is sent over the wire. `metadata` is the content of metadata files for
    containers, `{"attributes": {name: value}, "networkData": {..}}` with both fields optional, or None for
    no file. `data` is published in the claim's status.
    """

    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi: tuple[str, ...] = ()
    share_id: str | None = None
    metadata: Mapping[str, Any] | None = field(default=None, hash=False, compare=False)
    data: Mapping[str, Any] | None = field(default=None, hash=False, compare=False)
