"""Nodes for which a volume can be provisioned: allowed topologies and storage capacity.

A class without a provisioner has no such nodes. The capacity of a CSI driver counts only if the driver
publishes it (`CSIDriver.spec.storageCapacity`); then a CSIStorageCapacity of the class must be large enough
and accessible from the node.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from plimsoll.api.core import Node
from plimsoll.api.label_selection import (
    MATCH_NOTHING,
    CompiledLabelSelector,
    SelectorProblem,
    compile_label_selector,
)
from plimsoll.api.meta import LabelSelector
from plimsoll.api.storage import (
    NO_PROVISIONER,
    STORAGE,
    CSIDriver,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    TopologySelectorTerm,
)
from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.filters.node_affinity import LabelIndex
from plimsoll.scheduler.filters.static import SignatureIndex
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot

Topologies: TypeAlias = "tuple[TopologySelectorTerm, ...]"


@dataclass(frozen=True, slots=True)
class CapacitySegment:
    """Capacity for volumes up to a size on the nodes that a selector matches."""

    capacity: CSIStorageCapacity
    limit: int
    selector: CompiledLabelSelector


class StorageIndex(SnapshotIndex):
    """Volumes and storage capacities by the name of their class."""

    kinds = (PersistentVolume, CSIStorageCapacity)

    def __init__(self) -> None:
        self._volumes: dict[str, dict[str, PersistentVolume]] = {}
        self._capacities: dict[str, dict[tuple[str, str], CSIStorageCapacity]] = {}
        self._segments: dict[str, list[CapacitySegment]] = {}  # derived

    def volumes(self, storage_class: str) -> Iterable[PersistentVolume]:
        return self._volumes.get(storage_class, {}).values()

    def segments(self, storage_class: str) -> list[CapacitySegment]:
        """Return the usable capacities of a class, ordered by namespace and name."""
        found = self._segments.get(storage_class)
        if found is None:
            known = sorted(self._capacities.get(storage_class, {}).items())
            found = [
                CapacitySegment(each, limit.value(), _compile(topology))
                for _, each in known
                if (limit := each.volume_limit) is not None and (topology := each.node_topology) is not None
            ]
            self._segments[storage_class] = found
        return found

    def object_changed(self, old: Any, new: Any) -> None:
        match new if new is not None else old:
            case PersistentVolume():
                if old is not None:
                    del self._volumes[old.storage_class][old.metadata.name]
                if new is not None:
                    self._volumes.setdefault(new.storage_class, {})[new.metadata.name] = new
            case CSIStorageCapacity():
                if old is not None:
                    self._segments.pop(old.storage_class_name, None)
                    del self._capacities[old.storage_class_name][old.metadata.key]
                if new is not None:
                    self._segments.pop(new.storage_class_name, None)
                    self._capacities.setdefault(new.storage_class_name, {})[new.metadata.key] = new


class TopologyNodes(SignatureIndex[Topologies, np.bool_]):
    """Index of the nodes in the allowed topologies of classes."""

    dtype = np.bool_

    def relevant(self, node: Node) -> object:
        return node.metadata.labels

    def evaluate(self, signature: Topologies, node: Node) -> bool:
        return is_in_topologies(signature, node)


class CapacityNodes(LabelIndex[CompiledLabelSelector, np.bool_]):
    """Index of the nodes of topology segments."""

    dtype = np.bool_

    def evaluate(self, signature: CompiledLabelSelector, node: Node) -> bool:
        return signature.matches(node.metadata.labels)


def is_in_topologies(terms: Topologies, node: Node) -> bool:
    """Return whether a node matches one of the terms; a term without requirements matches none."""
    labels = node.metadata.labels
    return not terms or any(
        term.match_label_expressions
        and all(labels.get(each.key) in each.values for each in term.match_label_expressions)
        for term in terms
    )


class Provisioning:
    """Provisioning of a volume for one claim; a class that does not exist cannot provision."""

    def __init__(self, claim: PersistentVolumeClaim, snapshot: Snapshot) -> None:
        self.claim = claim
        self._snapshot = snapshot
        self.storage_class = snapshot.find(StorageClass, "", claim.storage_class)

    @property
    def is_supported(self) -> bool:
        """True if the class has a provisioner."""
        return self.storage_class is not None and self.storage_class.provisioner not in ("", NO_PROVISIONER)

    @property
    def checks_capacity(self) -> bool:
        """True if the driver publishes its capacity, and the claim has a size."""
        if self.storage_class is None or STORAGE not in self.claim.spec.resources.requests:
            return False
        driver = self._snapshot.find(CSIDriver, "", self.storage_class.provisioner)
        return driver is not None and driver.spec.storage_capacity is True

    # -- one node

    def allows(self, node: Node) -> bool:
        """Return whether the class can provision for a node, regardless of capacity."""
        if self.storage_class is None or not self.is_supported:
            return False
        return is_in_topologies(self.storage_class.allowed_topologies, node)

    def find_capacity(self, node: Node) -> CSIStorageCapacity | None:
        """Return the first capacity that is large enough and accessible from a node."""
        for segment in self._sufficient():
            if segment.selector.matches(node.metadata.labels):
                return segment.capacity
        return None

    # -- all nodes

    def allowed_nodes(self) -> Mask:
        """Return the nodes for which the class can provision, regardless of capacity."""
        if self.storage_class is None or not self.is_supported:
            return np.zeros(self._snapshot.size, dtype=np.bool_)
        topologies = self.storage_class.allowed_topologies
        if not topologies:
            return np.ones(self._snapshot.size, dtype=np.bool_)
        return self._snapshot.index(TopologyNodes).column(topologies)

    def nodes_with_capacity(self) -> Mask:
        """Return the nodes with access to enough capacity."""
        mask = np.zeros(self._snapshot.size, dtype=np.bool_)
        index = self._snapshot.index(CapacityNodes)
        for segment in self._sufficient():
            selector, anchor = segment.selector, segment.selector.anchor
            if anchor is None:
                mask |= index.column(selector)
                continue
            for row in index.with_label(*anchor):
                mask[row] = mask[row] or selector.matches(self._snapshot.node(row).metadata.labels)
        return mask

    def _sufficient(self) -> Iterator[CapacitySegment]:
        size = self.claim.size.value()
        for segment in self._snapshot.index(StorageIndex).segments(self.claim.storage_class):
            if segment.limit >= size:
                yield segment


def _compile(selector: LabelSelector) -> CompiledLabelSelector:
    compiled = compile_label_selector(selector)
    return MATCH_NOTHING if isinstance(compiled, SelectorProblem) else compiled
