"""What is counted about pinning. Values only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """How often something happened since the start.

    `created` and `refused` are containers that were asked about, `corrected` changes by others that were set
    right on the way, `changed` and `failed` changes of running containers, `deferred` those left to the next
    event, `drifted` containers that had something else than they were given.
    """

    connections: int = 0
    synchronized: int = 0
    created: int = 0
    refused: int = 0
    corrected: int = 0
    changed: int = 0
    failed: int = 0
    deferred: int = 0
    drifted: int = 0
    audits: int = 0
