"""`plimsoll cgroups`: exact cgroup values of a node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from plimsoll.cli.main import main

PODS = """
kind: Pod
metadata: {name: db, namespace: shop, uid: 0f6a}
spec:
  initContainers:
  - {name: setup, resources: {requests: {cpu: 100m}}}
  - {name: proxy, restartPolicy: Always, resources: {requests: {memory: 64Mi}, limits: {memory: 64Mi}}}
  containers:
  - name: main
    resources: {requests: {cpu: "1", memory: 2Gi}, limits: {cpu: "2", memory: 4Gi}, claims: [{name: cpus}]}
  resourceClaims: [{name: cpus, resourceClaimName: cpus}]
status:
  nodeAllocatableResourceClaimStatuses:
  - {resourceClaimName: cpus, containers: [main], mapping: [{name: cpu, quantity: "4"}]}
---
kind: Pod
metadata: {name: batch}
spec: {containers: [{name: work}]}
---
kind: Pod
metadata: {name: over}
spec: {containers: [{name: work, resources: {requests: {cpu: "9"}}}]}
status: {phase: Succeeded}
"""
V2_1_37 = """\
rules: 1.37
FILE                             VALUE
plimsoll/besteffort/cpu.weight   1
plimsoll/burstable/cpu.weight    196
plimsoll/burstable/memory.low    0
plimsoll/memory.low              0
plimsoll/memory.min              0

shop/db: Burstable
  CONTAINER   ROLE      OOM_SCORE_ADJ
  setup       init      999
  proxy       sidecar   875
  main        regular   875
  FILE                                                VALUE
  plimsoll/burstable/pod0f6a/cpu.weight               196
  plimsoll/burstable/pod0f6a/main/cpu.max             600000 100000
  plimsoll/burstable/pod0f6a/main/cpu.weight          39
  plimsoll/burstable/pod0f6a/main/memory.high         max
  plimsoll/burstable/pod0f6a/main/memory.max          4294967296
  plimsoll/burstable/pod0f6a/main/memory.oom.group    1
  plimsoll/burstable/pod0f6a/proxy/cpu.weight         1
  plimsoll/burstable/pod0f6a/proxy/memory.high        max
  plimsoll/burstable/pod0f6a/proxy/memory.max         67108864
  plimsoll/burstable/pod0f6a/proxy/memory.oom.group   1
  plimsoll/burstable/pod0f6a/setup/cpu.weight         4
  plimsoll/burstable/pod0f6a/setup/memory.high        max
  plimsoll/burstable/pod0f6a/setup/memory.oom.group   1

default/batch: BestEffort
  CONTAINER   ROLE      OOM_SCORE_ADJ
  work        regular   1000
  FILE                                                         VALUE
  plimsoll/besteffort/poddefault-batch/cpu.weight              1
  plimsoll/besteffort/poddefault-batch/work/cpu.weight         1
  plimsoll/besteffort/poddefault-batch/work/memory.high        max
  plimsoll/besteffort/poddefault-batch/work/memory.oom.group   1
"""
V1_1_36 = """\
rules: 1.36
FILE                                 VALUE
cpu/plimsoll/besteffort/cpu.shares   2
cpu/plimsoll/burstable/cpu.shares    1024

shop/db: Burstable
  CONTAINER   ROLE      OOM_SCORE_ADJ
  setup       init      999
  proxy       sidecar   875
  main        regular   875
  FILE                                                            VALUE
  cpu/plimsoll/burstable/pod0f6a/cpu.shares                       1024
  cpu/plimsoll/burstable/pod0f6a/main/cpu.cfs_period_us           100000
  cpu/plimsoll/burstable/pod0f6a/main/cpu.cfs_quota_us            200000
  cpu/plimsoll/burstable/pod0f6a/main/cpu.shares                  1024
  cpu/plimsoll/burstable/pod0f6a/proxy/cpu.cfs_period_us          100000
  cpu/plimsoll/burstable/pod0f6a/proxy/cpu.shares                 2
  cpu/plimsoll/burstable/pod0f6a/setup/cpu.cfs_period_us          100000
  cpu/plimsoll/burstable/pod0f6a/setup/cpu.shares                 102
  memory/plimsoll/burstable/pod0f6a/main/memory.limit_in_bytes    4294967296
  memory/plimsoll/burstable/pod0f6a/proxy/memory.limit_in_bytes   67108864

