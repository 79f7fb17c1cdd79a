"""Access, rules and token reviews."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.auth.authentication import Authenticator
from plimsoll.apiserver.auth.reviews import KINDS, ReviewHandler
from plimsoll.apiserver.auth.service_accounts import ISSUER, ServiceAccountTokens
from plimsoll.apiserver.auth.signing_key import SigningKey
from plimsoll.apiserver.auth.token_file import StaticTokens
from plimsoll.apiserver.auth.users import ADMIN, User, node_user
from plimsoll.errors import ApiError
from tests.unit.apiserver.auth.objects import (
    BOB,
    new_authorizer,
    new_store,
    put_binding,
    put_role,
    rule,
    user_subject,
)

KEY = SigningKey.create()


def new_reviews() -> ReviewHandler:
    store = new_store()
    put_role(store, "reader", rule("get", "pods"), namespace="x")
    put_binding(store, "b", "reader", user_subject("bob"), namespace="x")
    accounts = ServiceAccountTokens(store, KEY)
    return ReviewHandler(new_authorizer(store), Authenticator(StaticTokens(admin="letmein"), accounts))


REVIEWS = new_reviews()
GET_PODS = {"resourceAttributes": {"verb": "get", "resource": "pods", "namespace": "x"}}


def status_of(plural: str, spec: Any, user: User = BOB, namespace: str = "") -> Any:
    return REVIEWS.review(plural, user, {"spec": spec}, namespace=namespace)["status"]


def test_self_subject_access_reviews() -> None:
    answer = REVIEWS.review("selfsubjectaccessreviews", BOB, {"spec": GET_PODS})
    assert answer["kind"] == "SelfSubjectAccessReview"
    assert answer["apiVersion"] == "authorization.k8s.io/v1"
    assert answer["spec"] == GET_PODS
    assert answer["status"]["allowed"] is True
    assert answer["status"]["reason"] == ('RBAC: allowed by RoleBinding "b/x" of Role "reader" to User "bob"')
    refused = {"resourceAttributes": {"verb": "delete", "resource": "pods", "namespace": "x"}}
    assert status_of("selfsubjectaccessreviews", refused) == {"allowed": False}
    path = {"nonResourceAttributes": {"verb": "get", "path": "/healthz"}}
    assert status_of("selfsubjectaccessreviews", path)["allowed"] is True


def test_subject_access_reviews() -> None:
    plural = "subjectaccessreviews"
    assert status_of(plural, {**GET_PODS, "user": "bob"}, ADMIN)["allowed"] is True
    assert status_of(plural, {**GET_PODS, "user": "eve"}, ADMIN)["allowed"] is False
    masters = {**GET_PODS, "groups": ["system:masters"]}
    assert status_of(plural, masters, BOB) == {"allowed": True}
    extra = {**GET_PODS, "user": "bob", "uid": "1", "extra": {"a": ["b"], "odd": 3}}
    assert status_of(plural, extra)["allowed"] is True


def test_local_reviews_stay_in_their_namespace() -> None:
    plural = "localsubjectaccessreviews"
    assert status_of(plural, {**GET_PODS, "user": "bob"}, namespace="x")["allowed"] is True
    for spec in ({**GET_PODS, "user": "bob"}, {"user": "bob", "nonResourceAttributes": {"path": "/x"}}):
        with pytest.raises(ApiError) as caught:
            status_of(plural, spec, namespace="y")
        assert caught.value.code == 422


@pytest.mark.parametrize(
    "selector",
    [
        {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]},
        {"rawSelector": "spec.nodeName=n1"},
        {"rawSelector": "metadata.namespace!=x,spec.nodeName==n1"},
    ],
)
def test_field_selectors_count_for_nodes(selector: Any) -> None:
    attributes = {"verb": "list", "resource": "pods"}
    spec = {"resourceAttributes": {**attributes, "fieldSelector": selector}}
    assert status_of("selfsubjectaccessreviews", spec, node_user("n1"))["allowed"] is True
    assert status_of("selfsubjectaccessreviews", spec, node_user("n2"))["allowed"] is False
    without = {"resourceAttributes": attributes}
    assert status_of("selfsubjectaccessreviews", without, node_user("n1"))["allowed"] is False


def test_self_subject_rules_reviews() -> None:
    status = status_of("selfsubjectrulesreviews", {"namespace": "x"})
    assert {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]} in status["resourceRules"]
    assert any("/healthz" in rule["nonResourceURLs"] for rule in status["nonResourceRules"])
    assert status["incomplete"] is False
    elsewhere = status_of("selfsubjectrulesreviews", {"namespace": "y"})
    assert {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]} not in elsewhere["resourceRules"]
    assert status_of("selfsubjectrulesreviews", {"namespace": "x"}, node_user("n"))["incomplete"] is True
    with pytest.raises(ApiError, match="no namespace on request"):
        status_of("selfsubjectrulesreviews", {})


def test_self_subject_reviews() -> None:
    user = User("eve", "7", ("g",), {"a": ("b",)})
    answer = REVIEWS.review("selfsubjectreviews", user, {}, now="2027-01-01T00:00:00Z")
    assert answer == {
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": "2027-01-01T00:00:00Z"},
        "status": {"userInfo": {"username": "eve", "uid": "7", "groups": ["g"], "extra": {"a": ["b"]}}},
    }


def test_token_reviews() -> None:
    status = status_of("tokenreviews", {"token": "letmein"}, ADMIN)
    assert status == {
        "authenticated": True,
        "user": {"username": ADMIN.name, "groups": list(ADMIN.groups)},
        "audiences": [ISSUER],
    }
    refused = {"user": {}, "error": "invalid bearer token"}
    assert status_of("tokenreviews", {"token": "nope"}, ADMIN) == refused
    assert status_of("tokenreviews", {"token": "letmein", "audiences": ["x"]}, ADMIN) == refused
    for spec in ({}, {"token": ""}, {"token": 3}, {"token": "a", "audiences": "b"}):
        with pytest.raises(ApiError) as caught:
            status_of("tokenreviews", spec, ADMIN)
        assert caught.value.code == 400


@pytest.mark.parametrize(
    ("plural", "spec", "code"),
    [
        ("selfsubjectaccessreviews", {}, 422),
        ("selfsubjectaccessreviews", {"resourceAttributes": {}, "nonResourceAttributes": {}}, 422),
        ("selfsubjectaccessreviews", {"resourceAttributes": []}, 400),
        ("selfsubjectaccessreviews", {"resourceAttributes": {"verb": 1}}, 400),
        ("selfsubjectaccessreviews", [], 400),
        ("subjectaccessreviews", GET_PODS, 422),
        ("subjectaccessreviews", {**GET_PODS, "user": 1}, 400),
        ("subjectaccessreviews", {**GET_PODS, "user": "u", "groups": "g"}, 400),
    ],
)
def test_refusals(plural: str, spec: Any, code: int) -> None:
    with pytest.raises(ApiError) as caught:
        status_of(plural, spec)
    assert caught.value.code == code


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    *(
                        "resourceAttributes",
                        "nonResourceAttributes",
                        "user",
                        "groups",
                        "extra",
                        "token",
                        "spec",
                    ),
                    *(
                        "verb",
                        "path",
                        "fieldSelector",
                        "rawSelector",
                        "requirements",
                        "namespace",
                        "metadata",
                    ),
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(st.sampled_from(sorted(KINDS)), JSON, st.booleans())
def test_any_review_is_answered_or_refused(plural: str, tree: Any, wrapped: bool) -> None:
    try:
        REVIEWS.review(plural, BOB, {"spec": tree} if wrapped else tree)
    except ApiError as error:
        if error.code not in (400, 422):
            raise
