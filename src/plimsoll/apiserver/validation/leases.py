"""Strategies of Lease."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll.apiserver.registry.schema_view import View, view_of
from plimsoll.apiserver.validation.field_errors import (
    FieldErrors,
    FieldPath,
    forbidden,
    invalid,
    not_supported,
)
from plimsoll.apiserver.validation.metadata import validate_metadata, validate_metadata_update
from plimsoll.apiserver.validation.name_formats import validate_label_key
from plimsoll.apiserver.validation.object_trees import subtree
from plimsoll.apiserver.validation.resource_names import NOT_NEGATIVE
from plimsoll.apiserver.validation.write_context import WriteContext, WriteStrategy

_VIEW = view_of("coordination.v1.Lease")

_SPEC = FieldPath("spec")
_STRATEGIES = ("OldestEmulationVersion",)


def _prepare(write: WriteContext[View]) -> None:
    """Drop the fields of coordinated leader election, an alpha feature that is disabled."""
    spec, before = subtree(write.tree, "spec"), subtree(write.old_tree, "spec")
    for name in ("strategy", "preferredHolder"):
        if name not in before:
            spec.pop(name, None)


def _validate_spec(spec: View) -> FieldErrors:
    duration, transitions = spec.lease_duration_seconds, spec.lease_transitions
    if duration is not None and duration <= 0:
        yield invalid(_SPEC.child("leaseDurationSeconds"), duration, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid(_SPEC.child("leaseTransitions"), transitions, NOT_NEGATIVE)
    if spec.strategy is not None:
        yield from _validate_strategy(spec.strategy, _SPEC.child("strategy", "strategy"))
    if spec.preferred_holder and not spec.strategy:
        detail = "may only be specified if `strategy` is defined"
        yield forbidden(_SPEC.child("preferredHolder"), detail)


def _validate_strategy(strategy: str, path: FieldPath) -> FieldErrors:
    """Validate a strategy: one of Kubernetes, or a qualified name."""
    if "/" in strategy:
        yield from validate_label_key(strategy, path)
    elif strategy not in _STRATEGIES:
        yield not_supported(path, strategy, _STRATEGIES)


def _validate(write: WriteContext[View]) -> FieldErrors:
    if write.is_create:
        yield from validate_metadata(write.metadata, namespaced=True, free_finalizers=True)
    else:
        yield from validate_metadata_update(write.metadata, write.old_metadata, free_finalizers=True)
    yield from _validate_spec(write.new.spec)


_LEASE = WriteStrategy(_VIEW, _prepare, _validate)

LEASE_STRATEGIES: Mapping[tuple[str, str, str], WriteStrategy] = {
    ("create", "Lease", ""): _LEASE,
    ("update", "Lease", ""): _LEASE,
}