default/batch: BestEffort
  CONTAINER   ROLE      OOM_SCORE_ADJ
  work        regular   1000
  FILE                                                           VALUE
  cpu/plimsoll/besteffort/poddefault-batch/cpu.shares            2
  cpu/plimsoll/besteffort/poddefault-batch/work/cpu.cfs_period_us   100000
  cpu/plimsoll/besteffort/poddefault-batch/work/cpu.shares       2
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["cgroups", *arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture
def pods(tmp_path: Path) -> str:
    path = tmp_path / "pods.yaml"
    path.write_text(PODS)
    return str(path)


def test_claims_count_in_the_1_37_form(capsys: pytest.CaptureFixture[str], pods: str) -> None:
    assert run(capsys, "-f", pods, "--memory", "16Gi") == (0, V2_1_37, "")


def test_claims_do_not_count_in_the_1_36_form(capsys: pytest.CaptureFixture[str], pods: str) -> None:
    code, out, _ = run(capsys, "-f", pods, "--memory", "16Gi", "--form", "1.36", "--cgroup-version", "1")
    assert code == 0
    assert [line.split() for line in out.splitlines()] == [line.split() for line in V1_1_36.splitlines()]


def test_as_json(capsys: pytest.CaptureFixture[str], pods: str) -> None:
    code, out, _ = run(capsys, "-f", pods, "--memory", "16Gi", "-o", "json")
    assert code == 0
    answer = json.loads(out)
    assert [pod["qosClass"] for pod in answer["pods"]] == ["Burstable", "BestEffort"]
    assert answer["pods"][0]["containers"][2] == {"name": "main", "role": "regular", "oomScoreAdj": 875}
    assert answer["pods"][0]["files"]["plimsoll/burstable/pod0f6a/main/cpu.max"] == "600000 100000"


def test_the_memory_of_the_node_is_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, pods: str
) -> None:
    node = tmp_path / "node.yaml"
    capacity = "{memory: 8Gi, hugepages-2Mi: 4Mi, hugepages-1Gi: '0'}"
    node.write_text(f"kind: Node\nmetadata: {{name: n1}}\nstatus: {{capacity: {capacity}}}\n")
    _, out, _ = run(capsys, "-f", pods, "-f", str(node))
    assert "  main        regular   750\n" in out
    assert "hugetlb.2MB.max" in out
    assert "1GB" not in out


def test_without_a_node_the_memory_of_this_machine_is_used(
    capsys: pytest.CaptureFixture[str], pods: str
) -> None:
    code, out, _ = run(capsys, "-f", pods)
    assert (code, "shop/db: Burstable" in out) == (0, True)


def test_memory_qos_sets_memory_protection(capsys: pytest.CaptureFixture[str], pods: str) -> None:
    _, out, _ = run(capsys, "-f", pods, "--memory", "16Gi", "--memory-qos")
    line = next(line for line in out.splitlines() if "main/memory.high" in line)
    assert line.split()[1] != "max"


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("kind: Node\nmetadata: {name: n1}\n", (), "no pods found"),
        ("kind: Pod\nspec: {containers: 5}\n", ("--memory", "1Gi"), "containers"),
        (
            "kind: Pod\nmetadata: {name: a, uid: ../x}\n",
            ("--memory", "1Gi"),
            "is not a valid file or directory name",
        ),
        ("kind: Pod\nmetadata: {name: a}\n", ("--memory", "lots"), "not a quantity"),
        ("kind: Pod\nmetadata: {name: a}\n", ("--memory", "0"), "is unknown: set it with --memory"),
        (
            "kind: Pod\nspec: {containers: [{name: ../../x}]}\n",
            ("--memory", "1Gi"),
            "is not a valid file or directory name",
        ),
    ],
)
def test_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, arguments: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "x.yaml"
    path.write_text(text)
    memory = () if arguments or "Node" not in text else ("--memory", "1Gi")
    code, _, err = run(capsys, "-f", str(path), *arguments, *memory)
    assert code in (1, 2)
    assert message in err
    assert err.count("\n") == 1
