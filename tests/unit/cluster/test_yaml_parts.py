"""YAML in parts says what YAML as a whole says."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.cluster.yaml import load_documents
from plimsoll.cluster.yaml_parts import load_parts
from plimsoll.errors import InputError


def in_parts(text: bytes) -> list[tuple[int, Any]]:
    """The documents, put together again."""
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
def test_what_was_written_is_read(trees: list[Any], wide: bool, sort: bool) -> None:
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
def test_whatever_the_lines_are(lines: list[str], newline: str) -> None:
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
def test_errors_have_the_line_of_the_whole(text: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(load_parts(text))
    with pytest.raises(InputError, match=message):  # and where the whole is too long to read once more
        list(load_parts(text + b"\n" + b"# filler\n" * 600_000))
