"""Defaults and rules of the kinds behind access: bindings of roles, accounts, requests for certificates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plimsoll.api.names import dns_subdomain
from plimsoll.apiserver.validation.equality import same
from plimsoll.apiserver.validation.field_errors import Path, Problems, invalid, not_supported, required
from plimsoll.apiserver.validation.generic_kinds.access_view import (
    CertificateRequest,
    RoleBinding,
    ServiceAccount,
    Subject,
)
from plimsoll.apiserver.validation.generic_kinds.kind_rules import Rules, fill_empty
from plimsoll.apiserver.validation.name_formats import check_format
from plimsoll.apiserver.validation.object_trees import Tree, copy_tree, part
from plimsoll.apiserver.validation.write_context import Job

_GROUP = "rbac.authorization.k8s.io"
_ROLE = Path("roleRef")
_SUBJECT_KINDS = ("ServiceAccount", "User", "Group")
_DECISIONS = ("Approved", "Denied")


# -- RoleBinding and ClusterRoleBinding


def _fill_binding(tree: Tree) -> None:
    fill_empty(tree.setdefault("roleRef", {}), apiGroup=_GROUP)
    for subject in tree.get("subjects", ()):
        if subject.get("kind") in ("User", "Group"):
            fill_empty(subject, apiGroup=_GROUP)


def _check_binding(job: Job[RoleBinding]) -> Problems:
    yield from _check_role(job, ("Role", "ClusterRole"), anywhere=False)


def _check_cluster_binding(job: Job[RoleBinding]) -> Problems:
    yield from _check_role(job, ("ClusterRole",), anywhere=True)


def _check_role(job: Job[RoleBinding], kinds: tuple[str, ...], *, anywhere: bool) -> Problems:
    binding = job.decode()
    role = binding.role_ref
    if role.api_group != _GROUP:
        yield not_supported(_ROLE.child("apiGroup"), role.api_group, (_GROUP,))
    if role.kind not in kinds:
        yield not_supported(_ROLE.child("kind"), role.kind, kinds)
    if not role.name:
        yield required(_ROLE.child("name"))
    for place, subject in enumerate(binding.subjects):
        yield from _check_subject(subject, Path("subjects").index(place), anywhere=anywhere)
    if not job.creates and not same(job.old.role_ref, role):
        yield invalid(_ROLE, None, "cannot change roleRef")


def _check_subject(subject: Subject, path: Path, *, anywhere: bool) -> Problems:
    group = "" if subject.kind == "ServiceAccount" else _GROUP
    if not subject.name:
        yield required(path.child("name"))
    if subject.kind not in _SUBJECT_KINDS:
        yield not_supported(path.child("kind"), subject.kind, _SUBJECT_KINDS)
        return
    if subject.kind == "ServiceAccount":
        if subject.name:
            yield from check_format(subject.name, path.child("name"), dns_subdomain)
        if anywhere and not subject.namespace:
            yield required(path.child("namespace"))
    if subject.api_group != group:
        yield not_supported(path.child("apiGroup"), subject.api_group, (group,))


# -- ServiceAccount


def _settle_account(job: Job[ServiceAccount]) -> None:
    """A secret of an account is known by its name alone."""
    secrets = job.tree.get("secrets")
    if secrets:
        job.tree["secrets"] = [{"name": secret["name"]} if "name" in secret else {} for secret in secrets]


# -- CertificateSigningRequest


def _settle_request(job: Job[CertificateRequest]) -> None:
    """A request stays what it was when it was made."""
    if not job.creates:
        job.take_back("spec")


def _settle_request_status(job: Job[CertificateRequest], subresource: str) -> None:
    """Approval is decided in one place (`approval`), what comes of it is written in the other (`status`)."""
    status, old = job.tree.setdefault("status", {}), part(job.old_tree, "status")
    conditions = status.get("conditions", [])
    if subresource == "approval":
        status = copy_tree(old)
        job.tree["status"] = status
    else:
        decided = [one for one in old.get("conditions", ()) if one.get("type") in _DECISIONS]
        kept = [one for one in conditions if one.get("type") not in _DECISIONS]
        conditions = [*copy_tree(decided), *kept]
    for condition in conditions:
        _note_time(condition, old.get("conditions", ()), job.now)
    if conditions:
        status["conditions"] = conditions


def _note_time(condition: Tree, before: Any, now: str) -> None:
    fill_empty(condition, lastUpdateTime=now)
    since = [
        one["lastTransitionTime"]
        for one in before
        if (one.get("type"), one.get("status")) == (condition.get("type"), condition.get("status"))
        and one.get("lastTransitionTime")
    ]
    fill_empty(condition, lastTransitionTime=since[0] if since else now)


ACCESS_RULES: Mapping[str, Rules] = {
    "RoleBinding": Rules(RoleBinding, _fill_binding, check=_check_binding),
    "ClusterRoleBinding": Rules(RoleBinding, _fill_binding, check=_check_cluster_binding),
    "ServiceAccount": Rules(ServiceAccount, prepare=_settle_account),
    "CertificateSigningRequest": Rules(
        CertificateRequest, prepare=_settle_request, prepare_status=_settle_request_status
    ),
}
