"""Small cluster that uses every optional field that the query commands read.

Owns `rich_cluster`: objects as an API server would hand them out, every optional part of the API that the
questions look at set somewhere. The cluster itself is sound: every command answers about it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.dumps import big_cluster

Tree = dict[str, Any]
_EXTRAS = Path(__file__).parent / "rich.yaml"


def rich_cluster() -> list[Tree]:
    """Return two nodes with every kind of object, as new trees."""
    trees = [tree for tree in big_cluster(2, devices=2, pending=3) if tree["kind"] != "Namespace"]
    extras = [tree for tree in yaml.load_all(_EXTRAS.read_bytes(), yaml.CSafeLoader) if tree]
    node = next(tree for tree in trees if tree["kind"] == "Node")
    node["spec"]["taints"] = [{"effect": "PreferNoSchedule", "key": "old", "value": "yes"}]
    node["status"]["images"] = [{"names": ["pause:3.10"], "sizeBytes": 1000}]
    node["metadata"]["labels"]["rank"] = "7"
    return [*trees, *extras]


#: The names in it that others refer to.
NAMES = frozenset(
    {
        "node-0000",
        "node-0001",
        "work",
        "parted",
        "picky",
        "gated",
        "part",
        "gpu",
        "cpu-0000-1",
        "gpu-0000-2",
        "waiting-0000",
        "waiting-0001",
        "parted-any-x7k2p",
        "picky-any-x7k2p",
        "fabric-port",
        "fabric",
    }
)
