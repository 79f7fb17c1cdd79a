"""YAML read in parts agrees with YAML read at once."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.common import yaml_documents as yaml_parts
from plimsoll.common.yaml import load_documents
from plimsoll.common.yaml_documents import load_parts
from plimsoll.errors import InputError
from tests.sizes import FULL


def in_parts(text: bytes) -> list[tuple[int, Any]]:
    """Return the documents read in parts."""
    whole: list[tuple[int, Any]] = []
    for part in load_parts(text):
        if part.item <= 0:
            whole.append((part.line, part.tree))
        else:
            whole[-1][1]["items"] += part.tree["items"]
    return whole


def outcome(read: Any, text: bytes) -> Any:
    try:
        return [tree for _, tree in read(text)]
    except InputError:
        return "refused"


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-1000, 1000)
    | st.text(st.sampled_from("ab:-#'\"|>&*{}[]\n \t%~0"), max_size=12)
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "b", "items"]), inner, max_size=3)
    ),
    max_leaves=12,
)
LISTS = st.fixed_dictionaries(
    {"apiVersion": st.just("v1"), "kind": st.just("List"), "items": st.lists(TREES, max_size=4)}
)


@given(st.lists(LISTS | TREES, max_size=3), st.booleans(), st.booleans())
def test_documents_round_trip(trees: list[Any], wide: bool, sort: bool) -> None:
    text = yaml.safe_dump_all(
        trees, width=2**20 if wide else 30, sort_keys=sort, allow_unicode=True, explicit_start=True
    ).encode()
    assert outcome(in_parts, text) == outcome(load_documents, text)


LINES = st.sampled_from(
    [
        "items:",
        "items: []",
        "- a: 1",
        "- b",
        "-",
        "  - c: 2",
        "  d: |",
        "    - text",
        "  e: 'x",
        "- y'",
        "kind: List",
        "---",
        "--- # again",
        "...",
        "# word",
        "",
        "  f: &x 1",
        "  g: *x",
        "'items':",
        "  items:",
        "%YAML 1.1",
    ]
)


@given(st.lists(LINES, max_size=12), st.sampled_from(["\n", "\r\n"]))
def test_any_lines_are_split_as_yaml_splits_them(lines: list[str], newline: str) -> None:
    text = newline.join(lines).encode()
    assert outcome(in_parts, text) == outcome(load_documents, text)


def test_a_dash_inside_a_text_is_no_item() -> None:
    text = b"items:\n- a: 1\n- e: 'x\n- y'\n  f: 2\n- b: 3\nkind: List\n"
    ((_, whole),) = load_documents(text)
    assert [tree for _, tree in in_parts(text)] == [whole]
    assert whole["items"][1] == {"e": "x - y", "f": 2}


def test_every_item_has_its_line() -> None:
    text = (
        b"apiVersion: v1\nitems:\n- kind: A\n  x: |\n    - y\n\n# word\n- kind: B\nkind: List\n---\nkind: C\n"
    )
    parts = [(part.line, part.item) for part in load_parts(text)]
    assert parts == [(3, 0), (8, 1), (10, -1)]
    assert [part.end for part in load_parts(text)][-1] == len(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"kind: A\n---\nkind: B\nx: [\n", r"line \d+.*not YAML"),
        (b"items:\n- kind: A\n- kind: B\n  x: {\n- kind: C\nkind: List\n", "line [45]"),
        (b"items:\n- kind: A\n- kind: B\n  kind: C\nkind: List\n", "line 4: key 'kind' is given twice"),
    ],
)
def test_errors_have_the_line_of_the_file(text: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(load_parts(text))
    with pytest.raises(InputError, match=message):  # and where the whole is too long to read once more
        list(load_parts(text + b"\n" + b"# filler\n" * 600_000))


DOCUMENT_LINES = st.sampled_from(
    [
        "kind: A",
        "a:",
        "  b: 1",
        "- c",
        "---",
        "--- # again",
        "--- x",
        "# word",
        "  # word",
        "",
        "\t",
        " ",
        "#\x01",
        "# é",
    ]
)


@given(st.lists(DOCUMENT_LINES, max_size=10), st.sampled_from(["\n", "\r\n"]))
def test_documents_have_the_line_of_the_file(lines: list[str], newline: str) -> None:
    """Also documents that are read by the fast reader, or skipped because they are empty."""
    text = newline.join(lines).encode()

    def read(load: Any) -> Any:
        try:
            return list(load(text))
        except InputError:
            return "refused"

    assert read(lambda text: [(part.line, part.tree) for part in load_parts(text)]) == read(load_documents)


def no_parser(text: bytes) -> Any:
    raise AssertionError("the YAML parser was called")


@pytest.mark.parametrize(
    "text",
    [
        b"---\n" * 1000,
        b"# word\n---\n" * 1000,
        b"--- # word\n\n  # more\n" * 1000,
        b"# word\n" * 1000,
        b"kind: A\n---\n" * 9,
    ],
)
def test_empty_and_plain_documents_need_no_parser(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Creating a parser takes longer than reading a small document."""
    whole = list(load_documents(text))
    monkeypatch.setattr(yaml_parts, "load_documents", no_parser)
    assert [(part.line, part.tree) for part in load_parts(text)] == whole


def peak_of(text: bytes) -> int:
    """Return the bytes of memory that reading a text needs besides the text."""
    tracemalloc.start()
    try:
        for _ in load_parts(text):
            pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.sized
def test_comments_need_no_memory() -> None:
    many = 100_000 if FULL else 20_000
    few = peak_of(b"items:\n- a\nkind: List\n")
    assert peak_of(b"items:\n" + b"# c\n" * many + b"- a\nkind: List\n") < few + 20 * many
    assert peak_of(b"items:\n" + b"- a\n" * many + b"kind: List\n") < few + 20 * many
    assert peak_of(b"---\n" * many) < few + 20 * many


def test_the_values_of_a_document_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plimsoll.common.yaml.MAX_VALUES", 1000)
    assert len(next(load_documents(b"a: &a [" + b"{}, " * 900 + b"]"))[1]["a"]) == 900
    with pytest.raises(InputError, match=r"line 1: one document has more than 1,000 values; give it as JSON"):
        list(load_documents(b"a: &a [" + b"{}, " * 1100 + b"]"))


def count_values(tree: Any) -> int:
    items = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return 1 + sum(map(count_values, items))


TREES = st.recursive(
    st.just("x"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.tuples(TREES, st.integers(0, 3)), min_size=1, max_size=4))
def test_values_of_aliases_are_counted_before_they_are_copied(parts: list[tuple[Any, int]]) -> None:
    """Each list has a tree and some aliases of the list before it."""
    lines: list[str] = []
    expected: dict[str, Any] = {}
    last: list[Any] = []
    copies = 0
    for number, (tree, aliases) in enumerate(parts):
        aliases = aliases if number else 0
        copies += aliases * count_values(last)
        names = [f", *a{number - 1}"] * aliases
        lines.append(f"a{number}: &a{number} [{json.dumps(tree)}{''.join(names)}]")
        last = expected[f"a{number}"] = [tree, *[last] * aliases]
    text = "\n".join(lines)
    assert [tree for _, tree in load_documents(text, copies)] == [expected]
    if copies:
        with pytest.raises(InputError, match=f"aliases expand to more than {copies - 1:,} values"):
            list(load_documents(text, copies - 1))
