"""Documentation checks: commands are run, links are followed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.transcripts import check_transcripts, steps_of

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BAD = {"requests": [{"name": "Not a name"}]}
#: Code in a line may look like a link: `[a-z]([a-z]*)`.
CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


@pytest.mark.parametrize(
    "path", [path for path in DOCUMENTS if steps_of(path.read_text())], ids=lambda path: path.name
)
def test_console_blocks_print_the_shown_output(path: Path, tmp_path: Path) -> None:
    for name in ("src", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    check_transcripts(path, tmp_path)


@pytest.mark.parametrize("block", PYTHON.findall((ROOT / "docs" / "python.md").read_text()))
def test_python_blocks_run(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the examples of the reference on a claim with one mistake."""
    monkeypatch.chdir(ROOT)
    claim = {"kind": "ResourceClaim", "metadata": {"name": "c", "namespace": "n"}, "spec": {"devices": {}}}
    seen: list[str] = []
    names: dict[str, Any] = {"raw_json": json.dumps(claim).encode(), "seen": seen}
    names["tree"] = {**claim, "spec": {"devices": BAD}}
    exec(block.replace("print(error)", "seen.append(str(error))"), names)
    assert bool(seen) == ("prepare(" in block)


@pytest.mark.parametrize("name", ["allocation", "audit", "explain", "scheduler", "top", "whatif"])
def test_python_blocks_of_other_pages_run(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They read files of examples/, and print or assert something."""
    monkeypatch.chdir(ROOT)
    blocks = PYTHON.findall((ROOT / "docs" / f"{name}.md").read_text())
    assert blocks
    for block in blocks:
        exec(block, {})
        assert ("print(" in block) == bool(capsys.readouterr().out)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in LINK.findall(CODE.sub("", path.read_text())):
        assert (path.parent / target).exists(), f"{path.name} links to {target}"


def test_documents_have_console_blocks() -> None:
    assert sum(len(steps_of(path.read_text())) for path in DOCUMENTS) >= 3
