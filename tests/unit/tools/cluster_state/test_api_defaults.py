"""Objects that look stored but lack defaults are read as the API would store them."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.apiserver.validation.write import default_object
from plimsoll.tools.cluster_state.files import read_files
from plimsoll.tools.cluster_state.kinds import BY_NAME

Tree = dict[str, Any]
NOW = "2026-01-01T00:00:00Z"
CLASS = {"deviceClassName": "c"}
REQUESTS = [
    {"name": "a", "exactly": CLASS},
    {"name": "b", "firstAvailable": [{"name": "c", **CLASS}, {"name": "d", **CLASS, "count": 2}]},
]
LIMITS = {"limits": {"cpu": "1", "memory": "1Gi"}}
#: Objects without any default, by kind.
BARE: dict[str, Tree] = {
    "Pod": {
        "spec": {
            "containers": [{"name": "c", "image": "i", "resources": LIMITS}],
            "initContainers": [{"name": "i", "image": "i", "resources": LIMITS}],
            "resources": {"limits": {"cpu": "4"}},
        }
    },
    "Node": {"status": {"capacity": {"cpu": "8", "memory": "8Gi"}}},
    "Namespace": {},
    "PriorityClass": {"value": 1},
    "LimitRange": {
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "4"}, "min": {"memory": "1Gi"}}]},
    },
    "ResourceClaim": {"spec": {"devices": {"requests": REQUESTS}}},
    "ResourceClaimTemplate": {"spec": {"spec": {"devices": {"requests": REQUESTS}}}},
    "PersistentVolume": {"spec": {"capacity": {"storage": "1Gi"}}},
    "PersistentVolumeClaim": {"spec": {"resources": {"requests": {"storage": "1Gi"}}}},
    "StorageClass": {"provisioner": "p"},
    "PodGroup": {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}},
}
#: Fields that no tool reads.
UNREAD = (
    "dnsPolicy",
    "enableServiceLinks",
    "imagePullPolicy",
    "persistentVolumeReclaimPolicy",
    "reclaimPolicy",
    "securityContext",
    "terminationGracePeriodSeconds",
    "terminationMessagePath",
    "terminationMessagePolicy",
)


def bare(kind: str) -> Tree:
    endpoint = BY_NAME[kind].endpoint
    meta = {"name": "x", "uid": "u", **({"namespace": "default"} if endpoint.namespaced else {})}
    head = {"apiVersion": endpoint.api_version, "kind": kind, "metadata": meta}
    return copy.deepcopy({**head, **BARE[kind]})


def read(tree: Tree, path: Path, form: str) -> Any:
    items = {"apiVersion": "v1", "kind": "List", "items": [tree]}
    path.write_text(json.dumps(items) if form == "json" else yaml.safe_dump(items))
    return read_files([str(path)]).find(
        BY_NAME[tree["kind"]].view, tree["metadata"].get("namespace", ""), tree["metadata"]["name"]
    )


def additions(before: Any, after: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of the outermost values that only the second tree has."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in after.items():
            if name in before:
                yield from additions(before[name], value, (*path, name))
            else:
                yield (*path, name)
    elif isinstance(before, list) and isinstance(after, list):
        for index, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from additions(one, other, (*path, index))


def without(tree: Tree, path: tuple[Any, ...]) -> Tree:
    tree = copy.deepcopy(tree)
    holder: Any = tree
    for step in path[:-1]:
        holder = holder[step]
    del holder[path[-1]]
    return tree


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("kind", BARE)
def test_every_default_that_is_read_is_filled_in(kind: str, form: str, tmp_path: Path) -> None:
    """Without one of the defaults, an object is read as with all of them."""
    tree = default_object(kind, bare(kind), NOW, Gates.default())
    whole = codec.convert(tree, BY_NAME[kind].view)
    assert read(tree, tmp_path / f"all.{form}", form) == whole
    paths = [path for path in additions(bare(kind), tree) if path[-1] not in UNREAD]
    assert paths
    for path in paths:
        found = read(without(tree, path), tmp_path / f"one.{form}", form)
        assert found == whole, path
    assert read(bare(kind), tmp_path / f"none.{form}", form) == whole


@pytest.mark.parametrize(
    ("name", "priority", "policy"),
    [("high", 7, "Never"), ("", 3, "PreemptLowerPriority"), ("system-node-critical", 2000001000, None)],
)
def test_priorities_come_from_the_classes_in_the_files(
    name: str, priority: int, policy: str | None, tmp_path: Path
) -> None:
    classes: list[Tree] = [
        {**bare("PriorityClass"), "metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"},
        {**bare("PriorityClass"), "metadata": {"name": "low"}, "value": 3, "globalDefault": True},
    ]
    pod = bare("Pod")
    pod["spec"]["priorityClassName"] = name
    path = tmp_path / "f.yaml"
    path.write_text(yaml.safe_dump_all([pod, *classes]))
    (found,) = read_files([str(path)]).all(Pod)
    assert (found.spec.priority, found.spec.preemption_policy) == (priority, policy)
    pod["spec"]["priorityClassName"], pod["spec"]["priority"] = "unknown", None
    path.write_text(yaml.safe_dump_all([pod, *classes]))
    (found,) = read_files([str(path)]).all(Pod)
    assert found.spec.priority is None


def test_objects_of_an_api_server_are_read_as_they_are(tmp_path: Path) -> None:
    """Fields that no tool reads do not cost the time of defaulting."""
    tree = default_object("Pod", bare("Pod"), NOW, Gates.default())
    del tree["spec"]["dnsPolicy"]
    found = read(tree, tmp_path / "f.json", "json")
    assert isinstance(found, Pod)
    assert found.spec.dns_policy == ""
