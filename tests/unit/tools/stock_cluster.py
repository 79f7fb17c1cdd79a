"""A cluster whose API server drops charges: annotations, and placeholder pods beside charged pods."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.forms import CLASS_KEY, POD_KEY
from plimsoll.api.meta import ObjectMeta
from plimsoll.ledger.placeholders import NAMESPACE, PRIORITY, PRIORITY_CLASS
from plimsoll.ledger.placement import find_missing_placeholders
from plimsoll.scheduler.process.placeholder_writer import PlaceholderSettings, make_manifest
from plimsoll.tools.cluster_state import ClusterState
from tests.dumps import make_cluster_state
from tests.unit.tools.audit.build import (
    MADE,
    Tree,
    api_object,
    claim,
    cpus,
    device_class,
    node,
    pod,
    share,
    slice_of,
)

MAPPING = (
    '{"nodeAllocatableResourceMappings":{"cpu":{"capacityKey":"dra.cpu/cpu","allocationMultiplier":"1",'
    '"accountingPolicy":"%s"}}}'
)


def namespace() -> Tree:
    return api_object("v1", "Namespace", NAMESPACE)


def annotated(tree: Tree, policy: str = "AddPerClaim") -> Tree:
    """Return a pod that uses claims with its charges in its annotation, 4 CPUs for each."""
    charges = [
        {
            "resourceClaimName": each["resourceClaimName"],
            "containers": ["main"],
            "resources": {"cpu": "4"},
            "accountingPolicies": {"cpu": policy},
        }
        for each in tree["spec"]["resourceClaims"]
    ]
    tree["metadata"]["annotations"] = {POD_KEY: codec.encode(charges).decode()}
    return tree


def owned(tree: Tree) -> Tree:
    """Return a pod that a ReplicaSet recreates."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}
    tree["metadata"]["ownerReferences"] = [owner]
    return tree


def stock_objects(policy: str = "AddPerClaim") -> list[Tree]:
    """Two nodes of 8 CPUs; a pod with 1 CPU and a claim for 4, two pods that share such a claim under
    ConsumeFrom, and a plain pod; without placeholders.
    """
    policies = {"cpu": policy, "pool": "ConsumeFrom"}
    classes = [
        device_class(name, "dra.cpu", **{CLASS_KEY: MAPPING % each}) for name, each in policies.items()
    ]
    return [
        node("n1"),
        node("n2"),
        *classes,
        slice_of(cpus(8, form=""), driver="dra.cpu"),
        slice_of(cpus(8, form=""), driver="dra.cpu", pool="n2", on="n2"),
        claim("c", share("4"), klass="cpu"),
        claim("pool", share("4", pool="n2"), klass="pool", pods=("a", "b"), on="n2"),
        owned(annotated(pod("p", claims=("c",)), policy)),
        annotated(pod("a", claims=("pool",), on="n2"), "ConsumeFrom"),
        annotated(pod("b", claims=("pool",), on="n2"), "ConsumeFrom"),
        owned(pod("plain", "2")),
    ]


def with_placeholders(trees: Iterable[Tree], *names: str) -> list[Tree]:
    """Return objects with the namespace and the missing placeholders as the scheduler creates them; of these
    pods and claims only, if there are names.
    """
    trees = [*trees, namespace()]
    state = make_cluster_state(trees)
    made: dict[str, Tree] = {}
    for row in state.snapshot.rows():
        for _, placeholder in find_missing_placeholders(state.snapshot.ledger(row)):
            name = placeholder.metadata.name
            if not names or name.rpartition("-")[0] in names:
                made[name] = running(placeholder, state.snapshot.node(row))
    return [*trees, *made.values()]


def running(placeholder: Pod, on: Node) -> Tree:
    """Return a placeholder as the API server has it once the kubelet has admitted it."""
    tree = make_manifest(placeholder, on, PlaceholderSettings())
    tree["metadata"] |= {"uid": f"uid-{placeholder.metadata.name}", "creationTimestamp": MADE}
    tree["spec"] |= {"priority": PRIORITY, "priorityClassName": PRIORITY_CLASS}
    tree["status"] = {"phase": "Running", "startTime": MADE}
    return tree


def stock_trees(policy: str = "AddPerClaim") -> list[Tree]:
    return with_placeholders(stock_objects(policy))


def stock_cluster(policy: str = "AddPerClaim") -> ClusterState:
    state = make_cluster_state(stock_trees(policy))
    state.objects.gaps.clear()
    return state


def rename(tree: Tree, name: str) -> Tree:
    """Return an object with another name and UID."""
    meta = {**tree["metadata"], "name": name, "uid": f"uid-{name}"}
    return {**tree, "metadata": meta}


def placeholders_in(things: Iterable[Any]) -> list[Any]:
    """Return the placeholders among objects, or among trees."""
    return [each for each in things if _namespace(each) == NAMESPACE]


def _namespace(thing: Any) -> str:
    if isinstance(thing, dict):
        return str(thing["metadata"].get("namespace", ""))
    meta: ObjectMeta = thing.metadata
    return meta.namespace
