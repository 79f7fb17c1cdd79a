"""Strategies of Pod and its subresources (docs/spec/api.md, "Pod").

DIFF: the QoS class of a new pod is always computed; upstream uses the one in the request if there is one
(test_a_new_pod_gets_its_class_from_its_spec).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll.api import codec
from plimsoll.apiserver.registry.schema_view import View, view_of
from plimsoll.apiserver.validation.field_errors import FieldErrors
from plimsoll.apiserver.validation.metadata import (
    reset_for_status,
    validate_metadata,
    validate_metadata_update,
)
from plimsoll.apiserver.validation.object_trees import copy_tree, subtree
from plimsoll.apiserver.validation.pod.annotations import (
    needs_options,
    validate_annotation_changes,
    validate_annotations,
)
from plimsoll.apiserver.validation.pod.claim_status import validate_pod_status
from plimsoll.apiserver.validation.pod.claims import (
    is_mirror,
    validate_mirror_update,
    validate_pod_create,
    validate_pod_spec,
)
from plimsoll.apiserver.validation.pod.prepare_create import prepare_new_pod
from plimsoll.apiserver.validation.pod.qos import qos_after_status_write
from plimsoll.apiserver.validation.pod.resize import find_resize_error, keep_resources_only, validate_resize
from plimsoll.apiserver.validation.pod.spec import (
    STRICT,
    PodValidationOptions,
    options_for_stored_pod,
    validate_new_pod,
    validate_spec,
)
from plimsoll.apiserver.validation.pod.status import keep_generations, validate_status
from plimsoll.apiserver.validation.pod.update import (
    find_ephemeral_error,
    specs_equal,
    validate_ephemeral_update,
    validate_pod_update,
)
from plimsoll.apiserver.validation.pod.warnings import find_name_warnings, find_pod_warnings
from plimsoll.apiserver.validation.validated_cache import ValidatedCache
from plimsoll.apiserver.validation.write_context import WriteContext, WriteStrategy
from plimsoll.ledger.qos import qos_class

_POD_VIEW = view_of("core.v1.Pod")

VALIDATED_SPECS = ValidatedCache()


def _prepare_create(write: WriteContext[View]) -> None:
    write.set_generation(1)
    pod_level = write.gates.enabled("PodLevelResources")
    qos = qos_class(write.new.spec, pod_level=pod_level)
    write.tree["status"] = {"phase": "Pending", "qosClass": qos}
    write.drop_disabled_fields("Pod")
    prepare_new_pod(write.tree, write.now)


def _validate_create(write: WriteContext[View]) -> FieldErrors:
    pod = write.new
    yield from validate_metadata(write.metadata, namespaced=True)
    spec = codec.encode(subtree(write.tree, "spec"))
    errors = _validate_new_spec(write, pod)
    if b'"ephemeral"' in spec:  # volumes named after the pod
        yield from errors
        return
    annotations = pod.metadata.annotations
    key = spec, codec.encode(annotations) if annotations else b"", write.gates
    yield from VALIDATED_SPECS.validate(key, errors)


def _validate_new_spec(write: WriteContext[View], pod: View) -> FieldErrors:
    """Validate everything about a new pod that depends only on its spec and annotations."""
    yield from validate_pod_create(pod, write.tree)
    yield from validate_spec(pod, write.gates)
    yield from validate_new_pod(pod)


def _prepare_update(write: WriteContext[View]) -> None:
    write.restore_fields("status")
    write.drop_disabled_fields("Pod")
    _count_change(write)


def _count_change(write: WriteContext[View]) -> None:
    if not specs_equal(subtree(write.tree, "spec"), subtree(write.old_tree, "spec")):
        write.set_generation(write.metadata_tree().get("generation", 0) + 1)


def _validate_whole(write: WriteContext[View], pod: View, options: PodValidationOptions) -> FieldErrors:
    """Validate what applies to every update of a pod."""
    yield from validate_metadata_update(write.metadata, write.old_metadata)
    yield from validate_metadata(write.metadata, namespaced=True)
    yield from validate_pod_spec(pod, write.tree)
    yield from validate_spec(pod, write.gates, options)


def _validate_annotations(write: WriteContext[View], pod: View, options: PodValidationOptions) -> FieldErrors:
    """Validate the changed annotations."""
    yield from validate_mirror_update(pod, write.old)
    yield from validate_annotation_changes(pod, write.old)
    yield from validate_annotations(
        pod, options.placement, allow_invalid_deletion_cost=options.allow_invalid_deletion_cost
    )


def _validate_update(write: WriteContext[View]) -> FieldErrors:
    pod, options = write.new, options_for_stored_pod(write.old)
    yield from _validate_whole(write, pod, options)
    yield from _validate_annotations(write, pod, options)
    yield from validate_pod_update(write.tree, write.old_tree, pod, write.old, options.placement)


def _prepare_status(write: WriteContext[View]) -> None:
    write.tree.pop("spec", None)
    meta, old_meta = write.metadata_tree(), subtree(write.old_tree, "metadata")
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"):
        meta.pop(name, None)
        if name in old_meta:
            meta[name] = copy_tree(old_meta[name])
    status, old_status = write.tree.setdefault("status", {}), subtree(write.old_tree, "status")
    keep_generations(status, old_status)
    write.drop_disabled_fields("Pod", "status")
    write.share_fields("spec")
    qos = qos_after_status_write(write)
    if qos and status.get("qosClass", "") in ("", old_status.get("qosClass")):
        status["qosClass"] = qos


def _validate_status(write: WriteContext[View]) -> FieldErrors:
    pod = write.new
    yield from validate_metadata_update(write.metadata, write.old_metadata)
    options = options_for_stored_pod(write.old) if needs_options(pod) else STRICT  # for few pods only
    yield from _validate_annotations(write, pod, options)
    yield from validate_status(pod, write.old, qos_after_status_write(write))
    yield from validate_pod_status(pod)


def _prepare_resize(write: WriteContext[View]) -> None:
    keep_resources_only(write.tree, write.old_tree, write.gates)
    write.drop_disabled_fields("Pod", "resize")
    _count_change(write)


def _validate_resize(write: WriteContext[View]) -> FieldErrors:
    refusal = find_resize_error(write.old_tree, write.old)
    if refusal is not None:
        yield refusal
        return
    pod = write.new
    found = list(_validate_whole(write, pod, options_for_stored_pod(write.old)))
    yield from found
    yield from validate_resize(write.tree, write.old_tree, pod, write.old, write.gates, bool(found))


def _prepare_ephemeral(write: WriteContext[View]) -> None:
    """Take only the ephemeral containers from the request."""
    containers = subtree(write.tree, "spec").get("ephemeralContainers")
    write.restore_fields("spec", "status")
    spec = write.tree.setdefault("spec", {})
    spec.pop("ephemeralContainers", None)
    if containers is not None:
        spec["ephemeralContainers"] = containers
    reset_for_status(write.metadata_tree(), copy_tree(subtree(write.old_tree, "metadata")))
    write.drop_disabled_fields("Pod", "ephemeralcontainers")
    _count_change(write)


def _validate_ephemeral(write: WriteContext[View]) -> FieldErrors:
    refusal = find_ephemeral_error(is_mirror(write.old))
    if refusal is not None:
        yield refusal
        return
    pod, options = write.new, options_for_stored_pod(write.old)
    yield from _validate_whole(write, pod, options)
    yield from _validate_annotations(write, pod, options)
    yield from validate_ephemeral_update(write.tree, write.old_tree)


def _warn(write: WriteContext[View]) -> Iterable[str]:
    yield from find_name_warnings(write.tree, "the Pod's hostname")
    yield from find_pod_warnings(write.tree)


POD_STRATEGIES: Mapping[tuple[str, str, str], WriteStrategy] = {
    ("create", "Pod", ""): WriteStrategy(_POD_VIEW, _prepare_create, _validate_create, _warn),
    ("update", "Pod", ""): WriteStrategy(
        _POD_VIEW, _prepare_update, _validate_update, reset_fields=("status",)
    ),
    ("update", "Pod", "status"): WriteStrategy(
        _POD_VIEW, _prepare_status, _validate_status, reset_fields=("spec",)
    ),
    ("update", "Pod", "resize"): WriteStrategy(_POD_VIEW, _prepare_resize, _validate_resize),
    ("update", "Pod", "ephemeralcontainers"): WriteStrategy(
        _POD_VIEW, _prepare_ephemeral, _validate_ephemeral
    ),
}
