"""Priority classes, and the two that every cluster has."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.apiserver.validation.core_views import PriorityClass
from plimsoll.apiserver.validation.equality import same
from plimsoll.apiserver.validation.field_errors import (
    Path,
    Problems,
    forbidden,
    invalid,
    not_supported,
    required,
)
from plimsoll.apiserver.validation.metadata import IMMUTABLE, check_metadata, check_metadata_update
from plimsoll.apiserver.validation.object_trees import Tree
from plimsoll.apiserver.validation.write_context import Endpoint, Job

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_PREFIX = "system-"
PREEMPTION_POLICIES = ("Never", "PreemptLowerPriority")

#: The classes of the system and their values; none of them is the default for all pods.
SYSTEM_CLASSES: Mapping[str, int] = {
    "system-node-critical": 2 * HIGHEST_USER_PRIORITY + 1000,
    "system-cluster-critical": 2 * HIGHEST_USER_PRIORITY,
}


def fill_priority_class(tree: Tree, now: str) -> None:
    tree.setdefault("preemptionPolicy", "PreemptLowerPriority")


def check_preemption_policy(policy: str, path: Path) -> Problems:
    if not policy:
        yield required(path, "must be Never or PreemptLowerPriority")
    elif policy not in PREEMPTION_POLICIES:
        yield not_supported(path, policy, PREEMPTION_POLICIES)


def _prepare(job: Job[PriorityClass]) -> None:
    if job.creates:
        job.set_generation(1)


def _check_create(job: Job[PriorityClass]) -> Problems:
    meta, given = job.metadata(), job.decode()
    yield from check_metadata(meta, namespaced=False)
    if meta.name.startswith(SYSTEM_PREFIX):
        yield from _check_system_class(meta.name, given)
    elif given.value > HIGHEST_USER_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
        yield forbidden(Path("value"), detail)
    if given.preemption_policy is not None:
        yield from check_preemption_policy(given.preemption_policy, Path("preemptionPolicy"))


def _check_system_class(name: str, given: PriorityClass) -> Problems:
    value = SYSTEM_CLASSES.get(name)
    if value is None:
        why = f"{name} is not a known system priority class"
    elif value != given.value:
        why = f"value of {name} PriorityClass must be {value}"
    elif given.global_default:
        why = f"globalDefault of {name} PriorityClass must be false"
    else:
        return
    detail = f"priority class names with '{SYSTEM_PREFIX}' prefix are reserved for system use only. error: "
    yield forbidden(Path("metadata").child("name"), detail + why)


def _check_update(job: Job[PriorityClass]) -> Problems:
    now, before = job.decode(), job.old
    yield from check_metadata_update(job.metadata(), job.old_metadata())
    if now.value != before.value:
        yield forbidden(Path("value"), "may not be changed in an update.")
    if not same(before.preemption_policy, now.preemption_policy):
        yield invalid(Path("preemptionPolicy"), now.preemption_policy, IMMUTABLE)


PRIORITY_CLASS_ENDPOINTS: Mapping[tuple[str, str, str], Endpoint] = {
    ("create", "PriorityClass", ""): Endpoint(PriorityClass, _prepare, _check_create),
    ("update", "PriorityClass", ""): Endpoint(PriorityClass, _prepare, _check_update),
}
