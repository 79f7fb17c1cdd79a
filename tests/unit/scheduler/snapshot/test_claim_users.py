"""Users of claims, compared with a search of all pods."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import resolve_claim_names
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.snapshot.claim_users import ClaimUsers
from tests.build import DRIVER, POOL, claim, exactly, pod, result

CLAIMS = ("a", "b", "c")
#: The claims that are known, with their class; of "c" only the name is.
KNOWN = {
    name: claim(name, exactly(device_class=f"class-{name}"), results=[result("d0")] if name == "a" else [])
    for name in "ab"
}


def find(namespace: str, name: str) -> ResourceClaim | None:
    return KNOWN.get(name) if namespace == "default" else None


def users_of(pods: dict[str, Pod], *names: str) -> set[str]:
    """Search all pods."""
    return {
        pod_key(each)
        for each in pods.values()
        if each.metadata.namespace == "default" and set(resolve_claim_names(each).values()) & set(names)
    }


@given(st.data())
def test_users_are_those_of_the_pods_that_are_there(data: st.DataObject) -> None:
    users = ClaimUsers()
    pods: dict[str, Pod] = {}
    for number in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()) and pods:
            users.remove(pods.pop(data.draw(st.sampled_from(sorted(pods)))))
        else:
            names = data.draw(st.lists(st.sampled_from(CLAIMS), unique=True))
            new = pod(f"p{number}", namespace=data.draw(st.sampled_from(["default", "other"])), claims=names)
            pods[pod_key(new)] = new
            users.add(new)
        if data.draw(st.booleans()):  # asked only now and then: pods are indexed by questions
            for name in CLAIMS:
                assert users.of("default", name) == users_of(pods, name)
            assert users.with_class("class-b", find) == users_of(pods, "b")
            assert users.with_pool(DRIVER, POOL, find) == users_of(pods, "a")
            assert users.with_class("class-c", find) == set()
