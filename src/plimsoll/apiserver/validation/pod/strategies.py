"""What the endpoints of Pod prepare and check (section 9 of the API semantics).

DIFF: the QoS class of a new pod is always computed; upstream takes the one in the request where there is one
(test_a_new_pod_gets_its_class_from_its_spec).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from plimsoll.api import codec
from plimsoll.api.names import dns_label
from plimsoll.apiserver.validation.field_errors import Problems
from plimsoll.apiserver.validation.metadata import check_metadata, check_metadata_update, reset_for_status
from plimsoll.apiserver.validation.object_trees import copy_tree, part
from plimsoll.apiserver.validation.pod.annotations import check_annotation_changes, check_annotations
from plimsoll.apiserver.validation.pod.claim_status import check_pod_status
from plimsoll.apiserver.validation.pod.claims import (
    check_mirror_update,
    check_pod_create,
    check_pod_spec,
    is_mirror,
)
from plimsoll.apiserver.validation.pod.pod_view import WholePod
from plimsoll.apiserver.validation.pod.prepare_create import begin
from plimsoll.apiserver.validation.pod.resize import check_resize, keep_resources_only, refuse_resize
from plimsoll.apiserver.validation.pod.spec import Allowance, check_new, check_spec, find_allowance
from plimsoll.apiserver.validation.pod.status import check_state, keep_generations
from plimsoll.apiserver.validation.pod.update import (
    check_ephemeral_update,
    check_pod_update,
    refuse_ephemeral,
    same_spec,
)
from plimsoll.apiserver.validation.validated_cache import Verdicts
from plimsoll.apiserver.validation.write_context import Endpoint, Job
from plimsoll.ledger.qos import qos_class

_FINE_SPECS = Verdicts()


def _prepare_create(job: Job[WholePod]) -> None:
    job.set_generation(1)
    pod_level = job.gates.enabled("PodLevelResources")
    qos = qos_class(job.decode().spec, pod_level=pod_level)
    job.tree["status"] = {"phase": "Pending", "qosClass": qos}
    job.drop("Pod")
    begin(job.tree, job.now)


def _check_create(job: Job[WholePod]) -> Problems:
    pod = job.decode()
    yield from check_metadata(job.metadata(), namespaced=True)
    spec = codec.encode(part(job.tree, "spec"))
    problems = _check_new_spec(job, pod)
    if b'"ephemeral"' in spec:  # volumes that are named after the pod
        yield from problems
        return
    annotations = pod.metadata.annotations
    key = spec, codec.encode(annotations) if annotations else b"", job.gates
    yield from _FINE_SPECS.check(key, problems)


def _check_new_spec(job: Job[WholePod], pod: WholePod) -> Problems:
    """Everything about a new pod that depends on its spec and its annotations alone."""
    yield from check_pod_create(pod, job.tree)
    yield from check_spec(pod, job.gates)
    yield from check_new(pod)


def _prepare_update(job: Job[WholePod]) -> None:
    job.take_back("status")
    job.drop("Pod")
    _count_change(job)


def _count_change(job: Job[WholePod]) -> None:
    if not same_spec(part(job.tree, "spec"), part(job.old_tree, "spec")):
        job.set_generation(job.meta_tree().get("generation", 0) + 1)


def _check_whole(job: Job[WholePod], pod: WholePod, allowed: Allowance) -> Problems:
    """What holds for a pod whichever way it is changed."""
    yield from check_metadata_update(job.metadata(), job.old_metadata())
    yield from check_metadata(job.metadata(), namespaced=True)
    yield from check_pod_spec(pod, job.tree)
    yield from check_spec(pod, job.gates, allowed)


def _check_annotations(job: Job[WholePod], pod: WholePod, allowed: Allowance) -> Problems:
    """Annotations are looked at once more, for what changed of them."""
    yield from check_mirror_update(pod, job.old)
    yield from check_annotation_changes(pod, job.old)
    yield from check_annotations(pod, allowed.placement, any_cost=allowed.any_cost)


def _check_update(job: Job[WholePod]) -> Problems:
    pod, allowed = job.decode(), find_allowance(job.old)
    yield from _check_whole(job, pod, allowed)
    yield from _check_annotations(job, pod, allowed)
    yield from check_pod_update(job.tree, job.old_tree, pod, job.old, allowed.placement)


def _prepare_status(job: Job[WholePod]) -> None:
    job.take_back("spec")
    meta, old_meta = job.meta_tree(), part(job.old_tree, "metadata")
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "ownerReferences"):
        meta.pop(name, None)
        if name in old_meta:
            meta[name] = copy_tree(old_meta[name])
    status, old_status = job.tree.setdefault("status", {}), part(job.old_tree, "status")
    if not status.get("qosClass") and "qosClass" in old_status:
        status["qosClass"] = old_status["qosClass"]
    keep_generations(status, old_status)
    job.drop("Pod", "status")


def _check_status(job: Job[WholePod]) -> Problems:
    pod = job.decode()
    yield from check_metadata_update(job.metadata(), job.old_metadata())
    yield from _check_annotations(job, pod, find_allowance(job.old))
    yield from check_state(pod, job.old)
    yield from check_pod_status(pod)


def _prepare_resize(job: Job[WholePod]) -> None:
    keep_resources_only(job.tree, job.old_tree, job.gates)
    job.drop("Pod", "resize")
    _count_change(job)


def _check_resize(job: Job[WholePod]) -> Problems:
    refusal = refuse_resize(job.old_tree, job.old)
    if refusal is not None:
        yield refusal
        return
    pod = job.decode()
    found = list(_check_whole(job, pod, find_allowance(job.old)))
    yield from found
    yield from check_resize(job.tree, job.old_tree, pod, job.old, job.gates, bool(found))


def _prepare_ephemeral(job: Job[WholePod]) -> None:
    """Of the whole pod only the ephemeral containers are taken from the request."""
    containers = part(job.tree, "spec").get("ephemeralContainers")
    job.take_back("spec", "status")
    spec = job.tree.setdefault("spec", {})
    spec.pop("ephemeralContainers", None)
    if containers is not None:
        spec["ephemeralContainers"] = containers
    reset_for_status(job.meta_tree(), copy_tree(part(job.old_tree, "metadata")))
    job.drop("Pod", "ephemeralcontainers")
    _count_change(job)


def _check_ephemeral(job: Job[WholePod]) -> Problems:
    refusal = refuse_ephemeral(is_mirror(job.old))
    if refusal is not None:
        yield refusal
        return
    pod, allowed = job.decode(), find_allowance(job.old)
    yield from _check_whole(job, pod, allowed)
    yield from _check_annotations(job, pod, allowed)
    yield from check_ephemeral_update(job.tree, job.old_tree)


def _warn(job: Job[WholePod]) -> Iterable[str]:
    complaints = dns_label(part(job.tree, "metadata").get("name", ""))
    if complaints:
        yield (
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; "
            f"a DNS label is recommended: {complaints}"
        )


POD_ENDPOINTS: Mapping[tuple[str, str, str], Endpoint] = {
    ("create", "Pod", ""): Endpoint(WholePod, _prepare_create, _check_create, _warn),
    ("update", "Pod", ""): Endpoint(WholePod, _prepare_update, _check_update, restores=("status",)),
    ("update", "Pod", "status"): Endpoint(WholePod, _prepare_status, _check_status, restores=("spec",)),
    ("update", "Pod", "resize"): Endpoint(WholePod, _prepare_resize, _check_resize),
    ("update", "Pod", "ephemeralcontainers"): Endpoint(WholePod, _prepare_ephemeral, _check_ephemeral),
}
