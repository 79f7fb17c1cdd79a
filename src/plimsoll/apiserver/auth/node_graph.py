"""Node graph: the objects that each node may read, because its pods reference them.

Indexes pods, persistent volumes, volume attachments, resource slices and pod certificate requests: a secret
is related to a node if a pod bound to the node references it, or references a claim whose volume does. The
index is built when a node first needs it (or in the background, `warm_up`) and then updated with every write,
so that a check costs a few lookups however many pods there are, and is never older than the last write.

DIFF: Kubernetes does not index a bound pod again when its extended resource claim is set later, so the node
cannot read that claim; see test_a_claim_named_later_concerns_the_node.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from plimsoll.api.codec import decode_tree
from plimsoll.apiserver.auth.attributes import StoreReader
from plimsoll.apiserver.auth.pod_references import (
    PodReference,
    pod_references,
    volume_claim,
    volume_secrets,
)
from plimsoll.apiserver.json_values import mapping, text
from plimsoll.apiserver.storage.records import ObjectKey
from plimsoll.errors import DecodeError

PODS, VOLUMES = "pods", "persistentvolumes"
ATTACHMENTS, SLICES = "volumeattachments.storage.k8s.io", "resourceslices.resource.k8s.io"
CERTIFICATE_REQUESTS = "podcertificaterequests.certificates.k8s.io"
#: Objects with a nodeName of their own.
_DIRECT = (ATTACHMENTS, SLICES, CERTIFICATE_REQUESTS)
SOURCES = (PODS, VOLUMES, *_DIRECT)
#: Objects read per step in the background.
_BATCH = 50

_NamespacedName = tuple[str, str]


class NodeGraph:
    """Index of the objects related to each node."""

    def __init__(self, reader: StoreReader) -> None:
        self._reader = reader
        self._pending: Iterator[ObjectKey] | None = None
        self._loaded = False
        self.pods: dict[_NamespacedName, tuple[str, tuple[PodReference, ...]]] = {}
        #: For each referenced object: the number of referencing pods by node.
        self.named: dict[PodReference, dict[str, int]] = {}
        self._volumes: dict[str, tuple[PodReference, tuple[PodReference, ...]]] = {}
        self._secret_volumes: dict[PodReference, set[str]] = {}
        self._direct: dict[str, dict[_NamespacedName, str]] = {resource: {} for resource in _DIRECT}

    def is_related(self, node: str, resource: str, namespace: str, name: str) -> bool:
        """Return whether an object is related to a node."""
        self.load()
        if resource == PODS:
            pod = self.pods.get((namespace, name))
            return pod is not None and pod[0] == node
        if resource in self._direct:
            return self._direct[resource].get((namespace, name)) == node
        if resource == VOLUMES:
            return self._mounts(node, name)
        wanted = PodReference(resource, namespace, name)
        if node in self.named.get(wanted, ()):
            return True
        return any(self._mounts(node, volume) for volume in self._secret_volumes.get(wanted, ()))

    def _mounts(self, node: str, volume: str) -> bool:
        known = self._volumes.get(volume)
        return known is not None and node in self.named.get(known[0], ())

    def load(self) -> None:
        """Build the index, unless that was done."""
        if not self._loaded:
            self._read(None)

    async def warm_up(self) -> None:
        """Build the index in small steps, so that requests are handled meanwhile."""
        while not self._loaded:
            self._read(_BATCH)
            await asyncio.sleep(0)

    def _read(self, most: int | None) -> None:
        """Index some of the objects that existed at the beginning, in their current state. From then on
        writes are observed, so the order in which the two reach an object does not matter.
        """
        if self._pending is None:
            self._pending = iter([stored.key for r in SOURCES for stored in self._reader.list(r).items])
        done = 0
        for key in islice(self._pending, most):
            done += 1
            stored = self._reader.get(key)
            if stored is not None:
                with contextlib.suppress(DecodeError):
                    self._index(key, decode_tree(stored.raw))
        self._loaded = most is None or done < most

    def observe(self, key: ObjectKey, tree: Any) -> None:
        """Update the index after a write; `tree` is None if the object was deleted."""
        if key.resource in SOURCES and self._pending is not None:
            self._index(key, tree)

    def _index(self, key: ObjectKey, tree: Any) -> None:
        if key.resource == PODS:
            self._index_pod((key.namespace, key.name), mapping(tree))
        elif key.resource == VOLUMES:
            self._index_volume(key.name, mapping(tree))
        else:
            qualified, direct = (key.namespace, key.name), self._direct[key.resource]
            node = text(mapping(mapping(tree).get("spec")).get("nodeName"))
            if node:
                direct[qualified] = node
            else:
                direct.pop(qualified, None)

    def _index_pod(self, qualified: _NamespacedName, pod: Mapping[str, Any]) -> None:
        node = text(mapping(pod.get("spec")).get("nodeName"))
        after = (node, tuple(dict.fromkeys(pod_references(pod)))) if node else None
        before = self.pods.get(qualified)
        if after == before:
            return
        if before is not None:
            for reference in before[1]:
                nodes = self.named[reference]
                nodes[before[0]] -= 1
                if not nodes[before[0]]:
                    del nodes[before[0]]
                if not nodes:
                    del self.named[reference]
            del self.pods[qualified]
        if after is not None:
            for reference in after[1]:
                nodes = self.named.setdefault(reference, {})
                nodes[node] = nodes.get(node, 0) + 1
            self.pods[qualified] = after

    def _index_volume(self, name: str, volume: Mapping[str, Any]) -> None:
        before = self._volumes.pop(name, None)
        for secret in before[1] if before is not None else ():
            volumes = self._secret_volumes[secret]
            volumes.discard(name)
            if not volumes:
                del self._secret_volumes[secret]
        claim = volume_claim(volume)
        if claim is not None:
            secrets = tuple(dict.fromkeys(volume_secrets(volume)))
            self._volumes[name] = (claim, secrets)
            for secret in secrets:
                self._secret_volumes.setdefault(secret, set()).add(name)
