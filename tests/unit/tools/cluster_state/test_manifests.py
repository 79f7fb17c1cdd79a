"""Objects from YAML and JSON files."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.quantity import Number
from plimsoll.common.yaml import dump_document, load_documents
from plimsoll.errors import InputError
from plimsoll.tools.cluster_state.manifests import parse_objects, read_objects
from tests.unit.common.json_trees import json_trees


def load(text: str | bytes) -> Any:
    return [tree for _, tree in load_documents(text)]


def test_scalars_follow_go() -> None:
    text = """
    text: [a, "1", '2', 2001-01-01, 1.2.3, 1Gi, 0x, 08:30, "yes"]
    bools: [true, no, On, y]
    ints: [1, -7, 0x10, 0b11, 0o17, 010, 1_000, +3]
    nulls: [~, null, ]
    floats: [1.50, 1e3, .5, 12345678901234567890.123]
    """
    assert load(text) == [
        {
            "text": ["a", "1", "2", "2001-01-01", "1.2.3", "1Gi", "0x", "08:30", "yes"],
            "bools": [True, False, True, True],
            "ints": [1, -7, 16, 3, 15, 8, 1000, 3],
            "nulls": [None, None],
            "floats": [Number("1.50"), Number("1e3"), Number(".5"), Number("12345678901234567890.123")],
        }
    ]


def test_aliases_and_merges() -> None:
    assert load("a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\ne: *x") == [
        {"a": {"b": 1, "c": 2}, "d": {"b": 1, "c": 3}, "e": {"b": 1, "c": 2}}
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2", "line 2: key 'a' is given twice"),
        ("a: [1", "line 1.*not YAML"),
        ("a: *nope", "alias"),
        ("? [1]\n: 2", "a key must be a word"),
        (b"\xff\xfe\xff", "not YAML"),
        ("a: &a [*a]", "unknown alias"),
        ("a: " + "[" * 600 + "]" * 600, "nested too deeply"),
        ("a: {<<: 3}", "must be given a mapping"),
    ],
)
def test_broken_text_is_an_error_with_its_line(text: str | bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(text)


def test_a_bomb_of_aliases_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(InputError, match="aliases expand"):
        load("\n".join(lines))


def test_lists_are_expanded_with_positions(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(
        "# nothing\n---\nkind: Pod\nmetadata: {name: p}\n---\n\n---\nkind: Node\n"
    )
    (tmp_path / "a.json").write_text(
        json.dumps({"kind": "List", "items": [{"kind": "Pod"}, {"kind": "Odd"}]})
    )
    (tmp_path / "c.yml").write_text("apiVersion: v1\nkind: PodList\nitems: [{metadata: {name: q}}]")
    (tmp_path / "ignored.txt").write_text("kind: Secret")
    found = list(read_objects([tmp_path]))
    assert [(f.kind, f.name) for f in found] == [
        ("Pod", ""),
        ("Odd", ""),
        ("Pod", "p"),
        ("Node", ""),
        ("Pod", "q"),
    ]
    assert found[3].where == f"{tmp_path / 'b.yaml'}, document 2, line 7"
    assert found[4].tree["apiVersion"] == "v1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: Pod\n---\n- 1", "f, document 2, line 2: an object must be a mapping"),
        ("a: 1", "f, document 1, line 1: kind is missing"),
        ("kind: Pod\n---\na: [", "f, document 2: line 3"),
    ],
)
def test_broken_documents_name_their_position(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        list(parse_objects(text, "f"))


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        list(read_objects([tmp_path / "nope"]))


@given(json_trees)
def test_json_is_yaml(tree: Any) -> None:
    """Read by the JSON reader, and by the YAML reader behind a comment."""
    assert load(json.dumps(tree)) == [tree]
    assert load("# yaml\n" + json.dumps(tree)) == [tree]


_numbers = st.from_regex(
    r"-?(0|[1-9][0-9]{0,5})((\.[0-9]{1,5})([eE][-+]?[0-9]{1,3})?|[eE][-+]?[0-9]{1,3})", fullmatch=True
)
_words = st.sampled_from(
    ["yes", "off", "1e3", "0o7", "012", "1_0", ".5", "+1", "~", "null", "=", "<<", "1:30", "0x1"]
)


@given(json_trees | _words | st.lists(_words) | st.dictionaries(_words, _words))
def test_manifests_round_trip(tree: Any) -> None:
    assert load(dump_document(tree)) == [tree]


@given(_numbers)
def test_fractions_are_written_as_numbers(text: str) -> None:
    (back,) = load(dump_document({"n": Number(text)}))
    assert isinstance(back["n"], Number)
    assert Decimal(back["n"].text) == Decimal(text)


@given(st.text(max_size=60) | st.text("ab:-[]{}&*!|>'\"#,? \n01", max_size=60))
def test_any_text_is_a_tree_or_an_input_error(text: str) -> None:
    try:
        load(text)
    except InputError:
        return


@pytest.mark.parametrize(
    "text",
    [
        "[" * 1_000_000,
        "{a: " * 100_000,
        "? " * 100_000,
        "".join(" " * depth + "a:\n" for depth in range(1000)),
        "[" * 30_000 + '"\\ud83d\\ude00"',
    ],
)
def test_deep_nesting_is_refused_at_once(text: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError, match="nested too deeply"):
        list(load_documents(text))
    assert time.process_time() - began < 60


def test_long_texts_are_read_quickly() -> None:
    text = "".join(f"key{number}: value\n" for number in range(50_000))
    began = time.process_time()
    assert len(load(text)[0]) == 50_000
    assert time.process_time() - began < 30


def test_lists_under_the_names_of_their_kinds_are_unfolded() -> None:
    text = "about: a story\npods:\n- metadata: {name: p}\nresourceclaims:\n- metadata: {name: c}\nnotes: 1\n"
    found = list(parse_objects(text, "f"))
    assert [(each.kind, each.name, each.tree["apiVersion"]) for each in found] == [
        ("Pod", "p", "v1"),
        ("ResourceClaim", "c", "resource.k8s.io/v1"),
    ]
    with pytest.raises(InputError, match=r"f, document 1, line 1, pods\[0\]: an object must be a mapping"):
        list(parse_objects("pods: [1]\n", "f"))
