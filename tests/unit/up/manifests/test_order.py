"""Order of manifests, independent of the order of files."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.up.manifests.order import arrange, missing_namespaces, rank_of

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


def test_missing_namespaces() -> None:
    objects = [found("Namespace", "there"), found("Pod", "a", "there"), found("Pod", "b", "gone")]
    objects += [found("Pod", "c"), found("Pod", "d", "default"), found("Node", "n")]
    assert missing_namespaces(objects) == ["gone"]
