"""Invalid arguments and manifests: a one-line error, exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dumps import write_dump
from tests.questions.asking import ask
from tests.questions.clusters import rich_cluster
from tests.questions.wrong_files import WRONG

#: Words -> what the line must say.
WORDS: dict[tuple[str, ...], str] = {
    ("explain", "gone"): "pod gone not found",
    ("explain", "/"): "",
    ("explain", "pod/"): "",
    ("explain", "claim/"): "",
    ("explain", "a/b/c/d"): "",
    ("explain", "service/x"): "",
    ("explain", "\x1b[2J"): "?[2J",
    ("explain", "x" * 10_000): "",
    ("explain", "picky", "--node", "gone"): "gone",
    ("explain", "--node", "node-0000"): "--node needs a pod",
    ("explain", "claim/fabric-port", "--node", "node-0000"): "--node is for pods",
    ("explain", "picky", "-n", "nowhere"): "nowhere",
    ("top", "sideways"): "unknown view",
    ("top", "nodes", "gone"): "gone",
    ("top", "pods", "gone"): "gone",
    ("top", "nodes", "--limit", "-1"): "--limit",
    ("top", "nodes", "--sort", "colour"): "--sort",
    ("top", "nodes", "-w"): "-w",
    ("top", "-o", "xml"): "-o",
    ("whatif", "--remove", "gone"): "gone",
    ("whatif", "--remove", "Pod/work/gone"): "gone",
    ("whatif", "--remove", "Pod/a/b/c/d"): "Pod/a/b/c/d",
    ("whatif", "--remove", "\x1b[2J/x"): "?[2J",
    ("whatif", "--remove", ""): "",
    ("whatif", "--add", "gone.yaml"): "gone.yaml",
    ("whatif", "--add-nodes", "2", "--like", "gone"): "gone",
    ("whatif", "--add-nodes", "0"): "--add-nodes",
    ("whatif", "--like", "node-0000"): "--add-nodes",
    ("whatif", "--replicas", "3"): "--add",
    ("whatif", "--taint", "node-0000"): "NODE:KEY=VALUE:EFFECT",
    ("whatif", "--taint", "node-0000:a=b:Perhaps"): "Perhaps",
    ("whatif", "--taint", "gone:a=b:NoSchedule"): "gone",
    ("whatif", "--taint-devices", "nonsense"): "nonsense",
    ("whatif", "--taint-devices", "colour=red:a=b:NoExecute"): "colour",
    ("whatif", "--drain", "gone"): "gone",
    ("whatif", "--cordon", "gone"): "gone",
    ("whatif", "--policy", "Perhaps"): "Perhaps",
    ("whatif", "--as", "kube-0.1"): "kube-0.1",
    ("whatif", "--steps", "0"): "--steps",
    ("audit", "--only", "nothing"): "nothing",
    ("audit", "--skip", "PLM999"): "PLM999",
    ("audit", "--baseline", "gone.json"): "gone.json",
    ("audit", "--fail-on", "whim"): "whim",
    ("audit", "--explain", "nothing"): "nothing",
    ("policies", "--limit", "many"): "many",
    ("dashboard", "--listen", "nowhere"): "--listen",
    ("dashboard", "--listen", "127.0.0.1:999999"): "--listen",
    ("dashboard", "--token-file", "gone"): "gone",
    ("dashboard", "--listen", "127.0.0.1:0", "-n", "work"): "-n",
}


@pytest.fixture(scope="module")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_dump(rich_cluster(), tmp_path_factory.mktemp("words") / "dump.json", "json")


@pytest.mark.parametrize("words", WORDS, ids=lambda words: " ".join(words)[:60].replace("\x1b", "ESC"))
def test_invalid_arguments(words: tuple[str, ...], dump: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(dump.parent)
    answer = ask(*words, "-f", dump).check()
    assert answer.code == 2, answer
    assert WORDS[words] in answer.err, answer.err


#: Fields that may be added: they are not counted.
HARMLESS = {"other kinds", "items are a map"}


@pytest.mark.parametrize("name", [name for name in WRONG if name not in HARMLESS])
def test_invalid_manifests(name: str, dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "new.yaml"
    path.write_bytes(WRONG[name][0])
    answer = ask("whatif", "-f", dump, "--add", path).check()
    assert answer.code == 2, answer
    assert str(path) in answer.err


BAD_PODS = {
    "no containers": "spec: {containers: []}",
    "an unknown class": "spec: {priorityClassName: gold, containers: [{name: c, image: x}]}",
    "a quantity that is none": "spec: {containers: [{name: c, resources: {requests: {cpu: lots}}}]}",
    "wrong types": "spec: {containers: 7}",
}


@pytest.mark.parametrize("name", BAD_PODS)
def test_invalid_pods(name: str, dump: Path) -> None:
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: new}}\n{BAD_PODS[name]}\n"
    answer = ask("whatif", "-f", dump, "--add", "-", stdin=text.encode()).check()
    assert answer.code == 2, answer
    assert "new" in answer.err


ODD_PODS = {
    "a claim that is not there": "resourceClaims: [{name: a, resourceClaimName: gone}]",
    "a template that is not there": "resourceClaims: [{name: a, resourceClaimTemplateName: gone}]",
    "a volume that is not there": "volumes: [{name: a, persistentVolumeClaim: {claimName: gone}}]",
    "a node that is not there": "nodeName: gone",
    "a vast request": "overhead: {cpu: 9e18}",
    "a negative request": "overhead: {cpu: '-3'}",
}


@pytest.mark.parametrize("name", ODD_PODS)
def test_rejected_pods_get_a_reason(name: str, dump: Path) -> None:
    spec = f"spec:\n  containers: [{{name: c, image: x}}]\n  {ODD_PODS[name]}\n"
    text = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: new}}\n{spec}"
    answer = ask("whatif", "-f", dump, "--add", "-", stdin=text.encode()).check()
    assert answer.code in (1, 2), answer


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"7", b'{"findings": 7}', b'{"findings": [7]}', b"\xff\x00"]
)
def test_invalid_baselines(content: bytes, dump: Path, tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    path.write_bytes(content)
    answer = ask("audit", "-f", dump, "--baseline", path).check()
    assert answer.code == 2, answer
    assert str(path) in answer.err
