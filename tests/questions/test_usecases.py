"""Query commands on observed clusters, compared with the real kube-scheduler.

The dumps are those of `../shared/usecases` as `kubectl get -o yaml` writes them; what is true is what the
real kube-scheduler 1.36.4 wrote into them. Charges are counted here by hand, from pods' specs and statuses
alone, without the ledger. Where our ledgers differ on purpose, `FORGOTTEN` and `OTHERWISE` say so; each such
story is one of the departures of tests/scenarios/test_usecases.py.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.quantity import ZERO, Quantity
from tests.dumps import USECASES, usecase_dump, usecase_trees
from tests.questions.asking import COMMANDS, FILE_COMMANDS, ask
from tests.scenarios.differences import DEPARTURES
from tests.sizes import part_of

Tree = dict[str, Any]
Amounts = dict[str, Quantity]
NAMES = USECASES or ["none"]

#: Charges that are not in any status: charges that upstream drops and our ledgers keep.
FORGOTTEN: dict[str, dict[str, str]] = {"preallocated-claim": {"cpu": "6"}}
FITS = "it fits on node "
#: Pods about which we say something else than upstream did: part of what we say.
OTHERWISE: dict[tuple[str, str], str] = {
    ("partitionable-capacitykey", "p"): FITS,  # upstream ends in an error, for ever
    ("unreferenced-claim", "unref"): FITS,  # upstream refuses such claims
    ("preemption", "high-dra"): FITS,  # upstream lets it wait for minutes
    ("no-capacity-in-slice", "missing-claim"): 'could not find ResourceClaim "nope"',  # upstream: no word
}
#: What the audit must find in a story; nothing else may be an error.
FOUND: dict[str, set[tuple[str, str]]] = {
    "preallocated-claim": {
        ("node-past-line", "Node/n-pa"),
        ("charge-not-recorded", "Pod/uc-preallocated-claim/p"),
    },
    "pool-name-clash": {("device-name-clash", "Driver/dra.example.com")},
    "pool-name-clash-many": {("device-name-clash", "Driver/dra.example.com")},
    "no-capacity-in-slice": {
        ("name-missing", "Pod/uc-no-capacity-in-slice/missing-claim"),
        ("class-missing", "ResourceClaimTemplate/uc-no-capacity-in-slice/nocls"),
    },
    "shared-claim-without-mapping": {("mapping-missing", "Driver/dra.example.com")},
    "validation": {("mapping-key-unknown", "Driver/dra.example.com")},
}


def test_every_difference_is_listed_in_the_scenarios() -> None:
    ours = {*FORGOTTEN, *(story for story, _ in OTHERWISE)}
    assert ours <= set(DEPARTURES)


def answer(name: str, *words: str) -> Any:
    """Return the JSON output of a command."""
    return json.loads(ask(*words, "-f", usecase_dump(name), "-o", "json").check().out)


@pytest.mark.sized
@pytest.mark.parametrize("name", NAMES)
def test_no_query_fails(name: str) -> None:
    path, number = usecase_dump(name), NAMES.index(name)
    waiting = [tree for tree in pods_of(name) if not tree["spec"].get("nodeName")]
    for words in part_of(COMMANDS.values(), number, 8):
        output = ask(*words, "-f", path).check()
        assert output.code in (0, 1), output
        assert output.out, output
    for words in part_of(FILE_COMMANDS.values(), number):
        output = ask(*words, "-f", path).check()
        several_nodes = "select one node with --node" in output.err
        # The objects of "validation" are invalid on purpose.
        assert output.code in (0, 1) or name == "validation" or several_nodes, output
    assert ask("explain", "-f", path).code == (1 if waiting else 0)
    for kind in ("top nodes", "policies"):
        assert ask(*COMMANDS[kind], "-f", path).code == 0
    for tree in part_of(pods_of(name), number, 8):
        one = ask(
            "explain", f"{tree['metadata']['namespace']}/{tree['metadata']['name']}", "-f", path
        ).check()
        assert one.code == (0 if tree["spec"].get("nodeName") else 1)


@pytest.mark.sized
@pytest.mark.parametrize("name", NAMES)
def test_json_and_standard_input(name: str, tmp_path: Path) -> None:
    """Files and standard input give the same output."""
    content = usecase_dump(name).read_bytes()
    as_json = tmp_path / "dump.json"
    as_json.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": usecase_trees(name)}))
    for words in part_of((("top",), ("top", "claims"), ("policies",)), NAMES.index(name), 3):
        output = ask(*words, "-f", usecase_dump(name)).out
        assert ask(*words, "-f", "-", stdin=content).out == output
        assert ask(*words, "-f", as_json).out == output


# -- charges


@cache
def pods_of(name: str) -> list[Tree]:
    return [tree for tree in usecase_trees(name) if tree["kind"] == "Pod"]


def _add(total: Amounts, amounts: dict[str, Any]) -> None:
    for resource, text in amounts.items():
        total[resource] = total.get(resource, ZERO) + Quantity.parse(str(text))


def charged_by(pod: Tree) -> Amounts:
    """Return the resources a pod is charged: its pod-level request, or requests, claims and overhead."""
    spec = pod["spec"]
    running: Amounts = {}
    starting: list[Amounts] = []
    for container in spec.get("initContainers", ()):
        requests = container.get("resources", {}).get("requests", {})
        if container.get("restartPolicy") == "Always":
            _add(running, requests)
        else:
            starting.append(dict(running))
            _add(starting[-1], requests)
    for container in spec["containers"]:
        _add(running, container.get("resources", {}).get("requests", {}))
    for phase in starting:
        for resource, amount in phase.items():
            running[resource] = max(running.get(resource, ZERO), amount)
    for entry in pod["status"].get("nodeAllocatableResourceClaimStatuses") or ():
        _add(running, entry["resources"])
    for resource, text in (spec.get("resources") or {}).get("requests", {}).items():
        running[resource] = Quantity.parse(str(text))
    _add(running, spec.get("overhead") or {})
    return running


@pytest.mark.parametrize("name", NAMES)
def test_top_sums_equal_the_recorded_charges(name: str) -> None:
    wanted: dict[str, Amounts] = {}
    for pod in pods_of(name):
        node = pod["spec"].get("nodeName")
        if node and pod["status"].get("phase") not in ("Succeeded", "Failed"):
            _add(wanted.setdefault(node, {}), {key: str(each) for key, each in charged_by(pod).items()})
    for total in wanted.values():
        _add(total, FORGOTTEN.get(name, {}))
    for node in answer(name, "top", "nodes")["nodes"]:
        for row in node["resources"]:
            parts = [Quantity.parse(row[key]) for key in ("requests", "claims", "overhead")]
            output = sum(parts, ZERO)
            assert output == wanted.get(node["name"], {}).get(row["resource"], ZERO), (node["name"], row)
            assert Quantity.parse(row["free"]) == Quantity.parse(row["allocatable"]) - output


@pytest.mark.parametrize("name", NAMES)
def test_claims_are_distinguished_from_requests(name: str) -> None:
    """The claims' part of a charge equals the pod statuses, except under a pod-level request."""
    if any((pod["spec"].get("resources") or {}).get("requests") for pod in pods_of(name)):
        pytest.skip("a pod-level request covers its claims")
    wanted: Amounts = {}
    for pod in pods_of(name):
        if pod["spec"].get("nodeName"):
            for entry in pod["status"].get("nodeAllocatableResourceClaimStatuses") or ():
                _add(wanted, entry["resources"])
    _add(wanted, FORGOTTEN.get(name, {}))
    for row in answer(name, "top", "nodes")["totals"]:
        assert Quantity.parse(row["claims"]) == wanted.get(row["resource"], ZERO), row


