"""Recorded explanations of every symptom."""

from __future__ import annotations

import re

import pytest

from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.tools.colors import PLAIN, Paint
from plimsoll.tools.explain import explain_claim, explain_node, explain_pod
from tests.build import DRIVER, claim, exactly, pod
from tests.outputs import check_json_fields, check_output
from tests.unit.tools.explain.symptoms import GPUS, MAKERS, SUBJECT, gpu, gpu_node, make_cluster_state

WIDTH = 100


@pytest.mark.parametrize("name", MAKERS)
def test_a_symptom_is_explained(name: str) -> None:
    cluster_state = make_cluster_state(MAKERS[name]())
    report = explain_pod(cluster_state, cluster_state.pod(SUBJECT))
    lines = list(report.lines(PLAIN))
    assert all(len(line) <= WIDTH for line in lines if " " in line.strip())
    check_output(f"explain/symptoms/{name}.txt", "\n".join(lines) + "\n")


def test_fields_of_explanations() -> None:
    trees = []
    for name in ("none-left", "insufficient-cpu", "placed", "several-rules"):
        cluster_state = make_cluster_state(MAKERS[name]())
        trees.append(explain_pod(cluster_state, cluster_state.pod(SUBJECT)).as_json())
    check_json_fields("explain/json-fields.txt", *trees)


@pytest.mark.parametrize("name", MAKERS)
def test_explaining_changes_nothing(name: str) -> None:
    """Simulated changes leave no trace: a second query gives the same answer."""
    cluster_state = make_cluster_state(MAKERS[name]())
    pod = cluster_state.pod(SUBJECT)
    first = explain_pod(cluster_state, pod).as_json()
    assert explain_pod(cluster_state, pod).as_json() == first
    assert explain_pod(make_cluster_state(MAKERS[name]()), pod).as_json() == first
    assert not cluster_state.snapshot.assumed


@pytest.mark.parametrize("name", MAKERS)
def test_colours_change_no_word(name: str) -> None:
    cluster_state = make_cluster_state(MAKERS[name]())
    report = explain_pod(cluster_state, cluster_state.pod(SUBJECT))
    painted = "\n".join(report.lines(Paint(color=True)))
    assert re.sub(r"\x1b\[\d+m", "", painted) == "\n".join(report.lines(PLAIN))


@pytest.mark.parametrize(
    ("name", "node"), [("several-rules", "n1"), ("none-left", "n1"), ("fits", "n1"), ("class-missing", "n1")]
)
def test_one_node_with_every_rule(name: str, node: str) -> None:
    cluster_state = make_cluster_state(MAKERS[name]())
    report = explain_node(cluster_state, cluster_state.pod(SUBJECT), node)
    check_output(f"explain/nodes/{name}.txt", "\n".join(report.lines(PLAIN)) + "\n")


@pytest.mark.parametrize(
    ("name", "claim"),
    [
        ("none-left", "c"),
        ("none-left", "c0"),
        ("insufficient-cpu", "c7"),
        ("claim-missing", "training-gpu"),
        ("capacity-used-up", "c0"),
        ("claim-being-deleted", "c"),
    ],
)
def test_a_claim_is_explained(name: str, claim: str) -> None:
    cluster_state = make_cluster_state(MAKERS[name]())
    report = explain_claim(cluster_state, cluster_state.claim(claim))
    check_output(f"explain/claims/{name}-{claim}.txt", "\n".join(report.lines(PLAIN)) + "\n")
    assert report.as_json()["kind"] == "Claim"


def test_a_search_that_gave_up_is_no_refusal() -> None:
    constraint = {"requests": ["a", "b"], "matchAttribute": f"{DRIVER}/numa"}
    wanted = claim("c", exactly("a"), exactly("b"), constraints=[constraint])
    devices = gpu_node("n1", gpu("g0"), gpu("g1"), gpu("g3"))
    cluster_state = make_cluster_state([*devices, GPUS, wanted, pod("p", claims=["c"])])
    report = explain_pod(cluster_state, cluster_state.pod(SUBJECT), settings=SchedulerProfile(search_steps=1))
    text = "\n".join(report.lines(PLAIN))
    check_output("explain/symptoms/gave-up.txt", text + "\n")
