"""What an update may change in a pod (section 9 of the API semantics).

Owns the rule that a pod's spec is fixed apart from a few fields, which covers its claims. Works on
canonical trees, because the rule is about every field, known or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest

from plimsoll.api.core import Pod, Toleration
from plimsoll.api.quantity import Quantity
from plimsoll.validate.equality import same_tree
from plimsoll.validate.problems import Path, Problems, forbidden, invalid, required
from plimsoll.validate.trees import Tree, part

_SPEC = Path("spec")
_DEADLINE_MAX = 2**31 - 1


def check_pod_update(tree: Tree, old_tree: Tree, pod: Pod, old: Pod) -> Problems:
    """The fields of the spec that may change, and that no other did."""
    for group, now, before in (
        ("containers", pod.spec.containers, old.spec.containers),
        ("initContainers", pod.spec.init_containers, old.spec.init_containers),
    ):
        if len(now) != len(before):
            yield forbidden(_SPEC.child(group), "an update cannot add or remove containers")
            return
        for place, container in enumerate(now):
            yield from _check_image(container.image, _SPEC.child(group).index(place).child("image"))
    spec, old_spec = part(tree, "spec"), part(old_tree, "spec")
    yield from _check_deadline(spec, old_spec)
    yield from _check_tolerations(pod, old)
    gates = {gate.name for gate in old.spec.scheduling_gates}
    for place, gate in enumerate(pod.spec.scheduling_gates):
        if gate.name not in gates:
            yield forbidden(_SPEC.child("schedulingGates").index(place), "gates can be removed, not added")
    yield from _check_rest(spec, old_spec, gated=bool(gates))


def _check_image(image: str, path: Path) -> Problems:
    if not image:
        yield required(path, "must be the name of an image")
    elif image != image.strip():
        yield invalid(path, image, "must not begin or end with a blank")


def _check_deadline(spec: Tree, old: Tree) -> Problems:
    """A deadline can be set, and then only be brought forward."""
    path = _SPEC.child("activeDeadlineSeconds")
    now, before = spec.get("activeDeadlineSeconds"), old.get("activeDeadlineSeconds")
    if now is None:
        if before is not None:
            yield invalid(path, None, "cannot be removed")
    elif not isinstance(now, int) or not 0 <= now <= _DEADLINE_MAX:
        yield invalid(path, now, f"must be a whole number from 0 to {_DEADLINE_MAX}")
    elif isinstance(before, int) and before < now:
        yield invalid(path, now, f"must not be later than before, {before}")


def _check_tolerations(pod: Pod, old: Pod) -> Problems:
    """Tolerations can be added; of those that are there only the seconds may change."""

    def key(toleration: Toleration) -> tuple[str, ...]:
        return toleration.key, toleration.operator, toleration.value, toleration.effect

    kept = set(map(key, pod.spec.tolerations))
    if any(key(toleration) not in kept for toleration in old.spec.tolerations):
        yield forbidden(_SPEC.child("tolerations"), "existing tolerations cannot be removed or changed")


def _check_rest(spec: Tree, old: Tree, *, gated: bool) -> Problems:
    """Nothing but the fields above may differ."""
    masked = dict(spec)
    for group in ("containers", "initContainers"):
        masked[group] = [
            {**container, "image": before.get("image", "")}
            for container, before in zip(spec.get(group, ()), old.get(group, ()), strict=True)
        ]
    may_change: Sequence[str] = ("activeDeadlineSeconds", "schedulingGates", "tolerations")
    if _grace(old) < 0 and _grace(spec) == 1:
        may_change = (*may_change, "terminationGracePeriodSeconds")
    if gated:
        yield from _check_gated(spec, old)
        may_change = (*may_change, "nodeSelector")
        masked["affinity"] = _with_node_affinity(spec.get("affinity"), old.get("affinity"))
    for name in may_change:
        masked[name] = old.get(name)
    if not same_spec(masked, old):
        detail = (
            "only images, activeDeadlineSeconds, new tolerations and removed schedulingGates can be changed; "
            "resourceClaims and the claims of containers are fixed"
        )
        yield forbidden(_SPEC, detail)


def _grace(spec: Tree) -> int:
    seconds = spec.get("terminationGracePeriodSeconds")
    return seconds if isinstance(seconds, int) else 0


def _check_gated(spec: Tree, old: Tree) -> Problems:
    """A pod that waits at a gate may still be told more exactly which nodes it can go to."""
    now, before = spec.get("nodeSelector", {}), old.get("nodeSelector", {})
    if any(now.get(key) != value for key, value in before.items()):
        yield invalid(_SPEC.child("nodeSelector"), None, "labels can be added, not removed or changed")
    path = _SPEC.child("affinity", "nodeAffinity", _REQUIRED)
    terms, old_terms = _required_terms(spec), _required_terms(old)
    if old_terms is None:
        return
    if terms is None or len(terms) != len(old_terms):
        yield invalid(path.child("nodeSelectorTerms"), None, "terms cannot be added or removed")
    elif not all(map(_has_only_more, terms, old_terms)):
        yield invalid(path.child("nodeSelectorTerms"), None, "terms can be narrowed down, not changed")


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _required_terms(spec: Tree) -> list[Tree] | None:
    required_affinity = part(spec, "affinity", "nodeAffinity").get(_REQUIRED)
    return None if required_affinity is None else required_affinity.get("nodeSelectorTerms", [])


def _has_only_more(term: Tree, old: Tree) -> bool:
    if not old.get("matchExpressions") and not old.get("matchFields"):
        return same_tree(old, term)  # such a term matches nothing, and must go on doing so
    return all(
        same_tree(before, now)
        for name in ("matchExpressions", "matchFields")
        for before, now in zip_longest(old.get(name, ()), term.get(name, ())[: len(old.get(name, ()))])
    )


def _with_node_affinity(affinity: Tree | None, old: Tree | None) -> Tree | None:
    """The new affinity with the old node affinity, which is checked on its own."""
    if affinity is None and old is None:
        return None
    now = {name: value for name, value in (affinity or {}).items() if name != "nodeAffinity"}
    if old is not None and "nodeAffinity" in old:
        now["nodeAffinity"] = old["nodeAffinity"]
    return now if now or old is not None else None


# -- comparing


def same_spec(spec: Tree, old: Tree) -> bool:
    """Whether two pod specs say the same, amounts compared by value."""
    return same_tree(_by_value(old), _by_value(spec))


def _by_value(spec: Tree) -> Tree:
    copied = dict(spec)
    for group in ("containers", "initContainers", "ephemeralContainers"):
        copied[group] = [
            {**container, "resources": resources_by_value(container.get("resources", {}))}
            for container in spec.get(group, ())
        ]
    if "resources" in spec:
        copied["resources"] = resources_by_value(spec["resources"])
    copied["overhead"] = _amounts_by_value(spec.get("overhead", {}))
    copied["nodeSelector"] = spec.get("nodeSelector", {})
    return copied


def resources_by_value(resources: Tree) -> Tree:
    """Requests and limits in a form in which equal amounts are equal."""
    amounts = {name: _amounts_by_value(resources.get(name, {})) for name in ("requests", "limits")}
    return {**resources, **amounts}


def _amounts_by_value(amounts: Mapping[str, str]) -> Tree:
    return {name: Quantity.parse(amount).nano for name, amount in amounts.items()}
