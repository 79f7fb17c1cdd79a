"""Examples and their documented output."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.transcripts import check_transcripts, run, steps_of

EXAMPLES = Path(__file__).parents[2] / "examples"
PAGES = sorted(path for path in EXAMPLES.rglob("README.md") if path.parent != EXAMPLES)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.parent.relative_to(EXAMPLES)))
def test_examples_print_their_documented_output(page: Path, tmp_path: Path) -> None:
    directory = tmp_path / "example"
    shutil.copytree(page.parent, directory)
    assert check_transcripts(page, directory) > 0


def test_every_example_is_on_the_list() -> None:
    text = (EXAMPLES / "README.md").read_text()
    for page in PAGES:
        assert f"({page.relative_to(EXAMPLES)})" in text, f"examples/README.md lacks {page.parent.name}"


def test_an_output_that_differs_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLIMSOLL_GOLDEN", raising=False)
    page = tmp_path / "page.md"
    page.write_text("```console\n$ plimsoll gates --feature-gates Nonsense=true\nall is well\n```\n")
    assert [step.output for step in steps_of(page.read_text())] == ["all is well\n"]
    with pytest.raises(AssertionError, match="Nonsense"):
        check_transcripts(page, tmp_path)


def test_variable_output_can_be_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PLIMSOLL_GOLDEN", raising=False)
    page = tmp_path / "page.md"
    first = run(["gates"]).partition("\n")[0]
    page.write_text(f"```console\n$ plimsoll gates\n{first}\n...\n```\n")
    assert check_transcripts(page, tmp_path) == 1
    page.write_text(f"```console\n$ plimsoll gates\n{first}\n...\nno such line\n```\n")
    with pytest.raises(AssertionError):
        check_transcripts(page, tmp_path)
