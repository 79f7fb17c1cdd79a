"""Admission cost estimate: sizes, loops, library functions. All numbers are computed by hand."""

from __future__ import annotations

import pytest

from plimsoll.cel.check import check
from plimsoll.cel.overloads.ranges import MAX, ONE, UNKNOWN, ZERO, Range, fixed, wrapped
from plimsoll.cel.static.environment import Environment

STORED = Environment("stored")
LISTS = Environment("stored", list_attributes=True)
# A tenth of everything, as a double rounds it: the price of comparing two texts of unknown length.
TENTH = 1844674407370955264


def cost(source: str, environment: Environment = STORED) -> int:
    return check(source, environment).estimated_cost


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("true", 0),
        ("1 == 1", 1),
        ("1 + 1 == 2", 2),
        ("!true", 1),
        # A name, a field and an index cost one each; the shorter side decides a comparison.
        ("device.driver == 'abc'", 3),
        ("device.driver == 'a long name of thirty-three letters'", 2 + 4),
        ("device.driver == device.driver", 4 + 7),
        ("device.attributes['d'].a == 'abc'", 5),
        ("device.attributes['d']['a'] == device.attributes['e']['b']", 8 + 7),
        ("device.attributes['d'].a.b == 'a'", 5),
        ("device.allowMultipleAllocations == true", 3),
        # Testing a field is free, but what stands before the dot is not.
        ("has(device.attributes.a)", 2),
        ("has(device.attributes['a'].b)", 3),
        # Literals.
        ("[1, 2] == []", 10 + 10 + 0),
        ("{1: 2} == {}", 30 + 30 + 0),
        ("google.protobuf.Duration{seconds: 1} == null", 40 + 1),
        # The dearer branch counts, and both sides of && and ||.
        ("true ? device.driver == '' : true", 2),
        ("1 == 1 || 1 == 2 && 1 == 3", 3),
        ("dyn(1) == 1", 2),
        # Loops run once per item: condition and step each time, then the result.
        ("[1, 2, 3].all(x, x > 0)", 10 + 3 * (2 + 3) + 1),
        ("[1, 2].exists(x, x > 0)", 10 + 2 * (3 + 3) + 1),
        ("[1].map(x, x) == []", 10 + 10 + 1 * (1 + 1 + 10 + 1) + 1 + 10),
        ("device.attributes.all(k, k == 'a')", 2 + 32 * (2 + 1 + 2) + 1),
        ("device.attributes['d'].all(k, k == 'a')", 3 + 32 * (2 + 1 + 2) + 1),
        ("lists.range(3).exists(x, true)", 14 + 3 * (3 + 1) + 1),
        # Bindings know the size of what they bind.
        ("cel.bind(x, 'abc', x == 'abcdefghijkl')", 10 + 1 + 1),
        ("cel.bind(d, device.attributes['d'], d.a == 'abc')", 10 + 3 + 2 + 1),
        # Texts: a tenth per character.
        ("'abc'.startsWith('ab')", 1),
        ("device.driver.startsWith(device.driver)", 2 + 2 + 7),
        ("device.driver.contains('abcdefghijk')", 2 + 7 * 2),
        ("device.driver.matches('^[a-z]+$')", 2 + 7 * 2),
        ("(device.driver + 'abc') == 'a'", 2 + 7 + 1),
        ("device.driver in ['a', 'b']", 2 + 10 + 2),
        ("'a' in device.attributes", 2 + 1),
        # Library functions.
        ("quantity('40Gi').isGreaterThan(quantity('1'))", 1 + 1 + 1),
        ("quantity('1') == quantity('2')", 1 + 1 + 1),
        ("quantity('1') != quantity('2')", 1 + 1 + TENTH),
        ("semver('1.0.0').major() == 1", 1 + 1 + 1),
        ("device.capacity['d'].m.compareTo(quantity('1')) >= 0", 4 + 1 + 1 + 1),
        ("device.driver.lowerAscii() == 'a'", 2 + 7 + 1),
        ("device.driver.split('.').size() == 1", 2 + 13 + 1 + 1),
        ("device.driver.find('a') == ''", 2 + 7 * 1 + 0),
        ("['a', 'b'].join(',') == ''", 10 + TENTH + 0),
        ("['a'].indexOf('a') == 0", 10 + 1 * (1 + TENTH) + 1),
        ("[1, 2].sum() == 3", 10 + 2 + 1),
        ("[1, 2].sort() == [1]", 10 + 4 * 2 + 11 + 10 + 1),
        ("[1, 2].distinct() == [1]", 10 + 4 * 2 + 11 + 10 + 1),
        ("[1, 2, 3].slice(1, 3) == [1]", 10 + 2 + 11 + 10 + 1),
        ("sets.contains([1, 2], [1])", 10 + 10 + 2 + 1),
        ("sets.equivalent([1, 2], [1])", 10 + 10 + 4 + 1),
        ("isIP(device.driver)", 2 + 7),
        ("ip.isCanonical(device.driver)", 2 + 13),
        ("cidr('10.0.0.0/8').containsIP('10.0.0.1')", 1 + 4 + 1),
        ("cidr('10.0.0.0/8').containsCIDR(cidr('10.0.0.0/8'))", 1 + 1 + 4 + 2 + 1),
        ("format.uri().validate(device.driver).hasValue()", 1 + 2 + 7 * 32 + 1),
        ("format.uri() == format.uri()", 1 + 1 + 7),
        ("url('https://a') == url('https://b')", 1 + 1 + 1),
        ("device.attributes['d'].a.check('x').allowed()", 4 + 350_000 + 1),
        # What nothing bounds counts as unlimited.
        ("type(device) == type(device)", 2 + 2 + TENTH),
        ("optional.of('a') == optional.of('b')", 1 + 1 + TENTH),
    ],
)
def test_costs(source: str, expected: int) -> None:
    assert cost(source) == expected


