"""String extensions, `format` and regular expressions."""

from __future__ import annotations

import pytest

from plimsoll.api.go_text import quote_go
from plimsoll.cel.functions.numbers import parse_double, parse_int, parse_uint, shortest
from plimsoll.cel.functions.regex import compile_pattern
from plimsoll.errors import CelPatternError
from tests.unit.cel.evaluation import fails, value

TRUE = [
    "'héllo'.charAt(1) == 'é' && 'ab'.charAt(2) == ''",
    "'abcabc'.indexOf('c') == 2 && 'abcabc'.indexOf('c', 3) == 5 && 'abc'.indexOf('x') == -1",
    "'abc'.indexOf('') == 0 && 'abc'.indexOf('', 2) == 2 && 'abc'.indexOf('a', 9) == -1",
    "'abcabc'.lastIndexOf('c') == 5 && 'abcabc'.lastIndexOf('c', 4) == 2 && 'abc'.lastIndexOf('') == 3",
    "'abc'.lastIndexOf('abcd') == -1 && 'abc'.lastIndexOf('a', 9) == -1 && ''.lastIndexOf('a') == -1",
    "'ÀBc'.lowerAscii() == 'Àbc' && 'àbC'.upperAscii() == 'àBC'",
    "'aaa'.replace('a', 'b') == 'bbb'",
    "'aaa'.replace('a', 'b', 2) == 'bba' && 'ab'.replace('', '-') == '-a-b-'",
    "'aaa'.replace('a', 'b', -1) == 'bbb' && 'aaa'.replace('a', 'b', 0) == 'aaa'",
    "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c'] && ''.split(',') == ['']",
    "'abc'.split('') == ['a', 'b', 'c'] && 'abc'.split('', 2) == ['a', 'bc'] && ''.split('') == []",
    "'a,b'.split(',', 0) == [] && 'a,b'.split(',', -1) == ['a', 'b']",
    "'héllo'.substring(1) == 'éllo' && 'héllo'.substring(1, 3) == 'él' && 'abc'.substring(3) == ''",
    "'\\t a\\u00a0 '.trim() == 'a'",
    "['a', 'b'].join() == 'ab' && ['a', 'b'].join('-') == 'a-b' && [].join('-') == ''",
    "strings.quote('a\"b\\n') == '\"a\\\\\"b\\\\n\"'",
    "'%s %s %s %s'.format(['a', 1, 2u, true]) == 'a 1 2 true'",
    "'%s %s'.format([1.5, null]) == '1.5 null'",
    "'%s'.format([[1, 2]]) == '[1, 2]' && '%s'.format([['a', 'b']]) == '[\"a\", \"b\"]'",
    "'%s'.format([[1.5]]) == '[1.500000]' && '%s'.format([[b'x']]) == '[b\"x\"]'",
    "'%s'.format([{'b': 1, 'a': 2}]) == '{\"a\":2, \"b\":1}' && '%s'.format([{1: true}]) == '{1:true}'",
    "'%s'.format([[duration('90s')]]) == '[duration(\"90s\")]'",
    "'%s'.format([[timestamp('2020-01-02T03:04:05Z')]]) == '[timestamp(\"2020-01-02T03:04:05Z\")]'",
    "'%s %s'.format([duration('90s'), int]) == '90s int'",
    "'%d %d'.format([-5, 7u]) == '-5 7' && '100%%'.format([]) == '100%'",
    "'%b %b %b'.format([5, 5u, true]) == '101 101 1' && '%b'.format([-5]) == '-101'",
    "'%x %X %o'.format([255, 255, 8]) == 'ff FF 10'",
    "'%x'.format(['hi']) == '6869' && '%X'.format([b'\\xff']) == 'FF'",
    "'%f'.format([1.5]) == '1.500000'",
    "'%.2f'.format([1234567.891]) == '1,234,567.89' && '%.0f'.format([0.5]) == '0'",
    "'%f'.format(['NaN']) == 'NaN' && '%f'.format(['Infinity']) == '\\u221e'",
    "'%e'.format([1234.5]) == '1.234500\\u202f\\u00d7\\u202f10\\u2070\\u00b3'",
    "'%.1e'.format([0.00012]) == '1.200000\\u202f\\u00d7\\u202f10\\u207b\\u2070\\u2074'",
    "'abc'.matches('b') && !'abc'.matches('^b') && matches('abc', 'a.c') && 'é'.matches('^.$')",
    "'a1b22'.find('[0-9]+') == '1' && 'abc'.find('[0-9]') == ''",
    "'a1b22'.findAll('[0-9]+') == ['1', '22'] && 'a1b22'.findAll('[0-9]+', 1) == ['1']",
    "'ab'.findAll('') == ['', '', ''] && 'hééh'.findAll('é*') == ['', 'éé', ''] && 'ab'.findAll('', 0) == []",
    "'ab'.findAll('x') == [] && 'aab'.findAll('\\\\ba') == ['a']",
]
FAILING = [
    "'ab'.charAt(3) == ''",
    "'ab'.charAt(-1) == ''",
    "'ab'.indexOf('a', -1) == 0",
    "'ab'.lastIndexOf('a', -1) == 0",
    "'ab'.substring(3) == ''",
    "'ab'.substring(-1) == ''",
    "'ab'.substring(2, 1) == ''",
    "'ab'.substring(0, 3) == ''",
    "[dyn('a'), dyn(1)].join() == ''",
    "(dyn('%') + 's %s').format(['a']) == ''",
    "(dyn('%') + 'd').format(['a']) == ''",
    "(dyn('%') + 'f').format([1]) == ''",
    "(dyn('%') + 'q').format([1]) == ''",
    "(dyn('%') + '.').format([1]) == ''",
    "(dyn('%') + '.f').format([1.0]) == ''",
    "(dyn('%') + '').format([1]) == ''",
    "(dyn('%') + 's').format([optional.of(1)]) == ''",
    "(dyn('%') + 's').format([[quantity('1')]]) == ''",
    "(dyn('%') + 's').format([{1.0: 1}]) == ''",
    "(dyn('%') + 's').format([b'\\xff']) == ''",
    "'a'.matches(dyn('[') + '')",
    "'a'.find(dyn('[') + '') == ''",
    "dyn(1).matches('a')",
    "dyn(1).find('a') == ''",
    "dyn(1).findAll('a') == []",
    "dyn(1).charAt(0) == ''",
    "'abc'.contains(dyn(1))",
]


