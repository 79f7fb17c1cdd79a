"""Binding and eviction: the `binding` and `eviction` subresources of pods (and the older `bindings`).

The rules for both are in `apiserver/validation`. A disruption budget is updated under its resourceVersion, so
that two evictions never use the same allowed disruption.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.handlers.delete import DeleteHandler
from plimsoll.apiserver.handlers.options import WriteOptions, parse_delete_options
from plimsoll.apiserver.handlers.read import get_stored
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.selectors import read_selector
from plimsoll.apiserver.status import bad_request, conflict, forbidden, invalid, not_found, too_many_requests
from plimsoll.apiserver.storage import ObjectKey, StoredObject
from plimsoll.apiserver.validation.pod.binding import apply_binding, read_binding
from plimsoll.apiserver.validation.pod.eviction import BUDGET_CAUSE, EvictionRefusal, evaluate_eviction
from plimsoll.errors import ApiError, DecodeError

Tree = dict[str, Any]

_BUDGETS = "poddisruptionbudgets.policy"


class EvictionHandler:
    """Handler of evictions: deletions that disruption budgets may reject."""

    def __init__(self, context: ApiContext, deleting: DeleteHandler) -> None:
        self._context = context
        self._store = context.store
        self._deleter = deleting

    def evict(self, info: RequestInfo, body: Any, options: WriteOptions) -> int:
        """Evict a pod and return the revision to wait for; ApiError 429 if a budget allows no disruption."""
        if not isinstance(body, dict) or body.get("kind") not in (None, "", "Eviction"):
            raise bad_request("the body must be an Eviction object")
        name = (body.get("metadata") or {}).get("name") if isinstance(body.get("metadata"), dict) else None
        if name and name != info.name:
            raise bad_request("name in URL does not match name in Eviction object")
        delete_options = parse_delete_options({}, body.get("deleteOptions") or {})
        stored = get_stored(self._store, info)
        pod = codec.decode_tree(stored.raw)
        budgets = self._budgets(pod, info)
        verdict = evaluate_eviction(pod, body, [tree for _, tree in budgets], self._context.now())
        if verdict.errors:
            raise invalid("policy", "Eviction", info.name, verdict.errors)
        if verdict.refusal is not None:
            raise _refuse(info, verdict.refusal)
        if delete_options.dry_run or options.dry_run:
            delete_options = replace(delete_options, dry_run=True)
            return self._deleter.delete(info, stored, delete_options).revision
        if verdict.budget is not None:
            self._store.update(budgets[0][0].key, verdict.budget, budgets[0][0].revision)
        if verdict.pod is not None:
            stored = self._store.update(stored.key, verdict.pod, stored.revision)
        # The version precondition has been checked; the version has changed since.
        return self._deleter.delete(info, stored, replace(delete_options, resource_version=None)).revision

    def _budgets(self, pod: Tree, info: RequestInfo) -> list[tuple[StoredObject, Tree]]:
        """Return the disruption budgets that select a pod."""
        return [
            (stored, tree)
            for stored in self._store.list(_BUDGETS, info.namespace).items
            if _covers(tree := codec.decode_tree(stored.raw), pod)
        ]


def _refuse(info: RequestInfo, refusal: EvictionRefusal) -> ApiError:
    if refusal.code == 409:
        return conflict("", "pods", info.name, refusal.message)
    if refusal.code == 403:
        return forbidden("policy", "poddisruptionbudget", "", refusal.message)
    if refusal.code == 429:
        error = too_many_requests(refusal.message, refusal.retry_after or 0)
        error.details["causes"] = [{"reason": BUDGET_CAUSE, "message": refusal.cause}]
        return error
    # DIFF: several budgets of one pod are an error of the client; upstream responds with 500
    # (test_two_budgets_over_a_pod).
    return bad_request(refusal.message)


def _covers(budget: Tree, pod: Tree) -> bool:
    spec = budget.get("spec")
    selector = spec.get("selector") if isinstance(spec, dict) else None
    if not isinstance(selector, dict):
        return False
    labels = pod["metadata"].get("labels") or {}
    return read_selector(selector).matches(labels)


class BindingHandler:
    """Handler of bindings, which set the node of a pod once."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context
        self._store = context.store

    def bind(self, info: RequestInfo, body: Any, options: WriteOptions) -> int:
        """Bind a pod to a node and return the revision to wait for."""
        key = _binding_key(info, body)
        stored = self._store.get(key)
        if stored is None:
            raise not_found("", "pods", key.name)
        try:
            binding = read_binding(body)
            labels = self._node_labels(binding.target.name)
            bound = apply_binding(codec.decode_tree(stored.raw), binding, self._context.now(), labels)
        except DecodeError as error:
            raise bad_request(f"the body is not a Binding: {error}") from None
        if bound.errors:
            raise invalid("", "Binding", key.name, bound.errors)
        if bound.conflict:
            raise conflict("", "pods/binding", key.name, bound.conflict)
        if options.dry_run:
            return stored.revision
        return self._store.update(key, bound.tree, stored.revision).revision

    def _node_labels(self, name: str) -> dict[str, str]:
        node = self._store.get(ObjectKey("nodes", "", name))
        labels: dict[str, str] = codec.decode_tree(node.raw)["metadata"].get("labels") or {} if node else {}
        return labels


def _binding_key(info: RequestInfo, body: Any) -> ObjectKey:
    """Return the key of the pod to bind: from the path, or from the body posted to `bindings`."""
    name = info.name
    if not name and isinstance(body, dict) and isinstance(body.get("metadata"), dict):
        name = str(body["metadata"].get("name") or "")
    if not name:
        raise bad_request("metadata.name: the binding must name its pod")
    return ObjectKey("pods", info.namespace, name)
