"""The documents tell the truth: their commands are run and their links followed."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from plimsoll.cli.main import main

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```\n(\$ .*?)^```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BAD = {"requests": [{"name": "Not a name"}]}
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def sessions() -> list[tuple[str, str]]:
    return [
        (f"{path.name}-{number}", match[1])
        for path in DOCUMENTS
        for number, match in enumerate(BLOCK.finditer(path.read_text()))
    ]


def steps(session: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with what the document says it prints."""
    joined = session.replace("\\\n", " ")
    for part in re.split(r"^\$ ", joined, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


@pytest.mark.parametrize(("name", "session"), sessions())
def test_console_blocks_print_what_they_say(
    name: str,
    session: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")
    for command, output in steps(session):
        program, *arguments = shlex.split(command)
        if program == "cat":
            (tmp_path / arguments[0]).write_text(output)
            continue
        assert program == "plimsoll", f"{name}: a document may show cat and plimsoll, not {program}"
        with pytest.raises(SystemExit):
            main(arguments)
        captured = capsys.readouterr()
        pattern = re.escape(output).replace(re.escape("...\n"), ".*")
        assert re.fullmatch(pattern, captured.out + captured.err, re.DOTALL), (
            f"{name}: {captured.out}{captured.err}"
        )


@pytest.mark.parametrize("block", PYTHON.findall((ROOT / "docs" / "python.md").read_text()))
def test_python_blocks_run(block: str) -> None:
    """The examples of the reference, over a claim with one mistake."""
    claim = {"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "n"}, "spec": {"devices": {}}}
    seen: list[str] = []
    names: dict[str, Any] = {"raw_json": json.dumps(claim).encode(), "seen": seen}
    names["tree"] = {**claim, "spec": {"devices": BAD}}
    exec(block.replace("print(problem)", "seen.append(str(problem))"), names)
    assert bool(seen) == ("prepare(" in block)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(path.read_text()):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_the_documents_have_sessions() -> None:
    assert len(sessions()) >= 3
