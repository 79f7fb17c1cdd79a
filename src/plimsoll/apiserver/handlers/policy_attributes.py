"""Attributes of requests for admission policies, made from what the handlers know."""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.admission.policies.attributes import (
    CREATE,
    DELETE,
    UPDATE,
    AdmissionAttributes,
    Tree,
)
from plimsoll.apiserver.auth.users import User
from plimsoll.apiserver.handlers.conversion import convert_to_storage, convert_tree
from plimsoll.apiserver.handlers.options import DeletionOptions, WriteOptions
from plimsoll.apiserver.request_info import RequestInfo


def write_attributes(
    info: RequestInfo,
    tree: Tree,
    old: Tree | None,
    user: User,
    options: WriteOptions,
    warnings: list[str],
    name: str = "",
) -> AdmissionAttributes:
    """Return the attributes of a create (without `old`) or an update; `name` is the name it was sent with."""
    operation, kind = (CREATE, "CreateOptions") if old is None else (UPDATE, "UpdateOptions")
    fields = {
        "dryRun": ["All"] if options.dry_run else None,
        "fieldManager": options.requested_manager,
        "fieldValidation": options.field_validation if options.field_validation != "Warn" else None,
    }
    return AdmissionAttributes(
        operation,
        info,
        info.name or name,
        tree,
        old,
        user,
        _options_tree(kind, fields),
        options.dry_run,
        convert_tree,
        convert_to_storage,
        warnings,
    )


def delete_attributes(
    info: RequestInfo, old: Tree, user: User, options: DeletionOptions, warnings: list[str]
) -> AdmissionAttributes:
    """Return the attributes of a deletion."""
    preconditions = {"uid": options.uid, "resourceVersion": options.resource_version}
    given = {name: value for name, value in preconditions.items() if value is not None}
    fields = {
        "gracePeriodSeconds": options.grace_period_seconds,
        "preconditions": given or None,
        "propagationPolicy": options.propagation_policy,
        "dryRun": ["All"] if options.dry_run else None,
    }
    return AdmissionAttributes(
        DELETE,
        info,
        old["metadata"]["name"],
        None,
        old,
        user,
        _options_tree("DeleteOptions", fields),
        options.dry_run,
        convert_tree,
        convert_to_storage,
        warnings,
    )


def _options_tree(kind: str, fields: dict[str, Any]) -> Tree:
    given = {name: value for name, value in fields.items() if value not in (None, "")}
    return {"kind": kind, "apiVersion": "meta.k8s.io/v1", **given}
