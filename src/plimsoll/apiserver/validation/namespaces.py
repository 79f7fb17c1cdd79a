"""Namespaces: how they begin, what keeps them, and how they end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plimsoll.api.names import dns_label, label_key
from plimsoll.apiserver.validation.core_views import Namespace
from plimsoll.apiserver.validation.field_errors import Path, Problems, invalid
from plimsoll.apiserver.validation.metadata import STANDARD_FINALIZERS, check_metadata, check_metadata_update
from plimsoll.apiserver.validation.name_formats import check_format
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree, part
from plimsoll.apiserver.validation.write_context import Endpoint, Job

FINALIZER = "kubernetes"
NAME_LABEL = "kubernetes.io/metadata.name"

_FINALIZERS = Path("spec").child("finalizers")


def fill_namespace(tree: Tree, now: str) -> None:
    """Every namespace can be selected by its name, and is active unless it says otherwise."""
    meta = tree.setdefault("metadata", {})
    if meta.get("name"):
        meta.setdefault("labels", {})[NAME_LABEL] = meta["name"]
    status = tree.setdefault("status", {})
    if not status.get("phase"):
        status["phase"] = "Active"


def _prepare_create(job: Job[Namespace]) -> None:
    job.tree["status"] = {"phase": "Active"}
    finalizers = job.tree.setdefault("spec", {}).setdefault("finalizers", [])
    if FINALIZER not in finalizers:
        finalizers.append(FINALIZER)


def _check_create(job: Job[Namespace]) -> Problems:
    yield from check_metadata(job.metadata(), namespaced=False, names=dns_label)
    for finalizer in job.decode().spec.finalizers:
        yield from _check_finalizer(finalizer, _FINALIZERS)


def _prepare_update(job: Job[Namespace]) -> None:
    """The finalizers of a namespace change by way of `finalize` alone."""
    job.take_back("status")
    spec, before = job.tree.setdefault("spec", {}), part(job.old_tree, "spec")
    spec.pop("finalizers", None)
    if "finalizers" in before:
        spec["finalizers"] = copy_tree(before["finalizers"])


def _check_update(job: Job[Namespace]) -> Problems:
    yield from _check_create(job)
    yield from check_metadata_update(job.metadata(), job.old_metadata())


def _prepare_status(job: Job[Namespace]) -> None:
    job.take_back("spec")


def _check_status(job: Job[Namespace]) -> Problems:
    meta = job.metadata()
    yield from check_metadata_update(meta, job.old_metadata())
    phase, path = job.decode().status.phase, Path("status").child("Phase")
    if meta.deletion_timestamp is None:
        if phase != "Active":
            yield invalid(path, phase, "may only be 'Active' if `deletionTimestamp` is empty")
    elif phase != "Terminating":
        yield invalid(path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty")


def _prepare_finalize(job: Job[Namespace]) -> None:
    job.take_back("status")


def _check_finalize(job: Job[Namespace]) -> Problems:
    yield from check_metadata_update(job.metadata(), job.old_metadata())
    yield from _check_each(job.decode().spec.finalizers)


def _check_each(finalizers: Sequence[str]) -> Problems:
    for place, finalizer in enumerate(finalizers):
        yield from _check_finalizer(finalizer, _FINALIZERS.index(place))


def _check_finalizer(finalizer: str, path: Path) -> Problems:
    yield from check_format(finalizer, path, label_key)
    if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        yield invalid(path, finalizer, detail)


NAMESPACE_ENDPOINTS: Mapping[tuple[str, str, str], Endpoint] = {
    ("create", "Namespace", ""): Endpoint(Namespace, _prepare_create, _check_create),
    ("update", "Namespace", ""): Endpoint(Namespace, _prepare_update, _check_update),
    ("update", "Namespace", "status"): Endpoint(Namespace, _prepare_status, _check_status),
    ("update", "Namespace", "finalize"): Endpoint(Namespace, _prepare_finalize, _check_finalize),
}
