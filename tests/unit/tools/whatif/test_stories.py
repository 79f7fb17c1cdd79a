"""`--as kube-1.36` predicts the results of kube-scheduler 1.36.4 in every recorded use case."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit.tools.whatif.use_cases import USE_CASES, Misprediction, UseCaseReplay

DIRECTORIES = (
    sorted(directory for directory in USE_CASES.iterdir() if directory.is_dir()) if USE_CASES.is_dir() else []
)
#: What cannot be predicted in memory, pod by pod, and why.
TIMING: dict[str, dict[str, str]] = {
    # kube-scheduler misses that the victim is gone and binds only at its next flush, minutes later; the
    # story stopped looking before that (in preemption-dra it waited, and the pod was bound).
    "preemption": {"high-dra": "n-pr"},
}


@pytest.mark.skipif(not DIRECTORIES, reason=f"the recorded stories are not in {USE_CASES}")
@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda directory: directory.name)
def test_a_recorded_use_case_is_predicted(directory: Path) -> None:
    late = TIMING.get(directory.name, {})
    wrong = UseCaseReplay(directory).run()
    assert [each for each in wrong if each.pod not in late] == []
    assert {each.pod: each.ours for each in wrong} == late


def test_a_wrong_prediction_would_be_noticed(tmp_path: Path) -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "1", "pods": "9"}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": f"uc-{tmp_path.name}"},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
    }
    steps = [
        {"step": "create Node/n", "http": 201},
        {"step": "create Pod/p", "http": 201},
        {"step": "wait p", "nodeName": "n", "PodScheduled": None},
    ]
    (tmp_path / "input.yaml").write_text(yaml.safe_dump_all([node, pod]))
    (tmp_path / "result.yaml").write_text(yaml.safe_dump({"steps": steps}))
    assert UseCaseReplay(tmp_path).run() == [
        Misprediction("p", "n", "0/1 nodes are available: 1 Insufficient cpu.")
    ]
