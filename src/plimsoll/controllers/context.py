"""Context and settings shared by all controllers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.api.gates import Gates
from plimsoll.client.client import Client
from plimsoll.client.discovery import Served
from plimsoll.client.endpoints import Endpoint
from plimsoll.client.event_recorder import EventRecorder
from plimsoll.client.served_versions import readable_versions
from plimsoll.common.clock import Clock
from plimsoll.controllers.action_executor import ActionExecutor
from plimsoll.controllers.shared_informers import SharedInformers
from plimsoll.errors import ApiError

#: Verbs that a kind must support to be collected.
_REQUIRED_VERBS = frozenset({"delete", "list", "watch"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerSettings:
    """Settings of all controllers.

    Times are in seconds; the defaults are those of kube-controller-manager, except `namespace_grace`.
    """

    #: Delay before the content of a deleted namespace is removed, so that all API servers observe the
    #: deletion.
    namespace_grace: float = 0.0
    #: Period of the pod garbage collector, and how long a node must be missing before its pods are deleted.
    pod_garbage_period: float = 20.0
    node_quarantine: float = 40.0
    #: Number of terminated pods to keep; 0 keeps all.
    finished_pods_kept: int = 12500
    #: Time without heartbeats after which a node becomes Unknown; the second is for new nodes.
    node_grace: float = 50.0
    node_startup_grace: float = 60.0
    #: Resync period of quotas.
    quota_period: float = 300.0
    #: Timeout for the first list of a kind; the garbage collector then continues without it.
    sync_timeout: float = 30.0
    #: Workers per controller.
    workers: int = 8
    #: CA certificates that are published in every namespace, in PEM; "" publishes none.
    root_ca: str = ""
    #: Directory for the volumes of the host-path provisioner, which all nodes must see; None: no volumes are
    #: provisioned.
    volumes_dir: Path | None = None
    #: Feature gates of the API server, which admits by the same rules.
    gates: Gates = field(default_factory=Gates.default)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerContext:
    """Dependencies of a controller: client, clock, shared informers, executor and settings."""

    client: Client
    clock: Clock
    informers: SharedInformers
    settings: ControllerSettings
    served: tuple[Served, ...] = ()
    #: API discovery, repeated: the server may serve more kinds than at the start.
    rediscover: Callable[[], Awaitable[Sequence[Served]]]
    watches_all: bool = False  #: whether some controller watches every kind
    recorder: EventRecorder = field(init=False)
    executor: ActionExecutor = field(init=False)

    def serves(self, endpoint: Endpoint) -> bool:
        """Return whether the API serves a kind in a version that the controllers can read."""
        readable = set(readable_versions(endpoint))
        return any(
            (item.endpoint.group, item.endpoint.plural) == (endpoint.group, endpoint.plural)
            and not readable.isdisjoint(item.versions or (item.endpoint.version,))
            for item in self.served
        )

    async def find_raw(self, endpoint: Endpoint, name: str, namespace: str = "") -> bytes | None:
        """Return the live object as bytes, or None if it does not exist."""
        try:
            return await self.client.get_raw(endpoint, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def __post_init__(self) -> None:
        object.__setattr__(self, "recorder", EventRecorder(self.client, self.clock))
        object.__setattr__(self, "executor", ActionExecutor(self.client, self.recorder))


def deletable_endpoints(served: tuple[Served, ...]) -> list[Endpoint]:
    """Return the kinds that can be listed, watched and deleted, except events, which own nothing."""
    return [
        item.endpoint for item in served if item.verbs >= _REQUIRED_VERBS and item.endpoint.plural != "events"
    ]
