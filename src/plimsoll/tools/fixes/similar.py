"""Similar names of objects of one kind."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches
from functools import lru_cache

#: Ratio from which two names count as similar.
_SIMILAR = 0.7


@lru_cache(maxsize=4096)
def is_similar(name: str, other: str) -> bool:
    """Return whether two names may mean the same kind of thing, regardless of case.

    The parts before the first dot are compared: gpu.example.com and qat.example.com have a vendor in common,
    but not the kind of device; vfio.gpu.example.com and gpu.example.com have both.
    """
    if f".{name}".endswith(f".{other}") or f".{other}".endswith(f".{name}"):
        return True
    mine, theirs = name.lower().split(".")[0], other.lower().split(".")[0]
    return mine in theirs or theirs in mine or SequenceMatcher(None, mine, theirs).ratio() >= _SIMILAR


def is_similar_resource(name: str, other: str) -> bool:
    """Return whether two extended resources may mean the same: their domains and their names are similar."""
    return all(map(is_similar, name.split("/"), other.split("/"))) and "/" in other


def near_text(name: str, known: Iterable[str], word: str = "similar") -> str:
    """List existing names that are similar, or all of a few."""
    names = sorted(known)
    near = [each for each in get_close_matches(name, names, 3) if is_similar(name, each)]
    if not near and 0 < len(names) <= 5:
        word, near = "existing", names
    return f" ({word}: {', '.join(near)})" if near else ""
