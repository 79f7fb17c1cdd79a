"""`plimsoll explain` at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from plimsoll.cli.explain import run_explain
from plimsoll.errors import InputError
from plimsoll.tools.explain.targets import read_subject
from tests.dumps import big_cluster, write_dump


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dump(big_cluster(3), tmp_path_factory.mktemp("explain") / "cluster.yaml")


def ask(*words: str) -> Result:
    return CliRunner().invoke(run_explain, words)


def test_pending_pods_are_listed(dump: Path) -> None:
    result = ask("-f", str(dump))
    assert result.exit_code == 1
    assert "4 pods pending" in result.output
    assert "0/3 nodes are available: 3 Insufficient cpu." in result.output


@pytest.mark.parametrize(
    "name", ["waiting-0000", "work/waiting-0000", "pod/waiting-0000", "pod/work/waiting-0000"]
)
def test_a_pod_by_name_and_namespace(dump: Path, name: str) -> None:
    result = ask(name, "-f", str(dump))
    assert result.exit_code == 1
    assert result.output.startswith("pod work/waiting-0000: pending\n")


def test_a_scheduled_pod(dump: Path) -> None:
    result = ask("cpu-0000-1", "-n", "work", "-f", str(dump))
    assert result.exit_code == 0
    assert "cpu 4  AddPerClaim, claim cpu-0000-1: cpu.example.com/node-0000/cpus" in result.output


def test_a_claim(dump: Path) -> None:
    result = ask("claim/cpu-0000-1", "-f", str(dump))
    assert result.exit_code == 0
    assert "reserved for 1 pod" in result.output
    assert ask("claim/waiting-0001", "-f", str(dump)).exit_code == 1


def test_one_node(dump: Path) -> None:
    result = ask("waiting-0002", "--node", "node-0001", "-f", str(dump))
    assert result.exit_code == 1
    assert "no   NodeAffinity" in result.output
    assert "yes  NodeResourcesFit" in result.output


def test_json_and_yaml(dump: Path) -> None:
    tree = json.loads(ask("waiting-0000", "-f", str(dump), "-o", "json").output)
    assert {"subject", "verdict", "summary", "fix", "groups"} <= tree.keys()
    assert tree["groups"][0]["count"] == 3
    assert yaml.safe_load(ask("waiting-0000", "-f", str(dump), "-o", "yaml").output) == tree


def test_standard_input(dump: Path) -> None:
    result = CliRunner().invoke(run_explain, ["waiting-0000", "-f", "-"], input=dump.read_text())
    assert result.output.startswith("pod work/waiting-0000")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("missing",), "pod missing not found"),
        (("waiting-000",), "did you mean waiting-"),
        (("claim/nothing",), "ResourceClaim nothing not found"),
        (("waiting-0000", "--node", "nowhere"), "node nowhere not found"),
        (("--node", "node-0000"), "--node needs a pod"),
        (("claim/cpu-0000-1", "--node", "node-0000"), "--node is for pods"),
        (("a/b/c",), "name a pod"),
        (("/",), "name a pod"),
        (("other/waiting-0000", "-n", "work"), "conflicts with -n work"),
    ],
)
def test_invalid_arguments(dump: Path, words: tuple[str, ...], message: str) -> None:
    result = ask(*words, "-f", str(dump))
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)


def test_subjects() -> None:
    assert read_subject("p") == ("pod", "", "p")
    assert read_subject("p", "ns") == ("pod", "ns", "p")
    assert read_subject("ns/p") == ("pod", "ns", "p")
    assert read_subject("Claim/ns/c") == ("claim", "ns", "c")
    assert read_subject("resourceclaims/c", "ns") == ("claim", "ns", "c")


SCHEDULER_CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 8
profiles:
- schedulerName: default-scheduler
  pluginConfig:
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [batch]}]}]
"""


def test_the_configuration_of_the_scheduler_is_used(dump: Path, tmp_path: Path) -> None:
    config = tmp_path / "kube-scheduler.yaml"
    config.write_text(SCHEDULER_CONFIG)
    result = ask("waiting-0000", "-f", str(dump), "--scheduler-config", str(config))
    assert result.exit_code == 1
    assert "3 node(s) didn't match scheduler-enforced node affinity." in result.output
    assert "pool=batch" in result.output
    assert "parallelism: has no effect" in result.stderr
    everywhere = ask("-f", str(dump), "--scheduler-config", str(config))
    assert "scheduler-enforced node affinity" in everywhere.output
    one = ask("waiting-0000", "--node", "node-0001", "-f", str(dump), "--scheduler-config", str(config))
    assert "no   NodeAffinity" in one.output
