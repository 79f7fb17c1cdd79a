"""Adoption and release of objects by selector and controller reference."""

from __future__ import annotations

from typing import Any

from plimsoll.api.label_selection import CompiledLabelSelector, compile_label_selector
from plimsoll.api.meta import LabelSelector
from plimsoll.client.endpoints import PODS, REPLICA_SETS
from plimsoll.controllers.workloads.ownership import claim_objects
from tests.unit.controllers.makers import owner
from tests.unit.controllers.workloads.makers import LABELS, owned_pod, replica_set

DELETED = "2026-01-01T00:00:00Z"


def selector() -> CompiledLabelSelector:
    compiled = compile_label_selector(LabelSelector(match_labels=LABELS))
    assert isinstance(compiled, CompiledLabelSelector)
    return compiled


def claim(*pods: Any, deleted: bool = False, finalizer: str = "") -> Any:
    meta: Any = {"metadata": {"name": "w", "namespace": "n", "uid": "uid-w", "deletionTimestamp": DELETED}}
    mine = replica_set(**meta) if deleted else replica_set()
    return claim_objects(mine.metadata, REPLICA_SETS, PODS, selector(), pods, finalizer)


def test_own_pods_are_owned_and_those_of_others_are_not() -> None:
    own, other = owned_pod("a"), owned_pod("b", of="x")
    owned = claim(own, other)
    assert owned.items == [own]
    assert not owned.adoptions
    assert not owned.releases


def test_matching_orphans_are_adopted() -> None:
    orphan = owned_pod("a", ownerReferences=[owner("x", "ConfigMap")])
    owned = claim(orphan, finalizer="example.com/f")
    assert owned.items == [orphan]
    (adoption,) = owned.adoptions
    change = adoption.patch["metadata"]
    assert change["uid"] == "uid-a"
    assert change["finalizers"] == ["example.com/f"]
    (reference,) = change["ownerReferences"]
    assert (reference["kind"], reference["uid"], reference["controller"]) == ("ReplicaSet", "uid-w", True)


def test_orphans_that_are_deleted_or_do_not_match_are_left_alone() -> None:
    owned = claim(
        owned_pod("a", ownerReferences=[], deletionTimestamp=DELETED),
        owned_pod("b", ownerReferences=[], labels={"app": "x"}),
    )
    assert not owned.items
    assert not owned.adoptions


def test_a_deleted_owner_adopts_and_releases_nothing() -> None:
    owned = claim(owned_pod("a", ownerReferences=[]), owned_pod("b", labels={}), deleted=True)
    assert (owned.items, owned.adoptions, owned.releases) == ([], (), ())


def test_own_pods_that_no_longer_match_are_released() -> None:
    owned = claim(owned_pod("a", labels={}), finalizer="example.com/f")
    assert not owned.items
    (release,) = owned.releases
    change = release.patch["metadata"]
    assert change["ownerReferences"] == [{"$patch": "delete", "uid": "uid-w"}]
    assert change["$deleteFromPrimitiveList/finalizers"] == ["example.com/f"]
