"""Reports of `whatif`: text and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.errors import InputError
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState, Source, read_cluster_state
from plimsoll.tools.colors import PLAIN, Paint
from plimsoll.tools.whatif import WhatifPlan, WhatifReport, run_whatif
from tests.build import device, device_class, node, pod, resource_slice
from tests.dumps import big_cluster, make_cluster_state, usecase_dump
from tests.outputs import check_json_fields, check_output
from tests.unit.tools.whatif.workloads import CLAIMING, TEMPLATE, owned, whole_or_half, workload

EXAMPLE = Path(__file__).parents[4] / "examples" / "what-if"


def text_of(report: WhatifReport, *, wide: bool = False) -> str:
    lines = list(report.lines(PLAIN, wide=wide))
    assert all(len(line) <= 100 for line in lines) or wide
    return "\n".join(lines) + "\n"


def example(**plan: Any) -> WhatifReport:
    cluster_state = read_cluster_state(Source((str(EXAMPLE / "cluster.yaml"),)))
    return run_whatif(cluster_state, WhatifPlan(**plan))


TRAINING = EXAMPLE / "training.yaml"
EVERYTHING: dict[str, dict[str, Any]] = {
    "add": {"add": (TRAINING,)},
    "add-node": {"add": (TRAINING,), "add_nodes": 1, "like": "node-2"},
    "many": {"add": (TRAINING,), "replicas": 40},
    "as": {"add": (TRAINING,), "versus": ("kube-1.36", "kube-1.36-default", "kube-1.37")},
    "exhaustive": {"add": (TRAINING,), "exhaustive": True},
    "drain": {"drain": ("node-1",)},
    "taint": {"taints": (("node-1", "x=y:NoExecute"),)},
    "nothing": {},
    "policy": {"add": (TRAINING,), "policy": "Max"},
}


@pytest.mark.parametrize("name", EVERYTHING)
def test_the_example(name: str) -> None:
    report = example(**EVERYTHING[name])
    check_output(f"whatif/{name}.txt", text_of(report))


def test_the_example_as_json_and_wide() -> None:
    report = example(add=(TRAINING,), exhaustive=True, versus=("kube-1.36-default",))
    check_json_fields("whatif/json-fields.txt", report.as_json())
    check_output("whatif/everything-wide.txt", text_of(report, wide=True))


def test_what_is_removed_and_what_is_added_reads_as_a_sentence() -> None:
    removed = text_of(example(remove=("Node/node-1",))).splitlines()
    assert removed[1] == "without Node/node-1"
    both = text_of(example(remove=("Node/node-1",), policy="Max")).splitlines()
    assert both[1] == "with accounting policy Max; without Node/node-1"


def test_a_better_placement_is_shown() -> None:
    report = run_whatif(whole_or_half().cluster_state, WhatifPlan(exhaustive=True))
    check_output("whatif/better.txt", text_of(report))


@pytest.mark.parametrize("name", ["overcommit", "overflow-messages", "preemption", "uc2"])
def test_a_use_case_of_a_real_cluster(name: str) -> None:
    cluster_state = read_cluster_state(Source((str(usecase_dump(name)),)))
    report = run_whatif(cluster_state, WhatifPlan(add=(workload("Deployment", "apps/v1", replicas=2),)))
    check_output(f"whatif/usecase-{name}.txt", text_of(report))


def test_results_are_deterministic() -> None:
    first = example(add=(TRAINING,), exhaustive=True, versus=("kube-1.36",))
    second = example(add=(TRAINING,), exhaustive=True, versus=("kube-1.36",))
    assert first.as_json() == second.as_json()


def test_two_ledgers_place_what_one_ledger_refuses() -> None:
    """The problem of KEP-5517: with the default gates, nodes are overcommitted."""
    report = example(add=(TRAINING,), versus=("kube-1.36-default",))
    (prediction,) = report.predictions
    assert [name for _, name in report.differing(prediction)] == ["training-3"]
    assert not report.all_placed


def test_preempted_pods() -> None:
    cluster_state = ClusterState(
        ClusterObjects(
            [
                node("n", cpu="2"),
                pod("low", cpu="1", node="n", priority=-1, metadata=owned()),
                pod("bare", cpu="1", node="n", priority=-1),
                pod("high", cpu="2", priority=5),
            ]
        )
    )
    report = run_whatif(cluster_state, WhatifPlan())
    lines = text_of(report)
    assert "default/low evicted from n: preempted (default/high); then pending" in lines
    assert "default/bare evicted from n: preempted (default/high); deleted, it has no controller" in lines
    assert report.as_json()["evicted"][0]["because"] == "preempted"
    assert "PREEMPTED" in lines
    assert "EVICTED" not in lines
    rows = [line.split()[:3] for line in lines.splitlines()]
    assert ["default/bare", "n", "evicted"] in rows
    assert ["default/low", "n", "pending"] in rows
    alone = run_whatif(cluster_state, WhatifPlan(preempt=False))
    assert alone.evicted == ()


def test_stranded_resources() -> None:
    objects: list[Any] = [device_class()]
    for number in range(2):
        objects += [node(f"n{number}", cpu="4"), resource_slice([device("d")], f"n{number}")]
    cluster_state = ClusterState(ClusterObjects([*objects, pod("full", cpu="4", node="n1")]))
    report = run_whatif(cluster_state, WhatifPlan(add=(TEMPLATE, CLAIMING)))
    old, new = report.fragments
    assert (old.free_devices, old.nodes_without_room) == ({"gpu.example.com": 2}, 1)
    assert old.without_room == {"gpu.example.com": 1}
    assert new.free_devices == {"gpu.example.com": 1}
    assert (new.nodes_without_devices, new.without_devices["cpu"]) == (1, 4000)
    assert (new.pieces[0].resource, new.pieces[0].most, new.pieces[0].node) == ("cpu", 4000, "n0")


def test_unknown_schedulers_are_refused() -> None:
    with pytest.raises(InputError, match=r"valid values: plimsoll, kube"):
        example(versus=("kube-9",))


def test_a_big_cluster_fits_one_screen() -> None:
    cluster_state = make_cluster_state(big_cluster(200))
    report = run_whatif(cluster_state, WhatifPlan(add=(workload("Deployment", "apps/v1", replicas=300),)))
    lines = list(report.lines(PLAIN))
    assert len(lines) < 40
    assert all(len(line) <= 100 for line in lines)
    assert "team/w-* (300)" in "\n".join(lines)


def test_colours_are_for_terminals() -> None:
    report = example(add=(TRAINING,))
    assert "\x1b[" not in text_of(report)
    assert next(iter(report.lines(Paint(color=True)))).startswith("\x1b[")
