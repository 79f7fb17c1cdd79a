"""What a pod's status is made from: the pod, what the runtime knows, and what was told before.

Owns `Seen`, and the reading of status trees, whose parts may be missing or of another shape than expected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from plimsoll.api.core import Pod, ResourceRequirements
from plimsoll.api.meta import Condition
from plimsoll.node.containers import ContainerInfo, SandboxInfo
from plimsoll.node.pods.pod_state import Ending, Probed, Waiting

Tree: TypeAlias = "dict[str, Any]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A pod at one moment, as far as its status tells of it."""

    pod: Pod
    now: float
    #: The status told last, or the one the API has.
    before: Mapping[str, Any] = field(default_factory=dict)
    states: Sequence[ContainerInfo] = ()
    sandbox: SandboxInfo | None = None
    probes: Mapping[str, Probed] = field(default_factory=dict)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    ending: Ending | None = None
    #: Nothing of the pod runs any more, nor ever will.
    terminal: bool = False
    disruption: str = ""
    #: The name of the runtime, for container ids.
    runtime: str = ""
    host_ips: tuple[str, ...] = ()
    #: What containers were given, by name, where that differs from the spec.
    allocated: Mapping[str, ResourceRequirements] = field(default_factory=dict)
    #: What the pod as a whole was given, if its spec asks for something as a whole.
    whole: ResourceRequirements | None = None
    #: What runs with other resources than those given, by name.
    actual: Mapping[str, ResourceRequirements] = field(default_factory=dict)
    #: `allocatedResourcesStatus` by container.
    health: Mapping[str, Sequence[Tree]] = field(default_factory=dict)
    resize: Sequence[Condition] = ()


def branch(tree: Any, *path: str) -> Tree:
    """An object inside a tree; empty where there is none."""
    for key in path:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return dict(tree) if isinstance(tree, Mapping) else {}


def items(tree: Any, key: str) -> list[Tree]:
    """The objects of a list inside a tree."""
    found = tree.get(key) if isinstance(tree, Mapping) else None
    return [dict(item) for item in found if isinstance(item, Mapping)] if isinstance(found, list) else []


def number(tree: Any, key: str) -> int:
    found = tree.get(key) if isinstance(tree, Mapping) else None
    return found if isinstance(found, int) and not isinstance(found, bool) else 0


def text(tree: Any, key: str) -> str:
    found = tree.get(key) if isinstance(tree, Mapping) else None
    return found if isinstance(found, str) else ""
