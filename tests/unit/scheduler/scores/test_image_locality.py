"""ImageLocality: case by case, and on random clusters against kube-scheduler's formula."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given

from plimsoll.api.codec import convert, to_tree
from plimsoll.api.core import Node, Pod
from plimsoll.scheduler.profile import SchedulerProfile, Scoring
from plimsoll.scheduler.scores.image_locality import ImageLocalityScorer, image_names, normalize_image_name
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from tests.build import container, node, pod
from tests.unit.scheduler.samples import SEEDS
from tests.unit.scheduler.snapshots import pod_info_of, snapshot_of

MIB = 1 << 20
STOCK = SchedulerProfile(scoring=Scoring.STOCK)


def with_images(made: Node, **sizes: int) -> Node:
    """Return a node with images `registry/NAME:1` of these sizes (MiB), which have a digest as well."""
    tree = to_tree(made)
    tree["status"]["images"] = [
        {"names": [f"registry/{name}@sha256:{name}", f"registry/{name}:1"], "sizeBytes": size * MIB}
        for name, size in sizes.items()
    ]
    return convert(tree, Node)


def running(*images: str, init: tuple[str, ...] = (), volumes: tuple[str, ...] = ()) -> Pod:
    return pod(
        "new",
        *({**container(f"c{number}"), "image": image} for number, image in enumerate(images)),
        init=[{**container(f"i{number}"), "image": image} for number, image in enumerate(init)],
        volumes=[
            {"name": f"v{number}", "image": {"reference": image}} for number, image in enumerate(volumes)
        ],
    )


def scores(new: Pod, snapshot: Snapshot, settings: SchedulerProfile | None = None) -> dict[str, int]:
    settings = settings or SchedulerProfile.default()
    scorer = ImageLocalityScorer.pre_score(pod_info_of(new, snapshot), snapshot, settings)
    column = np.zeros(snapshot.size, dtype=np.int64) if scorer is None else scorer.scores(snapshot.alive)
    return {snapshot.node(row).metadata.name: int(column[row]) for row in snapshot.rows()}


def upstream(new: Pod, nodes: list[Node]) -> dict[str, int]:
    """Compute the scores as kube-scheduler does, in float64."""
    found = {}
    spec = new.spec
    for each in nodes:
        total = 0
        for name in image_names(new):
            having = [n for n in nodes if any(name in image.names for image in n.status.images)]
            for image in each.status.images:
                if name in image.names:
                    total += int(float(image.size_bytes) * (len(having) / len(nodes)))
                    break
        most = 1000 * MIB * (len(spec.containers) + len(spec.init_containers))
        total = min(max(total, 23 * MIB), most)
        found[each.metadata.name] = 100 * (total - 23 * MIB) // (most - 23 * MIB)
    return found


def test_nodes_with_the_image_score_higher() -> None:
    snapshot = snapshot_of(with_images(node("a"), web=500), with_images(node("b"), other=500))
    assert scores(running("registry/web:1"), snapshot) == {"a": (250 - 23) * 100 // (1000 - 23), "b": 0}


def test_small_and_large_images_are_bounded() -> None:
    snapshot = snapshot_of(with_images(node("a"), small=20, large=9000))
    assert scores(running("registry/small:1"), snapshot) == {"a": 0}
    assert scores(running("registry/large:1"), snapshot) == {"a": 100}


def test_init_containers_and_image_volumes_count() -> None:
    snapshot = snapshot_of(with_images(node("a"), web=400, data=300))
    assert scores(running("registry/web:1", volumes=("registry/data:1",)), snapshot) == {"a": 69}
    assert scores(running("x", init=("registry/web:1",)), snapshot) == {"a": 19}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("web", "web:latest"),
        ("web:1", "web:1"),
        ("host:5000/web", "host:5000/web:latest"),
        ("host:5000/web:2", "host:5000/web:2"),
        ("host/web@sha256:abc", "host/web@sha256:abc"),
        ("", ":latest"),
    ],
)
def test_names_get_the_default_tag(name: str, wanted: str) -> None:
    assert normalize_image_name(name) == wanted


def test_the_size_on_the_node_itself_counts() -> None:
    """DIFF: upstream takes the size on the node that it observed first."""
    snapshot = snapshot_of(with_images(node("a"), web=900), with_images(node("b"), web=100))
    assert scores(running("registry/web:1"), snapshot) == {"a": 89, "b": 7}


def test_changed_and_removed_images_are_noticed() -> None:
    snapshot = snapshot_of(node("a"), node("b"))
    new = running("registry/web:1")
    assert scores(new, snapshot) == {"a": 0, "b": 0}
    snapshot.set(with_images(node("a"), web=900))
    assert scores(new, snapshot)["a"] > 0
    snapshot.set(with_images(node("b"), web=900))
    assert scores(new, snapshot)["a"] == scores(new, snapshot)["b"] > 0
    snapshot.remove(node("a"))
    assert scores(new, snapshot) == {"b": 89}


@given(seed=SEEDS)
def test_scores_are_those_of_kube_scheduler(seed: int) -> None:
    random = Random(seed)
    images = ["a", "b", "c", "d"]
    sizes = {name: random.randrange(0, 1600) for name in images}
    nodes = [
        with_images(
            node(f"n{number}"),
            **{name: sizes[name] for name in images if sizes[name] and random.random() < 0.5},
        )
        for number in range(random.randint(1, 9))
    ]
    names = [f"registry/{name}:1" for name in images] + ["registry/a", "registry/a@sha256:a"]
    new = running(
        *random.choices(names, k=random.randint(1, 3)),
        init=tuple(random.choices(names, k=random.randint(0, 2))),
        volumes=tuple(random.choices(names, k=random.randint(0, 1))),
    )
    snapshot = snapshot_of(*nodes)
    wanted = upstream(new, nodes)
    assert scores(new, snapshot, STOCK) == wanted
    exact = scores(new, snapshot)
    assert all(abs(exact[name] - score) <= 1 for name, score in wanted.items())
