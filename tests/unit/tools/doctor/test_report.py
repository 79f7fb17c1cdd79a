"""Output of the doctor, and its command line."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from plimsoll.cli.main import main
from plimsoll.tools.colors import PLAIN
from plimsoll.tools.doctor.doctor import CHECKS
from plimsoll.tools.doctor.findings import error, note, ok, warning
from plimsoll.tools.doctor.report import DoctorReport

from .node_dir import NODE, NodeDir, temporary_node_dir

FINDINGS = (
    ok("root.agent", "/n/lock", "no agent running"),
    error("root.mode", "/n", "its mode is 0777", "others can write: chmod go-w /n"),
    warning("sockets.stale", "/n/a\nb\x1b[31m.sock", "connection refused", "remove it"),
    note("pods.quarantine", "/n/q/\udcff", "quarantined 2h ago", "inspect it"),
)


REPORT = DoctorReport(root="/n", node="a", owner="agent", running=False, findings=FINDINGS)


def test_the_table() -> None:
    assert list(REPORT.lines(PLAIN)) == [
        "AREA      SEVERITY   CHECK        SUBJECT            FOUND",
        "root      ok         agent        /n/lock            no agent running",
        "          error      mode         /n                 its mode is 0777",
        "                                                       fix: others can write: chmod go-w /n",
        "sockets   warning    stale        /n/a?b?[31m.sock   connection refused",
        "                                                       fix: remove it",
        "pods      info       quarantine   /n/q/\\udcff        quarantined 2h ago",
        "                                                       fix: inspect it",
        "4 checks: 1 error, 1 warning, 1 note",
    ]


@pytest.mark.parametrize(("severity", "code"), [("ok", 0), ("info", 0), ("warning", 1), ("error", 1)])
def test_exit_codes(severity: str, code: int) -> None:
    found = tuple(each for each in FINDINGS if each.severity == severity)
    assert replace(REPORT, findings=found).exit_code == code


def test_json() -> None:
    tree = json.loads(json.dumps(REPORT.as_json()))
    assert tree["summary"] == {"ok": 1, "info": 1, "warning": 1, "error": 1}
    assert tree["findings"][1] == {
        "id": "root.mode",
        "name": "mode",
        "severity": "error",
        "subject": "/n",
        "key": "",
        "message": "its mode is 0777",
        "evidence": [],
        "fix": "others can write: chmod go-w /n",
        "proven": False,
    }


# -- command


@pytest.fixture
def node_dir() -> Iterator[NodeDir]:
    with temporary_node_dir() as found:
        yield found.furnish()


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *arguments])
    output = capsys.readouterr()
    return int(ended.value.code or 0), output.out, output.err


def test_the_command(node_dir: NodeDir, capsys: pytest.CaptureFixture[str]) -> None:
    node = [
        "--root",
        str(node_dir.layout.root),
        "--name",
        NODE,
        "--runtime",
        "none",
        "--cdi",
        str(node_dir.cdi),
    ]
    code, out, err = run(capsys, *node)
    assert (code, err) == (0, ""), out
    assert " checks: 0 errors, 0 warnings, " in out.splitlines()[-1]
    node_dir.layout.root.chmod(0o777)
    code, out, _ = run(capsys, *node, "-o", "json")
    assert code == 1
    assert [f["id"] for f in json.loads(out)["findings"] if f["severity"] == "error"] == ["root.mode"]


def test_settings_of_the_agent_are_read(node_dir: NodeDir, capsys: pytest.CaptureFixture[str]) -> None:
    config = node_dir.directory / "node.yaml"
    config.write_text(
        f"kind: NodeConfiguration\nname: {NODE}\nroot: {node_dir.layout.root}\nruntime: none\n"
        f"cdiFolders: [{node_dir.cdi}]\n"
    )
    code, out, _ = run(capsys, "--config", str(config), "-o", "json")
    assert code == 0
    assert json.loads(out)["node"] == NODE


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--name", "No_Name"], "is not a valid node name"),
        (["--config", "/nowhere.yaml"], "/nowhere.yaml: No such file"),
        (["--kubeconfig", "/nowhere"], "/nowhere"),
        (["--runtime", "docker"], "docker"),
        (["--strange"], "--strange"),
    ],
)
def test_wrong_arguments(arguments: list[str], word: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert word in err
    assert "Traceback" not in err


def test_an_unreadable_directory(node_dir: NodeDir, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "--root", str(node_dir.layout.root))  # imports what the command needs
    node_dir.directory.chmod(0o755)
    node_dir.layout.root.chmod(0)
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)  # root may look everywhere
    try:
        code, out, err = run(capsys, "--root", str(node_dir.layout.root))
    finally:
        os.seteuid(before)
        node_dir.layout.root.chmod(0o755)
    assert (code, out) == (2, "")
    why = "not accessible: Permission denied; run the doctor as root"
    assert err == f"plimsoll: {node_dir.layout.root}: {why}\n"


def test_an_api_server_that_does_not_answer(node_dir: NodeDir, capsys: pytest.CaptureFixture[str]) -> None:
    config = node_dir.directory / "kubeconfig"
    config.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n"
        "clusters: [{name: x, cluster: {server: 'http://127.0.0.1:1'}}]\n"
        "contexts: [{name: x, context: {cluster: x, user: x}}]\nusers: [{name: x, user: {}}]\n"
    )
    node = [
        "--root",
        str(node_dir.layout.root),
        "--name",
        NODE,
        "--runtime",
        "none",
        "--cdi",
        str(node_dir.cdi),
    ]
    code, out, err = run(capsys, *node, "--kubeconfig", str(config), "-o", "json")
    assert (code, err) == (1, "")
    (found,) = [f for f in json.loads(out)["findings"] if f["id"].startswith("cluster")]
    assert (found["id"], found["severity"]) == ("cluster.reach", "error")


# -- documentation


def test_every_finding_is_in_the_document() -> None:
    root = Path(__file__).parents[4]
    source = "".join(path.read_text() for path in (root / "src/plimsoll/tools/doctor").glob("*.py"))
    used = set(re.findall(rf'"((?:{"|".join(CHECKS)})\.[a-z-]+)"', source))
    used |= {"sockets.pod-resources", "sockets.nri"}
    table = (root / "docs/doctor.md").read_text().partition("## Findings")[2]
    documented = set(re.findall(r"`([a-z]+\.[a-z-]+)`", table))
    assert used == documented