@pytest.mark.parametrize("expression", TRUE)
def test_holds(expression: str) -> None:
    assert value(expression)


@pytest.mark.parametrize("expression", FAILING)
def test_fails(expression: str) -> None:
    assert fails(expression)


@pytest.mark.parametrize(
    "pattern", ["\\C", "a{1001}", "(a", "[a", "*", "(?=a)", "\\1", "(" * 1001 + ")" * 1001, "(?P<é>a)"]
)
def test_patterns_outside_the_dialect_are_refused(pattern: str) -> None:
    with pytest.raises(CelPatternError):
        compile_pattern(pattern)


@pytest.mark.parametrize("pattern", ["\\Q\\C\\E", "[\\\\C]", "[]]", "[^]C]", "(?i)a", "\\pL", "(?P<n>a)"])
def test_patterns_inside_the_dialect_are_taken(pattern: str) -> None:
    compile_pattern(pattern)


def test_numbers_are_read_as_go_reads_them() -> None:
    assert [parse_int(text) for text in ("007", "-0", "9223372036854775807")] == [7, 0, 2**63 - 1]
    assert [parse_int(text) for text in ("", "+", "1_0", " 1", "0x1", "9223372036854775808", "１")] == [
        None
    ] * 7
    assert [parse_uint(text) for text in ("007", "18446744073709551615")] == [7, 2**64 - 1]
    assert [parse_uint(text) for text in ("+1", "-1", "18446744073709551616")] == [None] * 3
    assert [parse_double(text) for text in (".5", "5.", "1e-400", "-Inf", "0x_1.8p1")] == [
        0.5,
        5.0,
        0.0,
        -float("inf"),
        3.0,
    ]
    assert [parse_double(text) for text in ("", ".", "1e", "1e400", "+nan", "0x1", "1__0", " 1")] == [
        None
    ] * 8


def test_doubles_print_their_shortest_digits() -> None:
    assert [shortest(number) for number in (0.1, 1e5, 1e6, 1e-4, 1e-5, -0.0)] == [
        "0.1",
        "100000",
        "1e+06",
        "0.0001",
        "1e-05",
        "-0",
    ]
    assert [shortest(number, exponents=False) for number in (1e6, 1e-7, 123.5)] == [
        "1000000",
        "0.0000001",
        "123.5",
    ]


def test_quoting_escapes_what_does_not_print() -> None:
    assert quote_go('a"\\\n\x01\u00a0\u200b\U000e0001é') == '"a\\"\\\\\\n\\x01\\u00a0\\u200b\\U000e0001é"'


def test_patterns_have_bounded_size() -> None:
    with pytest.raises(CelPatternError, match="too large"):
        compile_pattern("\\pL{1000}")
    compile_pattern("\\pL{100}")
