"""Delete handler: preconditions, grace periods, finalizers and propagation.

An object with finalizers, and a pod that may still run on a node, only gets its deletionTimestamp. It is
removed with its last finalizer (`write.py`) or by the node's deletion with grace period 0. A namespace is
removed when its contents are (`controllers/`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from plimsoll.api import codec
from plimsoll.api.timestamps import format_datetime
from plimsoll.apiserver.admission.plugins import check_namespace_deletion
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.handlers.options import DeletionOptions
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import conflict, forbidden, success_status
from plimsoll.apiserver.storage import StoredObject

Tree = dict[str, Any]

_FOREGROUND, _ORPHAN = "foregroundDeletion", "orphan"
_DEFAULT_GRACE_SECONDS = 30
#: Kinds whose deletion returns the deleted object; the others return a Status.
_RETURNING_OBJECT = frozenset(
    [
        *("pods", "namespaces", "services", "persistentvolumeclaims", "persistentvolumes", "podtemplates"),
        *("serviceaccounts", "resourcequotas"),
        *(
            f"{plural}.resource.k8s.io"
            for plural in ("resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses")
        ),
        *(f"{plural}.resource.k8s.io" for plural in ("devicetaintrules", "resourcepoolstatusrequests")),
        *(f"{plural}.storage.k8s.io" for plural in ("csidrivers", "csinodes", "storageclasses")),
        *(f"{plural}.storage.k8s.io" for plural in ("volumeattachments", "volumeattributesclasses")),
    ]
)


class DeletionResult:
    """Result of a deletion: the text of the object or of a Status, and the revision to wait for."""

    __slots__ = ("is_status", "raw", "revision")

    def __init__(self, raw: bytes, revision: int, *, is_status: bool = False) -> None:
        self.raw = raw
        self.revision = revision
        self.is_status = is_status


class DeleteHandler:
    """Handler of deletions."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._store = context.store

    def delete(
        self, info: RequestInfo, stored: StoredObject, options: DeletionOptions, tree: Tree | None = None
    ) -> DeletionResult:
        """Delete one object as far as it is possible now; ApiError 403, 409 or 422.

        `tree` is the object if it has been decoded; it is modified.
        """
        tree = codec.decode_tree(stored.raw) if tree is None else tree
        self._check(info, tree, options)
        name = tree["metadata"]["name"]
        if tree["kind"] == "Namespace" and (why := check_namespace_deletion(name)):
            raise forbidden("", "namespaces", name, why)
        finalizers, grace = _finalizers(info, tree, options), _grace_period(tree, options)
        if not finalizers and not grace and not _is_finalizing_namespace(tree):
            tree["metadata"].pop("finalizers", None)
            if tree["metadata"].get("deletionGracePeriodSeconds"):
                tree["metadata"]["deletionGracePeriodSeconds"] = 0
            removed = None
            if not options.dry_run:
                removed = self._store.delete(stored.key, tree, stored.revision)
            revision = removed.revision if removed else 0
            if info.resource.key in _RETURNING_OBJECT:
                return DeletionResult(removed.raw if removed else codec.encode(tree), revision)
            return DeletionResult(codec.encode(_success(info, tree)), revision, is_status=True)
        changed = self._mark_deleted(tree, finalizers, grace)
        if not changed or options.dry_run:
            return DeletionResult(codec.encode(tree), stored.revision)
        after = self._store.update(stored.key, tree, stored.revision)
        return DeletionResult(after.raw, after.revision)

    def _check(self, info: RequestInfo, tree: Tree, options: DeletionOptions) -> None:
        metadata = tree["metadata"]
        for label, wanted, name in (
            ("UID", options.uid, "uid"),
            ("ResourceVersion", options.resource_version, "resourceVersion"),
        ):
            found = metadata.get(name, "")
            if wanted is not None and wanted != found:
                why = (
                    f"Precondition failed: {label} in precondition: {wanted}, {label} in object meta: {found}"
                )
                raise conflict(info.group, info.plural, metadata["name"], why)

    def _mark_deleted(self, tree: Tree, finalizers: list[str], grace: int) -> bool:
        """Set deletionTimestamp and grace period; return whether the object changed."""
        metadata = tree["metadata"]
        changed = finalizers != (metadata.get("finalizers") or [])
        metadata["finalizers"] = finalizers
        if not finalizers:
            del metadata["finalizers"]
        before = metadata.get("deletionGracePeriodSeconds")
        if not metadata.get("deletionTimestamp"):
            if metadata.get("generation"):
                metadata["generation"] += 1
        elif before is None or grace >= before:
            return changed  # a grace period is only ever shortened
        metadata["deletionTimestamp"] = format_datetime(self._context.now() + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
        if tree["kind"] == "Namespace":
            del metadata["deletionGracePeriodSeconds"]
            tree["status"] = {**(tree.get("status") or {}), "phase": "Terminating"}
        return True


def _success(info: RequestInfo, tree: Tree) -> Tree:
    """Return the Status of a deletion."""
    metadata = tree["metadata"]
    details = {"name": metadata["name"], "kind": info.plural, "uid": metadata.get("uid", "")}
    if info.group:
        details["group"] = info.group
    return success_status(details=details)


def deletion_warnings(info: RequestInfo, options: DeletionOptions) -> list[str]:
    """Return what clients should know about a deletion: the pods of a job stay if they do not decide."""
    if info.resource.kind != "Job" or options.propagation_policy:
        return []
    return [
        "child pods are preserved by default when jobs are deleted; "
        "set propagationPolicy=Background to remove them or "
        "set propagationPolicy=Orphan to suppress this warning"
    ]


def _finalizers(info: RequestInfo, tree: Tree, options: DeletionOptions) -> list[str]:
    """Return the finalizers, with the one of the propagation policy among them.

    Without a policy in the request, earlier finalizers decide, then the default of the kind.
    """
    finalizers = list(tree["metadata"].get("finalizers") or [])
    policy = options.propagation_policy
    if not policy and info.resource.orphans_dependents and not {_FOREGROUND, _ORPHAN} & set(finalizers):
        policy = "Orphan"
    if policy:
        wanted = {"Foreground": _FOREGROUND, "Orphan": _ORPHAN}.get(policy)
        finalizers = [name for name in finalizers if name not in (_FOREGROUND, _ORPHAN) or name == wanted]
        if wanted and wanted not in finalizers:
            finalizers.append(wanted)
    return finalizers


def _is_finalizing_namespace(tree: Tree) -> bool:
    """Return whether the object is a namespace with finalizers in its spec."""
    return bool(tree["kind"] == "Namespace" and (tree.get("spec") or {}).get("finalizers"))


def _grace_period(tree: Tree, options: DeletionOptions) -> int:
    """Return the grace period of an object; only pods on a node have one."""
    if tree["kind"] != "Pod":
        return 0
    spec, status = tree.get("spec") or {}, tree.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    if options.grace_period_seconds is not None:
        return options.grace_period_seconds if options.grace_period_seconds >= 0 else 1
    wanted = spec.get("terminationGracePeriodSeconds")
    return wanted if isinstance(wanted, int) and wanted >= 0 else _DEFAULT_GRACE_SECONDS
