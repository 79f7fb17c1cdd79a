"""Objects of the demo, read from the YAML files of this package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from plimsoll.tools.cluster_state.manifests import ParsedObject, parse_objects

NAMESPACE = "demo"
NODE = "small-1"
#: Drivers with simulated devices, and the simulated nodes that have such devices in addition to this one.
DEVICES = ("gpus", "nics", "accelerators")
EQUIPPED = ("train-1",)


def demo_objects() -> tuple[ParsedObject, ...]:
    """Return the nodes, classes and slices of the demo."""
    return _read("cluster.yaml")


def story_objects() -> tuple[ParsedObject, ...]:
    """Return the two pods of the demo, and the claim of one of them."""
    return _read("story.yaml")


def neighbor_objects() -> tuple[ParsedObject, ...]:
    """Return pods on other simulated nodes."""
    return _read("neighbours.yaml")


def pinned_objects() -> tuple[ParsedObject, ...]:
    """Return a pod on a CPU of this machine."""
    return _read("pinned.yaml")


@cache
def _read(name: str) -> tuple[ParsedObject, ...]:
    text = files("plimsoll.up.demo").joinpath(name).read_text(encoding="utf-8")
    return tuple(parse_objects(text, name))
