"""Separate ledgers for requests and claims, in numbers."""

from __future__ import annotations

from pathlib import Path

from plimsoll.tools.cluster_state.manifests import ParsedObject, parse_objects
from plimsoll.up.demo.two_ledgers import simulate_separate_ledgers
from plimsoll.up.demo_objects import NODE, demo_objects, story_objects


def test_both_ledgers_have_headroom() -> None:
    books = simulate_separate_ledgers([*demo_objects(), *story_objects()], NODE)
    assert books.nodes == {"database": "small-1", "web": "small-1"}
    assert (books.row.line, books.row.requests, books.row.claims) == (8000, 6000, 6000)
    assert (books.row.used, books.overcommitted) == (12_000, 4000)


def test_a_full_ledger_rejects_pods() -> None:
    """Stock Kubernetes does keep each of its books: a third pod has no room in that of requests."""
    third = next(each for each in story_objects() if each.name == "web")
    more = ParsedObject({**third.tree, "metadata": {"name": "third", "namespace": "demo"}}, "here", 1, 1)
    books = simulate_separate_ledgers([*demo_objects(), *story_objects(), more], NODE)
    assert books.nodes["third"] == ""
    assert books.row.used == 12_000


def test_other_kinds_and_pods_that_cannot_be_tried() -> None:
    text = """
apiVersion: v1
kind: ConfigMap
metadata: {name: x}
---
apiVersion: v1
kind: Pod
metadata: {name: without-claim}
spec:
  resourceClaims: [{name: c, resourceClaimName: nowhere}]
  containers: [{name: a, image: a}]
"""
    books = simulate_separate_ledgers([*demo_objects(), *parse_objects(text, "here")], NODE)
    assert books.nodes == {"without-claim": ""}
    assert books.overcommitted == -8000


def test_the_page_shows_the_demo_as_it_is() -> None:
    root = Path(__file__).parents[4]
    output = (root / "tests" / "golden" / "up" / "story.txt").read_text().strip()
    shown = (root / "docs" / "up.md").read_text().split("```\nOne node, two ledgers")[1].split("```")[0]
    assert output.startswith(f"One node, two ledgers{shown}".strip())
