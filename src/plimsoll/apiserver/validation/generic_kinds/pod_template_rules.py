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
from plimsoll.apiserver.validation.field_errors import FieldError, FieldErrors, FieldPath, forbidden
from plimsoll.apiserver.validation.metadata import validate_annotations, validate_labels
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree, subtree
from plimsoll.apiserver.validation.pod.annotations import validate_profile_annotations_match
from plimsoll.apiserver.validation.pod.claims import validate_pod_spec
from plimsoll.apiserver.validation.pod.defaults import set_host_ports
from plimsoll.apiserver.validation.pod.pod_view import FullPod
from plimsoll.apiserver.validation.pod.spec import STRICT, options_for_stored_pod, validate_spec
from plimsoll.apiserver.validation.write_context import decode_view

SELECTOR_MISMATCH = "`selector` does not match template `labels`"
_SPEC = FieldPath("spec")
_INNER_METADATA = "metadata.annotations"


def validate_template(template: Tree, path: FieldPath, gates: Gates, old: Tree | None = None) -> FieldErrors:
    """A canonical template; `old` is the stored one, whose peculiarities may stay."""
    tree = _as_pod(template)
    pod = decode_view(tree, FullPod)
    yield from validate_labels(pod.metadata.labels, path.child("labels"))
    yield from validate_annotations(pod.metadata.annotations, path.child("annotations"))
    options = STRICT if old is None else options_for_stored_pod(decode_view(_as_pod(old), FullPod))
    of_pods = chain(
        validate_pod_spec(pod, tree),
        validate_spec(pod, gates, options),
        validate_profile_annotations_match(pod, _SPEC),
    )
    for error in of_pods:
        yield _prefix_field(error, path)
    if pod.spec.ephemeral_containers:
        at = path.child("spec", "ephemeralContainers")
        yield forbidden(at, "cannot be given in a template, only added to a running pod")


def _as_pod(template: Tree) -> Tree:
    """The pod that stands for all that are made from a template; it has no name."""
    given = subtree(template, "metadata")
    metadata = {name: given[name] for name in ("labels", "annotations") if name in given}
    spec = subtree(template, "spec")
    if spec.get("hostNetwork"):  # what a template may leave open, a pod has
        spec = copy_tree(spec)
        for container in spec.get("containers", ()):
            set_host_ports(container)
    return {"metadata": metadata, "spec": spec}


def _prefix_field(error: FieldError, path: FieldPath) -> FieldError:
    """A problem of a pod as one of the template at this path."""
    field = error.field
    if field.startswith(_INNER_METADATA):
        field = field.removeprefix("metadata.")
    return replace(error, field=f"{path}.{field}")


def selector_matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
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
