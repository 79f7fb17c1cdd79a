"""Leases."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.apiserver.validation.core_views import Lease, LeaseSpec
from plimsoll.apiserver.validation.field_errors import Path, Problems, forbidden, invalid, not_supported
from plimsoll.apiserver.validation.metadata import check_metadata, check_metadata_update
from plimsoll.apiserver.validation.name_formats import check_label_key
from plimsoll.apiserver.validation.object_trees import part
from plimsoll.apiserver.validation.resource_names import NOT_NEGATIVE
from plimsoll.apiserver.validation.write_context import Endpoint, Job

_SPEC = Path("spec")
_STRATEGIES = ("OldestEmulationVersion",)


def _prepare(job: Job[Lease]) -> None:
    """Coordinated leader election is an alpha feature of Kubernetes, and off."""
    spec, before = part(job.tree, "spec"), part(job.old_tree, "spec")
    for name in ("strategy", "preferredHolder"):
        if name not in before:
            spec.pop(name, None)


def _check_spec(spec: LeaseSpec) -> Problems:
    duration, transitions = spec.lease_duration_seconds, spec.lease_transitions
    if duration is not None and duration <= 0:
        yield invalid(_SPEC.child("leaseDurationSeconds"), duration, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid(_SPEC.child("leaseTransitions"), transitions, NOT_NEGATIVE)
    if spec.strategy is not None:
        yield from _check_strategy(spec.strategy, _SPEC.child("strategy", "strategy"))
    if spec.preferred_holder and not spec.strategy:
        detail = "may only be specified if `strategy` is defined"
        yield forbidden(_SPEC.child("preferredHolder"), detail)


def _check_strategy(strategy: str, path: Path) -> Problems:
    """A strategy of Kubernetes, or one with a domain."""
    if "/" in strategy:
        yield from check_label_key(strategy, path)
    elif strategy not in _STRATEGIES:
        yield not_supported(path, strategy, _STRATEGIES)


def _check(job: Job[Lease]) -> Problems:
    if job.creates:
        yield from check_metadata(job.metadata(), namespaced=True, free_finalizers=True)
    else:
        yield from check_metadata_update(job.metadata(), job.old_metadata(), free_finalizers=True)
    yield from _check_spec(job.decode().spec)


_LEASE = Endpoint(Lease, _prepare, _check)

LEASE_ENDPOINTS: Mapping[tuple[str, str, str], Endpoint] = {
    ("create", "Lease", ""): _LEASE,
    ("update", "Lease", ""): _LEASE,
}
