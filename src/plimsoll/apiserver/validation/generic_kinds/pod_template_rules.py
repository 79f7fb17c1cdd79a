"""Validation of pod templates with the rules of pods.

A template from which no valid pod can be created is rejected with the workload that contains it, instead of
with each pod that a controller tries to create.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from plimsoll.api.gates import Gates
from plimsoll.apiserver.registry.schema_view import view_of
from plimsoll.apiserver.validation.field_errors import FieldError, FieldErrors, FieldPath, forbidden
from plimsoll.apiserver.validation.metadata import validate_annotations, validate_labels
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree, subtree
from plimsoll.apiserver.validation.pod.annotations import validate_profile_annotations_match
from plimsoll.apiserver.validation.pod.claims import validate_pod_spec
from plimsoll.apiserver.validation.pod.defaults import set_host_ports
from plimsoll.apiserver.validation.pod.spec import STRICT, options_for_stored_pod, validate_spec
from plimsoll.apiserver.validation.write_context import decode_view

_POD_VIEW = view_of("core.v1.Pod")

SELECTOR_MISMATCH = "`selector` does not match template `labels`"
_SPEC = FieldPath("spec")
_INNER_METADATA = "metadata.annotations"


def validate_template(template: Tree, path: FieldPath, gates: Gates, old: Tree | None = None) -> FieldErrors:
    """Validate a canonical template; exceptions of the stored one (`old`) remain permitted."""
    tree = _as_pod(template)
    pod = decode_view(tree, _POD_VIEW)
    yield from validate_labels(pod.metadata.labels, path.child("labels"))
    yield from validate_annotations(pod.metadata.annotations, path.child("annotations"))
    options = STRICT if old is None else options_for_stored_pod(decode_view(_as_pod(old), _POD_VIEW))
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
    """Return a pod that represents all pods of a template; it has no name."""
    given = subtree(template, "metadata")
    metadata = {name: given[name] for name in ("labels", "annotations") if name in given}
    spec = subtree(template, "spec")
    if spec.get("hostNetwork"):  # defaults that pods have and templates may omit
        spec = copy_tree(spec)
        for container in spec.get("containers", ()):
            set_host_ports(container)
    return {"metadata": metadata, "spec": spec}


def _prefix_field(error: FieldError, path: FieldPath) -> FieldError:
    """Return an error of a pod as one of the template at this path."""
    field = error.field
    if field.startswith(_INNER_METADATA):
        field = field.removeprefix("metadata.")
    return replace(error, field=f"{path}.{field}")
