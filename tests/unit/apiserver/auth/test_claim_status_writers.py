"""Tests of the writer of a claim's status."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plimsoll.apiserver.auth.claim_status_writers import caller_for
from plimsoll.apiserver.auth.users import (
    ADMIN,
    EXTRA_NODE_NAME,
    SCHEDULER,
    User,
    driver_user,
    service_account_user,
)
from plimsoll.apiserver.validation.claim_status_authorization import Permission
from tests.unit.apiserver.auth.objects import (
    BOB,
    account_subject,
    new_authorizer,
    new_store,
    put_binding,
    put_role,
    rule,
    user_subject,
)

ACCOUNT = replace(service_account_user("x", "a"), extra={EXTRA_NODE_NAME: ("n1",)})


@pytest.mark.parametrize(
    ("user", "node"),
    [
        (ACCOUNT, "n1"),
        (service_account_user("x", "a"), ""),
        (replace(ACCOUNT, extra={EXTRA_NODE_NAME: ("n1", "n2")}), ""),
        (User("bob", extra={EXTRA_NODE_NAME: ("n1",)}), ""),
        (ADMIN, ""),
    ],
)
def test_only_a_bound_service_account_is_on_a_node(user: User, node: str) -> None:
    caller = caller_for(user, new_authorizer(new_store()), "patch")
    assert caller.node == node
    assert caller.verb == "patch"


def test_permissions_come_from_the_authorizer() -> None:
    store = new_store()
    authorizer = new_authorizer(store)
    bind, report = Permission("update", "binding"), Permission("arbitrary-node:update", "driver", "x", "d")
    local = Permission("associated-node:update", "driver", "x", "d")
    assert caller_for(SCHEDULER, authorizer, "update").permits(bind)
    assert not caller_for(SCHEDULER, authorizer, "update").permits(report)
    assert caller_for(ADMIN, authorizer, "update").permits(report)
    assert caller_for(driver_user("d"), authorizer, "update").permits(report)
    assert not caller_for(driver_user("e"), authorizer, "update").permits(report)
    assert not caller_for(BOB, authorizer, "update").permits(bind)
    put_role(store, "r", rule("arbitrary-node:update", "resourceclaims/driver", "resource.k8s.io", "d"))
    put_binding(store, "b", "r", user_subject("bob"))
    assert caller_for(BOB, authorizer, "update").permits(report)
    assert not caller_for(ACCOUNT, authorizer, "update").permits(local)
    put_binding(store, "node-driver", "plimsoll:node-driver", account_subject("a", "x"))
    assert caller_for(ACCOUNT, authorizer, "update").permits(local)
    assert not caller_for(ACCOUNT, authorizer, "update").permits(report)
