"""Blocks of the documentation can be pasted: files exist, commands that do not return are marked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.structure.documents import FENCE, NAMES, ROOT, read

#: Commands that run until they are stopped.
_ENDLESS = re.compile(
    r"(?:^|[|&;]\s*)(?:sudo |kubectl |\S*bin/)*"
    r"(?:make up\b|plimsoll (?:up|server|scheduler|node|dashboard|podresources export|driver fake)\b"
    r"|plimsoll driver cpu\b(?! [a-z])|plimsoll \w+ .*(?:-w|--watch)\b|kubectl .*port-forward)"
)
#: Options that make them return.
_ENDS = re.compile(r"--once\b|--dry-run\b|--help\b|&$")
_MARK = "until Ctrl-C"
#: Options that read a file.
_READS = re.compile(r"\s(?:-f|--filename|--add|--devices|--driver-config)[ =]([\w./-]+\.(?:ya?ml|json))\b")


def lines_of(block: str) -> list[str]:
    return re.sub(r"\\\n\s*", " ", block).splitlines()


def unmarked(text: str) -> list[str]:
    """Commands that do not return, in blocks that do not mention it."""
    found = []
    for language, block in FENCE.findall(text):
        marked = False
        for line in lines_of(block) if language in ("", "sh", "bash") else []:
            command, _, comment = line.partition("#")
            marked = marked or (not command.strip() and _MARK in comment)
            endless = _ENDLESS.search(command.strip()) and not _ENDS.search(command.strip())
            if endless and not line.startswith("$ ") and not marked and _MARK not in comment:
                found.append(line)
    return found


def missing_files(text: str, name: str) -> list[str]:
    """Files that commands read: neither in the repository nor written by a block of the page."""
    found = []
    for language, block in FENCE.findall(text):
        for line in lines_of(block) if language in ("", "sh", "bash", "console") else []:
            for file in _READS.findall(line.partition(" #")[0]):
                places = (ROOT / file, (ROOT / name).parent / file)
                made = re.search(rf"(?:>|cat|--save|--out|-o) {re.escape(file)}", text)
                if not file.startswith("/") and not made and not any(place.is_file() for place in places):
                    found.append(file)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_commands_that_do_not_return_are_marked(name: str) -> None:
    assert unmarked(read(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_files_that_commands_read_are_shipped_or_made(name: str) -> None:
    assert missing_files(read(name), name) == []


def test_unmarked_commands_and_missing_files_are_noticed() -> None:
    page = "```\nplimsoll up --nodes 2\nplimsoll top -w\nplimsoll up --once\n"
    page += "plimsoll dashboard # until Ctrl-C\n```\n"
    page += "```\n# each until Ctrl-C\nplimsoll scheduler\n```\n```\nplimsoll audit -f nope.yaml\n```\n"
    assert unmarked(page) == ["plimsoll up --nodes 2", "plimsoll top -w"]
    assert missing_files(page, "README.md") == ["nope.yaml"]
    assert missing_files(page + "```\nkubectl get pods -o yaml > nope.yaml\n```\n", "README.md") == []


def test_the_device_file_of_the_drivers_page_is_shipped() -> None:
    shown = [block for language, block in FENCE.findall(read("docs/drivers.md")) if language == "yaml"]
    assert Path(ROOT / "examples" / "devices.yaml").read_text() in shown


def test_the_tour_cannot_reach_another_cluster() -> None:
    """Its first command for a cluster selects the one that the tour has started."""
    for name in ("docs/tour.md", "docs/first-ten-minutes.md"):
        blocks = [block for language, block in FENCE.findall(read(name)) if not language]
        commands = [line for block in blocks for line in lines_of(block) if not line.startswith("$ ")]
        used = [
            line for line in commands if re.match(r"plimsoll (?!up)|kubectl ", line) and " -f " not in line
        ]
        assert used
        first = commands.index(used[0])
        assert any("KUBECONFIG=$PWD/plimsoll-data/kubeconfig" in line for line in commands[:first]), name
