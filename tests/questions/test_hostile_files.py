"""Files that are not a cluster dump: a one-line error that names the file, exit code 2."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path

import pytest

from tests.questions.asking import COMMANDS, FEW, FILE_COMMANDS, ask
from tests.questions.wrong_files import WRONG, _whole

ASKED = {**{name: COMMANDS[name] for name in FEW}, "top claims": COMMANDS["top claims"]}
#: The dashboard is asked as the others are: what it cannot read keeps it from listening.
ASKED["dashboard"] = ("dashboard", "--listen", "127.0.0.1:0")


@cache
def _whole(form: str) -> bytes:
    tree = {"apiVersion": "v1", "kind": "List", "items": big_cluster(2)}
    return json.dumps(tree, indent=1).encode() if form == "json" else yaml.dump(tree, sort_keys=True).encode()


def _bomb() -> bytes:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    return "\n".join(["apiVersion: v1", "kind: Pod", "metadata: {name: bomb}", *lines]).encode()


def _deep(opening: bytes, closing: bytes) -> bytes:
    return b'{"kind": "Pod", "apiVersion": "v1", "metadata": ' + opening * 100_000 + closing * 100_000 + b"}"


WRONG: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "blank": (b" \n\t\n", "is empty"),
    "comments": (b"# nothing\n---\n# at all\n", "no objects found in"),
    "text": (b"hello there\n", "an object must be a mapping"),
    "number": (b"7\n", "an object must be a mapping"),
    "no kind": (b"a: b\n", "kind is missing"),
    "list": (b"- a\n- b\n", "an object must be a mapping"),
    "binary": (b"\x7fELF\x02\x01\x01\x00\x00\x00" * 50, "is not a text file"),
    "half a character": (b"kind: Pod\nmetadata: {name: \xff\xfe\x80}\n", "UTF-8"),
    "truncated json": (
        _whole("json")[:5000],
        "not JSON: found unexpected end of stream; it may be truncated",
    ),
    "truncated yaml": (_whole("yaml")[:5003], "the list may be truncated"),
    "truncated yaml list": (b"apiVersion: v1\nitems:\n- a: {b: [", "line "),
    "truncated gzip": (gzip.compress(_whole("yaml"))[:200], "unexpected end of file"),
    "broken gzip": (b"\x1f\x8b\x08" + b"x" * 100, "cannot be unpacked"),
    "zip that is none": (b"PK\x03\x04" + b"x" * 100, "cannot be unpacked"),
    "two keys": (b"kind: Pod\nkind: Node\n", "'kind' is given twice"),
    "aliases": (_bomb(), "aliases expand to more than"),
    "unknown alias": (b"kind: *gone\n", "alias"),
    "deep json": (_deep(b"[", b"]"), "nested too deeply"),
    "deep yaml": (b"kind: Pod\nspec: " + b"[" * 5000 + b"]" * 5000, "nested too deeply"),
    "tab": (b"kind: Pod\nmetadata:\n\tname: x\n", "line 3"),
    "html": (b"<!DOCTYPE html>\n<html><body>Sign in</body></html>\n", "an object must be a mapping"),
    "error of kubectl": (b"Error from server (Forbidden): nodes is forbidden\n", ""),
    "template": (b"kind: Pod\nmetadata: {name: {{ .Values.name }}}\n", "line 2"),
    "items are a map": (b"kind: List\napiVersion: v1\nitems: {a: b}\n", ""),
    "items are texts": (
        b"kind: List\napiVersion: v1\nitems: [a, b]\n",
        "items[0]: an object must be a mapping",
    ),
    "null metadata": (b"kind: Node\napiVersion: v1\nmetadata:\n", "Node: metadata.name: must not be empty"),
    "no name": (b"kind: Pod\napiVersion: v1\nmetadata: {uid: u}\n", "metadata.name: must not be empty"),
    "half a character in JSON": (
        b'{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "\\ud800 and more"}}',
        "surrogate",
    ),
    "other kinds": (
        b"kind: Service\napiVersion: v1\nmetadata: {name: s}\n---\nkind: Pod\napiVersion: wrong/v7\n",
        "none of the 2 objects in",
    ),
}
#: Invalid as a dump, but valid as single objects.
ONLY_DUMPS = {"empty", "blank", "comments", "other kinds", "items are a map", "null metadata", "no name"}


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
        whole = _whole(form)
        for cut in range(1, len(whole) - 3, len(whole) // 23):
            path.write_bytes(whole[:cut])
            answer = ask(*ASKED[command], "-f", path).check()
            assert answer.code == 2 or form == "yaml", (cut, answer)


@cache
def _packed_comments() -> bytes:
    return gzip.compress(b"# nothing at all\n" * 6_000_000)


@pytest.mark.parametrize("command", [*ASKED, *FILE_COMMANDS])
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
    path.write_bytes(_whole("yaml"))
    answer = ask(*(ASKED.get(command) or FILE_COMMANDS[command]), "-f", path).check()
    assert answer.code == 2, answer
    assert (
        f"{path}: has more than 1 KiB, the limit for this machine's memory; split it, or raise" in answer.err
    )
    monkeypatch.setenv("PLIMSOLL_MAX_INPUT", "much")
    answer = ask(*(ASKED.get(command) or FILE_COMMANDS[command]), "-f", path).check()
    assert answer.code == 2, answer
    assert "PLIMSOLL_MAX_INPUT: 'much' is not a quantity" in answer.err
