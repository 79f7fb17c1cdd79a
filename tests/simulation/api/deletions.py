"""Deletions and evictions: preconditions, grace periods, finalizers and disruption budgets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from plimsoll.api import codec
from plimsoll.api.timestamps import format_time
from plimsoll.apiserver.admission.plugins import check_namespace_deletion
from plimsoll.apiserver.handlers.options import DeletionOptions, parse_delete_options
from plimsoll.apiserver.selectors import read_selector
from plimsoll.apiserver.status import bad_request, conflict, forbidden, success_status, too_many_requests
from plimsoll.apiserver.validation.pod.eviction import BUDGET_CAUSE, evaluate_eviction
from plimsoll.errors import ApiError
from tests.simulation.api.bodies import Target
from tests.simulation.api.kinds import KINDS, Kind
from tests.simulation.api.pod_rules import without_null_conditions
from tests.simulation.api.reads import get_object
from tests.simulation.api.store import Key, Store, StoredObject, Tree, encode

_PODS, _BUDGETS = (
    next(kind for kind in KINDS if kind.plural == plural) for plural in ("pods", "poddisruptionbudgets")
)
_POLICY_FINALIZERS = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}
_DEFAULT_GRACE_SECONDS = 30
#: Kinds whose deletion returns the object instead of a Status, besides those of resource.k8s.io.
_RETURNING_OBJECT = frozenset(
    (
        *("pods", "namespaces", "services", "serviceaccounts"),
        *("persistentvolumes", "persistentvolumeclaims", "storageclasses"),
        *("csidrivers", "csinodes", "volumeattachments"),
    )
)


class Deleter:
    """Deleter of objects of a store."""

    def __init__(self, store: Store, now: Callable[[], float]) -> None:
        self._store = store
        self._now = now

    def delete(self, target: Target, query: Mapping[str, str], body: Any) -> bytes:
        """Delete an object as far as it is possible now; return it, or a Status."""
        options = parse_delete_options(query, body)
        stored = get_object(self._store, target.kind, target.namespace, target.name)
        return self._delete(target.kind, (target.namespace, target.name), stored, options)

    def delete_all(
        self, kind: Kind, listed: Sequence[StoredObject], query: Mapping[str, str], body: Any
    ) -> None:
        """Delete every object of a list."""
        options = parse_delete_options(query, body)
        for stored in listed:
            self._delete(kind, stored.key, stored, options)

    def _delete(self, kind: Kind, key: Key, stored: StoredObject, options: DeletionOptions) -> bytes:
        tree = stored.tree
        meta = tree["metadata"]
        for label, wanted, name in (
            ("UID", options.uid, "uid"),
            ("ResourceVersion", options.resource_version, "resourceVersion"),
        ):
            if wanted is not None and wanted != meta[name]:
                why = f"Precondition failed: {label} in precondition: {wanted}, in object meta: {meta[name]}"
                raise conflict(kind.group, kind.plural, key[1], why)
        if kind.name == "Namespace" and (why := check_namespace_deletion(key[1])):
            raise forbidden("", "namespaces", key[1], why)
        finalizers, grace = _finalizers(kind, meta, options), _grace_period(tree, options)
        waits = kind.name == "Namespace" and (tree.get("spec") or {}).get("finalizers")
        if finalizers or grace or waits:
            return self._mark(kind, key, stored, finalizers, grace, options)
        meta = {name: value for name, value in meta.items() if name != "finalizers"}
        if meta.get("deletionGracePeriodSeconds"):
            meta["deletionGracePeriodSeconds"] = 0
        last = {**tree, "metadata": meta}
        raw = encode(last) if options.dry_run else self._store.remove(kind, key, last).raw
        if kind.plural in _RETURNING_OBJECT or kind.group == "resource.k8s.io":
            return raw
        details = {"name": key[1], "group": kind.group, "kind": kind.plural, "uid": meta["uid"]}
        return codec.encode(success_status(details={name: text for name, text in details.items() if text}))

    def _mark(
        self,
        kind: Kind,
        key: Key,
        stored: StoredObject,
        finalizers: list[str],
        grace: int,
        options: DeletionOptions,
    ) -> bytes:
        """Set deletionTimestamp and grace period, which is only ever shortened."""
        tree, meta = stored.tree, dict(stored.tree["metadata"])
        changed = finalizers != (meta.get("finalizers") or [])
        meta["finalizers"] = finalizers
        if not finalizers:
            del meta["finalizers"]
        is_marked, before = "deletionTimestamp" in meta, meta.get("deletionGracePeriodSeconds")
        if not is_marked or (before is not None and grace < before):
            changed = True
            if not is_marked and meta.get("generation"):
                meta["generation"] += 1
            meta["deletionTimestamp"] = format_time(self._now() + grace)
            meta["deletionGracePeriodSeconds"] = grace
            if kind.name == "Namespace":
                del meta["deletionGracePeriodSeconds"]
                tree = {**tree, "status": {**(tree.get("status") or {}), "phase": "Terminating"}}
        if not changed:
            return stored.raw
        marked = {**tree, "metadata": meta}
        return encode(marked) if options.dry_run else self._store.put(kind, key, marked).raw

    def evict(self, target: Target, body: Any, *, dry_run: bool) -> None:
        """Evict a pod within its disruption budgets; ApiError 409 or 429."""
        if not isinstance(body, dict) or body.get("kind") not in (None, "", "Eviction"):
            raise bad_request("the body must be an Eviction object")
        options = parse_delete_options({}, body.get("deleteOptions") or {})
        key = (target.namespace, target.name)
        stored = get_object(self._store, _PODS, *key)
        budgets = [each for each in self._store.objects(_BUDGETS) if _covers(each.tree, stored.tree)]
        now = datetime.fromtimestamp(self._now(), UTC)
        verdict = evaluate_eviction(stored.tree, body, [each.tree for each in budgets], now)
        if verdict.refusal is not None:
            raise _refuse(target.name, verdict.refusal)
        if dry_run:
            options = replace(options, dry_run=True)
        elif not options.dry_run:
            if verdict.budget is not None:
                budget = {**verdict.budget, "metadata": dict(verdict.budget["metadata"])}
                self._store.put(_BUDGETS, budgets[0].key, budget)
            if verdict.pod is not None:
                pod = {**verdict.pod, "metadata": dict(verdict.pod["metadata"])}
                pod["status"] = without_null_conditions(pod["status"])
                stored = self._store.put(_PODS, key, pod)
        self._delete(_PODS, key, stored, replace(options, resource_version=None))


def _refuse(name: str, refusal: Any) -> ApiError:
    if refusal.code == 409:
        return conflict("", "pods", name, refusal.message)
    if refusal.code == 403:
        return forbidden("policy", "poddisruptionbudget", "", refusal.message)
    if refusal.code != 429:
        return bad_request(refusal.message)
    error = too_many_requests(refusal.message, refusal.retry_after or 0)
    error.details["causes"] = [{"reason": BUDGET_CAUSE, "message": refusal.cause}]
    return error


def _covers(budget: Tree, pod: Tree) -> bool:
    selector = (budget.get("spec") or {}).get("selector")
    if budget["metadata"]["namespace"] != pod["metadata"]["namespace"] or not isinstance(selector, dict):
        return False
    return read_selector(selector).matches(pod["metadata"].get("labels") or {})


def _finalizers(kind: Kind, meta: Tree, options: DeletionOptions) -> list[str]:
    """Return the finalizers of an object, with the one of the propagation policy among them."""
    finalizers = list(meta.get("finalizers") or ())
    policy, known = options.propagation_policy, set(_POLICY_FINALIZERS.values())
    if not policy and kind.resource.orphans_dependents and not known & set(finalizers):
        policy = "Orphan"
    if not policy:
        return finalizers
    wanted = _POLICY_FINALIZERS.get(policy)
    kept = [name for name in finalizers if name not in known or name == wanted]
    return [*kept, wanted] if wanted and wanted not in kept else kept


def _grace_period(tree: Tree, options: DeletionOptions) -> int:
    """Return the grace period of an object; only pods that may run on a node have one."""
    spec, status = tree.get("spec") or {}, tree.get("status") or {}
    if tree["kind"] != "Pod" or not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    if options.grace_period_seconds is not None:
        return options.grace_period_seconds if options.grace_period_seconds >= 0 else 1
    return int(spec.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS))
