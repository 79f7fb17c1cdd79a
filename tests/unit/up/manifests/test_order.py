"""Order of manifests, independent of the order of files."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.up.manifests.order import WAITING, arrange, missing_accounts, missing_namespaces, rank_of

KINDS = (
    "Pod", "Namespace", "Node", "ResourceSlice", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate",
    "Deployment", "ReplicaSet", "Widget", "CustomResourceDefinition", "ResourceQuota", "PriorityClass",
)  # fmt: skip
#: Who must be there before whom.
BEFORE = (
    ("Namespace", "ResourceClaim"),
    ("CustomResourceDefinition", "Widget"),
    ("DeviceClass", "ResourceClaim"),
    ("Node", "ResourceSlice"),
    ("ResourceSlice", "ResourceClaim"),
    ("ResourceClaimTemplate", "Pod"),
    ("ResourceClaim", "Pod"),
    ("ResourceQuota", "Pod"),
    ("PriorityClass", "Pod"),
    ("Pod", "ReplicaSet"),
    ("ReplicaSet", "Deployment"),
    ("Widget", "Pod"),
)


def found(kind: str, name: str, namespace: str = "", **rest: Any) -> ParsedObject:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return ParsedObject({"apiVersion": "v1", "kind": kind, "metadata": metadata, **rest}, "file", 1, 1)


bound: dict[str, Any] = {"spec": {"nodeName": "n"}}
objects = st.lists(
    st.builds(
        found,
        st.sampled_from(KINDS),
        st.sampled_from("abcdef"),
        st.sampled_from(["", "x", "y"]),
        spec=st.sampled_from([{}, {"nodeName": "n"}]),
    ),
    max_size=30,
)


@given(objects)
def test_groups_agree_with_sorting_by_rank(objects: list[ParsedObject]) -> None:
    flat = [each for group in arrange(objects) for each in group]
    # Naive: of two of a name the last one, at the place of the first; then sorted.
    last: dict[tuple[str, str, str], ParsedObject] = {}
    for each in objects:
        last[each.kind, each.tree["metadata"].get("namespace") or "default", each.name] = each
    assert flat == sorted(last.values(), key=lambda each: rank_of(each.tree))


@given(objects, st.randoms())
def test_the_order_of_files_does_not_matter(objects: list[ParsedObject], random: Any) -> None:
    unique = [each for group in arrange(objects) for each in group]
    shuffled = list(unique)
    random.shuffle(shuffled)
    key = lambda each: (each.kind, repr(each.tree))  # noqa: E731
    assert [sorted(group, key=key) for group in arrange(shuffled)] == [
        sorted(group, key=key) for group in arrange(unique)
    ]


def test_referenced_objects_come_first() -> None:
    for first, second in BEFORE:
        assert rank_of(found(first, "a", **bound).tree) < rank_of(found(second, "b", **bound).tree), (
            first,
            second,
        )


def test_workloads_come_after_pods_that_wait() -> None:
    assert rank_of(found("Pod", "waits").tree) < rank_of(found("ReplicaSet", "r").tree)


def test_pending_pods_come_last() -> None:
    groups = arrange([found("Pod", "waits"), found("Pod", "runs", **bound), found("Node", "n")])
    assert [[each.name for each in group] for group in groups] == [["n"], ["runs"], ["waits"]]
    assert rank_of(found("Pod", "waits").tree) == WAITING
    assert rank_of(found("Pod", "ended", status={"phase": "Failed"}).tree) < WAITING


def test_missing_namespaces() -> None:
    objects = [found("Namespace", "there"), found("Pod", "a", "there"), found("Pod", "b", "gone")]
    objects += [found("Pod", "c"), found("Pod", "d", "default"), found("Node", "n")]
    assert missing_namespaces(objects) == {"gone": {}}


def test_a_namespace_with_admin_access_had_its_label() -> None:
    requests = [{"name": "r", "exactly": {"deviceClassName": "c", "adminAccess": True}}]
    claim = found("ResourceClaim", "a", "x", spec={"devices": {"requests": requests}})
    assert missing_namespaces([claim]) == {"x": {}}  # a manifest: no permissions were granted
    claim.tree["metadata"]["uid"] = "1"
    assert missing_namespaces([claim]) == {"x": {"resource.kubernetes.io/admin-access": "true"}}
    for broken in ({"devices": None}, {"devices": {"requests": [7]}}, None):
        claim.tree["spec"] = broken
        assert missing_namespaces([claim]) == {"x": {}}


def test_missing_service_accounts_of_dumped_objects() -> None:
    template = {"template": {"spec": {"serviceAccountName": "web"}}}
    objects = [
        found("Pod", "a", "x", spec={"serviceAccountName": "robot"}),
        found("Pod", "b", "x", spec={"serviceAccountName": "default"}),
        found("Pod", "c", "x", spec={"serviceAccountName": "there"}),
        found("Deployment", "d", "x", spec=template),
        found("CronJob", "e", "x", spec={"jobTemplate": {"spec": template}}),
        found("Pod", "f", "y", spec=None),
        found("Service", "g", "y", spec={}),
        found("ServiceAccount", "there", "x"),
    ]
    assert missing_accounts(objects) == []  # manifests: the refusal of the pod names the account
    for each in objects:
        each.tree["metadata"]["uid"] = each.name
    assert missing_accounts(objects) == [("x", "robot"), ("x", "web")]
