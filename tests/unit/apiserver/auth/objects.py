"""In-memory store with objects, for tests of authentication and authorization."""

from __future__ import annotations

from typing import Any

from plimsoll.apiserver.auth.authorization import Authorizer
from plimsoll.apiserver.auth.users import ALL_AUTHENTICATED, User
from plimsoll.apiserver.storage import ObjectKey, Store

RBAC = "rbac.authorization.k8s.io"
BOB = User("bob", groups=("team", ALL_AUTHENTICATED))


def new_store() -> Store:
    return Store.open(None, durability="full")


def new_authorizer(store: Store) -> Authorizer:
    authorizer = Authorizer(store)
    store.observe(authorizer.observe)
    return authorizer


def put(store: Store, resource: str, name: str, tree: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    """Create or replace an object, with a UID."""
    metadata = {"uid": f"uid-{name}", **tree.get("metadata", {}), "name": name}
    if namespace:
        metadata["namespace"] = namespace
    full = {**tree, "metadata": metadata}
    key = ObjectKey(resource, namespace, name)
    before = store.get(key)
    if before is None:
        store.create(key, full)
    else:
        store.update(key, full, before.revision)
    return full


def remove(store: Store, resource: str, name: str, namespace: str = "") -> None:
    key = ObjectKey(resource, namespace, name)
    before = store.get(key)
    if before is not None:
        store.delete(key, {"metadata": {"name": name}}, before.revision)


def put_role(store: Store, name: str, *rules: dict[str, Any], namespace: str = "", **more: Any) -> None:
    resource = f"roles.{RBAC}" if namespace else f"clusterroles.{RBAC}"
    put(store, resource, name, {"rules": list(rules), **more}, namespace)


def put_binding(
    store: Store, name: str, role: str, *subjects: dict[str, str], namespace: str = "", kind: str = ""
) -> None:
    resource = f"rolebindings.{RBAC}" if namespace else f"clusterrolebindings.{RBAC}"
    reference = {"apiGroup": RBAC, "kind": kind or ("Role" if namespace else "ClusterRole"), "name": role}
    put(store, resource, name, {"roleRef": reference, "subjects": list(subjects)}, namespace)


def rule(verbs: str, resources: str, groups: str = "", names: str = "") -> dict[str, list[str]]:
    """Return an RBAC rule: `rule("get list", "pods")`."""
    tree = {"verbs": verbs.split(), "apiGroups": groups.split() or [""], "resources": resources.split()}
    return {**tree, "resourceNames": names.split()} if names else tree


def user_subject(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name, "apiGroup": RBAC}


def group_subject(name: str) -> dict[str, str]:
    return {"kind": "Group", "name": name, "apiGroup": RBAC}


def account_subject(name: str, namespace: str = "") -> dict[str, str]:
    subject = {"kind": "ServiceAccount", "name": name}
    return {**subject, "namespace": namespace} if namespace else subject