# -- pending pods


def said_of(pod: Tree) -> str:
    """Return the real scheduler's message without its part about preemption."""
    for condition in pod["status"].get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            text: str = condition["message"]
            return re.split(r"\. (?:still not|no new claims|preemption:)|\.$", text)[0]
    return ""


@pytest.mark.parametrize("name", NAMES)
def test_explain_agrees_with_the_real_scheduler(name: str) -> None:
    for pod in pods_of(name):
        if pod["spec"].get("nodeName"):
            continue
        full = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        output = answer(name, "explain", full)
        wanted = OTHERWISE.get((name, pod["metadata"]["name"])) or said_of(pod)
        assert wanted
        assert output["verdict"] != "placed"
        assert wanted in output["summary"], (full, output["summary"], said_of(pod))
        assert output["fix"] or output["hints"] or wanted == FITS, output


@pytest.mark.parametrize("name", NAMES)
def test_whatif_as_kube_scheduler_agrees_with_the_real_scheduler(name: str) -> None:
    """Predictions with upstream's accounting match what upstream did."""
    output = answer(name, "whatif", "--as", "kube-1.36")["as"]["kube-1.36"]
    fates = {each["pod"]: each for each in output["pods"]}
    for pod in pods_of(name):
        full = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if pod["spec"].get("nodeName") or (name, pod["metadata"]["name"]) == ("preemption", "high-dra"):
            continue  # the latter was bound minutes later
        assert fates[full]["node"] is None, full
        assert said_of(pod) in fates[full]["why"], (full, fates[full], said_of(pod))


# -- findings


@pytest.mark.parametrize("name", NAMES)
def test_audit_finds_the_problem_of_the_use_case(name: str) -> None:
    output = answer(name, "audit")["findings"]
    found = {(each["name"], each["subject"]) for each in output}
    assert FOUND.get(name, set()) <= found, found
    for each in output:
        assert each["message"], each
        assert each["fix"], each
    errors = {each["name"] for each in output if each["severity"] == "error"}
    meant = {kind for kind, _ in FOUND.get(name, set())} | {"wrong-driver-charge"}
    assert errors <= meant, errors


def test_audit_finds_every_charge_of_a_wrong_driver() -> None:
    """The 20 claims of driver A must be charged 1 cpu, those of driver B 2; others are found."""
    name = "pool-name-clash-many"
    wrong = set()
    for pod in pods_of(name):
        (entry,) = pod["status"]["nodeAllocatableResourceClaimStatuses"]
        right = "1" if pod["metadata"]["name"].startswith("a") else "2"
        if entry["resources"]["cpu"] != right:
            wrong.add(f"Pod/{pod['metadata']['namespace']}/{pod['metadata']['name']}")
    assert wrong
    output = answer(name, "audit")["findings"]
    assert {each["subject"] for each in output if each["name"] == "wrong-driver-charge"} == wrong
