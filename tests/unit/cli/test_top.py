"""`plimsoll top` and `plimsoll policies` at the command line."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from plimsoll.cli.main import main
from plimsoll.cli.options import OutputFormat
from plimsoll.cli.watching import ReportWriter
from plimsoll.tools.colors import Paint
from plimsoll.up.local_cluster import LocalCluster
from tests.outputs import GOLDEN_DIR
from tests.waiting import DEADLINE

DUMP = str(GOLDEN_DIR.parents[1] / "examples" / "top" / "cluster.yaml")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit:
        main(list(words))
    output = capsys.readouterr()
    assert isinstance(exit.value.code, int)
    return exit.value.code, output.out, output.err


def test_nodes_are_the_default_view(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "top", "-f", DUMP)
    assert (code, err) == (0, "")
    assert out == (GOLDEN_DIR / "top" / "nodes.txt").read_text()


@pytest.mark.parametrize("view", ["nodes", "po", "claim", "devices", "pools", "ns"])
def test_views_have_aliases(capsys: pytest.CaptureFixture[str], view: str) -> None:
    code, out, _ = run(capsys, "top", view, "-f", DUMP, "-o", "json")
    assert code == 0
    assert json.loads(out)


def test_json_and_yaml_have_the_same_content(capsys: pytest.CaptureFixture[str]) -> None:
    _, tree, _ = run(capsys, "top", "nodes", "node-b", "-f", DUMP, "-o", "json")
    _, text, _ = run(capsys, "top", "nodes", "node-b", "-f", DUMP, "-o", "yaml")
    assert yaml.safe_load(text) == json.loads(tree)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("top", "node-a", "-f", DUMP), "node-a: unknown view; valid views: nodes, pods"),
        (("top", "nodes", "node-x", "-f", DUMP), "node node-x not found; did you mean"),
        (("top", "-w", "-f", DUMP), "-w and -f cannot be combined"),
        (("top", "--resource", "gpu", "-f", DUMP), "resource gpu not found"),
        (("top", "-f", "/nowhere.yaml"), "/nowhere.yaml"),
    ],
)
def test_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_policies(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "policies", "-f", DUMP)
    assert code == 0
    assert out == (GOLDEN_DIR / "policies" / "policies.txt").read_text()
    code, out, _ = run(capsys, "policies", "-f", DUMP, "-n", "web", "-o", "json")
    assert {row["namespace"] for row in json.loads(out)["pods"]} == {"web"}


# -- watching


class Table:
    def lines(self, paint: Paint, *, wide: bool = False) -> Iterator[str]:
        yield "node-a  free 8"

    def as_json(self) -> dict[str, Any]:
        return {}


def test_a_lost_connection_is_shown_above_the_last_output(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "60")
    writer = ReportWriter(OutputFormat(output="table"), "plimsoll top nodes")
    writer.write(Table())
    assert "lost" not in capsys.readouterr().out
    writer.report_problem("nodes: connection refused " + "x" * 100)
    output = capsys.readouterr().out.splitlines()
    assert "connection lost, the data below is out of date: nodes: conn" in output[1]
    assert "node-a  free 8" in output[2]
    assert all(len(line) < 80 for line in output)
    writer.report_problem("")
    assert "lost" not in capsys.readouterr().out


def test_in_a_pipe_a_lost_connection_is_written_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    writer = ReportWriter(OutputFormat(output="json"), "plimsoll top nodes")
    writer.report_problem("nodes: connection refused")
    writer.report_problem("")
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.splitlines() == [
        "note: connection lost: nodes: connection refused",
        "note: connected again",
    ]


class Follower:
    """`plimsoll COMMAND -w` as a process, with its output so far."""

    def __init__(self, *words: str, command: str = "top") -> None:
        command_line = [sys.executable, "-m", "plimsoll.cli.main", command, "-w", *words]
        self.process = subprocess.Popen(command_line, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.text = ""

    def wait_for(self, met: Callable[[str], bool], seconds: float = DEADLINE) -> str:
        assert self.process.stdout is not None
        end = time.monotonic() + seconds
        while not met(self.text):
            left = end - time.monotonic()
            assert left > 0, f"it only wrote {self.text!r}"
            ready, _, _ = select.select([self.process.stdout], [], [], left)
            if ready:
                more = os.read(self.process.stdout.fileno(), 65536)
                assert more, f"it ended after {self.text!r}"
                self.text += more.decode()
        return self.text

    def stop(self) -> tuple[int, str]:
        """Send SIGINT."""
        self.process.send_signal(signal.SIGINT)
        try:
            _, output = self.process.communicate(timeout=DEADLINE)
        finally:
            self.process.kill()
        return self.process.returncode, output.decode()


def pod(name: str) -> dict[str, Any]:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": "node-0", "containers": [container]},
    }


@pytest.mark.slow
def test_watching_a_cluster() -> None:
    with LocalCluster(nodes=1) as cluster:
        words = ("--kubeconfig", str(cluster.kubeconfig))
        follower, other = Follower(*words, "-o", "json"), Follower(*words)
        try:
            first = json.loads(follower.wait_for(lambda text: "\n" in text).splitlines()[0])
            assert [node["name"] for node in first["nodes"]] == ["node-0"]
            other.wait_for(lambda text: "node-0" in text)
            cluster.apply(pod("new"))
            follower.wait_for(lambda text: '"requests":"2"' in text)
            other.wait_for(lambda text: "\n--- " in text)
        finally:
            ends = [each.stop() for each in (follower, other)]
    assert ends == [(0, ""), (0, "")]


@pytest.mark.slow
def test_watching_pending_pods_and_findings() -> None:
    with LocalCluster(nodes=1) as cluster:
        words = ("--kubeconfig", str(cluster.kubeconfig))
        pending, findings = Follower(*words, command="explain"), Follower(*words, command="audit")
        waiting = pod("waiting")
        del waiting["spec"]["nodeName"]
        waiting["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "5000"
        try:
            pending.wait_for(lambda text: "\n" in text)
            findings.wait_for(lambda text: "No problems found" in text)
            cluster.apply(waiting)
            pending.wait_for(lambda text: "default/waiting" in text)
            cluster.apply(pod("one") | {"spec": {**pod("one")["spec"], "nodeName": "gone"}})
            findings.wait_for(lambda text: "\n--- " in text)
        finally:
            ends = [each.stop() for each in (pending, findings)]
    assert ends == [(0, ""), (0, "")]


@pytest.mark.parametrize("command", ["explain", "audit"])
def test_a_dump_cannot_be_watched(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, out, err = run(capsys, command, "-w", "-f", DUMP)
    assert (code, out) == (2, "")
    assert "-w and -f cannot be combined: a dump does not change" in err


def test_formats_for_pipelines_cannot_be_watched(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "audit", "-w", "-o", "sarif", "-f", DUMP)
    assert (code, "-w and -o sarif cannot be combined" in err) == (2, True)
