"""Indexes for extended resources: the classes that serve them, and the claims created for them."""

from __future__ import annotations

from itertools import chain
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import DEVICE_CLASS_RESOURCE, find_requesting_pod
from plimsoll.api.resource import DeviceClass, ResourceClaim
from plimsoll.ledger.units import is_dra_extended_resource
from plimsoll.scheduler.snapshot.index import SnapshotIndex


class ExtendedResourceClasses(SnapshotIndex):
    """Index of the device classes by the extended resources they serve.

    Of several classes with one name the newest serves it, so that a class can be replaced by another; of
    equally old ones, the first by name.

    DIFF: when that class is deleted, or gets another name, the next one serves the resource; upstream forgets
    the resource until another class changes (test_the_next_class_serves_the_resource).
    """

    kinds = (DeviceClass,)

    def __init__(self) -> None:
        self._explicit: dict[str, dict[str, DeviceClass]] = {}
        self._names: set[str] = set()

    def object_changed(self, old: Any, new: Any) -> None:
        if isinstance(old, DeviceClass):
            name = old.metadata.name
            self._names.discard(name)
            if (resource := old.spec.extended_resource_name) is not None:
                del self._explicit[resource][name]
                if not self._explicit[resource]:
                    del self._explicit[resource]
        if isinstance(new, DeviceClass):
            name = new.metadata.name
            self._names.add(name)
            if (resource := new.spec.extended_resource_name) is not None:
                self._explicit.setdefault(resource, {})[name] = new

    def find(self, resource: str) -> str | None:
        """Return the name of the class that serves a resource, or None."""
        if resource.startswith(DEVICE_CLASS_RESOURCE):
            name = resource.removeprefix(DEVICE_CLASS_RESOURCE)
            return name if name in self._names else None
        classes = self._explicit.get(resource)
        if not classes:
            return None
        newest = max(each.metadata.creation_timestamp or "" for each in classes.values())
        return min(n for n, each in classes.items() if (each.metadata.creation_timestamp or "") == newest)

    def serving(self, pod: Pod) -> dict[str, str]:
        """Return the classes of a pod's extended resources that are served, by resource."""
        found = {}
        for name in sorted(_extended_resources(pod)):
            device_class = self.find(name)
            if device_class is not None:
                found[name] = device_class
        return found


def _extended_resources(pod: Pod) -> set[str]:
    """Return the extended resources that containers of a pod request."""
    return {
        name
        for container in chain(pod.spec.init_containers, pod.spec.containers)
        for name, amount in container.resources.requests.items()
        if "/" in name and not amount.is_zero() and is_dra_extended_resource(name)
    }


class ExtendedResourceClaims(SnapshotIndex):
    """Index of the claims created for extended resources, by the UID of their pod."""

    kinds = (ResourceClaim,)

    def __init__(self) -> None:
        self._claims: dict[str, dict[str, ResourceClaim]] = {}

    def object_changed(self, old: Any, new: Any) -> None:
        if isinstance(old, ResourceClaim) and (owner := find_requesting_pod(old)) is not None:
            claims = self._claims[owner.uid]
            del claims[old.metadata.name]
            if not claims:
                del self._claims[owner.uid]
        if isinstance(new, ResourceClaim) and (owner := find_requesting_pod(new)) is not None:
            self._claims.setdefault(owner.uid, {})[new.metadata.name] = new

    def find(self, pod: Pod) -> ResourceClaim | None:
        """Return the claim created for the extended resources of a pod, or None."""
        claims = self._claims.get(pod.metadata.uid)
        return next((claims[name] for name in sorted(claims)), None) if claims else None
