"""Objects that a previous leader may still be writing to."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.codec import convert
from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.scheduler.binding.recovery import find_fence_targets
from plimsoll.scheduler.binding.writer import FINALIZER

ALLOCATED: dict[str, Any] = {"devices": {"results": []}}


def make_pod(name: str, node: str = "", *, deleted: bool = False, gated: bool = False) -> Pod:
    meta = {"name": name, "uid": name, **({"deletionTimestamp": "2026-01-01T00:00:00Z"} if deleted else {})}
    spec = {"nodeName": node, **({"schedulingGates": [{"name": "g"}]} if gated else {})}
    return convert({"metadata": meta, "spec": spec}, Pod)


def make_claim(name: str, *consumers: str, allocated: bool = True, finalizer: bool = True) -> ResourceClaim:
    reserved = [{"resource": "pods", "name": each, "uid": each} for each in consumers]
    status = {"allocation": ALLOCATED, "reservedFor": reserved} if allocated else {}
    meta = {"name": name, "uid": name, "finalizers": [FINALIZER] if finalizer else []}
    return convert({"metadata": meta, "status": status}, ResourceClaim)


def test_pods_that_may_still_be_bound() -> None:
    pods = [
        make_pod("pending"),
        make_pod("bound", "n1"),
        make_pod("deleted", deleted=True),
        make_pod("gated", gated=True),
    ]
    assert [pod.metadata.name for pod in find_fence_targets([], pods).pods] == ["pending"]


def test_claims_that_may_still_be_allocated_or_released() -> None:
    pods = [make_pod("pending"), make_pod("bound", "n1"), make_pod("deleted", deleted=True)]
    claims = [
        make_claim("untouched", allocated=False, finalizer=False),
        make_claim("begun", allocated=False),
        make_claim("for-bound", "bound"),
        make_claim("for-pending", "pending"),
        make_claim("for-both", "bound", "pending"),
        make_claim("for-deleted", "deleted"),
        make_claim("unreserved"),
    ]
    found = find_fence_targets(claims, pods)
    assert [claim.metadata.name for claim in found.claims] == [
        "begun",
        "for-pending",
        "for-both",
        "for-deleted",
    ]
    assert len(found) == 5


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.sets(st.sampled_from("abcd"))), max_size=6),
    st.sets(st.sampled_from("abcd")),
)
def test_only_settled_claims_are_left_out(claims: list[tuple[bool, bool, set[str]]], bound: set[str]) -> None:
    """A claim is left alone only if no write of a binding could concern it."""
    pods = [make_pod(name, "n1" if name in bound else "") for name in "abcd"]
    made = [
        make_claim(str(number), *sorted(users), allocated=allocated, finalizer=finalizer)
        for number, (allocated, finalizer, users) in enumerate(claims)
    ]
    fenced = {claim.metadata.name for claim in find_fence_targets(made, pods).claims}
    for number, (allocated, finalizer, users) in enumerate(claims):
        settled = users <= bound if allocated else not finalizer
        assert (str(number) in fenced) != settled
