"""What the controllers know of the cluster: one informer for each kind, and indexes over them.

Owns which view of an object is kept. Promises: all controllers that look at a kind share one informer; every
view has `metadata`; an index answers for the state that the informer is in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from functools import partial
from typing import Any, Generic, TypeVar

from plimsoll.api import codec
from plimsoll.api.core import Node
from plimsoll.api.meta import Object, ObjectMeta, Wire
from plimsoll.api.quota import CountedPod, ResourceQuota, Service, VolumeClaim
from plimsoll.api.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from plimsoll.client.client import Client
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    SERVICES,
    Endpoint,
)
from plimsoll.client.informer import Handler, Informer
from plimsoll.controllers.plans import views

T = TypeVar("T")
H = TypeVar("H", bound=Hashable)

#: What is kept of the kinds that some controller looks into; of all others, the metadata.
VIEWS: Mapping[tuple[str, str], type[Wire]] = {
    (endpoint.group, endpoint.plural): view
    for endpoint, view in (
        (PODS, CountedPod),
        (NODES, Node),
        (NAMESPACES, views.Namespace),
        (RESOURCE_CLAIMS, ResourceClaim),
        (RESOURCE_CLAIM_TEMPLATES, views.Template),
        (RESOURCE_SLICES, ResourceSlice),
        (DEVICE_CLASSES, DeviceClass),
        (DEVICE_TAINT_RULES, DeviceTaintRule),
        (RESOURCE_QUOTAS, ResourceQuota),
        (LEASES, views.Lease),
        (PERSISTENT_VOLUME_CLAIMS, VolumeClaim),
        (SERVICES, Service),
    )
}


class Caches:
    """The informers of all controllers, made when first asked for."""

    def __init__(self, client: Client, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._client = client
        self._sleep = sleep
        self._informers: dict[tuple[str, str], Informer[Any]] = {}

    def of(self, endpoint: Endpoint) -> Informer[Any]:
        """The informer of a kind."""
        key = (endpoint.group, endpoint.plural)
        informer = self._informers.get(key)
        if informer is None:
            view: Any = VIEWS.get(key, Object)
            decode = partial(codec.decode, view=view)
            informer = Informer[Any](self._client, endpoint, decode, sleep=self._sleep)
            self._informers[key] = informer
        return informer

    def informers(self) -> list[Informer[Any]]:
        return list(self._informers.values())


class Listener(Handler[T]):
    """Has one function hear of every change: (None, new), (old, new) or (old, None)."""

    def __init__(self, hear: Callable[[T | None, T | None], None]) -> None:
        self._hear = hear

    def on_added(self, new: T) -> None:
        self._hear(None, new)

    def on_changed(self, old: T, new: T) -> None:
        self._hear(old, new)

    def on_removed(self, old: T) -> None:
        self._hear(old, None)


class Index(Handler[T], Generic[T, H]):
    """The objects of an informer by what they mention."""

    def __init__(self, mentions: Callable[[T], Iterable[H]]) -> None:
        self._mentions = mentions
        self._objects: dict[H, dict[tuple[str, str], T]] = {}

    def find(self, mention: H) -> list[T]:
        """The objects that mention this."""
        return list(self._objects.get(mention, {}).values())

    def by_name(self, mention: H) -> dict[str, T]:
        """The same by name, for mentions that imply a namespace."""
        return {name: item for (_, name), item in self._objects.get(mention, {}).items()}

    def __contains__(self, mention: H) -> bool:
        return mention in self._objects

    def on_added(self, new: T) -> None:
        for mention in set(self._mentions(new)):
            self._objects.setdefault(mention, {})[_key(new)] = new

    def on_changed(self, old: T, new: T) -> None:
        self.on_removed(old)
        self.on_added(new)

    def on_removed(self, old: T) -> None:
        for mention in set(self._mentions(old)):
            found = self._objects.get(mention)
            if found is not None:
                found.pop(_key(old), None)
                if not found:
                    del self._objects[mention]


def _key(item: Any) -> tuple[str, str]:
    metadata: ObjectMeta = item.metadata
    return metadata.namespace, metadata.name