def test_includes_is_estimated_by_the_maximum_list_length() -> None:
    assert cost("device.attributes['d'].a.includes('x')", LISTS) == 4 + 48


def test_nesting_multiplies_up_to_the_ceiling() -> None:
    source = "true"
    for name in "abcd":
        source = f"device.attributes['d'].all({name}, {source})"
    assert cost(source) > 1_000_000
    for name in "efghijklmnop":
        source = f"device.attributes['d'].all({name}, {source})"
    assert cost(source) == MAX


def test_keys_of_an_inner_map_count_as_values_in_pair_loops() -> None:
    # Upstream extends one path twice, and the second step overwrites the first: 64 letters, not 32.
    long = "x" * 100
    outer = cost(f"device.attributes.all(k, v, k == '{long}')")
    inner = cost(f"device.attributes['d'].all(k, v, k == '{long}')")
    assert outer == 2 + 32 * (2 + 1 + 1 + 7) + 1
    assert inner == 3 + 32 * (2 + 1 + 1 + 7) + 1
    assert cost(f"device.attributes['d'].all(k, k == '{long}')") == 3 + 32 * (2 + 1 + 1 + 4) + 1


def test_a_bound_map_shares_its_last_step() -> None:
    # The same accident through a binding: reading d.a inside the loop makes k as long as a value.
    long = "x" * 100
    plain = cost(f"cel.bind(d, device.attributes['d'], d.all(k, k == '{long}'))")
    after = cost(f"cel.bind(d, device.attributes['d'], d.all(k, d.a == '' || k == '{long}'))")
    assert plain == 10 + 3 + 1 + 32 * (2 + 1 + 1 + 4) + 1
    assert after == 10 + 3 + 1 + 32 * (2 + 1 + 2 + 1 + 7) + 1


def test_ranges_saturate() -> None:
    assert Range(1, MAX).plus(Range(2, 1)) == Range(3, MAX)
    assert Range(2, 1 << 40).times(Range(3, 1 << 40)) == Range(6, MAX)
    assert Range(1, 15).scaled(0.1) == Range(1, 2)
    assert UNKNOWN.scaled(1) == UNKNOWN
    assert UNKNOWN.scaled(2.0).high == MAX
    assert UNKNOWN.scaled(0.1).high == TENTH
    assert Range(3, 5).union(Range(4, 9)) == Range(3, 9)
    assert wrapped(1, MAX * 4) == Range(1, MAX - 3)
    assert fixed(1) == ONE
    assert fixed(0) == ZERO


@pytest.mark.parametrize(
    ("old", "new", "longest"),
    [
        # An empty text is found around every character.
        ("", "ab", 64 * 2 + 63),
        # A shorter or equal replacement cannot make the text longer.
        ("ab", "a", 63),
        # A longer one can, as often as the old text fits.
        ("ab", "abc", 32 * 3),
        ("a", "bc", 63 * 2),
    ],
)
def test_replace_bounds_the_longest_result(old: str, new: str, longest: int) -> None:
    text = "x" * 1000
    replaced = cost(f"device.driver.replace('{old}', '{new}') == '{text}'")
    assert replaced == 2 + 13 + -(-longest // 10)
