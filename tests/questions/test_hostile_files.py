"""Files that are not a cluster dump: a one-line error that names the file, exit code 2."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import pytest

from tests.questions.asking import COMMANDS, FEW, FILE_COMMANDS, ask
from tests.questions.wrong_files import WRONG, read_whole

ASKED = {**{name: COMMANDS[name] for name in FEW}, "top claims": COMMANDS["top claims"]}
#: The dashboard is asked as the others are: what it cannot read keeps it from listening.
ASKED["dashboard"] = ("dashboard", "--listen", "127.0.0.1:0")


#: Invalid as a dump, but valid as single objects.
ONLY_DUMPS = {
    "empty", "blank", "comments", "other kinds", "items are a map", "null metadata", "no name", "wrong field"
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("command", ASKED)
def test_errors_are_one_line(command: str, name: str, tmp_path: Path) -> None:
    content, wanted = WRONG[name]
    path = tmp_path / "dump.yaml"
    path.write_bytes(content)
    answer = ask(*ASKED[command], "-f", path).check()
    assert answer.code == 2, answer
    assert str(path) in answer.err, answer.err
    assert wanted in answer.err, answer.err


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("command", FILE_COMMANDS)
def test_commands_on_files_alone(command: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "objects.yaml"
    path.write_bytes(WRONG[name][0])
    answer = ask(*FILE_COMMANDS[command], "-f", path).check()
    if name not in ONLY_DUMPS:
        assert answer.code == 2, answer
        assert str(path) in answer.err, answer.err


@pytest.mark.parametrize("name", ["empty", "truncated json", "truncated yaml", "binary", "aliases", "html"])
@pytest.mark.parametrize("command", ASKED)
def test_standard_input(command: str, name: str) -> None:
    answer = ask(*ASKED[command], "-f", "-", stdin=WRONG[name][0]).check()
    assert answer.code == 2
    assert "standard input" in answer.err


@pytest.mark.parametrize("command", [*ASKED, *FILE_COMMANDS])
def test_missing_files(command: str, tmp_path: Path) -> None:
    words = ASKED.get(command) or FILE_COMMANDS[command]
    gone = ask(*words, "-f", tmp_path / "gone.yaml").check()
    assert (gone.code, gone.errors) == (2, [f"plimsoll: {tmp_path}/gone.yaml: no such file or directory"])
    directory = ask(*words, "-f", tmp_path).check()
    assert (directory.code, "no .yaml, .yml, .json file in this directory" in directory.err) == (2, True)
    (tmp_path / "odd\x1b[2J\nname.yaml").write_text("kind: [")
    odd = ask(*words, "-f", tmp_path).check()
    assert odd.code == 2
    assert "odd?[2J name.yaml" in odd.err


@pytest.mark.parametrize("command", FEW)
def test_every_truncated_dump_is_reported(command: str, tmp_path: Path) -> None:
    """A truncated dump is refused unless the rest is a complete dump."""
    path = tmp_path / "dump"
    for form in ("json", "yaml"):
        whole = read_whole(form)
        for cut in range(1, len(whole) - 3, len(whole) // 23):
            path.write_bytes(whole[:cut])
            answer = ask(*ASKED[command], "-f", path).check()
            assert answer.code == 2 or form == "yaml", (cut, answer)


@cache
def _packed_comments() -> bytes:
    return gzip.compress(b"# nothing at all\n" * 6_000_000)


# All commands read files in the same way; of each sort one is enough.
@pytest.mark.parametrize("command", [next(iter(ASKED)), next(iter(FILE_COMMANDS))])
def test_decompression_bombs_are_refused(command: str, tmp_path: Path) -> None:
    path = tmp_path / "dump.yaml.gz"
    path.write_bytes(_packed_comments())
    answer = ask(*(ASKED.get(command) or FILE_COMMANDS[command]), "-f", path).check()
    assert answer.code == 2, answer
    assert f"{path}: expands to more than 300 times its size" in answer.err
    assert "unpack it and give the unpacked file, or raise the limit with PLIMSOLL_MAX_INPUT=" in answer.err


@pytest.mark.parametrize("command", [*ASKED, *FILE_COMMANDS])
def test_a_file_above_the_size_limit_is_refused(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PLIMSOLL_MAX_INPUT", "1Ki")
    path = tmp_path / "dump.yaml"
    path.write_bytes(read_whole("yaml"))
    answer = ask(*(ASKED.get(command) or FILE_COMMANDS[command]), "-f", path).check()
    assert answer.code == 2, answer
    assert (
        f"{path}: has more than 1 KiB, the limit for this machine's memory; split it, or raise" in answer.err
    )
    monkeypatch.setenv("PLIMSOLL_MAX_INPUT", "much")
    answer = ask(*(ASKED.get(command) or FILE_COMMANDS[command]), "-f", path).check()
    assert answer.code == 2, answer
    assert "PLIMSOLL_MAX_INPUT: 'much' is not a quantity" in answer.err
