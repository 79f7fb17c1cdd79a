"""Separate ledgers for requests and claims, in numbers."""

from __future__ import annotations

from pathlib import Path

from plimsoll.tools.cluster_state.manifests import ParsedObject, parse_objects
from plimsoll.up.demo.two_ledgers import simulate_separate_ledgers
from plimsoll.up.demo_objects import NODE, demo_objects, story_objects


def test_both_ledgers_have_headroom() -> None:
    simulated = simulate_separate_ledgers([*demo_objects(), *story_objects()], NODE)
    assert simulated.nodes == {"database": "small-1", "web": "small-1"}
    assert (simulated.row.line, simulated.row.requests, simulated.row.claims) == (8000, 6000, 6000)
    assert (simulated.row.used, simulated.overcommitted) == (12_000, 4000)


def test_a_full_ledger_rejects_pods() -> None:
    """Stock Kubernetes enforces each of its ledgers: a third pod exceeds the ledger of requests."""
    third = next(each for each in story_objects() if each.name == "web")
    more = ParsedObject({**third.tree, "metadata": {"name": "third", "namespace": "demo"}}, "here", 1, 1)
    simulated = simulate_separate_ledgers([*demo_objects(), *story_objects(), more], NODE)
    assert simulated.nodes["third"] == ""
    assert simulated.row.used == 12_000


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
    simulated = simulate_separate_ledgers([*demo_objects(), *parse_objects(text, "here")], NODE)
    assert simulated.nodes == {"without-claim": ""}
    assert simulated.overcommitted == -8000


def test_the_page_shows_the_recorded_demo() -> None:
    root = Path(__file__).parents[4]
    output = (root / "tests" / "golden" / "up" / "story.txt").read_text().strip()
    shown = (root / "docs" / "up.md").read_text().split("```\nOne node, two ledgers")[1].split("```")[0]
    assert output.startswith(f"One node, two ledgers{shown}".strip())
