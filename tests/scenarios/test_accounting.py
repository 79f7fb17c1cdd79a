"""Accounting scenarios of `accounting/`, run against the ledger.

A scenario is a YAML file:

    scenario       what it is about, and where it comes from
    profile     whose rules hold (default: ours)
    given       objects as Kubernetes has them, allocated claims included
    steps       one after the other:
      place     a pod that must fit; it is charged
      refuse    a pod that must not fit, with `code` and `reasons`
      remove    the name of a pod that is removed
      then, after each of them: `charged` (what the pod adds), `status` (its claims in the 1.36 form),
      `requested` (the node's ledger) and `claims` (what is known of a claim; null: nothing)

Amounts are compared by value, resources that are not named are not compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.forms import Form
from plimsoll.api.meta import Wire
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.ledger.claims import ChargeContext, ChargedClaim
from plimsoll.ledger.device_index import DeviceIndex
from plimsoll.ledger.messages import format_reasons
from plimsoll.ledger.node_ledger import NodeLedger
from plimsoll.ledger.placement import PlacementCheck, check_placement, check_requests
from plimsoll.ledger.profile import PROFILES
from plimsoll.ledger.status import write_charges
from plimsoll.ledger.units import from_units

STORIES = sorted(Path(__file__).with_name("accounting").glob("*.yaml"))
STEP_KEYS = {"place", "refuse", "remove", "code", "reasons", "charged", "status", "requested", "claims"}
T = TypeVar("T", bound=Wire)


class LedgerScenario:
    """State of a scenario: one node, its ledger, and the given objects."""

    def __init__(self, scenario: Mapping[str, Any]) -> None:
        profile = PROFILES[scenario.get("profile", "default")]
        objects = scenario["given"]
        (node,) = _views(objects, Node)
        claims = _views(objects, ResourceClaim)
        classes = {found.metadata.name: found for found in _views(objects, DeviceClass)}
        self.claims = {found.metadata.name: found for found in claims}
        self.ledger = NodeLedger(node, profile=profile)
        self.charge_context = ChargeContext(
            DeviceIndex(_views(objects, ResourceSlice), profile), node, classes, profile
        )
        for pod in _views(objects, Pod):
            self.ledger.add(pod)

    def judge_placement(self, pod: Pod) -> PlacementCheck:
        judged = check_placement(self.ledger, pod, self.claims, {}, self.charge_context)
        requests = check_requests(self.ledger, pod, judged.charged_claims or ())
        return judged if requests.fits else PlacementCheck(requests, judged.charged_claims, judged.demand)

    def play(self, step: Mapping[str, Any]) -> None:
        assert step.keys() <= STEP_KEYS, f"a step knows {sorted(STEP_KEYS)}, not {sorted(step)}"
        charged_claims: tuple[ChargedClaim, ...] = ()
        before = dict(self.ledger.requested)
        pod = None
        if "place" in step:
            pod = make_pod(step["place"])
            judged = self.judge_placement(pod)
            assert judged.verdict.fits, format_reasons(judged.verdict)
            charged_claims = judged.charged_claims or ()
            self.ledger.assume(pod, charged_claims)
            self.ledger.add(write_charges(pod, charged_claims, Form.V1_37).lossless(Form.V1_37))
        elif "refuse" in step:
            verdict = self.judge_placement(make_pod(step["refuse"])).verdict
            assert [verdict.code.value, *format_reasons(verdict)] == [step["code"], *step["reasons"]]
        elif "remove" in step:
            (entry,) = [e for e in self.ledger.entries.values() if e.pod.metadata.name == step["remove"]]
            self.ledger.remove(entry.pod)
        for name, text in step.get("charged", {}).items():
            added = self.ledger.requested.get(name, 0) - before.get(name, 0)
            assert from_units(name, added) == Quantity.parse(text), f"charged {name}"
        for name, text in step.get("requested", {}).items():
            requested = from_units(name, self.ledger.requested.get(name, 0))
            assert requested == Quantity.parse(text), f"requested {name}: {requested}"
        if "status" in step:
            assert pod is not None
            tree = codec.to_tree(write_charges(pod, charged_claims, Form.V1_36).lossless(Form.V1_36))
            assert tree.get("status", {}).get("nodeAllocatableResourceClaimStatuses", []) == step["status"]
        for name, wanted in step.get("claims", {}).items():
            state = self.ledger.claim_state("default", name)
            if wanted is None:
                assert state is None, f"claim {name} is still known"
                continue
            assert state is not None, f"claim {name} is not known"
            for key, found in (("allocated", state.allocated), ("consumed", state.consumed)):
                assert {n: str(q) for n, q in found.items()} == wanted.get(key, {}), f"{key} of {name}"
            assert sorted(state.consumers) == [f"uid-{pod}" for pod in wanted["pods"]]
        assert self.ledger.verify() == []


def make_pod(tree: Mapping[str, Any]) -> Pod:
    return codec.convert(_named(tree), Pod)


def _named(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object with a namespace and a UID."""
    blank = {"namespace": "default", "uid": f"uid-{tree['metadata']['name']}"}
    return {**tree, "metadata": {**blank, **tree["metadata"]}}


def _views(objects: Iterable[Mapping[str, Any]], view: type[T]) -> list[T]:
    return [codec.convert(_named(tree), view) for tree in objects if tree["kind"] == view.__name__]


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    scenario = yaml.safe_load(path.read_text())
    assert scenario["scenario"]
    ledger_scenario = LedgerScenario(scenario)
    for step in scenario["steps"]:
        ledger_scenario.play(step)


def test_scenarios_exist() -> None:
    assert len(STORIES) >= 20
