"""Restore of recorded objects: a dump becomes the state of a cluster, as if etcd had been restored.

Objects that an API server has written (they have a uid, a resourceVersion or a status) are decoded, validated
and stored as they are, before anything runs: with uid, status, owners and finalizers. Admission does not see
them, since nothing is created: quotas are not charged again, nothing is defaulted twice, and controllers
find what they left. `completion.py` adds what the dump leaves out. An object that exists already is not
touched.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.kept import KEPT
from plimsoll.api.timestamps import format_datetime
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.handlers.read import storage_key
from plimsoll.apiserver.handlers.request_body import decode_object
from plimsoll.apiserver.registry.empty_values import drop_empty_values
from plimsoll.apiserver.registry.resource import Resource
from plimsoll.apiserver.registry.resources import RESOURCES, find_resource_by_kind
from plimsoll.apiserver.registry.unsupported import REFUSED
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import invalid
from plimsoll.apiserver.storage import ObjectKey
from plimsoll.apiserver.validation.namespaces import FINALIZER
from plimsoll.apiserver.validation.write import PreparedObject, Write, prepare, prepare_generic
from plimsoll.common.gc_pause import without_collection
from plimsoll.errors import ApiError, InputError
from plimsoll.ledger.qos import pod_qos
from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.up.manifests.apply import Tree, metadata_of, name_of, namespace_of
from plimsoll.up.manifests.completion import (
    ADMIN_ACCESS,
    SIMULATED,
    complete_workloads,
    mapping_of,
    missing_objects,
    set_simulated,
)
from plimsoll.up.manifests.keeping import CONTEXT, find_kept
from plimsoll.up.manifests.load_result import LoadResult
from plimsoll.up.manifests.order import arrange

_log = logging.getLogger("plimsoll.manifests")

#: Kinds that are not restored, because they belong to the running cluster.
FLEETING = frozenset({"Event", "Lease", "Endpoints", "EndpointSlice"})
_ADDED = "files, added objects"


def is_recorded(tree: Tree) -> bool:
    """Return whether an object was written by an API server, rather than for one."""
    metadata = metadata_of(tree)
    return bool(metadata.get("uid") or metadata.get("resourceVersion") or tree.get("status"))


def restore(context: ApiContext, found: Iterable[ParsedObject], own: Collection[str] = ()) -> LoadResult:
    """Store the recorded objects of files; `own` are nodes that have agents and publish their own devices."""
    with without_collection():
        return _Restore(context, own).run([each for each in found if is_recorded(each.tree)])


@dataclass(slots=True)
class _Recorded:
    """Object to store, and where it comes from."""

    key: ObjectKey
    tree: Tree
    given: ParsedObject


@dataclass(slots=True)
class _Restore:
    context: ApiContext
    own: Collection[str]
    result: LoadResult = field(default_factory=LoadResult)
    #: uid in the files -> uid of the existing object of that name.
    uids: dict[str, str] = field(default_factory=dict)
    new: dict[ObjectKey, _Recorded] = field(default_factory=dict)

    def run(self, found: Sequence[ParsedObject]) -> LoadResult:
        wanted = [each for group in arrange(found) for each in group if self._is_wanted(each)]
        self._read(wanted)
        trees = [each.tree for each in self.new.values()]
        added = [*missing_objects(trees), *complete_workloads(trees)]
        self._read([ParsedObject(tree, _ADDED) for tree in added])
        if self.uids:
            for each in self.new.values():
                each.tree = _replaced(each.tree, self.uids)
        self._keep()
        for each in self.new.values():
            self._store(each)
        return self.result

    def _keep(self) -> None:
        """Mark the objects that controllers would delete or change at once."""
        store = self.context.store
        keys = [row.storage_key for row in RESOURCES if row.kind in CONTEXT]
        stored = [codec.decode_tree(item.raw) for key in keys for item in store.list(key).items]
        trees = [each.tree for each in self.new.values()]
        for tree, reason in find_kept(trees, stored, self._find_uid, self.context.now()):
            metadata = tree["metadata"]
            metadata["annotations"] = {**(metadata.get("annotations") or {}), KEPT: reason}
            self.result.note(f"kept as in the files: {reason}", tree)

    def _find_uid(self, key: ObjectKey) -> str:
        new = self.new.get(key)
        if new is not None:
            return str(new.tree["metadata"]["uid"])
        stored = self.context.store.get(key)
        return "" if stored is None else str(codec.decode_tree(stored.raw)["metadata"]["uid"])

    def _is_wanted(self, each: ParsedObject) -> bool:
        tree, spec = each.tree, each.tree.get("spec")
        group, _, version = str(tree.get("apiVersion", "")).rpartition("/")
        resource = find_resource_by_kind(group, version, each.kind)
        reason = ""
        if each.kind in FLEETING:
            self.result.skipped[each.kind] += 1
            return False
        if each.kind == "ResourceSlice" and isinstance(spec, dict) and spec.get("nodeName") in self.own:
            reason = "its node runs here and publishes its own devices"
        elif resource is None or not resource.is_stored:
            reason = (
                f"{tree.get('apiVersion', 'no apiVersion')} is not served{_served_instead(group, each.kind)}"
            )
        elif resource.key in REFUSED:
            reason = REFUSED[resource.key]
        if reason:
            self.result.leave_out(reason, tree)
        return not reason

    # -- one object

    def _read(self, found: Iterable[ParsedObject]) -> None:
        for each in found:
            try:
                recorded = self._decode(each)
            except InputError as error:
                self.result.reject(each.where, each.tree, error)
                continue
            if recorded is not None:
                self.new[recorded.key] = recorded

    def _decode(self, each: ParsedObject) -> _Recorded | None:
        """Return an object in the storage version; None if it exists. InputError if it is not valid."""
        if not name_of(each.tree):
            raise InputError("metadata.name: required")
        group, _, version = str(each.tree["apiVersion"]).rpartition("/")
        resource = find_resource_by_kind(group, version, each.kind)
        assert resource is not None
        namespace = namespace_of(each.tree) if resource.namespaced else ""
        info = RequestInfo(resource, version, "create", namespace, name_of(each.tree))
        tree, _ = decode_object(info, self._adapted(each.tree), "Ignore")
        key = storage_key(info)
        metadata = tree["metadata"]
        if self._exists(key, metadata["uid"], each):
            return None
        # What has a status is validated as an update that changes nothing, as what is stored is everywhere.
        if resource.kind == "Job" and not mapping_of(tree.get("spec")).get("selector"):
            tree = {**self._prepare(resource, tree, None).tree, "status": tree.get("status")}
        prepared = self._prepare(resource, tree, tree if tree.get("status") else None)
        if prepared.errors:
            raise invalid(group, resource.kind, key.name, prepared.errors)
        drop_empty_values(prepared.tree, resource.kind)
        for name in ("generation", "deletionTimestamp", "deletionGracePeriodSeconds"):
            if name in metadata:
                prepared.tree["metadata"][name] = metadata[name]
        if resource.kind == "Pod":  # every stored pod has both
            status = {"phase": "Pending", "qosClass": pod_qos(codec.convert(prepared.tree, Pod))}
            prepared.tree["status"] = status | prepared.tree["status"]
        return _Recorded(key, prepared.tree, each)

    def _prepare(self, resource: Resource, tree: Tree, old: Tree | None) -> PreparedObject:
        write = Write(
            resource.kind,
            "create" if old is None else "update",
            tree,
            self.context.now(),
            old,
            gates=self.context.gates,
            # Admin access was granted where the object was created.
            namespace_labels={ADMIN_ACCESS: "true"},
        )
        if resource.has_strategy:
            return prepare(write)
        has_status = "status" in resource.subresources
        return prepare_generic(write, namespaced=resource.namespaced, has_status=has_status)

    def _adapted(self, given: Tree) -> Tree:
        """Return an object with the metadata that every stored object has, adapted to this cluster."""
        tree = dict(given)
        metadata = dict(metadata_of(given))
        metadata.pop("selfLink", None)
        metadata["uid"] = str(metadata.get("uid") or self.context.new_uid())
        metadata["creationTimestamp"] = metadata.get("creationTimestamp") or format_datetime(
            self.context.now()
        )
        metadata["resourceVersion"] = "1"  # replaced when it is stored
        tree["metadata"] = metadata
        if tree["kind"] == "Node" and name_of(tree) in self.own:
            tree.pop("status", None)
            metadata["annotations"] = {
                name: value
                for name, value in mapping_of(metadata.get("annotations")).items()
                if name != SIMULATED
            }
        elif tree["kind"] == "Node":
            set_simulated(tree)
        elif tree["kind"] == "Namespace" and not metadata.get("deletionTimestamp"):
            tree["spec"] = {**mapping_of(tree.get("spec")), "finalizers": [FINALIZER]}
        return tree

    def _exists(self, key: ObjectKey, uid: str, given: ParsedObject) -> bool:
        there = self._find_uid(key)
        if there and given.source is not _ADDED:
            if there != uid:
                self.uids[uid] = there
                self.result.note("not restored, another object of this name exists", given.tree)
            self.result.known += 1
        return bool(there)

    def _store(self, each: _Recorded) -> None:
        try:
            self.context.store.create(each.key, each.tree)
        except ApiError as error:
            self.result.reject(each.given.where, each.tree, error)
            return
        if each.given.source is _ADDED:
            self.result.note("added, because it is not in the files", each.tree)
        else:
            self.result.new += 1


def _served_instead(group: str, kind: str) -> str:
    versions = [row.api_version() for row in RESOURCES if (row.group, row.kind) == (group, kind)]
    return f", but {versions[0]}" if versions else ""


def _replaced(value: Any, texts: dict[str, str]) -> Any:
    """Return a tree with other values for some texts, wherever they occur."""
    if isinstance(value, dict):
        return {name: _replaced(item, texts) for name, item in value.items()}
    if isinstance(value, list):
        return [_replaced(item, texts) for item in value]
    return texts.get(value, value) if isinstance(value, str) else value
