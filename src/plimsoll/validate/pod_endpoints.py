"""What the endpoints of Pod prepare and check, as far as DRA is concerned (section 9 of the API semantics).

DIFF: the QoS class of a new pod is always computed; upstream takes the one in the request where there is one
(test_a_new_pod_gets_its_class_from_its_spec).
"""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.api.core import Pod
from plimsoll.ledger.qos import qos_class
from plimsoll.validate.job import Endpoint, Job
from plimsoll.validate.metadata import check_metadata, check_metadata_update
from plimsoll.validate.pod_resize import check_resize, keep_resources_only, refuse_resize
from plimsoll.validate.pod_status import check_pod_status
from plimsoll.validate.pod_update import check_pod_update, same_spec
from plimsoll.validate.pods import check_mirror_update, check_pod_create, check_pod_spec
from plimsoll.validate.problems import Problems
from plimsoll.validate.trees import part


def _prepare_create(job: Job[Pod]) -> None:
    job.set_generation(1)
    pod_level = job.gates.enabled("PodLevelResources")
    qos = qos_class(job.decode().spec, pod_level=pod_level)
    job.tree["status"] = {"phase": "Pending", "qosClass": qos}
    job.drop("Pod")


def _check_create(job: Job[Pod]) -> Problems:
    yield from check_metadata(job.metadata(), namespaced=True)
    yield from check_pod_create(job.decode(), job.tree)


def _prepare_update(job: Job[Pod]) -> None:
    job.take_back("status")
    job.drop("Pod")
    _count_change(job)


def _count_change(job: Job[Pod]) -> None:
    if not same_spec(part(job.tree, "spec"), part(job.old_tree, "spec")):
        job.set_generation(job.meta_tree().get("generation", 0) + 1)


def _check_update(job: Job[Pod]) -> Problems:
    pod = job.decode()
    yield from check_metadata_update(job.metadata(), job.old_metadata())
    yield from check_metadata(job.metadata(), namespaced=True)
    yield from check_pod_spec(pod, job.tree)
    yield from check_mirror_update(pod, job.old)
    yield from check_pod_update(job.tree, job.old_tree, pod, job.old)


def _prepare_status(job: Job[Pod]) -> None:
    job.take_back("spec")
    meta, old_meta = job.meta_tree(), part(job.old_tree, "metadata")
    meta.pop("deletionTimestamp", None)
    meta.pop("ownerReferences", None)
    if "ownerReferences" in old_meta:
        meta["ownerReferences"] = old_meta["ownerReferences"]
    status, old_status = job.tree.setdefault("status", {}), part(job.old_tree, "status")
    if not status.get("qosClass") and "qosClass" in old_status:
        status["qosClass"] = old_status["qosClass"]
    job.drop("Pod", "status")


def _check_status(job: Job[Pod]) -> Problems:
    pod = job.decode()
    yield from check_metadata_update(job.metadata(), job.old_metadata())
    yield from check_mirror_update(pod, job.old)
    yield from check_pod_status(pod)


def _prepare_resize(job: Job[Pod]) -> None:
    keep_resources_only(job.tree, job.old_tree, job.gates)
    job.drop("Pod", "resize")
    _count_change(job)


def _check_resize(job: Job[Pod]) -> Problems:
    refusal = refuse_resize(job.old_tree, job.old)
    if refusal is not None:
        yield refusal
        return
    pod = job.decode()
    found = [
        *check_metadata_update(job.metadata(), job.old_metadata()),
        *check_metadata(job.metadata(), namespaced=True),
        *check_pod_spec(pod, job.tree),
    ]
    yield from found
    yield from check_resize(job.tree, job.old_tree, pod, job.old, job.gates, bool(found))


POD_ENDPOINTS: Mapping[tuple[str, str, str], Endpoint] = {
    ("create", "Pod", ""): Endpoint(Pod, _prepare_create, _check_create),
    ("update", "Pod", ""): Endpoint(Pod, _prepare_update, _check_update),
    ("update", "Pod", "status"): Endpoint(Pod, _prepare_status, _check_status),
    ("update", "Pod", "resize"): Endpoint(Pod, _prepare_resize, _check_resize),
}
