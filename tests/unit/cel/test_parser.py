"""Parser: precedence, literals, optional syntax, limits."""

from __future__ import annotations

import pytest

from plimsoll.cel.syntax.ast import Const, descend
from plimsoll.cel.syntax.parser import MAX_CODE_POINTS, MAX_DEPTH, parse
from plimsoll.errors import CelCompileError
from tests.unit.cel.trees import show


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        # Precedence and association.
        ("1 + 2 * 3", "(_+_ 1 (_*_ 2 3))"),
        ("1 - 2 - 3", "(_-_ (_-_ 1 2) 3)"),
        ("6 / 2 % 4 * 5", "(_*_ (_%_ (_/_ 6 2) 4) 5)"),
        ("(1 + 2) * 3", "(_*_ (_+_ 1 2) 3)"),
        ("a < b == c", "(_==_ (_<_ a b) c)"),
        ("a + 1 in b", "(@in (_+_ a 1) b)"),
        ("!a && b || c", "(_||_ (_&&_ (!_ a) b) c)"),
        ("a ? b : c ? d : e", "(_?_:_ a b (_?_:_ c d e))"),
        ("a || b ? c && d : e", "(_?_:_ (_||_ a b) (_&&_ c d) e)"),
        # Chains of the same logical operator are balanced.
        ("a && b && c", "(_&&_ (_&&_ a b) c)"),
        ("a && b && c && d", "(_&&_ (_&&_ a b) (_&&_ c d))"),
        ("a || b || c || d || e", "(_||_ (_||_ (_||_ a b) c) (_||_ d e))"),
        # Signs: one before a number is part of it, pairs cancel.
        ("-1", "-1"),
        ("- 1", "-1"),
        ("--1", "1"),
        ("---1", "(-_ 1)"),
        ("-x", "(-_ x)"),
        ("--x", "x"),
        ("-1.5", "-1.5"),
        ("1 - -1", "(_-_ 1 -1)"),
        ("1 -1", "(_-_ 1 1)"),
        ("-1.abs()", "-1.abs()"),
        ("!!x", "x"),
        ("!!!x", "(!_ x)"),
        ("!-1", "(!_ -1)"),
        ("-1u", "(-_ 1u)"),
        # Selection, indexing, calls.
        ("a.b.c", "a.b.c"),
        ("a.b['c'][0]", "(_[_] (_[_] a.b 'c') 0)"),
        ("f(1, x).g().h", "(f 1 x).g().h"),
        (".a.b", ".a.b"),
        (".f(1)", "(.f 1)"),
        ("a.for.while()", "a.for.while()"),
        # Optional syntax.
        ("a.?b.c", "(_?._ a 'b').c"),
        ("a[?b]", "(_[?_] a b)"),
        ("[a, ?b]", "[a ?b]"),
        ("{?k: v, 'x': 1}", "{?k:v 'x':1}"),
        # Literals of several values; a comma may trail, even alone.
        ("[]", "[]"),
        ("[,]", "[]"),
        ("[1, 2,]", "[1 2]"),
        ("{}", "{}"),
        ("{,}", "{}"),
        ("{1: 2,}", "{1:2}"),
        ("A{}", "A{}"),
        ("a.B{c: 1, ?d: 2,}", "a.B{c:1 ?d:2}"),
        (".a.B{,}", ".a.B{}"),
        ("a.b{c: 1}.d", "a.b{c:1}.d"),
        # Scalars.
        ("null", "None"),
        ("true", "True"),
        ("0x10", "16"),
        ("-0x10", "-16"),
        ("0xfFu", "255u"),
        ("007", "7"),
        ("'a' + b'b'", "(_+_ 'a' b'b')"),
        ("9223372036854775807", "9223372036854775807"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("18446744073709551615u", "18446744073709551615u"),
        ("1e-400", "0.0"),
        ("000000000000000000000000000000000000000000001", "1"),
    ],
)
def test_trees(source: str, tree: str) -> None:
    assert show(parse(source)) == tree


@pytest.mark.parametrize(
    ("source", "position"),
    [
        ("", 0),
        ("// nothing", 10),
        ("1 +", 3),
        ("1 1", 2),
        ("true, false", 4),
        ("(1", 2),
        ("[1", 2),
        ("[1 2]", 3),
        ("[1,,]", 3),
        ("{1}", 2),
        ("{1: 2", 5),
        ("f(1,)", 4),
        ("f(,)", 2),
        ("a.", 2),
        ("a..b", 2),
        ("a.1", 1),
        ("a.'b'", 2),
        ("a.true", 2),
        ("a.in", 2),
        ("a[]", 2),
        ("a ? b", 5),
        ("a ? b ? c : d : e", 6),
        ("-!a", 1),
        ("!", 1),
        ("in", 0),
        ("a.?b()", 4),
        ("A{b}", 3),
        ("A{1: 2}", 2),
        ("(a).B{}", 5),
        ("f().B{}", 5),
        ("while", 0),
        ("a + namespace(1)", 4),
        ("9223372036854775808", 0),
        ("-9223372036854775809", 0),
        ("18446744073709551616u", 0),
        ("0xfffffffffffffffff", 0),
        ("1e400", 0),
    ],
)
def test_errors_name_the_position(source: str, position: int) -> None:
    with pytest.raises(CelCompileError) as caught:
        parse(source)
    assert caught.value.position == position


def test_positions_are_those_of_the_deciding_token() -> None:
    root = parse("ab.cd(1) + 'x'")
    assert root.pos == 9
    number = parse("  -1")
    assert isinstance(number, Const)
    assert number.pos == 2


@pytest.mark.parametrize(
    ("before", "middle", "after", "deepest"),
    [
        # Brackets count once each, and one more for the whole.
        ("(", "1", ")", MAX_DEPTH - 1),
        ("[", "1", "]", MAX_DEPTH - 1),
        ("f(", "1", ")", MAX_DEPTH - 1),
        ("a ? b : ", "c", "", MAX_DEPTH - 1),
        # The right side of an operator opens a second rule of its kind.
        ("1 + (", "1", ")", (MAX_DEPTH - 1) // 2),
        ("1 == (", "1", ")", (MAX_DEPTH - 1) // 2),
        # What stands to the left nests without brackets.
        ("", "a", ".b", MAX_DEPTH),
        ("", "a", "[0]", MAX_DEPTH),
        ("", "a", ".f()", MAX_DEPTH),
        ("", "1", " + 1", MAX_DEPTH),
        ("", "1", " == 1", MAX_DEPTH),
    ],
)
def test_depth_has_a_limit(before: str, middle: str, after: str, deepest: int) -> None:
    parse(before * deepest + middle + after * deepest)
    with pytest.raises(CelCompileError, match="deeper than"):
        parse(before * (deepest + 1) + middle + after * (deepest + 1))
    with pytest.raises(CelCompileError, match="deeper than"):
        parse(before * 5000 + middle + after * 5000)


@pytest.mark.parametrize("source", ["!" * 3000 + "x", "-" * 3000 + "x", " || ".join("a" * 2000)])
def test_flat_expressions_have_no_depth_limit(source: str) -> None:
    parse(source)


def test_length_has_a_limit() -> None:
    with pytest.raises(CelCompileError, match="longer than"):
        parse("1" + " " * MAX_CODE_POINTS)


def test_node_ids_are_unique() -> None:
    root = parse("[1].map(x, {x: [?a.?b]}).optMap(y, T{z: y}).sortBy(k, k.?l) == [c].exists(i, j, i == j)")
    numbers = [node.id for node in descend(root)]
    assert len(numbers) == len(set(numbers))
