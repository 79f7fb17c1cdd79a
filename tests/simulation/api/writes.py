"""Create, update, patch and bind: preconditions, what the server fills in, and the stored result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from plimsoll.api.gates import Gates
from plimsoll.api.timestamps import format_time
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
from tests.simulation.api.kinds import KINDS, Kind
from tests.simulation.api.patches import APPLY, apply_configuration, apply_patch, keep_owners
from tests.simulation.api.reads import get_object
from tests.simulation.api.store import Store, Tree, encode

_NAMESPACES, _NODES, _CLASSES, _PODS = (
    next(kind for kind in KINDS if kind.plural == plural)
    for plural in ("namespaces", "nodes", "priorityclasses", "pods")
)
#: Fields of metadata that the server omits when they are empty.
_OMITTED = frozenset(("labels", "annotations", "finalizers", "ownerReferences", "managedFields"))
_SERVER_SET = ("selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion")


class Target(NamedTuple):
    """Kind, object and subresource that the path of a request names."""

    kind: Kind
    namespace: str = ""
    name: str = ""
    subresource: str = ""


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
        return format_time(self._now())

    # -- create

    def create(self, target: Target, body: Any, options: WriteOptions) -> bytes:
        return self._create(target, _read_body(target, body), options)

    def _create(self, target: Target, tree: Tree, options: WriteOptions) -> bytes:
        kind, meta, store = target.kind, tree["metadata"], self._store
        if meta.get("resourceVersion", "").strip("0"):
            raise bad_request("resourceVersion should not be set on objects to be created")
        self._require_namespace(target)
        for name in _SERVER_SET:
            meta.pop(name, None)
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = self._generate_name(target, meta["generateName"])
        now = self.now
        meta["uid"], meta["creationTimestamp"] = self._new_uid(), now
        if kind is _PODS:
            tree = pod_rules.admit_new(tree, [stored.tree for stored in store.objects(_CLASSES)])
        else:
            set_defaults(kind.name, tree, now, self._gates)
        self._prepare(rules.Write(kind, tree, None, "", now))
        key = (target.namespace, meta["name"])
        if store.get(kind, key) is not None:
            raise already_exists(kind.group, kind.plural, meta["name"])
        return encode(tree) if options.dry_run else store.put(kind, key, tree).raw

    def _generate_name(self, target: Target, prefix: str) -> str:
        while True:
            name = prefix[:58] + self._new_uid().replace("-", "")[:5]
            if self._store.get(target.kind, (target.namespace, name)) is None:
                return name

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
        tree = _read_body(target, body, needs_name=True)
        if self._store.get(kind, (target.namespace, target.name)) is None:
            if kind.resource.allow_create_on_update and not target.subresource:
                tree["metadata"].pop("resourceVersion", None)
                return self._create(target, tree, options), True
            raise not_found(kind.group, kind.plural, target.name)
        if not target.subresource and kind is not _PODS:
            set_defaults(kind.name, tree, self.now, self._gates)
        return self._update(target, tree, options), False

    def patch(self, target: Target, type: str, body: Any, options: WriteOptions) -> tuple[bytes, bool]:
        """Patch an object; an apply creates it if it does not exist. Return whether it was created."""
        kind = target.kind
        if type == APPLY:
            return self._apply(target, body, options)
        old = get_object(self._store, kind, target.namespace, target.name).tree
        patched = apply_patch(kind, type, old, body)
        return self._update(target, _read_body(target, patched, is_patch=True), options, is_patch=True), False

    def _apply(self, target: Target, body: Any, options: WriteOptions) -> tuple[bytes, bool]:
        kind = target.kind
        if not isinstance(body, dict) or not body.get("apiVersion") or not body.get("kind"):
            raise bad_request("an apply patch must have apiVersion and kind")
        applied = _read_body(target, body)
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
        tree = _own(kind, tree)
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
            _copy(before, meta, name)
        if "deletionTimestamp" in before:
            _copy(before, meta, "deletionTimestamp")
            _copy(before, meta, "deletionGracePeriodSeconds")
        if not is_apply:
            _copy(before, meta, "managedFields")
        now = self.now
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


def is_ready_to_remove(tree: Tree) -> bool:
    """Return whether an object that is being deleted has nothing left to wait for."""
    meta = tree["metadata"]
    if "deletionTimestamp" not in meta or meta.get("finalizers") or meta.get("deletionGracePeriodSeconds"):
        return False
    return not (tree["kind"] == "Namespace" and (tree.get("spec") or {}).get("finalizers"))


def _read_body(target: Target, body: Any, *, needs_name: bool = False, is_patch: bool = False) -> Tree:
    """Return the object of a body with metadata of its own; ApiError 400 if it is not what the path names."""
    kind = target.kind
    if not isinstance(body, dict):
        raise bad_request(f"the body must be a {kind.name} object")
    if is_patch and not (body.get("apiVersion") and body.get("kind")):
        raise bad_request("the patch result has no apiVersion and kind")
    if (body.get("kind") or kind.name) != kind.name or (
        body.get("apiVersion") or kind.api_version
    ) != kind.api_version:
        error = bad_request("the object provided is unrecognized")
        raise invalid("", "", "", [invalid_field(FieldPath("patch"), None, "kind")]) if is_patch else error
    tree = _own(kind, body)
    meta = tree["metadata"]
    if kind.namespaced:
        if meta.get("namespace") not in (None, "", target.namespace):
            raise bad_request(
                "the namespace of the provided object does not match the namespace of the request"
            )
        meta["namespace"] = target.namespace
    else:
        meta.pop("namespace", None)
    if target.name:
        if needs_name and not meta.get("name"):
            raise bad_request("name must be provided")
        if meta.get("name") not in (None, "", target.name):
            raise bad_request(f"the name of the object does not match the name on the URL ({target.name})")
        meta["name"] = target.name
    return tree


def _own(kind: Kind, body: Tree) -> Tree:
    """Return a copy of the first level and of the metadata, without what the server omits."""
    meta = body.get("metadata") or {}
    meta = {
        name: value for name, value in meta.items() if value is not None and (value or name not in _OMITTED)
    }
    tree = {
        "kind": kind.name,
        "apiVersion": kind.api_version,
        "metadata": meta,
    }  # in the order of `Kind.head`
    for name, value in body.items():
        if name not in tree and value is not None:
            tree[name] = value
    return tree


def _copy(before: Tree, meta: Tree, name: str) -> None:
    if name in before:
        meta[name] = before[name]
    else:
        meta.pop(name, None)
