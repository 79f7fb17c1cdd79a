"""`plimsoll dashboard` at a terminal: errors are reported in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.cli.main import main
from tests.dumps import big_cluster, write_dump


@pytest.fixture
def dump(tmp_path: Path) -> str:
    return str(write_dump(big_cluster(1), tmp_path / "dump.json", "json"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-f", "{dump}", "--listen", "x"], "--listen: 'x' is not an address"),
        (["-f", "{dump}", "--listen", "192.0.2.1:1"], "cannot listen on 192.0.2.1:1"),
        (["-f", "{dump}", "--token-file", "/nope"], "--token-file: /nope: No such file"),
        (["-f", "{dump}", "-n", "work"], "all namespaces of a dump"),
        (["-f", "/nope.yaml"], "/nope.yaml: no such file"),
        (["-f", "{dump}", "--kubeconfig", "/nope"], "cannot be combined"),
        (["--kubeconfig", "/nope"], "/nope: no such file"),
    ],
)
def test_invalid_arguments(
    arguments: list[str], words: str, dump: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["dashboard", *(each.format(dump=dump) for each in arguments)])
    assert ended.value.code == 2
    error_text = capsys.readouterr().err
    assert words in error_text
    assert "Traceback" not in error_text
