"""What every controller is given.

Owns `Context`: the client, the clock, the shared caches, the one who carries out plans, and the settings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from plimsoll.client.client import Client
from plimsoll.client.discovery import Served
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.event_recorder import Recorder
from plimsoll.common.clock import Clock
from plimsoll.controllers.caches import Caches
from plimsoll.controllers.perform import Performer


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What can be set; times are in seconds and, but for the first, those of kube-controller-manager."""

    #: How long a deleted namespace is left alone, so that several API servers can hear of it.
    namespace_grace: float = 0.0
    #: How often pods are looked through, and how long a node must be missing before its pods go.
    pod_garbage_period: float = 20.0
    node_quarantine: float = 40.0
    #: How many finished pods are kept; none are deleted if this is zero.
    finished_pods_kept: int = 12500
    #: For how long a node may be silent, and for how long a new one.
    node_grace: float = 50.0
    node_startup_grace: float = 60.0
    #: How often quotas are worked out anew though nothing changed.
    quota_period: float = 300.0
    #: How long a kind may take to be listed before the garbage collector goes on without it.
    patience: float = 30.0
    #: How many keys each controller works on at once.
    workers: int = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """See the module."""

    client: Client
    clock: Clock
    caches: Caches
    settings: Settings
    served: tuple[Served, ...] = ()
    #: What the API serves now, which may be more than at the start.
    rediscover: Callable[[], Awaitable[Sequence[Served]]]
    watches_all: bool = False  #: whether some controller watches every kind anyway
    recorder: Recorder = field(init=False)
    performer: Performer = field(init=False)

    def serves(self, endpoint: Endpoint) -> bool:
        """Whether the API has a kind at the version we read."""
        return any(
            (item.endpoint.group, item.endpoint.plural) == (endpoint.group, endpoint.plural)
            and endpoint.version in (item.versions or (item.endpoint.version,))
            for item in self.served
        )

    def __post_init__(self) -> None:
        object.__setattr__(self, "recorder", Recorder(self.client, self.clock))
        object.__setattr__(self, "performer", Performer(self.client, self.recorder))
