"""Authorization of parameters: who binds a policy to objects, or names their kind, must be able to read them.

Otherwise a policy could disclose objects that its author may not read.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.auth.attributes import Attributes
from plimsoll.apiserver.auth.authorization import Authorizer
from plimsoll.apiserver.auth.users import MASTERS, User
from plimsoll.apiserver.registry.resources import find_resource_by_kind
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.status import invalid
from plimsoll.apiserver.storage import ObjectKey, Store
from plimsoll.apiserver.validation.field_errors import FieldPath, forbidden

Tree = dict[str, Any]

_GROUP = "admissionregistration.k8s.io"
_POLICIES = {
    f"{policy}admissionpolicybindings.{_GROUP}": f"{policy}admissionpolicies.{_GROUP}"
    for policy in ("validating", "mutating")
}


def authorize_params(
    info: RequestInfo, tree: Tree, old: Tree | None, user: User, authorizer: Authorizer, store: Store
) -> None:
    """Require that the author of a policy or binding can read its parameters; ApiError 422."""
    key = info.resource.key
    if info.group != _GROUP or info.subresource or MASTERS in user.groups:
        return
    if key in _POLICIES:
        why, field = _check_binding(key, tree, old, user, authorizer, store), "paramRef"
    elif key in _POLICIES.values():
        why, field = _check_policy(tree, old, user, authorizer), "paramKind"
    else:
        return
    if why:
        name = tree["metadata"].get("name", "")
        problem = forbidden(FieldPath("spec").child(field), why)
        raise invalid(info.group, info.resource.kind, name, [problem])


def _check_policy(tree: Tree, old: Tree | None, user: User, authorizer: Authorizer) -> str:
    kind = _part(tree, "paramKind")
    if kind is None or kind == _part(old, "paramKind"):
        return ""
    group, version, plural = _resolve(kind)
    if authorizer.allows(Attributes(user, "get", group, version, plural, namespace="*", name="*")):
        return ""
    named = f"(kind={kind.get('kind', '')}, apiVersion={kind.get('apiVersion', '')})"
    return f'user {user.name} must have "get" permission on all objects of the referenced paramKind {named}'


def _check_binding(
    key: str, tree: Tree, old: Tree | None, user: User, authorizer: Authorizer, store: Store
) -> str:
    ref, name = _part(tree, "paramRef"), _part(tree, "policyName")
    if ref is None or (ref == _part(old, "paramRef") and name == _part(old, "policyName")):
        return ""
    verb = "get" if ref.get("name") else "list"
    stored = store.get(ObjectKey(_POLICIES[key], "", name if isinstance(name, str) else ""))
    kind = None if stored is None else _part(codec.decode_tree(stored.raw), "paramKind")
    group, version, plural = _resolve(kind) if kind is not None else ("*", "*", "*")
    namespace, wanted = ref.get("namespace") or "", ref.get("name") or ""
    if authorizer.allows(Attributes(user, verb, group, version, plural, namespace=namespace, name=wanted)):
        return ""
    everywhere = f'user {user.name} does not have "{verb}" permission for all groups, versions and resources'
    if stored is None:
        return f"unable to get policy {name} to determine minimum required permissions and {everywhere}"
    return f'user {user.name} does not have "{verb}" permission on the object referenced by paramRef'


def _resolve(kind: Tree) -> tuple[str, str, str]:
    """Return group, version and resource of a paramKind; "*" for an unknown resource."""
    group, _, version = str(kind.get("apiVersion") or "").rpartition("/")
    resource = find_resource_by_kind(group, version, str(kind.get("kind") or ""))
    return group, version, "*" if resource is None else resource.plural


def _part(tree: Tree | None, field: str) -> Any:
    spec = tree.get("spec") if isinstance(tree, dict) else None
    return spec.get(field) if isinstance(spec, dict) else None
