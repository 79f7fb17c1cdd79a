"""`plimsoll whatif` at the command line: exit codes and one-line errors."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from plimsoll.cli.main import main

EXAMPLE = Path(__file__).parents[3] / "examples" / "what-if"
CLUSTER, TRAINING = str(EXAMPLE / "cluster.yaml"), str(EXAMPLE / "training.yaml")


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error."""
    with pytest.raises(SystemExit) as end:
        main(["whatif", *arguments])
    output = capsys.readouterr()
    return int(end.value.code or 0), output.out, output.err


def test_exit_code_1_if_pods_stay_pending(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(capsys, "-f", CLUSTER, "--add", TRAINING)
    assert (code, err) == (1, "")
    assert out.startswith("3 of 4 added pods scheduled, 1 pending\n")


def test_exit_code_0_if_all_pods_are_scheduled(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("-f", CLUSTER, "--add", TRAINING, "--add-nodes", "1", "--like", "node-2")
    code, out, _ = ask(capsys, *arguments)
    assert code == 0
    assert out.startswith("all 4 added pods are scheduled\n")


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_json_output(capsys: pytest.CaptureFixture[str], output: str) -> None:
    code, out, _ = ask(capsys, "-f", CLUSTER, "--add", TRAINING, "-o", output, "--as", "kube-1.36")
    assert code == 1
    if output == "json":
        answer = json.loads(out)
        assert (answer["after"]["pending"], answer["as"]["kube-1.36"]["pending"]) == (1, 1)
    else:
        assert out.startswith("after:\n") or "allPlaced: false\n" in out


def test_from_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.TextIOWrapper(io.BytesIO(Path(TRAINING).read_bytes()))
    monkeypatch.setattr("sys.stdin", text)
    code, out, _ = ask(capsys, "-f", CLUSTER, "--add", "-")
    assert (code, out.splitlines()[0]) == (1, "3 of 4 added pods scheduled, 1 pending")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--like", "node-1"), "--like: set the number of nodes to add with --add-nodes"),
        (("--replicas", "3"), "--replicas: set the pods to add with --add"),
        (("--taint", "node-1"), "write NODE:KEY=VALUE:EFFECT"),
        (("--taint", "node-1:x"), "invalid taint"),
        (("--taint", "nope:x:NoSchedule"), "Node not found; did you mean"),
        (("--drain", "node-3"), "did you mean node-"),
        (("--cordon", "x"), "Node not found"),
        (("--remove", "x"), "must be KIND/NAMESPACE/NAME"),
        (("--taint-devices", "x"), "use driver=D,pool=P,device=V"),
        (("--add", "nope.yaml"), "nope.yaml"),
        (("--add-nodes", "2"), "name the node to copy (there are 2 nodes)"),
        (("--add", "-", "-f", "-"), "standard input can be read once"),
    ],
)
def test_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    code, out, err = ask(capsys, "-f", CLUSTER, *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_a_broken_manifest_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "pods.yaml"
    for text in (
        "{",
        "kind: Pod",
        "7",
        "kind: Pod\nmetadata: {name: p}\nspec: {containers: 7}",
        "\x00",
        "a: &a [*a]",
    ):
        file.write_text(text)
        code, _, err = ask(capsys, "-f", CLUSTER, "--add", str(file))
        assert (code, err.count("\n")) == (2, 1), (text, err)
        assert "Traceback" not in err


def test_the_configuration_of_the_scheduler_is_used(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config = tmp_path / "scheduler.yaml"
    added = '{"nodeSelectorTerms": [{"matchExpressions": [{"key": "pool", "operator": "Exists"}]}]}'
    config.write_text(
        "profiles:\n- schedulerName: plimsoll\n"
        f"  addedAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {added}}}\n"
    )
    code, out, _ = ask(capsys, "-f", CLUSTER, "--add", TRAINING, "--scheduler-config", str(config))
    assert code == 1
    assert out.startswith("0 of 4 added pods scheduled, 4 pending\n")
    assert "scheduler-enforced node affinity" in out
