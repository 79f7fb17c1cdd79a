"""Random JSON trees: valid by the schema of a kind, slightly wrong, and very wrong."""

from __future__ import annotations

import copy
from random import Random
from typing import Any

from plimsoll.apiserver.registry.schema_types import SchemaType

WORDS = (
    *(
        "",
        "a",
        "b",
        "p",
        "c",
        "t",
        "n",
        "gpu",
        "main",
        "default",
        "kube-system",
        "x" * 64,
        "x" * 300,
        "UPPER",
        "a.b",
    ),
    *(
        "gpu.example.com",
        "example.com/x",
        "a/b/c",
        "-",
        ".",
        "..",
        "a b",
        "ä",
        "\u0000",
        "\u2028",
        "😀",
        "%",
        "'\"\\",
    ),
    *(
        "Always",
        "Never",
        "OnFailure",
        "IfNotPresent",
        "Exists",
        "Equal",
        "In",
        "NotIn",
        "DoesNotExist",
        "Gt",
        "Lt",
    ),
    *(
        "NoSchedule",
        "NoExecute",
        "PreferNoSchedule",
        "TCP",
        "UDP",
        "All",
        "ExactCount",
        "True",
        "False",
        "Unknown",
    ),
    *(
        "Running",
        "Succeeded",
        "Failed",
        "Pending",
        "Normal",
        "Warning",
        "kubernetes",
        "foregroundDeletion",
        "orphan",
    ),
    *(
        "v1",
        "apps/v1",
        "Pod",
        "ConfigMap",
        "ClusterFirst",
        "metadata.name",
        "1Gi",
        "100m",
        "0",
        "1",
        "-1",
        "1.5",
        "50%",
    ),
    *(
        "2026-01-01T00:00:00Z",
        "0001-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "2026-02-30T00:00:00Z",
        "10s",
        "1e999",
    ),
    *(
        "10.0.0.1",
        "10.0.0.0/24",
        "::1",
        "/a/b",
        "../x",
        "a=b",
        "a,b",
        "null",
        "true",
        "MatchLabels",
        "PriorityClass",
    ),
    *('device.driver == "a"', "1 +", "device.attributes['a'].b.c", "[1].all(x, x > 0)", "'" * 10, "(" * 500),
    *(
        "cpu",
        "memory",
        "pods",
        "requests.cpu",
        "count/pods",
        "hugepages-2Mi",
        "example.com/gpu",
        "AA==",
        "not base64!",
    ),
)
NUMBERS = (
    0,
    1,
    -1,
    2,
    5,
    80,
    65535,
    65536,
    2**31 - 1,
    2**31,
    -(2**31),
    2**63 - 1,
    2**63,
    -(2**63),
    2**64,
    10**30,
)
TIMES = (
    "2026-01-01T00:00:00Z",
    "2026-01-01T00:00:00.000001Z",
    "2026-01-01T00:00:00+02:00",
    "0001-01-01T00:00:00Z",
)
QUANTITIES = (
    "1",
    "100m",
    "1Gi",
    "16Mi",
    "0",
    "-1",
    "1e3",
    "1.5",
    "1k",
    "9223372036854775807",
    "1E",
    "1n",
    "1e1000",
)
_DEEPEST = 7


