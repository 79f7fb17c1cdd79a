"""Expansion of each macro."""

from __future__ import annotations

import pytest

from plimsoll.cel.syntax.ast import descend
from plimsoll.cel.syntax.macros import MAX_NODES
from plimsoll.cel.syntax.parser import parse
from plimsoll.errors import CelCompileError
from tests.unit.cel.trees import show

ALL = "True | (@not_strictly_false @result) | (_&&_ @result p) | @result"
EXISTS = "False | (@not_strictly_false (!_ @result)) | (_||_ @result p) | @result"
ONE = "0 | True | (_?_:_ p (_+_ @result 1) @result) | (_==_ @result 1)"


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        ("has(a.b)", "a.b!"),
        ("has(a.b.c)", "a.b.c!"),
        ("has(has(a.b))", "a.b!"),
        ("r.all(x, p)", f"<all x in r; @result = {ALL}>"),
        ("r.all(k, v, p)", f"<all k,v in r; @result = {ALL}>"),
        ("r.exists(x, p)", f"<exists x in r; @result = {EXISTS}>"),
        ("r.exists(k, v, p)", f"<exists k,v in r; @result = {EXISTS}>"),
        ("r.exists_one(x, p)", f"<exists_one x in r; @result = {ONE}>"),
        ("r.exists_one(k, v, p)", f"<exists_one k,v in r; @result = {ONE}>"),
        ("r.existsOne(k, v, p)", f"<existsOne k,v in r; @result = {ONE}>"),
        ("r.map(x, t)", "<map x in r; @result = [] | True | (_+_ @result [t]) | @result>"),
        (
            "r.map(x, p, t)",
            "<map x in r; @result = [] | True | (_?_:_ p (_+_ @result [t]) @result) | @result>",
        ),
        (
            "r.filter(x, p)",
            "<filter x in r; @result = [] | True | (_?_:_ p (_+_ @result [x]) @result) | @result>",
        ),
        (
            "r.transformList(i, v, t)",
            "<transformList i,v in r; @result = [] | True | (_+_ @result [t]) | @result>",
        ),
        (
            "r.transformList(i, v, p, t)",
            "<transformList i,v in r; @result = [] | True | (_?_:_ p (_+_ @result [t]) @result) | @result>",
        ),
        (
            "r.transformMap(k, v, t)",
            "<transformMap k,v in r; @result = {} | True | (cel.@mapInsert @result k t) | @result>",
        ),
        (
            "r.transformMapEntry(k, v, p, t)",
            "<transformMapEntry k,v in r; @result = {} | True"
            " | (_?_:_ p (cel.@mapInsert @result t) @result) | @result>",
        ),
        ("cel.bind(n, i, e)", "<cel.bind #unused in []; n = i | False | n | e>"),
        (
            "o.optMap(n, e)",
            "(_?_:_ o.hasValue() (optional.of <optMap #unused in []; n = o.value() | False | n | e>)"
            " (optional.none))",
        ),
        (
            "o.optFlatMap(n, e)",
            "(_?_:_ o.hasValue() <optFlatMap #unused in []; n = o.value() | False | n | e> (optional.none))",
        ),
        (
            "r.sortBy(x, t)",
            "<sortBy #unused in []; @__sortBy_input__ = r | False | @__sortBy_input__"
            " | @__sortBy_input__.@sortByAssociatedKeys(<map x in @__sortBy_input__; @result = []"
            " | True | (_+_ @result [t]) | @result>)>",
        ),
    ],
)
def test_expansions(source: str, tree: str) -> None:
    assert show(parse(source)) == tree


@pytest.mark.parametrize(
    "source",
    [
        "all(x, p)",
        "r.all(x)",
        "r.all(a, b, c, p)",
        "r.existsOne(x, p)",
        "r.map(x)",
        "r.has(a.b)",
        ".has(a.b)",
        "cel.bind(x, 1)",
        "other.bind(x, 1, x)",
        "bind(x, 1, x)",
        "r.transformMap(k, v)",
    ],
)
def test_other_shapes_stay_calls(source: str) -> None:
    assert "<" not in show(parse(source))
    assert "!" not in show(parse(source))


@pytest.mark.parametrize(
    "source",
    [
        "has(a)",
        "has(a['b'])",
        "has(a.?b)",
        "r.all(x.y, p)",
        "r.map(1, p)",
        "r.filter('x', p)",
        "r.exists(i, i, p)",
        "r.exists(i, 1, p)",
        "r.all(__result__, p)",
        "r.transformList(i, __result__, p)",
        "cel.bind(x.y, 1, 2)",
        "cel.bind('x', 1, 2)",
        "o.optMap(1, 2)",
        "o.optFlatMap(a.b, 2)",
        "1.sortBy(x, x)",
        "{}.sortBy(x, x)",
        "r.sortBy(1, x)",
    ],
)
def test_malformed_macros_are_refused(source: str) -> None:
    with pytest.raises(CelCompileError):
        parse(source)


def test_tree_size_is_bounded() -> None:
    # Every optMap copies all that stands before it.
    assert len(descend(parse("o" + ".optMap(x, x)" * 5))) < 500
    with pytest.raises(CelCompileError, match=str(MAX_NODES)):
        parse("o" + ".optMap(x, x)" * 40)


def test_copies_keep_everything() -> None:
    target = "f([?a], {?b: c}, T{d: 1}, g.all(x, has(x.y)), -1.5, b'z').h"
    shown = show(parse(f"{target}.optMap(n, n)"))
    assert shown.count(show(parse(target))) == 2
