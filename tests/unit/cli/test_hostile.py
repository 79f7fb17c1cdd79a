"""Query commands on invalid dumps and unreachable clusters: a one-line error, exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.cli.main import main
from tests.dumps import big_cluster, write_dump

QUESTIONS = {
    "top": ["top"],
    "top devices": ["top", "devices"],
    "explain": ["explain", "p"],
    "whatif": ["whatif"],
    "audit": ["audit"],
    "policies": ["policies"],
}
WRONG = {
    "empty": (b"", "is empty"),
    "binary": (b"\x7fELF\0\0\0", "is not a text file"),
    "truncated JSON": (b'{"kind": "List", "apiVersion": "v1", "items": [{"kind": "Po', "document 1"),
    "truncated YAML": (b'apiVersion: v1\nitems:\n- kind: Pod\n  metadata: {name: "p', "document 1"),
    "cut list": (b"apiVersion: v1\nitems:\n- kind: Pod\n  apiVersion: v1\n", "the list may be truncated"),
    "wrong kinds": (b"kind: ConfigMap\napiVersion: v1\nmetadata: {name: c}\n", "none of the 1 objects in"),
    "a text": (b"Error from server (Forbidden)\n", "must be a mapping"),
    "wrong field": (
        b"kind: Pod\napiVersion: v1\nmetadata: {name: p, uid: u}\nspec: 3\n",
        "Pod p: spec: must be",
    ),
    "broken archive": (b"\x1f\x8b\x08nothing", "cannot be unpacked"),
}


def fail(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as exit:
        main(list(words))
    out, err = capsys.readouterr()
    assert (exit.value.code, out) == (2, "")
    assert err.startswith("plimsoll: ")
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("wrong", WRONG)
def test_invalid_dumps(question: str, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, message = WRONG[wrong]
    path = tmp_path / "dump"
    path.write_bytes(content)
    error = fail(capsys, *QUESTIONS[question], "-f", str(path))
    assert message in error
    assert str(path) in error


@pytest.mark.parametrize("question", QUESTIONS)
def test_unreachable_clusters(
    question: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = QUESTIONS[question]
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    assert "no cluster configured" in fail(capsys, *words)
    assert "no such file" in fail(capsys, *words, "--kubeconfig", str(tmp_path / "nowhere"))
    (tmp_path / "config").write_text("kind: Config\ncontexts: 3\n")
    assert "config" in fail(capsys, *words, "--kubeconfig", str(tmp_path / "config"))
    dump = str(write_dump(big_cluster(1), tmp_path / "dump.json", "json"))
    assert "cannot be combined" in fail(capsys, *words, "-f", dump, "--context", "x")
