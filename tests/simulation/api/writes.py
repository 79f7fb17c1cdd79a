"""Create, update, patch and bind: preconditions, what the server fills in, and the stored result."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

from plimsoll.api.gates import Gates
from plimsoll.api.timestamps import format_time
from plimsoll.apiserver.admission.plugins import admit_pod
from plimsoll.apiserver.admission.pod_groups import admit_pod_group
from plimsoll.apiserver.registry.empty_values import drop_empty_values
from plimsoll.apiserver.status import (
    OPTIMISTIC_LOCK_MESSAGE,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
)
from plimsoll.apiserver.validation.defaults import set_defaults
from plimsoll.apiserver.validation.disabled_fields import drop_disabled_fields
from plimsoll.apiserver.validation.field_errors import FieldPath
from plimsoll.apiserver.validation.field_errors import invalid as invalid_field
from tests.simulation.api import pod_rules, rules
from tests.simulation.api.bodies import Target, copy_field, has_empty_values, own_tree, read_body
from tests.simulation.api.kinds import KINDS, Kind
from tests.simulation.api.patches import APPLY, apply_configuration, apply_patch, keep_owners
from tests.simulation.api.reads import get_object
from tests.simulation.api.store import Store, Tree, encode

_NAMESPACES, _NODES, _CLASSES, _PODS, _GROUPS = (
    next(kind for kind in KINDS if kind.plural == plural)
    for plural in ("namespaces", "nodes", "priorityclasses", "pods", "podgroups")
)
#: Generated names end in characters of the object's UID.
_PREFIX_MAX, _SUFFIX_LENGTH = 58, 5
_SERVER_SET = ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion")


class WriteOptions(NamedTuple):
    """Options of a write."""

    dry_run: bool = False
    manager: str = ""
    force: bool = False


class Writer:
    """Writer of objects into a store."""

    def __init__(
        self, store: Store, now: Callable[[], float], new_uid: Callable[[], str], gates: Gates
    ) -> None:
        self._store = store
        self._now = now
        self._new_uid = new_uid
        self._gates = gates
        self._drops = gates != Gates.default()

    @property
    def now(self) -> str:
        return _format_second(int(self._now()))

    # -- create

    def create(self, target: Target, body: Any, options: WriteOptions) -> bytes:
        return self._create(target, read_body(target, body), options)

    def _create(self, target: Target, tree: Tree, options: WriteOptions) -> bytes:
        kind, meta, store = target.kind, tree["metadata"], self._store
        if meta.get("resourceVersion", "").strip("0"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        self._require_namespace(target)
        for name in _SERVER_SET:
            meta.pop(name, None)
        now = self.now
        meta["uid"], meta["creationTimestamp"] = self._new_uid(), now
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"][:_PREFIX_MAX] + meta["uid"][-_SUFFIX_LENGTH:]
        tree = self._admit(kind, tree, None)
        if kind is not _PODS:
            set_defaults(kind.name, tree, now, self._gates)
        self._prepare(rules.Write(kind, tree, None, "", now))
        key = (target.namespace, meta["name"])
        if store.get(kind, key) is not None:
            raise already_exists(kind.group, kind.plural, meta["name"])
        return encode(tree) if options.dry_run else store.put(kind, key, tree).raw

    def _admit(self, kind: Kind, tree: Tree, old: Tree | None) -> Tree:
        """Return an object as the admission plugins change it; ApiError 403."""
        if kind is not _PODS and (kind is not _GROUPS or old is not None):
            return tree
        classes = [stored.tree for stored in self._store.objects(_CLASSES)]
        if kind is _PODS:
            admitted = admit_pod(tree, old, classes, None)
        else:
            admitted = admit_pod_group(tree, self._gates, classes, lambda name: None)
        if admitted.refusal:
            raise forbidden(kind.group, kind.plural, tree["metadata"].get("name", ""), admitted.refusal)
        return admitted.tree

    def _require_namespace(self, target: Target) -> None:
        if not target.kind.namespaced:
            return
        stored = self._store.get(_NAMESPACES, ("", target.namespace))
        if stored is None:
            raise not_found("", "namespaces", target.namespace)
        if "deletionTimestamp" in stored.tree["metadata"]:
            why = (
                f"unable to create new content in namespace {target.namespace} because it is being terminated"
            )
            error = forbidden(target.kind.group, target.kind.plural, "", why)
            cause = {"reason": "NamespaceTerminating", "message": why, "field": "metadata.namespace"}
            error.details["causes"] = [cause]
            raise error

    # -- update and patch

    def update(self, target: Target, body: Any, options: WriteOptions) -> tuple[bytes, bool]:
        """Replace an object, or create it if the kind allows that; return whether it was created."""
        kind = target.kind
        tree = read_body(target, body, needs_name=True)
        if self._store.get(kind, (target.namespace, target.name)) is None:
            if kind.resource.allow_create_on_update and not target.subresource:
                tree["metadata"].pop("resourceVersion", None)
                return self._create(target, tree, options), True
            raise not_found(kind.group, kind.plural, target.name)
        return self._update(target, tree, options), False

    def patch(
        self, target: Target, type: str, body: Any, options: WriteOptions, raw: bytes
    ) -> tuple[bytes, bool]:
        """Patch an object; an apply creates it if it does not exist. Return whether it was created."""
        kind = target.kind
        if type == APPLY:
            return self._apply(target, body, options)
        old = get_object(self._store, kind, target.namespace, target.name).tree
        patched = apply_patch(kind, type, old, body, raw)
        return self._update(target, read_body(target, patched, is_patch=True), options, is_patch=True), False

    def _apply(self, target: Target, body: Any, options: WriteOptions) -> tuple[bytes, bool]:
        kind = target.kind
        if not isinstance(body, dict) or not body.get("apiVersion") or not body.get("kind"):
            raise bad_request("an apply patch must have apiVersion and kind")
        applied = read_body(target, body)
        stored = self._store.get(kind, (target.namespace, target.name))
        if stored is None and target.subresource:
            raise not_found(kind.group, kind.plural, target.name)
        if stored is None and applied["metadata"].get("uid"):
            raise conflict(kind.group, kind.plural, target.name, "uid mismatch: no existing object was found")
        tree = apply_configuration(
            kind,
            stored.tree if stored is not None else None,
            applied,
            manager=options.manager,
            subresource=target.subresource,
            force=options.force,
            now=self.now,
        )
        tree = own_tree(kind, tree)
        if stored is None:
            return self._create(target, tree, options), True
        return self._update(target, tree, options, is_patch=True, is_apply=True), False

    def _update(
        self,
        target: Target,
        tree: Tree,
        options: WriteOptions,
        *,
        is_patch: bool = False,
        is_apply: bool = False,
    ) -> bytes:
        kind, meta, key = target.kind, tree["metadata"], (target.namespace, target.name)
        stored = get_object(self._store, kind, *key)
        old = stored.tree
        before = old["metadata"]
        self._check_preconditions(target, meta, before, is_patch=is_patch)
        for name in ("uid", "creationTimestamp", "generation", "resourceVersion"):
            copy_field(before, meta, name)
        if "deletionTimestamp" in before:
            copy_field(before, meta, "deletionTimestamp")
            copy_field(before, meta, "deletionGracePeriodSeconds")
        if not is_apply:
            copy_field(before, meta, "managedFields")
        now = self.now
        if not target.subresource:
            tree = self._admit(kind, tree, old)
            if kind is not _PODS:
                set_defaults(kind.name, tree, now, self._gates)
        write = rules.Write(kind, tree, old, target.subresource, now)
        self._prepare(write)
        tree = write.tree
        if not is_apply:
            tree = keep_owners(
                kind, tree, old, manager=options.manager, subresource=target.subresource, now=now
            )
        if tree == old:
            return stored.raw
        if options.dry_run:
            return encode(tree)
        if is_ready_to_remove(tree):
            return self._store.remove(kind, key, tree).raw
        return self._store.put(kind, key, tree).raw

    def _check_preconditions(self, target: Target, meta: Tree, before: Tree, *, is_patch: bool) -> None:
        kind, version, uid = target.kind, meta.get("resourceVersion", ""), meta.get("uid")
        if not version.strip("0"):
            if not kind.resource.allow_unconditional_update:
                problem = invalid_field(
                    FieldPath("metadata").child("resourceVersion"), 0, "must be specified"
                )
                raise invalid(kind.group, kind.plural, target.name, [problem])
        elif version != before["resourceVersion"]:
            if not version.isdigit():
                raise bad_request(f"metadata.resourceVersion: Invalid value: {version[:64]!r}")
            raise conflict(kind.group, kind.plural, target.name, OPTIMISTIC_LOCK_MESSAGE)
        if uid and uid != before["uid"]:
            if is_patch:
                problem = invalid_field(FieldPath("metadata").child("uid"), uid, "field is immutable")
                raise invalid(kind.group, kind.name, target.name, [problem])
            why = f"Precondition failed: UID in precondition: {uid}, UID in object meta: {before['uid']}"
            raise conflict(kind.group, kind.plural, target.name, why)

    def _prepare(self, write: rules.Write) -> None:
        """Complete and check a write; ApiError 422."""
        kind, tree, old = write.kind, write.tree, write.old
        rules.prepare(write)
        if self._drops:
            drop_disabled_fields((kind.name, write.subresource), tree, old, self._gates)
        if has_empty_values(tree, write.subresource):
            drop_empty_values(tree, kind.name, old)
        problems = list(rules.find_problems(write))
        if problems:
            raise invalid(kind.group, kind.name, tree["metadata"].get("name", ""), problems)

    # -- binding

    def bind(self, target: Target, body: Any, options: WriteOptions) -> None:
        """Bind a pod to a node; ApiError 404, 409 or 422."""
        self._require_namespace(target)
        key = (target.namespace, target.name)
        pod = get_object(self._store, _PODS, *key)
        node = self._store.get(_NODES, ("", str((body.get("target") or {}).get("name"))))
        bound = pod_rules.bind(pod.tree, body, node.tree if node is not None else None, self.now)
        if not options.dry_run:
            self._store.put(_PODS, key, bound)


@lru_cache(maxsize=64)
def _format_second(second: int) -> str:
    return format_time(second)


def is_ready_to_remove(tree: Tree) -> bool:
    """Return whether an object that is being deleted has nothing left to wait for."""
    meta = tree["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    return not (tree["kind"] == "Namespace" and (tree.get("spec") or {}).get("finalizers"))
