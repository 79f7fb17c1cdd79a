"""Operators and conversions of the standard library."""

from __future__ import annotations

import pytest

from tests.unit.cel.evaluation import fails, value

TRUE = [
    "1 + 2 * 3 - 4 == 3",
    "7 / 2 == 3 && -7 / 2 == -3 && 7 / -2 == -3",
    "7 % 3 == 1 && -7 % 3 == -1 && 7 % -3 == 1",
    "5u / 2u == 2u && 5u % 2u == 1u",
    "1.5 * 2.0 == 3.0",
    "1.0 / 0.0 > 1e300 && -1.0 / 0.0 < -1e300",
    '!(0.0 / 0.0 == 0.0 / 0.0) && double("NaN") != double("NaN")',
    "-(3) == 0 - 3 && -(-2.5) == 2.5",
    "1 < 1.5 && 2u > 1 && 1u <= 1.0 && -1 < 0u",
    "9007199254740993 <= 9007199254740992.0",  # an int meets a double as a double
    "dyn(9223372036854775807) == dyn(9223372036854775808.0)",
    '"a" < "b" && "a" + "b" == "ab" && b"a" < b"b" && b"a" + b"b" == b"ab"',
    '"\\U0001F600" > "\\uFFFD"',  # by code point, which is the order of UTF-8
    "false < true && !(true < true)",
    "[1, 2] + [3] == [1, 2, 3] && [] + [] == []",
    "1 in [1, 2] && !(3 in [1, 2]) && 'a' in {'a': 1} && !('b' in {'a': 1})",
    "dyn(1) in [1.0] && dyn(1.0) in [1] && dyn(1u) in [1] && dyn(1) in [1u]",
    "!(dyn(true) in [1]) && !(dyn('1') in [1]) && !(dyn(1.5) in [1, 2])",
    "[1] in [[1], [2]] && !([3] in [[1], [2]])",
    "dyn({1: 'a'})[1u] == 'a' && dyn({1u: 'a'})[1] == 'a' && dyn({1: 'a'})[1.0] == 'a'",
    "{true: 1}[true] == 1 && !(dyn(1) in {true: 1})",
    "null == null && dyn(null) != 1 && dyn('') != null",
    "dyn(1) == 1u && dyn(1) == 1.0 && dyn(1u) == 1.0 && dyn(1) != 1.5",
    "dyn(true) != 1 && dyn('1') != 1 && dyn([1]) != 1",
    "[dyn(1), dyn(2.0)] == [dyn(1.0), dyn(2u)]",
    "{'a': [1]} == {'a': [1]} && {'a': 1} != {'a': 2} && {'a': 1} != {'b': 1} && {} == {}",
    "size('héllo') == 5 && size(b'h\\xff') == 2 && [1, 2].size() == 2 && {'a': 1}.size() == 1",
    "type(1) == int && type(1u) == uint && type(1.0) == double && type('') == string && type(b'') == bytes",
    "type(null) == null_type && type([]) == list",
    "type({}) == map && type(int) == type && type(true) == bool",
    "type(duration('1s')) == google.protobuf.Duration && type(ip('::1')) == net.IP",
    "string(1) == '1' && string(1u) == '1' && string(-1) == '-1'",
    "string(1.0) == '1' && string(1e21) == '1e+21' && string(123456.5) == '123456.5'",
    "string(1234567.0) == '1.234567e+06' && string(0.0001) == '0.0001' && string(0.00001) == '1e-05'",
    "string(double('inf')) == '+Inf' && string(-double('inf')) == '-Inf' && string(double('nan')) == 'NaN'",
    "string(b'abc') == 'abc' && bytes('é') == b'\\xc3\\xa9' && string(true) == 'true'",
    "int('-12') == -12 && int('+7') == 7 && int(3.9) == 3 && int(-3.9) == -3 && int(5u) == 5",
    "uint('12') == 12u && uint(3.9) == 3u && uint(7) == 7u",
    "double('1.5e3') == 1500.0 && double('1_0.5') == 10.5 && double('0x1p-2') == 0.25 && double(3) == 3.0",
    "bool('true') && bool('T') && bool('1') && !bool('False') && !bool('0')",
    "int(timestamp('1970-01-01T00:01:00Z')) == 60 && int(duration('1s')) == 1000000000",
    "'abc'.contains('b') && 'abc'.startsWith('ab') && 'abc'.endsWith('bc') && ''.contains('')",
    "{'a': 1, 'a': 2}.a == 2",
    "{'a': 1}.a == 1 && {'a': {'b': 2}}['a'].b == 2 && [[1, 2]][0][1] == 2",
    "[10, 20][dyn(1.0)] == 20 && [10, 20][dyn(1u)] == 20",
    "has({'a': 1}.a) && !has({'a': 1}.b) && !has(dyn('x').y)",
    "google.protobuf.Int64Value{value: 2} == 2 && google.protobuf.StringValue{} == ''",
    "google.protobuf.Duration{seconds: 1, nanos: 5} == duration('1s5ns')",
    "google.protobuf.Struct{fields: {'a': 1}} == {'a': 1.0}",
    "google.protobuf.Empty{} == google.protobuf.Empty{}",
]
FAILING = [
    "9223372036854775807 + 1 > 0",
    "-9223372036854775807 - 2 < 0",
    "9223372036854775807 * 2 > 0",
    "-9223372036854775808 / -1 > 0",
    "-9223372036854775808 % -1 == 0",
    "-(dyn(-9223372036854775808)) > 0",
    "18446744073709551615u + 1u > 0u",
    "0u - 1u == 0u",
    "1 / 0 == 1 || 1 % 0 == 1",
    "1u / 0u == 1u || 1u % 0u == 1u",
    "dyn(1) + dyn(1.0) == 2",
    "dyn(1) < dyn('a')",
    "dyn(true) < dyn(1)",
    "dyn(0.0 / 0.0) < 1",
    "dyn(null) < dyn(null)",
    "-dyn(true) == 1 || -dyn('a') == 1 || -dyn(1u) == 1",
    "!dyn(1)",
    "size(dyn(1)) == 1",
    "dyn(1) in dyn(2)",
    "{'a': 1}.b == 1",
    "[1][1] == 1 || [1][-1] == 1",
    "dyn([1])['a'] == 1 || dyn([1])[1.5] == 1",
    "dyn('abc')[0] == 'a'",
    "has(dyn([1]).a)",
    "int(dyn('1') + '.5') == 1",
    "int(dyn('9223372036854775808') + '') == 1",
    "int(dyn(9.3e18) * 1.0) == 1 || uint(dyn(-1) + 0) == 1u",
    "int(dyn(18446744073709551615u) + 0u) == 1",
    "string(dyn(b'\\xff') + b'') == ''",
    "bool(dyn('yes') + '') || uint(dyn('-1') + '') == 1u || double(dyn('1e400') + '') > 1.0",
    "duration(dyn(1) + 0) == duration('1s')",
    "string(dyn({'a': [1]}).a) == '1'",
]


@pytest.mark.parametrize("expression", TRUE)
def test_holds(expression: str) -> None:
    assert value(expression)


@pytest.mark.parametrize("expression", FAILING)
def test_fails(expression: str) -> None:
    assert fails(expression)
