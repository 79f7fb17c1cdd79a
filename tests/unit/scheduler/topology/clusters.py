"""Random clusters for inter-pod affinity and topology spread, with few labels and domains.

They are made from a seed, which is what hypothesis draws: thousands of small choices would be slow to draw.
"""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import strategies as st

from plimsoll.api.codec import convert
from plimsoll.api.core import Namespace, Node, Pod
from tests import build

HOSTNAME = "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
NAMESPACES = ("default", "other", "strange")
KEYS = ("zone", "rack", HOSTNAME)
NODES = tuple(f"n{number}" for number in range(5))
_WORDS = ("app", "tier")

seeds = st.integers(0, 2**64 - 1).map(Random)


def fields(**given: Any) -> dict[str, Any]:
    return {key: value for key, value in given.items() if value not in (None, [])}


def _labels(random: Random) -> dict[str, str]:
    return {word: random.choice("ab") for word in _WORDS if random.random() < 0.6}


def _requirement(random: Random) -> dict[str, Any]:
    operator = random.choice(["In", "NotIn", "Exists", "DoesNotExist"])
    values = random.sample("ab", random.randint(1, 2)) if operator in ("In", "NotIn") else []
    return fields(key=random.choice(_WORDS), operator=operator, values=values)


def selector(random: Random) -> dict[str, Any]:
    if random.random() < 0.6:
        return {"matchLabels": _labels(random)}
    return {"matchExpressions": [_requirement(random) for _ in range(random.randint(0, 2))]}


def term(random: Random) -> dict[str, Any]:
    """Return a random affinity term; the API does not allow label keys that are also in the selector."""
    chosen = selector(random) if random.random() < 0.9 else None
    keys = [word for word in _WORDS if word not in str(chosen) and random.random() < 0.4]
    near = random.randint(0, len(keys))
    return fields(
        labelSelector=chosen,
        topologyKey=random.choice(KEYS),
        namespaces=random.sample(NAMESPACES, random.choice([0, 0, 1, 2])),
        namespaceSelector=selector(random) if random.random() < 0.3 else None,
        matchLabelKeys=keys[:near],
        mismatchLabelKeys=keys[near:],
    )


def _side(random: Random) -> dict[str, Any]:
    return {
        REQUIRED: [term(random) for _ in range(random.choice([0, 1, 1, 2]))],
        PREFERRED: [
            {"podAffinityTerm": term(random), "weight": random.randint(1, 100)}
            for _ in range(random.choice([0, 0, 1, 2]))
        ],
    }


def constraint(random: Random) -> dict[str, Any]:
    must = random.random() < 0.5
    return fields(
        labelSelector=selector(random) if random.random() < 0.9 else None,
        topologyKey=random.choice(KEYS),
        maxSkew=random.randint(1, 3),
        whenUnsatisfiable="DoNotSchedule" if must else "ScheduleAnyway",
        minDomains=random.choice([None, None, 1, 2, 3, 4]) if must else None,
        nodeAffinityPolicy=random.choice([None, "Honor", "Ignore"]),
        nodeTaintsPolicy=random.choice([None, "Honor", "Ignore"]),
        matchLabelKeys=[word for word in _WORDS if random.random() < 0.2],
    )


def _spec(random: Random) -> dict[str, Any]:
    affinity = {side: _side(random) for side in ("podAffinity", "podAntiAffinity") if random.random() < 0.4}
    return fields(
        affinity=affinity or None,
        topologySpreadConstraints=[constraint(random) for _ in range(random.choice([0, 0, 1, 2, 3]))],
        nodeSelector=random.choice([None, None, {"disk": "fast"}]),
        tolerations=random.choice([None, [{"operator": "Exists"}]]),
    )


def node(random: Random, name: str) -> Node:
    labels = fields(
        zone=random.choice([None, "z0", "z1", "z2"]),
        rack=random.choice([None, "r0", "r1"]),
        disk=random.choice([None, "fast"]),
    )
    if random.random() < 0.8:
        labels[HOSTNAME] = name
    taints = random.choice([[], [], ["gone:NoSchedule"], ["soft:PreferNoSchedule"]])
    return build.node(name, labels=labels, taints=taints)


def pod(random: Random, name: str, rows: tuple[str, ...] = ("",)) -> Pod:
    """Return a pod bound to one of these nodes."""
    return build.pod(
        name,
        labels=_labels(random),
        namespace=random.choice(NAMESPACES),
        node=random.choice(rows),
        metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"} if random.random() < 0.2 else None,
        **_spec(random),
    )


def namespace(random: Random, name: str) -> Namespace:
    return convert({"metadata": {"name": name, "labels": _labels(random)}}, Namespace)


def cluster(random: Random) -> list[Any]:
    """Return nodes, namespaces and bound pods; some namespaces are missing."""
    names = NODES[: random.randint(1, len(NODES))]
    found: list[Any] = [node(random, name) for name in names]
    found += [namespace(random, name) for name in NAMESPACES if random.random() < 0.6]
    found += [pod(random, f"p{number}", names) for number in range(random.randint(0, 8))]
    return found
