"""Counters of pinning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counters since the start.

    `created` and `refused` are new containers, `corrected` foreign updates that were corrected in flight,
    `changed` and `failed` updates of running containers, `deferred` those left to the next event,
    `reconnected` connections made for them because there was none, `drifted` containers with another cpuset
    than the desired one.
    """

    connections: int = 0
    synchronized: int = 0
    created: int = 0
    refused: int = 0
    corrected: int = 0
    changed: int = 0
    failed: int = 0
    deferred: int = 0
    reconnected: int = 0
    drifted: int = 0
    audits: int = 0
