"""List functions, sets and comprehensions."""

from __future__ import annotations

import pytest

from plimsoll.cel.functions.lists import sort_by_keys
from tests.unit.cel.evaluation import LISTS, fails, value

TRUE = [
    "[1, 2, 2].isSorted() && !['b', 'a'].isSorted() && [].isSorted() && [true].isSorted()",
    "![dyn(2), dyn(1), dyn([])].isSorted()",
    "[1, 2].sum() == 3 && [1.5, 2.5].sum() == 4.0 && [1u].sum() == 1u && [].sum() == 0",
    "[duration('1s'), duration('2s')].sum() == duration('3s')",
    "[3, 1, 2].min() == 1 && [3, 1, 2].max() == 3 && ['b', 'a'].min() == 'a'",
    "[double('NaN'), 1.0].min() != 1.0 && [1.0, double('NaN')].min() == 1.0",
    "[1, 2, 1].indexOf(1) == 0 && [1, 2, 1].lastIndexOf(1) == 2 && [1].indexOf(2) == -1",
    "[dyn(1.0)].indexOf(1) == 0 && [semver('1.0.0')].indexOf(semver('1.0.0+x')) == 0",
    "[1, 2, 3].slice(1, 2) == [2] && [1].slice(1, 1) == []",
    "[[1], [2, 3], []].flatten() == [1, 2, 3] && [1, 2].map(x, dyn(x)).flatten() == [1, 2]",
    "[[dyn(1), dyn([2])], [dyn(3)]].flatten() == [dyn(1), dyn([2]), dyn(3)]",
    "[[[1]]].flatten(0) == [[[1]]] && [[[1]]].flatten(5) == [1]",
    "lists.range(3) == [0, 1, 2] && lists.range(-1) == []",
    "[1, 2].reverse() == [2, 1] && [].reverse() == []",
    "[1, 2, 1].distinct() == [1, 2] && ['b', 'a', 'b'].distinct() == ['b', 'a']",
    "[3, 1, 2].sort() == [1, 2, 3] && ['b', 'a'].sort() == ['a', 'b'] && [].sort() == []",
    "['ccc', 'a', 'bb'].sortBy(s, size(s)) == ['a', 'bb', 'ccc']",
    "sets.contains([1, 2], [2]) && !sets.contains([1], [2]) && sets.contains([], [])",
    "sets.intersects([1, 2], [2, 3]) && !sets.intersects([1], []) && sets.equivalent([1, 1], [1])",
    "[1, 2, 3].all(x, x > 0) && [1, 2].exists(x, x == 2) && ![].exists(x, true) && [].all(x, false)",
    "[1, 2, 3].exists_one(x, x > 2) && ![1, 1].exists_one(x, x == 1)",
    "[1, 2].map(x, x * 2) == [2, 4] && [1, 2].map(x, x > 1, x * 2) == [4] && [1, 2].filter(x, x > 1) == [2]",
    "{'a': 1}.all(k, k == 'a') && {'a': 1}.map(k, k) == ['a'] && {1: 2}.exists(k, k == 1)",
    "{'a': 1}.all(k, v, k == 'a' && v == 1) && [5].exists(i, v, i == 0 && v == 5)",
    "[5, 6].existsOne(i, v, v > 5) && {'a': 1, 'b': 1}.transformList(k, v, k).sort() == ['a', 'b']",
    "[5, 6].transformList(i, v, i > 0, v) == [6] && [5].transformMap(i, v, v + i) == {0: 5}",
    "{'a': 1, 'b': 2}.transformMap(k, v, v > 1, v * 10) == {'b': 20}",
    "{'a': 1}.transformMapEntry(k, v, {v: k}) == {1: 'a'}",
    "{'a': 1}.transformMapEntry(k, v, v > 1, {v: k}) == {}",
    "[1, 2].map(x, [3, 4].map(y, x * y)) == [[3, 4], [6, 8]]",
    "[[1, 2], [3]].map(x, x.map(x, x + 1)) == [[2, 3], [4]]",  # an inner variable hides the outer one
    "device.attributes['gpu.example.com'].exists(k, v, k == 'model' && v == 'a100')",
    "device.capacity['gpu.example.com'].all(k, v, sign(v) == 1)",
]
FAILING = [
    "[].min() == 1",
    "[].max() == 1",
    "[dyn(1), dyn('a')].sum() == 1",
    "dyn(['a']).sum() == 'a'",
    "[1].slice(-1, 1) == []",
    "[1].slice(1, 0) == []",
    "[1].slice(0, 2) == []",
    "[[1]].flatten(-1) == [1]",
    "[dyn(1), dyn('a')].sort() == []",
    "[{}].map(x, dyn(x)).sort() == []",
    "[dyn(1), dyn([])].isSorted()",
    "dyn(1).all(x, true)",
    "dyn('abc').exists(x, true)",
    "[1, 1].transformMapEntry(i, v, {v: i}) == {}",
    "[1].transformMapEntry(i, v, dyn(v)) == {}",
    "lists.range(dyn('a')) == []",
]


@pytest.mark.parametrize("expression", TRUE)
def test_holds(expression: str) -> None:
    assert value(expression, environment=LISTS)


@pytest.mark.parametrize("expression", FAILING)
def test_fails(expression: str) -> None:
    assert fails(expression, environment=LISTS)


def test_sorting_is_stable() -> None:
    names = [f"n{index}" for index in range(40)]
    keys = [index % 3 for index in range(40)]
    expected = [name for key in range(3) for name, other in zip(names, keys, strict=True) if other == key]
    assert sort_by_keys(names, keys) == expected
    assert sort_by_keys(names[:9], keys[:9]) == [name for name in expected if name in names[:9]]


def test_includes_reads_at_most_the_maximum_list_length() -> None:
    assert value("lists.range(48).includes(47) && !lists.range(48).includes(48)", environment=LISTS)
    assert value("lists.range(60).includes(3)", environment=LISTS)
    assert fails("lists.range(60).includes(59)", environment=LISTS)
    assert value("'a'.includes('a') && !'abc'.includes('b') && !(1).includes('1')", environment=LISTS)
