"""Completion of the names of objects at the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from plimsoll.cli import name_completion
from plimsoll.cli.main import plimsoll
from plimsoll.up.local_cluster import LocalCluster

EXAMPLES = Path(__file__).parents[3] / "examples"
DUMP = str(EXAMPLES / "top" / "cluster.yaml")


def complete(*words: str) -> list[str]:
    """The values that are offered for the last word."""
    *arguments, incomplete = words
    found = ShellComplete(plimsoll, {}, "plimsoll", "_X").get_completions(arguments, incomplete)
    return [item.value for item in found]


@pytest.fixture(autouse=True)
def no_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def test_names_come_from_the_files_of_the_command_line() -> None:
    assert complete("top", "nodes", "-f", DUMP, "node-") == ["node-a", "node-b", "node-c"]
    assert complete("top", "devices", "-f", DUMP, "node-b") == ["node-b"]
    assert complete("explain", "-f", DUMP, "ml/l") == ["ml/later"]
    assert complete("explain", "-n", "ml", "-f", DUMP, "lat") == ["later"]
    assert "claim/pinned" in complete("explain", "-f", DUMP, "claim/")
    assert complete("explain", "-f", DUMP, "x", "--node", "node-c") == ["node-c"]
    for option in ("--drain", "--cordon", "--like"):
        assert complete("whatif", "-f", DUMP, option, "node-a") == ["node-a"]


def test_objects_to_remove_are_completed_by_kind_first() -> None:
    assert complete("whatif", "-f", DUMP, "--remove", "") == ["Pod/", "ResourceClaim/", "Node/"]
    assert complete("whatif", "-f", DUMP, "--remove", "Pod/ml/l") == ["Pod/ml/later"]
    assert complete("whatif", "-f", DUMP, "--remove", "Node/node-a") == ["Node/node-a"]
    assert complete("whatif", "-f", DUMP, "--remove", "Secret/") == []


def test_views_and_checks_are_completed() -> None:
    assert complete("top", "na") == ["namespaces"]
    assert complete("audit", "--only", "PLM00")[0] == "PLM001"
    assert complete("audit", "--explain", "node-past")[0] == "node-past-line"


def test_problems_mean_no_completions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "broken.yaml").write_text("kind: [")
    assert complete("top", "nodes", "-f", "broken.yaml", "") == []
    assert complete("top", "nodes", "-f", "nowhere.yaml", "") == []
    assert complete("top", "nodes", "-f", "-", "") == []
    assert complete("top", "nodes", "") == []
    assert capsys.readouterr() == ("", "")


def test_large_files_are_not_read_while_a_shell_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_completion, "MAX_BYTES", 10)
    assert complete("top", "nodes", "-f", DUMP, "node-") == []


def test_contexts_are_those_of_the_kubeconfig(tmp_path: Path) -> None:
    path = tmp_path / ".kube" / "config"
    path.parent.mkdir()
    path.write_text("contexts: [{name: blue, context: {}}, {name: green, context: {}}]\n")
    assert complete("top", "--context", "") == ["blue", "green"]
    other = tmp_path / "other"
    other.write_text("contexts: [{name: red, context: {}}]\n")
    assert complete("top", "--kubeconfig", str(other), "--context", "r") == ["red"]


def test_names_come_from_the_cluster() -> None:
    with LocalCluster(nodes=2) as cluster:
        config = ("--kubeconfig", str(cluster.kubeconfig))
        nodes = complete("top", *config, "nodes", "")
        assert len(nodes) == 2
        assert "kube-system" in complete("top", *config, "-n", "kube-s")
        assert complete("whatif", *config, "--drain", nodes[0]) == [nodes[0]]
