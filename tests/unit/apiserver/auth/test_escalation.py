"""Tests of the privilege escalation check."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.auth.attributes import Attributes
from plimsoll.apiserver.auth.escalation import break_down, check_escalation, uncovered
from plimsoll.apiserver.auth.rbac_rules import PolicyRule
from plimsoll.apiserver.auth.users import ADMIN, User
from plimsoll.apiserver.storage import Store
from plimsoll.errors import ApiError
from tests.unit.apiserver.auth.objects import (
    BOB,
    RBAC,
    new_authorizer,
    new_store,
    put_binding,
    put_role,
    rule,
    user_subject,
)

ROLES, CLUSTER_ROLES = f"roles.{RBAC}", f"clusterroles.{RBAC}"
BINDINGS, CLUSTER_BINDINGS = f"rolebindings.{RBAC}", f"clusterrolebindings.{RBAC}"


def refused(
    store: Store, resource: str, tree: Any, old: Any = None, namespace: str = "", user: User = BOB
) -> str:
    try:
        check_escalation(user, resource, tree, old, new_authorizer(store), namespace=namespace, name="new")
    except ApiError as error:
        return f"{error.code} {error.message}"
    return ""


def give_bob(store: Store, *rules: dict[str, Any], namespace: str = "") -> None:
    put_role(store, "of-bob", *rules, namespace=namespace)
    put_binding(store, "of-bob", "of-bob", user_subject("bob"), namespace=namespace)


def role(*rules: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": "new"}, "rules": list(rules), **more}


def binding(name: str, kind: str = "ClusterRole") -> dict[str, Any]:
    return {"metadata": {"name": "new"}, "roleRef": {"kind": kind, "name": name, "apiGroup": RBAC}}


def test_a_role_may_hold_what_its_writer_holds() -> None:
    store = new_store()
    give_bob(store, rule("get list", "pods pods/status"), rule("*", "*", "apps"))
    assert not refused(store, CLUSTER_ROLES, role(rule("get", "pods")))
    assert not refused(store, CLUSTER_ROLES, role(rule("list get", "pods/status pods")))
    assert not refused(store, ROLES, role(rule("delete", "deployments", "apps")), namespace="x")
    assert not refused(store, ROLES, role(), namespace="x")
    assert not refused(store, "pods", {"anything": 1})


def test_a_role_may_hold_no_more() -> None:
    store = new_store()
    give_bob(store, rule("get list", "pods"), rule("get", "secrets", names="one"))
    why = refused(store, CLUSTER_ROLES, role(rule("get watch delete", "pods"), rule("get", "secrets")))
    assert why == (
        f'403 clusterroles.{RBAC} "new" is forbidden: user "bob" (groups=["team" "system:authenticated"]) '
        "is attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["pods"], Verbs:["watch" "delete"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
    )
    assert not refused(store, ROLES, role(rule("get", "secrets", names="one")), namespace="x")
    assert refused(store, ROLES, role(rule("get", "secrets", names="one two")), namespace="x")
    assert refused(store, ROLES, role(rule("*", "pods")), namespace="x")
    assert refused(store, CLUSTER_ROLES, role({"verbs": ["get"], "nonResourceURLs": ["/x"]}))
    assert not refused(store, CLUSTER_ROLES, role({"verbs": ["get"], "nonResourceURLs": ["/api/x"]}))
    assert not refused(store, CLUSTER_ROLES, role(rule("*", "*", "*")), user=ADMIN)


def test_rights_in_a_namespace_are_granted_there_only() -> None:
    store = new_store()
    give_bob(store, rule("get", "pods"), namespace="x")
    assert not refused(store, ROLES, role(rule("get", "pods")), namespace="x")
    assert refused(store, ROLES, role(rule("get", "pods")), namespace="y")
    assert refused(store, CLUSTER_ROLES, role(rule("get", "pods")))


def test_the_right_to_escalate() -> None:
    store = new_store()
    give_bob(store, rule("escalate", "roles", RBAC), namespace="x")
    assert not refused(store, ROLES, role(rule("*", "*", "*")), namespace="x")
    assert refused(store, CLUSTER_ROLES, role(rule("*", "*", "*")))


def test_bindings() -> None:
    store = new_store()
    give_bob(store, rule("get", "pods"))
    put_role(store, "little", rule("get", "pods"))
    put_role(store, "local", rule("get", "pods"), namespace="x")
    assert not refused(store, CLUSTER_BINDINGS, binding("little"))
    assert not refused(store, BINDINGS, binding("local", "Role"), namespace="x")
    assert "permissions not currently held" in refused(store, CLUSTER_BINDINGS, binding("cluster-admin"))
    assert "permissions not currently held" in refused(store, BINDINGS, binding("view"), namespace="x")
    assert not refused(store, CLUSTER_BINDINGS, binding("cluster-admin"), user=ADMIN)


def test_a_role_that_is_not_there_yet_is_not_bound() -> None:
    store = new_store()
    give_bob(store, rule("get", "pods"))
    for tree in (binding("later"), binding("later", "Role"), binding("little", "Odd"), {}):
        assert refused(store, BINDINGS, tree, namespace="x").startswith("404")


def test_the_right_to_bind() -> None:
    store = new_store()
    give_bob(store, rule("bind", "clusterroles", RBAC, "view"))
    assert not refused(store, BINDINGS, binding("view"), namespace="x")
    assert not refused(store, CLUSTER_BINDINGS, binding("view"))
    assert refused(store, BINDINGS, binding("edit"), namespace="x")


def test_garbage_collection_fields_grant_nothing() -> None:
    store = new_store()
    old = role(rule("*", "*", "*"))
    new = {**old, "metadata": {"name": "new", "finalizers": [], "ownerReferences": [], "managedFields": []}}
    assert not refused(store, CLUSTER_ROLES, new, old)
    relabelled = {**old, "metadata": {"name": "new", "labels": {"a": "b"}}}
    assert refused(store, CLUSTER_ROLES, relabelled, old)


def test_only_administrators_aggregate() -> None:
    store = new_store()
    give_bob(store, rule("get list create update patch delete", "*", "*"))
    aggregation = {"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    assert "cluster-admin privileges" in refused(store, CLUSTER_ROLES, role(**aggregation))
    assert "cluster-admin privileges" in refused(store, CLUSTER_ROLES, role(), role(**aggregation))
    give_bob(store, rule("*", "*", "*"))
    assert not refused(store, CLUSTER_ROLES, role(**aggregation))


def test_a_huge_role_costs_little() -> None:
    store = new_store()
    many = [f"v{number}" for number in range(500)]
    huge = {"verbs": many, "apiGroups": many, "resources": many, "resourceNames": many}
    assert "split it" in refused(store, CLUSTER_ROLES, role(huge))
    give_bob(store, rule("*", "*", "*"))
    assert not refused(store, CLUSTER_ROLES, role(huge))
    few = {**huge, "apiGroups": [""], "resources": ["x"], "resourceNames": []}
    store = new_store()
    why = refused(store, CLUSTER_ROLES, role(*({**few, "resources": [f"r{n}"]} for n in range(20))))
    assert "permissions not currently held" in why


VERBS = st.sampled_from(["get", "list", "*"])
GROUPS = st.sampled_from(["", "apps", "*"])
RESOURCES = st.sampled_from(["pods", "pods/status", "*/status", "*"])
NAMES = st.sampled_from(["a", "b"])
PATHS = st.sampled_from(["/x", "/x/*", "*", "/x/y"])


def some(values: st.SearchStrategy[str], least: int = 0) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(values, min_size=least, max_size=2).map(tuple)


RULES = st.one_of(
    st.builds(PolicyRule, some(VERBS, 1), some(GROUPS, 1), some(RESOURCES, 1), some(NAMES)),
    st.builds(lambda verbs, paths: PolicyRule(verbs, paths=paths), some(VERBS, 1), some(PATHS, 1)),
)
QUESTIONS = [
    *(
        Attributes(BOB, verb, group, "v1", "pods", subresource, "", name)
        for verb in ("get", "list", "watch")
        for group in ("", "apps", "batch")
        for subresource in ("", "status", "log")
        for name in ("", "a", "b", "c")
    ),
    *(
        Attributes(BOB, verb, path=path)
        for verb in ("get", "list", "watch")
        for path in ("/x", "/x/y", "/x/z", "/y")
    ),
]


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=2))
def test_covered_rules_allow_nothing_new(owned: list[PolicyRule], wanted: list[PolicyRule]) -> None:
    """If nothing is uncovered, the requested rules allow no request that was not allowed before."""
    if not list(uncovered(owned, wanted)):
        for question in QUESTIONS:
            if any(rule.allows(question) for rule in wanted):
                assert any(rule.allows(question) for rule in owned), question


@given(RULES)
def test_the_parts_of_a_rule_allow_what_it_allows(rule: PolicyRule) -> None:
    parts = list(break_down(rule))
    for question in QUESTIONS:
        assert rule.allows(question) == any(part.allows(question) for part in parts)
    assert not list(uncovered([rule], parts))
    assert not list(uncovered(parts, [rule]))
