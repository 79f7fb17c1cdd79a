"""What is done to pods by other means than writing them: binding and eviction.

Owns the `binding` and `eviction` subresources (and the older `bindings`). What a binding changes in a pod is
in `plimsoll.validate`; whether a disruption budget still allows an eviction is decided here, under the
budget's own version, so that two evictions never spend the same allowance.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api import codec
from plimsoll.cluster.server.context import Context
from plimsoll.cluster.server.deleting import Deleting
from plimsoll.cluster.server.options import DeleteOptions, WriteOptions, delete_options
from plimsoll.cluster.server.reading import find_stored
from plimsoll.cluster.server.route import Route
from plimsoll.cluster.server.selectors import LabelSelector, Requirement
from plimsoll.cluster.server.status import bad_request, too_many
from plimsoll.cluster.store import Key, Stored
from plimsoll.validate.times import write_time

Tree = dict[str, Any]

_BUDGETS = "poddisruptionbudgets.policy"
_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}


class Eviction:
    """Evictions: deletions that disruption budgets may refuse."""

    def __init__(self, context: Context, deleting: Deleting) -> None:
        self._context = context
        self._store = context.store
        self._deleting = deleting

    def evict(self, route: Route, body: Any, options: WriteOptions) -> int:
        """Evict a pod; the revision to wait for. ApiError 429 if a budget is spent."""
        if not isinstance(body, dict) or body.get("kind") not in (None, "", "Eviction"):
            raise bad_request("the body must be an Eviction object")
        name = (body.get("metadata") or {}).get("name") if isinstance(body.get("metadata"), dict) else None
        if name and name != route.name:
            raise bad_request("name in URL does not match name in Eviction object")
        stored = find_stored(self._store, route)
        wish = delete_options({}, body.get("deleteOptions") or {})
        wish = DeleteOptions(
            wish.dry_run or options.dry_run, wish.grace, wish.uid, wish.version, wish.propagation
        )
        pod = codec.decode_tree(stored.raw)
        if not _is_over(pod):
            self._spend(pod, route, wish.dry_run)
        return self._deleting.delete(route, stored, wish).revision

    def _spend(self, pod: Tree, route: Route, dry_run: bool) -> None:
        budgets = [
            (stored, tree)
            for stored in self._store.list(_BUDGETS, route.namespace).items
            if _covers(tree := codec.decode_tree(stored.raw), pod)
        ]
        if not budgets:
            return
        if len(budgets) > 1:
            raise bad_request(
                "This pod has more than one PodDisruptionBudget, "
                "which the eviction subresource does not support."
            )
        stored, budget = budgets[0]
        status = budget.get("status") if isinstance(budget.get("status"), dict) else {}
        allowed = status.get("disruptionsAllowed", 0)
        generation = budget["metadata"].get("generation", 0)
        if status.get("observedGeneration", 0) < generation:
            raise too_many(
                f"Cannot evict pod as it would violate the pod's disruption budget: "
                f"The disruption budget {budget['metadata']['name']} is still being processed by the server."
            )
        if not isinstance(allowed, int) or allowed <= 0:
            needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
            raise too_many(
                "Cannot evict pod as it would violate the pod's disruption budget: The disruption budget "
                f"{budget['metadata']['name']} needs {needs} healthy pods and has {has} currently"
            )
        if not dry_run:
            self._charge(stored, budget, status, allowed, pod)

    def _charge(self, stored: Stored, budget: Tree, status: Tree, allowed: int, pod: Tree) -> None:
        disrupted = dict(status.get("disruptedPods") or {})
        disrupted[pod["metadata"]["name"]] = write_time(self._context.now())
        budget["status"] = {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted}
        self._store.update(stored.key, budget, stored.revision)


def _is_over(pod: Tree) -> bool:
    """Pods that run nothing any more, or never did, disturb nobody."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def _covers(budget: Tree, pod: Tree) -> bool:
    spec = budget.get("spec")
    selector = spec.get("selector") if isinstance(spec, dict) else None
    if not isinstance(selector, dict):
        return False
    labels = pod["metadata"].get("labels") or {}
    return label_selector(selector).matches(labels)


def label_selector(tree: Tree) -> LabelSelector:
    """A LabelSelector object as requirements; what is malformed matches nothing."""
    wanted = [
        Requirement(str(key), "in", frozenset([str(value)]))
        for key, value in (tree.get("matchLabels") or {}).items()
    ]
    for entry in tree.get("matchExpressions") or ():
        operator = _OPERATORS.get(entry.get("operator", ""), "") if isinstance(entry, dict) else ""
        if not operator:
            return LabelSelector((Requirement("", "in", frozenset()),))
        wanted.append(Requirement(str(entry.get("key")), operator, frozenset(entry.get("values") or ())))
    return LabelSelector(tuple(wanted))


def binding_key(route: Route, body: Any) -> Key:
    """The pod a binding is for: from the path, or from the body posted to `bindings`."""
    name = route.name
    if not name and isinstance(body, dict) and isinstance(body.get("metadata"), dict):
        name = str(body["metadata"].get("name") or "")
    if not name:
        raise bad_request("metadata.name: the binding must name its pod")
    return Key("pods", route.namespace, name)
