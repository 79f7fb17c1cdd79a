"""RBAC authorization with built-in and stored roles."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.apiserver.auth import users
from plimsoll.apiserver.auth.attributes import Attributes
from plimsoll.apiserver.auth.authorization import Authorizer
from plimsoll.apiserver.auth.role_index import RoleIndex
from plimsoll.apiserver.auth.users import ALL_AUTHENTICATED, User
from plimsoll.apiserver.storage import ObjectKey, Store
from plimsoll.errors import ApiError
from tests.sizes import examples
from tests.unit.apiserver.auth.objects import (
    BOB,
    RBAC,
    account_subject,
    group_subject,
    new_authorizer,
    new_store,
    put,
    put_binding,
    put_role,
    remove,
    rule,
    user_subject,
)


def may(
    authorizer: Authorizer, user: User, verb: str, resource: str, namespace: str = "", **more: Any
) -> bool:
    return authorizer.allows(Attributes(user, verb, resource=resource, namespace=namespace, **more))


def test_new_users_have_only_discovery_and_self_reviews() -> None:
    authorizer = new_authorizer(new_store())
    assert not may(authorizer, BOB, "get", "pods", "x")
    assert authorizer.allows(Attributes(BOB, "get", path="/api/v1"))
    assert may(authorizer, BOB, "create", "selfsubjectaccessreviews", group="authorization.k8s.io")


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/livez", "/version"])
def test_anonymous_may_see_that_the_server_is_alive(path: str) -> None:
    authorizer = new_authorizer(new_store())
    assert authorizer.allows(Attributes(users.ANONYMOUS, "get", path=path))
    for other in ("/api", "/metrics", "/openapi/v2", "/", path + "/"):
        if other != "/version/":
            assert not authorizer.allows(Attributes(users.ANONYMOUS, "get", path=other))
    assert not authorizer.allows(Attributes(users.ANONYMOUS, "post", path=path))


@given(
    st.sampled_from(["get", "list", "watch", "create", "update", "patch", "delete", "*", "impersonate"]),
    st.sampled_from(["", "apps", "authorization.k8s.io", "*"]),
    st.sampled_from(["pods", "secrets", "selfsubjectreviews", "*"]),
)
def test_anonymous_may_touch_no_resource(verb: str, group: str, resource: str) -> None:
    authorizer = new_authorizer(new_store())
    assert not authorizer.allows(Attributes(users.ANONYMOUS, verb, group, "v1", resource, "", "x", "y"))


def test_administrators_may_do_anything() -> None:
    authorizer = new_authorizer(new_store())
    for verb in ("get", "deletecollection", "escalate"):
        assert may(authorizer, users.ADMIN, verb, "anything")
    assert authorizer.allows(Attributes(users.ADMIN, "delete", path="/anything"))


def test_a_binding_is_effective_from_creation_to_deletion() -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    assert not may(authorizer, BOB, "get", "pods", "x")
    put_role(store, "reader", rule("get", "pods"))
    put_binding(store, "b", "reader", user_subject("bob"))
    assert may(authorizer, BOB, "get", "pods", "x")
    put_role(store, "reader", rule("list", "pods"))
    assert not may(authorizer, BOB, "get", "pods", "x")
    assert may(authorizer, BOB, "list", "pods", "x")
    remove(store, f"clusterrolebindings.{RBAC}", "b")
    assert not may(authorizer, BOB, "list", "pods", "x")


def test_a_role_binding_counts_in_its_namespace_only() -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    put_role(store, "reader", rule("get", "pods"), namespace="x")
    put_binding(store, "b", "reader", group_subject("team"), namespace="x")
    assert may(authorizer, BOB, "get", "pods", "x")
    assert not may(authorizer, BOB, "get", "pods", "y")
    assert not may(authorizer, BOB, "get", "pods")
    put_role(store, "everywhere", rule("delete", "pods"))
    put_binding(store, "c", "everywhere", group_subject("team"), namespace="x", kind="ClusterRole")
    assert may(authorizer, BOB, "delete", "pods", "x")
    assert not may(authorizer, BOB, "delete", "pods", "y")


def test_service_accounts_are_subjects() -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    put_role(store, "reader", rule("get", "pods"), namespace="x")
    put_binding(store, "here", "reader", account_subject("a"), namespace="x")
    put_binding(store, "there", "reader", account_subject("a", "y"), namespace="x")
    assert may(authorizer, users.service_account_user("x", "a"), "get", "pods", "x")
    assert may(authorizer, users.service_account_user("y", "a"), "get", "pods", "x")
    assert not may(authorizer, users.service_account_user("z", "a"), "get", "pods", "x")


def test_names_of_resources() -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    put_role(store, "one", rule("get", "configmaps", names="a"))
    put_binding(store, "b", "one", user_subject("bob"))
    assert may(authorizer, BOB, "get", "configmaps", "x", name="a")
    assert not may(authorizer, BOB, "get", "configmaps", "x", name="b")
    assert not may(authorizer, BOB, "get", "configmaps", "x")


def test_the_reason_names_the_binding() -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    put_role(store, "reader", rule("get", "pods"))
    put_binding(store, "b", "reader", user_subject("bob"))
    decision = authorizer.authorize(Attributes(BOB, "get", resource="pods"))
    assert decision.reason == 'RBAC: allowed by ClusterRoleBinding "b" of ClusterRole "reader" to User "bob"'


def test_a_denial_names_the_roles_that_are_missing() -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    put_binding(store, "b", "gone", user_subject("bob"))
    put_binding(store, "c", "gone-too", user_subject("bob"), namespace="x")
    asked = Attributes(BOB, "get", resource="pods", namespace="x")
    assert authorizer.authorize(asked).reason == (
        f'RBAC: [clusterrole.{RBAC} "gone" not found, role.{RBAC} "gone-too" not found]'
    )
    with pytest.raises(ApiError) as refused:
        authorizer.require(asked._replace(namespace="y"))
    assert refused.value.code == 403
    assert refused.value.message == (
        'pods is forbidden: User "bob" cannot get resource "pods" in API group "" in the namespace "y": '
        f'RBAC: clusterrole.{RBAC} "gone" not found'
    )


def test_refusals_read_as_in_kubernetes() -> None:
    authorizer = new_authorizer(new_store())
    with pytest.raises(ApiError) as refused:
        authorizer.require(
            Attributes(BOB, "get", "resource.k8s.io", "v1", "resourceclaims", "status", "x", "y")
        )
    assert refused.value.message == (
        'resourceclaims.resource.k8s.io "y" is forbidden: User "bob" cannot get resource '
        '"resourceclaims/status" in API group "resource.k8s.io" in the namespace "x"'
    )
    assert refused.value.details == {"name": "y", "group": "resource.k8s.io", "kind": "resourceclaims"}
    with pytest.raises(ApiError, match=r'^forbidden: User "bob" cannot get path "/foo"$'):
        authorizer.require(Attributes(BOB, "get", path="/foo"))
    with pytest.raises(ApiError, match=r"at the cluster scope$"):
        authorizer.require(Attributes(BOB, "list", resource="nodes"))


def test_roles_aggregate_by_label() -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    put_binding(store, "b", "view", user_subject("bob"), namespace="x", kind="ClusterRole")
    put_binding(store, "c", "admin", user_subject("eve"), namespace="x", kind="ClusterRole")
    eve = User("eve")
    assert may(authorizer, BOB, "get", "pods", "x")
    assert not may(authorizer, BOB, "get", "secrets", "x")
    # admin holds edit, which holds view
    assert may(authorizer, eve, "get", "pods", "x")
    assert may(authorizer, eve, "create", "roles", "x", group=RBAC)
    put_role(
        store,
        "widgets",
        rule("get", "widgets", "example.com"),
        metadata={"labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
    )
    assert may(authorizer, BOB, "get", "widgets", "x", group="example.com")
    assert may(authorizer, eve, "get", "widgets", "x", group="example.com")


def test_aggregation_cycles_are_harmless() -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    for name, other in (("a", "b"), ("b", "a")):
        put_role(
            store,
            name,
            rule("get", name),
            metadata={"labels": {"circle": name}},
            aggregationRule={
                "clusterRoleSelectors": [
                    {"matchExpressions": [{"key": "circle", "operator": "In", "values": [other]}]}
                ]
            },
        )
    put_binding(store, "c", "a", user_subject("bob"))
    assert may(authorizer, BOB, "get", "a")
    assert may(authorizer, BOB, "get", "b")


def test_built_in_roles_cannot_be_removed() -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    scheduler = users.SCHEDULER
    put_role(store, "system:kube-scheduler", rule("get", "widgets"))
    assert may(authorizer, scheduler, "list", "pods")
    assert may(authorizer, scheduler, "get", "widgets")
    remove(store, f"clusterroles.{RBAC}", "system:kube-scheduler")
    assert may(authorizer, scheduler, "list", "pods")
    assert not may(authorizer, scheduler, "get", "widgets")


def test_the_scheduler_binds_and_does_not_make_pods() -> None:
    authorizer = new_authorizer(new_store())
    dra = {"group": "resource.k8s.io"}
    scheduler = users.SCHEDULER
    assert may(authorizer, scheduler, "create", "pods", "x", subresource="binding")
    assert may(authorizer, scheduler, "update", "resourceclaims", "x", subresource="status", **dra)
    assert may(authorizer, scheduler, "patch", "resourceclaims", "x", subresource="binding", **dra)
    assert not may(authorizer, scheduler, "create", "pods", "x")
    assert not may(authorizer, scheduler, "get", "secrets", "x")
    assert not may(authorizer, scheduler, "update", "resourceslices", **dra)


def test_a_driver_reports_of_its_own_devices_only() -> None:
    authorizer = new_authorizer(new_store())
    driver = users.driver_user("gpu.example.com")
    dra = {"group": "resource.k8s.io"}
    assert may(authorizer, driver, "create", "resourceslices", **dra)
    report = {"subresource": "driver", **dra}
    verb = "arbitrary-node:update"
    assert may(authorizer, driver, verb, "resourceclaims", "x", name="gpu.example.com", **report)
    assert not may(authorizer, driver, verb, "resourceclaims", "x", name="nic.example.com", **report)
    assert not may(authorizer, driver, "update", "resourceclaims", "x", subresource="binding", **dra)
    assert not may(authorizer, driver, "get", "secrets", "x")
    assert may(authorizer, driver, "list", "pods", "x")
    assert not may(authorizer, driver, "update", "pods", "x")
    impostor = User("plimsoll:driver:gpu.example.com", groups=(ALL_AUTHENTICATED,))
    assert not may(authorizer, impostor, "create", "resourceslices", **dra)


def test_a_viewer_sees_everything_but_secrets() -> None:
    authorizer = new_authorizer(new_store())
    viewer = User("v", groups=(users.VIEWERS,))
    assert may(authorizer, viewer, "list", "nodes")
    assert may(authorizer, viewer, "watch", "resourceslices", group="resource.k8s.io")
    assert authorizer.allows(Attributes(viewer, "get", path="/metrics"))
    assert not may(authorizer, viewer, "get", "secrets", "x")
    for verb in ("create", "update", "patch", "delete", "deletecollection", "impersonate"):
        assert not may(authorizer, viewer, verb, "pods", "x")
        assert not may(authorizer, viewer, verb, "resourceslices", group="resource.k8s.io")


@pytest.mark.parametrize(
    "tree",
    [
        {"rules": "x"},
        {"rules": [1, None, {"verbs": 3}]},
        {"aggregationRule": {"clusterRoleSelectors": [1, {"matchLabels": []}, {"matchExpressions": [3]}]}},
        {"aggregationRule": [], "metadata": {"labels": []}},
        {"roleRef": [], "subjects": {}},
        {"roleRef": {"kind": 1, "name": {}}, "subjects": [None, {"kind": "User", "name": 1}]},
        {"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}, "subjects": "bob"},
    ],
)
def test_malformed_objects_grant_nothing_and_are_isolated(tree: dict[str, Any]) -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    put_role(store, "reader", rule("get", "pods"))
    put_binding(store, "b", "reader", user_subject("bob"))
    for plural in ("clusterroles", "roles", "clusterrolebindings", "rolebindings"):
        put(store, f"{plural}.{RBAC}", "odd", tree, "x" if plural in ("roles", "rolebindings") else "")
    assert may(authorizer, BOB, "get", "pods", "x")
    assert not may(authorizer, BOB, "delete", "pods", "x")


def test_the_cache_per_user_is_bounded() -> None:
    authorizer = new_authorizer(new_store())
    for number in range(4100):
        may(authorizer, User(f"u{number}"), "get", "pods")
    assert len(authorizer.grants_by_user) <= 4096


def allowed_naively(store: Store, asked: Attributes) -> bool:
    """Read all stored objects again and try every rule."""
    grants = [
        grant
        for namespace, grant in RoleIndex(store).grants_of(asked.user)
        if namespace in ("", asked.namespace)
    ]
    return users.MASTERS in asked.user.groups or any(grant.rule.allows(asked) for grant in grants)


RULES = st.builds(
    rule,
    st.sampled_from(["get", "list", "*", "get list"]),
    st.sampled_from(["pods", "*", "pods/status", "*/status"]),
    st.sampled_from(["", "*"]),
    st.sampled_from(["", "a"]),
)
SUBJECTS = st.sampled_from(
    [user_subject("bob"), group_subject("team"), account_subject("sa"), account_subject("sa", "y")]
)
ROLES = st.sampled_from(["r1", "r2", "view", "gone"])
STEPS = st.one_of(
    st.tuples(st.just("role"), ROLES, st.sampled_from(["", "x"]), st.lists(RULES, max_size=2)),
    st.tuples(
        st.just("binding"),
        st.sampled_from(["b1", "b2"]),
        st.sampled_from(["", "x", "y"]),
        st.tuples(ROLES, st.sampled_from(["Role", "ClusterRole"]), st.lists(SUBJECTS, max_size=2)),
    ),
    st.tuples(st.just("drop"), st.sampled_from(["r1", "b1"]), st.sampled_from(["", "x"]), st.none()),
)
ASKERS = st.sampled_from(
    [BOB, User("bob"), User("eve", groups=("team",)), users.service_account_user("x", "sa")]
)
QUESTIONS = st.builds(
    Attributes,
    ASKERS,
    st.sampled_from(["get", "list", "delete"]),
    st.just(""),
    st.just("v1"),
    st.sampled_from(["pods", "nodes"]),
    st.sampled_from(["", "status"]),
    st.sampled_from(["", "x", "y"]),
    st.sampled_from(["", "a", "b"]),
)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(STEPS, st.lists(QUESTIONS, min_size=1, max_size=4)), max_size=8))
def test_cached_decisions_equal_uncached_ones(history: list[tuple[Any, list[Attributes]]]) -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    for (step, name, namespace, what), questions in history:
        if step == "role":
            put_role(store, name, *what, namespace=namespace)
        elif step == "binding":
            role, kind, subjects = what
            put_binding(store, name, role, *subjects, namespace=namespace, kind=kind)
        else:
            plurals = ("roles", "rolebindings") if namespace else ("clusterroles", "clusterrolebindings")
            for plural in plurals:
                remove(store, f"{plural}.{RBAC}", name, namespace)
        for question in questions:
            assert authorizer.allows(question) == allowed_naively(store, question)


def test_only_what_changed_is_decoded_again() -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    put_role(store, "a", rule("get", "pods"))
    put_role(store, "b", rule("get", "pods"))
    may(authorizer, BOB, "get", "pods")
    kept = authorizer.roles.decoded[ObjectKey(f"clusterroles.{RBAC}", "", "a")]
    put_role(store, "b", rule("list", "pods"))
    may(authorizer, BOB, "get", "pods")
    assert authorizer.roles.decoded[ObjectKey(f"clusterroles.{RBAC}", "", "a")] is kept
