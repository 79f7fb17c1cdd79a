"""Node graph: the index agrees with reading every object."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.api.codec import decode_tree
from plimsoll.apiserver.auth import node_graph
from plimsoll.apiserver.auth.node_graph import SOURCES, NodeGraph
from plimsoll.apiserver.auth.pod_references import (
    PodReference,
    pod_references,
    volume_claim,
    volume_secrets,
)
from plimsoll.apiserver.json_values import mapping, text
from plimsoll.apiserver.storage import ObjectKey, Store
from tests.sizes import examples
from tests.unit.apiserver.auth.objects import new_store, put, remove

#: Objects with a nodeName of their own.
DIRECT = tuple(source for source in SOURCES if source not in (node_graph.PODS, node_graph.VOLUMES))
CLAIMS, SLICES = "resourceclaims.resource.k8s.io", "resourceslices.resource.k8s.io"


def names_of(pod: dict[str, Any]) -> set[tuple[str, str]]:
    return {(reference.resource, reference.name) for reference in pod_references(pod)}


def test_references_of_a_pod() -> None:
    container = {
        "envFrom": [{"secretRef": {"name": "s1"}}, {"configMapRef": {"name": "c1"}}],
        "env": [
            {"valueFrom": {"secretKeyRef": {"name": "s2"}}},
            {"valueFrom": {"configMapKeyRef": {"name": "c2"}}},
            {"value": "plain"},
        ],
    }
    pod: dict[str, Any] = {
        "metadata": {"name": "p", "namespace": "x"},
        "spec": {
            "serviceAccountName": "a",
            "imagePullSecrets": [{"name": "s3"}],
            "containers": [container],
            "initContainers": [{"env": [{"valueFrom": {"secretKeyRef": {"name": "s4"}}}]}],
            "ephemeralContainers": [{"envFrom": [{"secretRef": {"name": "s5"}}]}],
            "volumes": [
                {"name": "v1", "secret": {"secretName": "s6"}},
                {"name": "v2", "configMap": {"name": "c3"}},
                {"name": "v3", "projected": {"sources": [{"secret": {"name": "s7"}}]}},
                {"name": "v4", "projected": {"sources": [{"configMap": {"name": "c4"}}]}},
                {"name": "v5", "csi": {"nodePublishSecretRef": {"name": "s8"}}},
                {"name": "v6", "azureFile": {"secretName": "s9"}},
                {"name": "v7", "persistentVolumeClaim": {"claimName": "pvc"}},
                {"name": "v8", "ephemeral": {}},
                {"name": "v9", "rbd": {"secretRef": {"name": "s10"}}},
            ],
            "resourceClaims": [
                {"name": "one", "resourceClaimName": "r1"},
                {"name": "two", "resourceClaimTemplateName": "t"},
                {"name": "three", "resourceClaimTemplateName": "t"},
            ],
        },
        "status": {
            "resourceClaimStatuses": [{"name": "two", "resourceClaimName": "r2"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "r3"},
        },
    }
    assert names_of(pod) == {
        ("serviceaccounts", "a"),
        *(("secrets", f"s{number}") for number in range(1, 11)),
        *(("configmaps", f"c{number}") for number in range(1, 5)),
        ("persistentvolumeclaims", "pvc"),
        ("persistentvolumeclaims", "p-v8"),
        *((CLAIMS, f"r{number}") for number in range(1, 4)),
    }
    pod["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    assert names_of(pod) == set()


KEYS = (
    *("metadata", "spec", "status", "name", "volumes", "containers", "env", "valueFrom", "secret"),
    *("projected", "sources", "claimRef", "csi", "nodeName", "annotations", "resourceClaims"),
)
json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(json, st.sampled_from(SOURCES))
def test_any_object_is_indexed(tree: Any, resource: str) -> None:
    relations = NodeGraph(new_store())
    relations.load()
    relations.observe(ObjectKey(resource, "x", "p"), tree)
    relations.is_related("n", resource, "x", "p")
    relations.observe(ObjectKey(resource, "x", "p"), None)
    assert not relations.named
    assert not relations.pods


NODES = st.sampled_from(["n1", "n2", ""])
SECRETS, PVCS = st.sampled_from(["s1", "s2"]), st.sampled_from(["c1", "c2"])
PLACES = st.sampled_from(["x", "y"])


def pod_tree(node: str, secret: str, claim: str, mirror: bool) -> dict[str, Any]:
    spec = {
        "nodeName": node,
        "volumes": [
            {"name": "a", "secret": {"secretName": secret}},
            {"name": "b", "persistentVolumeClaim": {"claimName": claim}},
        ],
    }
    annotations = {"kubernetes.io/config.mirror": "x"} if mirror else {}
    return {"metadata": {"annotations": annotations}, "spec": spec}


def volume_tree(claim: str, namespace: str, secret: str) -> dict[str, Any]:
    reference = {"name": secret, "namespace": "y"}
    bound = {"name": claim, "namespace": namespace} if claim else None
    return {"spec": {"claimRef": bound, "csi": {"nodeStageSecretRef": reference}}}


PODS = st.builds(pod_tree, NODES, SECRETS, PVCS, st.booleans())
VOLUMES = st.builds(volume_tree, st.sampled_from(["c1", "c2", ""]), PLACES, SECRETS)
STEPS = st.one_of(
    st.tuples(st.just("pods"), st.sampled_from(["p1", "p2", "p3"]), PLACES, st.none() | PODS),
    st.tuples(st.just("persistentvolumes"), st.sampled_from(["v1", "v2"]), st.just(""), st.none() | VOLUMES),
    st.tuples(
        st.just(SLICES),
        st.sampled_from(["l1"]),
        st.just(""),
        st.none() | st.builds(lambda node: {"spec": {"nodeName": node}}, NODES),
    ),
)
QUESTIONS = [
    *(("secrets", place, name) for place in "xy" for name in ("s1", "s2", "s3")),
    *(("persistentvolumeclaims", place, name) for place in "xy" for name in ("c1", "c2")),
    *(("persistentvolumes", "", name) for name in ("v1", "v2")),
    *(("pods", place, name) for place in "xy" for name in ("p1", "p2", "p3")),
    (SLICES, "", "l1"),
]


def every(store: Store, resource: str) -> Iterable[tuple[ObjectKey, Any]]:
    return [(stored.key, decode_tree(stored.raw)) for stored in store.list(resource).items]


def is_related_naive(
    objects: Callable[[str], Iterable[tuple[ObjectKey, Any]]],
    node: str,
    resource: str,
    namespace: str,
    name: str,
) -> bool:
    """Reference implementation of `NodeGraph.is_related`: reads every object of the store."""
    if resource in (node_graph.PODS, *DIRECT):
        return any(key[1:] == (namespace, name) and _node_of(tree) == node for key, tree in objects(resource))
    pods = [tree for _, tree in objects(node_graph.PODS) if _node_of(tree) == node]
    named = {reference for pod in pods for reference in pod_references(mapping(pod))}
    mounted = {
        key.name: tree for key, tree in objects(node_graph.VOLUMES) if volume_claim(mapping(tree)) in named
    }
    if resource == node_graph.VOLUMES:
        return name in mounted
    wanted = PodReference(resource, namespace, name)
    if resource == "secrets":
        return wanted in named or any(wanted in volume_secrets(mapping(tree)) for tree in mounted.values())
    return wanted in named


def _node_of(tree: Any) -> str:
    return text(mapping(mapping(tree).get("spec")).get("nodeName"))


@settings(max_examples=examples(80), deadline=None)
@given(st.lists(STEPS, max_size=10), st.integers(0, 10))
def test_the_index_equals_a_scan_of_all_objects(
    steps: list[tuple[str, str, str, dict[str, Any] | None]], first: int
) -> None:
    """The index is loaded at any time of the history, and updated from then on."""
    store = new_store()
    relations = NodeGraph(store)
    store.observe(relations.observe)
    for number, (resource, name, namespace, tree) in enumerate(steps):
        if number == first:
            relations.load()
        if tree is None:
            remove(store, resource, name, namespace)
        else:
            put(store, resource, name, tree, namespace)
    for node in ("n1", "n2"):
        for wanted in QUESTIONS:
            expected = is_related_naive(lambda resource: every(store, resource), node, *wanted)
            assert relations.is_related(node, *wanted) == expected, (node, wanted)


def test_a_claim_named_later_concerns_the_node() -> None:
    store = new_store()
    relations = NodeGraph(store)
    store.observe(relations.observe)
    claims = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    pod = {"spec": {"nodeName": "n", "resourceClaims": claims}}
    put(store, "pods", "p", pod, "x")
    assert not relations.is_related("n", CLAIMS, "x", "p-gpu")
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "p-gpu"}}
    put(store, "pods", "p", {**pod, "status": status}, "x")
    assert relations.is_related("n", CLAIMS, "x", "p-gpu")


def test_building_the_index_yields_to_other_tasks() -> None:
    store = new_store()
    for number in range(120):
        put(store, "pods", f"p{number}", {"spec": {"nodeName": "n"}}, "x")
    relations = NodeGraph(store)
    store.observe(relations.observe)

    async def write_meanwhile() -> int:
        reading = asyncio.create_task(relations.warm_up())
        loop_share = 0
        while not reading.done():
            await asyncio.sleep(0)
            put(store, "pods", f"p{119 - loop_share}", {"spec": {"nodeName": "m"}}, "x")
            remove(store, "pods", f"p{loop_share}", "x")
            put(store, "pods", f"new{loop_share}", {"spec": {"nodeName": "m"}}, "x")
            loop_share += 1
        return loop_share

    assert asyncio.run(write_meanwhile()) >= 3
    for node in ("n", "m"):
        for stored in store.list("pods").items:
            wanted = ("pods", *stored.key[1:])
            expected = is_related_naive(lambda resource: every(store, resource), node, *wanted)
            assert relations.is_related(node, *wanted) == expected
    assert len(relations.pods) == len(store.list("pods").items)
