"""Sums of requests and charges by node, computed as a kubelet would from kubectl's output alone.

Owns `sums_of`: for each node what its pods request in their specs and what their statuses say their claims
charge, in whole units (milli for cpu). It shares no code with the ledger that it is compared with.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from math import ceil
from typing import Any

Tree = dict[str, Any]
_FACTORS = {
    "": Fraction(1),
    **{letter: Fraction(1, 1000 ** (number + 1)) for number, letter in enumerate("mun")},
    **{letter: Fraction(1000 ** (number + 1)) for number, letter in enumerate("kMGTPE")},
    **{f"{letter}i": Fraction(1024 ** (number + 1)) for number, letter in enumerate("KMGTPE")},
}
#: What a pod can request as a whole.
_WHOLE = ("cpu", "memory")


def sums_of(trees: list[Tree]) -> dict[str, Counter[str]]:
    """Return the resources taken by the pods of each node."""
    found: dict[str, Counter[str]] = {
        tree["metadata"]["name"]: Counter() for tree in trees if tree["kind"] == "Node"
    }
    for tree in trees:
        node = tree["spec"].get("nodeName") if tree["kind"] == "Pod" else None
        if node and tree["status"].get("phase") not in ("Succeeded", "Failed"):
            for name, amount in _pod(tree).items():
                found[node][name] += ceil(amount * 1000) if name == "cpu" else ceil(amount)
    return found


def _pod(tree: Tree) -> dict[str, Fraction]:
    spec = tree["spec"]
    running: Counter[str] = Counter()
    for container in spec["containers"]:
        _add(running, _requests(container))
    sidecars: Counter[str] = Counter()
    starting: dict[str, Fraction] = {}
    for container in spec.get("initContainers", ()):
        need = Counter(sidecars)
        _add(need, _requests(container))
        if container.get("restartPolicy") == "Always":
            _add(running, _requests(container))
            sidecars = need
        for name, amount in need.items():
            starting[name] = max(starting.get(name, Fraction(0)), Fraction(amount))
    whole = {
        name: max(Fraction(running.get(name, 0)), starting.get(name, Fraction(0)))
        for name in {*running, *starting}
    }
    for claim in tree["status"].get("nodeAllocatableResourceClaimStatuses", ()):
        for name, text in claim["resources"].items():
            whole[name] = whole.get(name, Fraction(0)) + amount_of(text)
    for name, text in spec.get("resources", {}).get("requests", {}).items():
        if name in _WHOLE or name.startswith("hugepages-"):
            whole[name] = amount_of(text)
    return whole


def _requests(container: Tree) -> dict[str, Fraction]:
    return {n: amount_of(t) for n, t in container.get("resources", {}).get("requests", {}).items()}


def _add(total: Any, more: dict[str, Fraction]) -> None:
    for name, amount in more.items():
        total[name] += amount


def amount_of(text: str) -> Fraction:
    """Parse a quantity without exponents, as API servers write them."""
    number = str(text).rstrip("numkKMGTPEi")
    return Fraction(number) * _FACTORS[str(text)[len(number) :]]
