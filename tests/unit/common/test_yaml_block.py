"""Fast reader of plain block YAML: the same trees as the parser's, or none."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plimsoll.common.yaml import load_documents
from plimsoll.common.yaml_block import NOT_PLAIN, read_plain
from plimsoll.errors import InputError
from tests.dumps import big_cluster, usecase_trees
from tests.sizes import examples


def naive(text: str) -> Any:
    """Return the parser's result; NOT_PLAIN if it refuses or finds several documents."""
    try:
        trees = [tree for _, tree in load_documents(text.encode())]
    except InputError:
        return NOT_PLAIN
    return NOT_PLAIN if len(trees) > 1 else trees[0] if trees else None


def check(text: str) -> bool:
    """Return whether the text was read, after comparing the result with the parser's."""
    tree = read_plain(text)
    if tree is NOT_PLAIN:
        return False
    wanted = naive(text)
    assert wanted is not NOT_PLAIN, text
    assert same(tree, wanted), text
    return True


def same(one: Any, other: Any) -> bool:
    """Return whether values are equal, including their types."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


WORDS = st.sampled_from(
    [
        "",
        "a",
        "yes",
        "null",
        "~",
        "1",
        "010",
        "0x1f",
        "1.5",
        "-1",
        "1e3",
        "1Gi",
        "500m",
        "2001-01-01",
        "-",
        "--x",
        ": ",
        "a: b",
        "a:",
        "#",
        "a #b",
        "'",
        "it's",
        '"',
        'say "x"',
        "\\",
        "a\\n",
        "|",
        ">",
        "{",
        "{}",
        "[]",
        "two\nlines",
        "three\n\nlines\n",
        " lead",
        "trail ",
        "\n",
        "a\tb",
        "é",
        "☃",
        "...",
        "---",
        "&a",
        "*a",
        "!t",
        "@x",
        "%x",
        "`x",
        "x" * 200,
        "word " * 40,
        '{"json": ["text", 1]}\n',
        "\u2028",
        "<<",
        "=",
        "?",
        ":x",
    ]
)
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text("abyn", max_size=3), inner),
    max_leaves=25,
)


class Dumper(yaml.SafeDumper):
    pass


def _represent(dumper: Any, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style)


Dumper.add_representer(str, _represent)


@given(TREES, st.booleans(), st.booleans())
def test_blocks_are_read_as_yaml_reads_them(tree: Any, wide: bool, literal: bool) -> None:
    width = 2**20 if wide else 40
    dumper = Dumper if literal else yaml.SafeDumper
    check(yaml.dump(tree, Dumper=dumper, width=width, allow_unicode=True, default_flow_style=False))


LINES = st.builds(
    lambda indent, dashes, rest: " " * indent + "- " * dashes + rest,
    st.integers(0, 6),
    st.sampled_from([0, 0, 0, 1, 1, 2]),
    st.sampled_from(
        [
            "a: 1",
            "b:",
            "c: x",
            "d: |",
            "e: |-",
            "text",
            "-",
            "",
            "#x",
            "f: 'q",
            "q'",
            'g: "r',
            "y: 1",
            "a: {}",
            "h: x #y",
            "i: a: b",
            "'k': 1",
            "j: &x 1",
            "k: *x",
            "l: >",
            "m: - n",
            "o:x",
            "...",
            "---",
            "? p",
            "q :",
            "r: 'x' #y",
            "s: ''",
            's: ""',
            't: "a\\"b"',
            't: "\\x41"',
            "u: [",
            "v: 0x",
            "w: ~",
            "x: -",
            "z: -a",
            "<<: 1",
        ]
    ),
)


@settings(max_examples=examples(200))
@given(st.lists(LINES, max_size=8), st.booleans())
@example(["a: |", "  x", "   ", " "], True)
@example(["a: |", "  x", "", "", "b: 1"], True)
@example(["- a: 1", "  b:", "  - c", "- d"], False)
@example(["a:", "- b", "c:", "d: 2"], True)
@example(["a: x", "  y"], True)
@example(["- |", " x", "-"], True)
def test_any_lines_are_read_as_yaml_reads_them(lines: list[str], ended: bool) -> None:
    check("\n".join(lines) + ("\n" if ended else ""))


def test_a_dump_of_a_cluster_is_plain() -> None:
    for tree in big_cluster(2):
        assert check(yaml.safe_dump([tree], width=2**20))
        assert check(yaml.safe_dump(tree))


@pytest.mark.parametrize("name", ["uc1", "uc2", "uc3", "uc4"])
def test_observed_objects_are_plain(name: str) -> None:
    for tree in usecase_trees(name):
        assert check(yaml.safe_dump([tree], width=2**20))


def test_texts_of_several_lines() -> None:
    text = '- annotations:\n    last: |\n      {"a": "b: c"}\n\n      # d\n    other: x\n'
    assert read_plain(text) == [{"annotations": {"last": '{"a": "b: c"}\n\n# d\n', "other": "x"}}]
    assert read_plain("a: |-\n  x\n") == {"a": "x"}


SCALARS = ["a", "yes", "null", "1", "010", "1.5", "1Gi", "2001-01-01", "it's", "é", "a:b", "", -3, None]


def with_other_scalars(tree: Any, chance: Random) -> Any:
    if isinstance(tree, dict):
        return {key: with_other_scalars(value, chance) for key, value in tree.items()}
    if isinstance(tree, list):
        return [with_other_scalars(value, chance) for value in tree]
    return chance.choice(SCALARS)


@settings(max_examples=examples(25))
@given(TREES, st.integers(0, 1000))
def test_texts_of_one_shape_are_read_as_yaml_reads_them(tree: Any, seed: int) -> None:
    """More texts than it takes for the builder of their shape to be compiled."""
    chance = Random(seed)
    for _ in range(15):
        other = with_other_scalars(tree, chance)
        text = yaml.dump(other, Dumper=yaml.CSafeDumper, width=2**20, allow_unicode=True)
        check(text)


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\na: 2\n",
        "a:\n  - b\n - c\n",
        "- a: |\n    x: 1\n  b: 2\n",
        "a: 'x\n",
        "# only a comment\n",
        "",
        "\n",
        "---",
        "---\n",
        "\n".join(" " * depth + f"k{depth}:" for depth in range(60)),
        "a:\nb: {}\nc: []\nd:\n- e:\n- f: {}\n",
    ],
)
def test_texts_that_repeat_are_always_read_alike(text: str) -> None:
    first = read_plain(text)
    for _ in range(30):
        assert read_plain(text) == first
        check(text)


def test_trees_of_one_shape_share_no_container() -> None:
    text = "- a: {}\n  b: []\n  c:\n    d: 1\n"
    trees = [read_plain(text) for _ in range(30)]
    for tree in trees:
        tree[0]["a"]["changed"] = tree[0]["c"]["changed"] = True
        tree[0]["b"].append(1)
    assert read_plain(text) == [{"a": {}, "b": [], "c": {"d": 1}}]


def test_more_lines_and_keys_than_the_caches_hold() -> None:
    """Keys that are all different, then lines that are, then the first ones again."""
    texts = [f"- key-{number}: {number}\n  same: x\n" for number in range(25_000)]
    texts += [f"- name: n-{number}\n  same: '{number}'\n" for number in range(20_000)]
    for number, text in enumerate([*texts, *texts[:100]]):
        tree = read_plain(text)
        assert tree is not NOT_PLAIN
        if number % 997 == 0:
            assert same(tree, naive(text))
    assert read_plain(texts[7]) == [{"key-7": 7, "same": "x"}]
    assert read_plain(texts[-1]) == [{"name": "n-19999", "same": "19999"}]


def test_a_long_text() -> None:
    text = "a:\n" + "".join(f"- b: {number}\n  c: |\n    x: {number}\n" for number in range(3_000))
    tree = read_plain(text)
    assert tree == {"a": [{"b": number, "c": f"x: {number}\n"} for number in range(3_000)]}
    assert same(tree, naive(text))
    assert read_plain(f"{text}a: 2\n") is NOT_PLAIN
