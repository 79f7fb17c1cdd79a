"""The rules of a pod template: those of the pods that are made from it.

A template that no pod could be made from is refused with the workload that holds it, rather than with every
pod that a controller tries to make.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain

from plimsoll.api.gates import Gates
from plimsoll.api.meta import LabelSelector
from plimsoll.apiserver.validation.field_errors import Path, Problem, Problems, forbidden
from plimsoll.apiserver.validation.metadata import check_annotations, check_labels
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree, part
from plimsoll.apiserver.validation.pod.annotations import check_agreement
from plimsoll.apiserver.validation.pod.claims import check_pod_spec
from plimsoll.apiserver.validation.pod.defaults import open_on_host
from plimsoll.apiserver.validation.pod.pod_view import WholePod
from plimsoll.apiserver.validation.pod.spec import NOTHING, check_spec, find_allowance
from plimsoll.apiserver.validation.write_context import look

MISMATCH = "`selector` does not match template `labels`"
_SPEC = Path("spec")
_INNER_METADATA = "metadata.annotations"


def check_template(template: Tree, path: Path, gates: Gates, old: Tree | None = None) -> Problems:
    """A canonical template; `old` is the stored one, whose peculiarities may stay."""
    tree = _as_pod(template)
    pod = look(tree, WholePod)
    yield from check_labels(pod.metadata.labels, path.child("labels"))
    yield from check_annotations(pod.metadata.annotations, path.child("annotations"))
    allowed = NOTHING if old is None else find_allowance(look(_as_pod(old), WholePod))
    of_pods = chain(check_pod_spec(pod, tree), check_spec(pod, gates, allowed), check_agreement(pod, _SPEC))
    for problem in of_pods:
        yield _inside(problem, path)
    if pod.spec.ephemeral_containers:
        at = path.child("spec", "ephemeralContainers")
        yield forbidden(at, "cannot be given in a template, only added to a running pod")


def _as_pod(template: Tree) -> Tree:
    """The pod that stands for all that are made from a template; it has no name."""
    given = part(template, "metadata")
    metadata = {name: given[name] for name in ("labels", "annotations") if name in given}
    spec = part(template, "spec")
    if spec.get("hostNetwork"):  # what a template may leave open, a pod has
        spec = copy_tree(spec)
        for container in spec.get("containers", ()):
            open_on_host(container)
    return {"metadata": metadata, "spec": spec}


def _inside(problem: Problem, path: Path) -> Problem:
    """A problem of a pod as one of the template at this path."""
    field = problem.field
    if field.startswith(_INNER_METADATA):
        field = field.removeprefix("metadata.")
    return replace(problem, field=f"{path}.{field}")


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether a selector that is in order picks these labels; one that asks for nothing picks all."""
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    for requirement in selector.match_expressions:
        found = labels.get(requirement.key)
        fine = {
            "In": found in requirement.values,
            "NotIn": found is None or found not in requirement.values,
            "Exists": found is not None,
            "DoesNotExist": found is None,
        }
        if not fine.get(requirement.operator, False):
            return False
    return True
