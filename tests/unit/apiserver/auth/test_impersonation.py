"""Tests of impersonation."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.auth.impersonation import impersonate
from plimsoll.apiserver.auth.users import ADMIN, ANONYMOUS, User
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

Headers = list[tuple[str, str]]


def as_(*headers: tuple[str, str], user: User = ADMIN) -> User:
    return impersonate(user, headers, new_authorizer(new_store()))


def test_without_headers_the_user_is_unchanged() -> None:
    assert as_(("Accept", "x"), ("X-Impersonate-User", "y")) is ADMIN


def test_users_get_the_authenticated_group() -> None:
    assert as_(("Impersonate-User", "eve")) == User("eve", groups=("system:authenticated",))
    named = as_(("impersonate-user", "eve"), ("IMPERSONATE-GROUP", "a"), ("Impersonate-Group", "b"))
    assert named.groups == ("a", "b", "system:authenticated")
    already = as_(("Impersonate-User", "eve"), ("Impersonate-Group", "system:unauthenticated"))
    assert already.groups == ("system:unauthenticated",)


def test_service_accounts_get_their_groups() -> None:
    account = as_(("Impersonate-User", "system:serviceaccount:x:a"))
    assert account.groups == ("system:serviceaccounts", "system:serviceaccounts:x", "system:authenticated")
    named = as_(("Impersonate-User", "system:serviceaccount:x:a"), ("Impersonate-Group", "g"))
    assert named.groups == ("g", "system:authenticated")


def test_anonymous_stays_anonymous() -> None:
    assert as_(("Impersonate-User", "system:anonymous")) == ANONYMOUS
    named = as_(("Impersonate-User", "system:anonymous"), ("Impersonate-Group", "system:unauthenticated"))
    assert named == ANONYMOUS


def test_uid_and_extra() -> None:
    user = as_(
        ("Impersonate-User", "eve"),
        ("Impersonate-Uid", "7"),
        ("Impersonate-Extra-Scopes", "a"),
        ("Impersonate-Extra-scopes", "b"),
        ("Impersonate-Extra-Acme.com%2Fproject", "c"),
        ("Impersonate-Extra-%ff", "d"),
    )
    assert user.uid == "7"
    assert user.extra == {"scopes": ("a", "b"), "acme.com/project": ("c",), "%ff": ("d",)}


@pytest.mark.parametrize(
    "header", [("Impersonate-Group", "g"), ("Impersonate-Uid", "7"), ("Impersonate-Extra-a", "b")]
)
def test_a_user_must_be_named(header: tuple[str, str]) -> None:
    with pytest.raises(ApiError) as caught:
        as_(header)
    assert caught.value.code == 400


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([("Impersonate-User", "eve")], 'users "eve" is forbidden: User "bob" cannot impersonate'),
        ([("Impersonate-User", "ok"), ("Impersonate-Group", "g")], 'resource "groups" in API group ""'),
        (
            [("Impersonate-User", "ok"), ("Impersonate-Extra-a", "b")],
            'resource "userextras/a" in API group "authentication.k8s.io"',
        ),
        ([("Impersonate-User", "ok"), ("Impersonate-Uid", "7")], 'resource "uids"'),
        (
            [("Impersonate-User", "system:serviceaccount:y:a")],
            'resource "serviceaccounts" in API group "" in the namespace "y"',
        ),
    ],
)
def test_each_impersonated_attribute_needs_permission(headers: Headers, why: str) -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    put_role(store, "as", rule("impersonate", "users", names="ok"))
    put_role(store, "as", rule("impersonate", "serviceaccounts", names="a"), namespace="x")
    put_binding(store, "b", "as", user_subject("bob"))
    put_binding(store, "b", "as", user_subject("bob"), namespace="x")
    assert impersonate(BOB, [("Impersonate-User", "ok")], authorizer).name == "ok"
    assert impersonate(BOB, [("Impersonate-User", "system:serviceaccount:x:a")], authorizer)
    with pytest.raises(ApiError) as caught:
        impersonate(BOB, headers, authorizer)
    assert caught.value.code == 403
    assert why in caught.value.message


@given(
    st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "Impersonate-User",
                    "Impersonate-Group",
                    "Impersonate-Uid",
                    "Impersonate-Extra-",
                    "Impersonate-",
                ]
            )
            | st.text(max_size=5).map("Impersonate-Extra-{}".format),
            st.text(max_size=8),
        ),
        max_size=4,
    ),
    st.sampled_from([ADMIN, BOB, ANONYMOUS]),
)
def test_any_headers_are_accepted_or_refused(headers: Headers, user: User) -> None:
    with contextlib.suppress(ApiError):
        found = as_(*headers, user=user)
        assert found is user or user is ADMIN