class TreeGenerator:
    """Generator of values; `wrong` is the probability that a value has another type than its field."""

    def __init__(self, dice: Random, wrong: float = 0.01) -> None:
        self.dice = dice
        self.wrong = wrong

    def text(self) -> str:
        dice = self.dice
        if dice.random() < 0.9:
            return dice.choice(WORDS)
        return "".join(
            chr(dice.choice((dice.randrange(128), dice.randrange(0xD800)))) for _ in range(dice.randrange(20))
        )

    def number(self) -> int:
        return self.dice.choice(NUMBERS) if self.dice.random() < 0.5 else self.dice.randrange(-3, 12)

    def anything(self, depth: int = 0) -> Any:
        """Return any JSON."""
        dice = self.dice
        kind = dice.randrange(9 if depth < 4 else 6)
        if kind == 0:
            return None
        if kind == 1:
            return dice.random() < 0.5
        if kind == 2:
            return self.number()
        if kind == 3:
            return dice.choice((0.5, -1.25, 1e300, 1.0))
        if kind in (4, 5):
            return self.text()
        if kind == 6:
            return [self.anything(depth + 1) for _ in range(dice.randrange(4))]
        return {self.text(): self.anything(depth + 1) for _ in range(dice.randrange(4))}

    def value(self, type: SchemaType | None, depth: int = 0) -> Any:
        """Return a value of a type, mostly."""
        dice = self.dice
        if type is None or dice.random() < self.wrong:
            return self.anything(depth)
        if type.kind == "object":
            return self.object(type, depth)
        if type.kind == "list":
            count = 0 if depth > _DEEPEST else dice.choice((0, 1, 1, 2, 3))
            items = [self.value(type.item, depth + 1) for _ in range(count)]
            return items * 2 if items and dice.random() < 0.05 else items
        if type.kind == "map":
            count = 0 if depth > _DEEPEST else dice.choice((0, 1, 2))
            return {self.text(): self.value(type.item, depth + 1) for _ in range(count)}
        if type.kind == "string":
            return self.text()
        if type.kind in ("integer", "number"):
            return self.number()
        if type.kind == "boolean":
            return dice.random() < 0.5
        if type.kind == "quantity":
            return dice.choice(QUANTITIES) if dice.random() < 0.9 else self.anything()
        if type.kind == "int-or-string":
            return self.number() if dice.random() < 0.5 else self.text()
        if type.kind in ("time", "micro-time"):
            return dice.choice(TIMES)
        if type.kind == "duration":
            return dice.choice(("1s", "5m", "1h", "-1s", "0"))
        if type.kind == "bytes":
            return dice.choice(("", "AA==", "aGVsbG8="))
        return self.anything(depth)

    def object(self, type: SchemaType, depth: int) -> dict[str, Any]:
        dice, tree = self.dice, {}
        likely = (0.6, 0.5, 0.3, 0.2, 0.15, 0.1, 0.05, 0.02)[min(depth, 7)]
        for field in type.fields.values():
            if dice.random() < (0.95 if field.required else likely):
                tree[field.name] = self.value(field.type, depth + 1)
        if dice.random() < self.wrong:
            tree[self.text()] = self.anything(depth)
        return tree

    # -- changes

    def change(self, tree: Any, type: SchemaType | None, times: int = 1) -> Any:
        """Return a copy of a tree with some changes, mostly valid ones."""
        tree = copy.deepcopy(tree)
        for _ in range(times):
            tree = self._change(tree, type)
        return tree

    def _change(self, tree: Any, type: SchemaType | None) -> Any:
        dice = self.dice
        path = self.path(tree)
        if not path:
            return self.value(type) if dice.random() < 0.2 else tree
        parent: Any = tree
        for step in path[:-1]:
            parent, type = parent[step], child(type, step)
        last = path[-1]
        shape = child(type, last)
        what = dice.randrange(10)
        if what < 4:
            parent[last] = self.value(shape)
        elif what < 6:
            del parent[last]
        elif what == 6:
            parent[last] = dice.choice((None, [], {}, "", 0, False))
        elif what == 7 and isinstance(parent, list):
            parent.insert(dice.randrange(len(parent) + 1), copy.deepcopy(parent[last]))
        elif isinstance(parent, dict) and type is not None and type.fields:
            name = dice.choice(list(type.fields))
            parent[name] = self.value(type.fields[name].type)
        elif isinstance(parent, dict):
            parent[self.text()] = self.value(shape)
        else:
            parent[last] = self.anything()
        return tree

    def path(self, tree: Any) -> list[Any]:
        """Return a random path in a tree."""
        dice, path = self.dice, []
        while isinstance(tree, dict | list) and tree:
            step: Any = dice.choice(list(tree)) if isinstance(tree, dict) else dice.randrange(len(tree))
            path.append(step)
            tree = tree[step]
            if dice.random() < 0.2:
                break
        return path


def child(type: SchemaType | None, step: Any) -> SchemaType | None:
    """Return the type of a part, if it is known."""
    if type is None:
        return None
    if type.kind in ("list", "map"):
        return type.item
    field = type.fields.get(step) if isinstance(step, str) else None
    return field.type if field else None
