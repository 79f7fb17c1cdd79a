"""Type checker: types, references and rules on literals."""

from __future__ import annotations

import pytest

from plimsoll.cel import types
from plimsoll.cel.check import CheckedExpr, check
from plimsoll.cel.static.checker import resolve
from plimsoll.cel.static.environment import Environment
from plimsoll.cel.syntax.ast import CallExpr, Ident, descend
from plimsoll.cel.syntax.parser import parse
from plimsoll.errors import CelCompileError

STORED = Environment("stored")
LISTS = Environment("stored", list_attributes=True)
ATTRIBUTE = 'device.attributes["d"].a'


def type_of(source: str, environment: Environment = STORED) -> str:
    typed = resolve(parse(source), environment)
    return str(typed.types[typed.root.id])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        # Literals.
        ("1", "int"),
        ("1u", "uint"),
        ("1.5", "double"),
        ("'a'", "string"),
        ("b'a'", "bytes"),
        ("null", "null"),
        ("[]", "list(dyn)"),
        ("[1]", "list(int)"),
        ("[1, 'a']", "list(dyn)"),
        ("[[], [1]]", "list(list(int))"),
        ("{}", "map(dyn, dyn)"),
        ("{'a': [1]}", "map(string, list(int))"),
        ("[?optional.of(1)]", "list(int)"),
        ("{?'a': optional.of(1u)}", "map(string, uint)"),
        # The device.
        ("device", "kubernetes.DRADevice"),
        ("device.driver", "string"),
        ("device.allowMultipleAllocations", "bool"),
        ("device.attributes", "map(string, map(string, any))"),
        ("device.attributes['a']", "map(string, any)"),
        ("device.attributes.a.b", "any"),
        ("device.attributes.a.b.c", "dyn"),
        ("device.capacity.a.b", "kubernetes.Quantity"),
        ("has(device.attributes.a)", "bool"),
        # Operators: anything of unknown type fits, and widens the result.
        ("1 + 2", "int"),
        ("'a' + 'b'", "string"),
        ("[1] + []", "list(int)"),
        (f"{ATTRIBUTE} + 1", "int"),
        (f"{ATTRIBUTE} + {ATTRIBUTE}", "dyn"),
        (f"{ATTRIBUTE} + [1]", "list(int)"),
        ("duration('1s') + timestamp(0)", "timestamp"),
        ("timestamp(1) - timestamp(0)", "duration"),
        ("true ? 1 : 2", "int"),
        ("true ? [] : [1]", "list(int)"),
        (f"true ? 1 : {ATTRIBUTE}", "any"),
        (f"true ? {ATTRIBUTE} : 1", "any"),
        ("true ? duration('1s') : null", "duration"),
        ("true ? null : duration('1s')", "null"),
        ("1 < 1.5", "bool"),
        ("1u >= 1", "bool"),
        # Functions.
        ("size('a')", "int"),
        ("'a,b'.split(',')", "list(string)"),
        ("quantity('1').add(1)", "kubernetes.Quantity"),
        ("ip('::1')", "net.IP"),
        ("cidr('10.0.0.0/8').ip()", "net.IP"),
        ("url('https://a').getQuery()", "map(string, list(string))"),
        ("format.named('uri')", "optional_type(kubernetes.NamedFormat)"),
        ("format.uri().validate('x')", "optional_type(list(string))"),
        ("[3, 1].sort()", "list(int)"),
        ("[[1], [2]].flatten()", "list(int)"),
        ("[1, 2].max()", "int"),
        ("[].sum()", "int"),
        ("lists.range(3)", "list(int)"),
        ("type(1)", "type(int)"),
        ("int", "type(int)"),
        ("list", "type(list(dyn))"),
        ("google.protobuf.Duration", "type(duration)"),
        ("net.IP", "type(net.IP)"),
        ("google.protobuf.NullValue.NULL_VALUE", "int"),
        # Optionals.
        ("optional.of(1)", "optional_type(int)"),
        ("optional.none()", "optional_type(dyn)"),
        ("{'a': 1}.?a", "optional_type(int)"),
        ("{'a': {'b': 1}}.?a.b", "optional_type(int)"),
        ("{'a': optional.of(1)}.?a", "optional_type(optional_type(int))"),
        ("[1][?0].orValue(2)", "int"),
        ("{'a': [1]}.?a[0]", "optional_type(int)"),
        ("optional.of(1).optMap(x, string(x))", "optional_type(string)"),
        ("optional.of([1]).optFlatMap(x, x[?0])", "optional_type(int)"),
        ("[1].first()", "optional_type(int)"),
        ("[optional.of(1)].unwrapOpt()", "list(int)"),
        # Comprehensions.
        ("[1].map(x, string(x))", "list(string)"),
        ("{'a': 1}.map(k, k)", "list(string)"),
        ("{'a': 1}.transformList(k, v, v)", "list(int)"),
        ("['a'].transformMap(i, v, v)", "map(int, string)"),
        ("[1].transformMapEntry(i, v, {string(v): i})", "map(string, int)"),
        ("['a'].filter(x, x == 'a')", "list(string)"),
        ("['b'].sortBy(x, x.size())", "list(string)"),
        ("cel.bind(x, [1], x.map(y, [y]))", "list(list(int))"),
        ("[].map(x, x)", "list(dyn)"),
        # Messages of protobuf are known by name.
        ("google.protobuf.Int64Value{value: 1}", "wrapper(int)"),
        ("google.protobuf.Duration{seconds: 1}", "duration"),
        ("google.protobuf.Struct{}", "map(string, dyn)"),
        ("kubernetes.DRADevice{driver: 'x'}", "kubernetes.DRADevice"),
    ],
)
def test_types(source: str, expected: str) -> None:
    assert type_of(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        # Names.
        "nope",
        "device.nope",
        "has(device.nope)",
        "nope()",
        "device.nope()",
        "math.greatest(1, 2) == 2",
        "authorizer.path('/').check('get').allowed()",
        "'a'.reverse() == 'a'",
        "[1].map(x, y) == []",
        "[1].map(x, true) == [x]",
        # Types that do not meet.
        "1 == 1.0",
        "1 == 1u",
        "1 + 1.0 == 2.0",
        "'a' + 1 == 'a1'",
        "1 == null",
        "!1",
        "-'a' == 'a'",
        "-1u == 1u",
        "true && 1",
        "device.driver || true",
        "1 ? true : false",
        "true ? 1 : 'a'",
        "1 in ['a']",
        "'a' in 'abc'",
        "[1]['a'] == 1",
        "{'a': 1}[1] == 1",
        "1.a == 1",
        "device.driver.a == 1",
        "quantity('1').a == 1",
        "'a'.size(1) == 1",
        "size() == 1",
        "sign(1) == 1",
        "quantity('1').sign() == 1",
        "quantity('1') > quantity('0')",
        "quantity('1') == semver('1.0.0')",
        "[quantity('1')].max() == quantity('1')",
        "['a'].sum() == 'a'",
        "sets.contains([1], ['a'])",
        "optional.of(1) == optional.of('a')",
        "[?1] == [1]",
        "{?'a': 1} == {}",
        "1.all(x, true)",
        f"{ATTRIBUTE}.all(x, true)",
        "[1].all(x, x)",
        "string([1]) == ''",
        "int(true) == 1",
        # Message literals.
        "Nope{} == null",
        "device{} == device",
        "int{} == 1",
        "list{} == []",
        "net.IP{} == ip('::1')",
        "google.protobuf.Duration{nope: 1} == duration('1s')",
        "google.protobuf.Int64Value{value: 'a'} == 1",
        # Literals must not mix types, though they check as dyn.
        "[1, 1.0].size() == 2",
        "[1, dyn(1)].size() == 2",
        f"[1, {ATTRIBUTE}].size() == 2",
        f"{ATTRIBUTE} in [{ATTRIBUTE}, 'a']",
        "[[1], ['a']].size() == 2",
        "{1: 1, 'a': 2}.size() == 2",
        "{1: 1, 2: 'a'}.size() == 2",
        "[1, ?optional.of('a')].size() == 2",
        # Patterns and formats that cannot be.
        "'a'.matches('[')",
        "'a'.find('(') == ''",
        "'a'.findAll('*') == []",
        "'a'.matches(string('['))",
        "matches('[', 'a')",
        "'%q'.format([1]) == ''",
        "'%'.format([1]) == ''",
        "'%s %s'.format([1]) == ''",
        "'%s'.format([1, 2]) == ''",
        "'%.f'.format([1.0]) == ''",
        "'%d'.format([1.0]) == ''",
        "'%d'.format(['a']) == ''",
        "'%f'.format([1]) == ''",
        "'%b'.format([1.0]) == ''",
        "'%x'.format([true]) == ''",
        "'%o'.format(['a']) == ''",
        "'%s'.format([quantity('1')]) == ''",
        "'%s'.format([[quantity('1')]]) == ''",
        f"'%s'.format([{ATTRIBUTE}]) == ''",
        # Conversions of constants happen at compile time.
        "int('a') == 1",
        "int(1e30) == 1",
        "int(18446744073709551615u) == 1",
        "uint(-1) == 1u",
        "double('x') == 1.0",
        "bool('yes')",
        "duration('x') == duration('1s')",
        "duration(1) == duration('1s')",
        "timestamp('x') == timestamp(0)",
        "timestamp(253402300800) == timestamp(0)",
        "string(b'\\xff') == ''",
        "string(null) == ''",
        "int(dyn('a')) == 1",
        "int(string(1e6)) == 1",
        "int(dyn([1])) == 1",
        "int(dyn(1 in [])) == 1",
        "dyn([?dyn(1)]) == [1]",
        # A type can be named, but not carried in a variable; some type names exist only for checking.
        "cel.bind(t, type(1), t == int)",
        "[int].exists(t, t == int)",
        "type(duration('1s')) == duration",
        "type(device) == kubernetes.DRADevice",
        # Constant indices must be of a type that can index.
        "dyn({})[null] == 1",
        "dyn({})[b'a'] == 1",
        "dyn({})[[1]] == 1",
        # Result types.
        "1",
        "'true'",
        "[true]",
        "dyn(true)",
        "null",
        "bool",
        "device.driver",
        "optional.of(true)",
        f"{ATTRIBUTE}.b",
        "[true].first().value().a",
        "google.protobuf.BoolValue{value: true}",
    ],
)
def test_refused(source: str) -> None:
    with pytest.raises(CelCompileError):
        check(source, STORED)


@pytest.mark.parametrize(
    "source",
    [
        "true",
        ATTRIBUTE,
        f"{ATTRIBUTE} == 1 && {ATTRIBUTE} == 'a'",
        f"{ATTRIBUTE}.startsWith({ATTRIBUTE})",
        f"{ATTRIBUTE}.b.c == 1",
        f"{ATTRIBUTE}.allowed()",
        f"{ATTRIBUTE} in [1, 2]",
        "null == device",
        "null == duration('1s')",
        "google.protobuf.Int64Value{} == null",
        "{} == {1: 'a'}",
        "[] == ['a']",
        "type([1]) == list",
        "type(1) == type('a')",
        "dyn(1) == 'a'",
        "'%s %d %f %e %b %x %X %o %%'.format([[1, 'a'], 1, 1.0, 'NaN', true, 'a', b'a', 1u]) == ''",
        "'%.20f'.format([dyn(1)]) == ''",
        "'%s'.format([{'a': [1]}]) == ''",
        "['%s'].all(f, f.format([1, 2]) == '')",
        "[string(1), 'a'].size() == 2",
        "1 in []",
        "kubernetes.DRADevice{driver: 'a'} == device",
        ".device.driver == ''",
        "[1].map(device, device) == [1]",
        "device.attributes.all(k, v, v.exists(id, id == k))",
        "'a'.matches('^a{2,5}(?i:b)$')",
    ],
)
def test_accepted(source: str) -> None:
    assert check(source, STORED).source == source


def test_errors_name_the_position() -> None:
    for source, position in (
        ("device.nosuch", 6),
        ("1 + 'a' == 2", 2),
        ("true && 1", 8),
        ("[1, 'a'] == []", 4),
        ("'a'.matches('[')", 12),
        ("int('a') == 1", 3),
        ("foo.bar", 0),
    ):
        with pytest.raises(CelCompileError) as caught:
            check(source, STORED)
        assert caught.value.position == position, source


@pytest.mark.parametrize(
    ("source", "accepted"),
    [
        # allowMultipleAllocations: new expressions need the gate.
        ("device.allowMultipleAllocations", {"stored", "stored-", "new"}),
        ("has(device.allowMultipleAllocations)", {"stored", "stored-", "new"}),
        # includes: new expressions need the gate for list attributes, which also lets attributes be iterated.
        (f"{ATTRIBUTE}.includes('a')", {"stored", "stored-", "stored+", "new+"}),
        (f"{ATTRIBUTE}.exists(x, x == 'a')", {"stored+", "new+"}),
        # A dynamic result is fine only where attributes are dynamic.
        (f"{ATTRIBUTE}.b", {"stored+", "new+"}),
        ("dyn(true)", {"stored+", "new+"}),
        (ATTRIBUTE, {"stored", "stored-", "stored+", "new", "new-", "new+"}),
    ],
)
def test_environments(source: str, accepted: set[str]) -> None:
    environments = {
        "stored": Environment("stored"),
        "stored-": Environment("stored", consumable_capacity=False),
        "stored+": Environment("stored", consumable_capacity=False, list_attributes=True),
        "new": Environment("new"),
        "new-": Environment("new", consumable_capacity=False),
        "new+": Environment("new", consumable_capacity=False, list_attributes=True),
    }
    if "allowMultiple" in source:
        accepted = accepted | {"stored+"}
    compiled = set()
    for name, environment in environments.items():
        try:
            check(source, environment)
        except CelCompileError:
            continue
        compiled.add(name)
    assert compiled == accepted


def test_checked_trees_have_resolved_names() -> None:
    checked = check(".device.driver == strings.quote('a') && type(1) == google.protobuf.Duration", STORED)
    names = {node.name for node in descend(checked.root) if isinstance(node, Ident)}
    assert names == {"device", "google.protobuf.Duration"}
    quote = next(
        node
        for node in descend(checked.root)
        if isinstance(node, CallExpr) and node.function == "strings.quote"
    )
    assert quote.target is None


def overloads(checked: CheckedExpr, function: str) -> tuple[str, ...]:
    for node in descend(checked.root):
        if isinstance(node, CallExpr) and node.function == function:
            return checked.references[node.id].overloads
    raise AssertionError(function)


def test_references_name_the_overloads() -> None:
    assert overloads(check("1 + 1 == 2", STORED), "_+_") == ("add_int64",)
    assert overloads(check("'a'.size() == 1", STORED), "size") == ("string_size",)
    assert overloads(check(f"{ATTRIBUTE} + 1 == 2", STORED), "_+_") == ("add_int64",)
    assert overloads(check(f"{ATTRIBUTE}.isGreaterThan({ATTRIBUTE})", STORED), "isGreaterThan") == (
        "quantity_is_greater_than",
        "semver_is_greater_than",
    )
    assert overloads(check(f"{ATTRIBUTE}.includes(1)", LISTS), "includes") == ("dra_includes_dyn_dyn",)
    sorts = overloads(check("[duration('1s')].sort() == []", STORED), "sort")
    assert sorts == ("list_google.protobuf.Duration_sort",)


def test_every_node_has_a_type() -> None:
    checked = check("[1].map(x, {'a': x}.?a).exists(o, o.optMap(y, y + 1).hasValue())", STORED)
    assert {node.id for node in descend(checked.root)} <= set(checked.types)
    assert not any(one.kind is types.TypeKind.PARAM for one in checked.types.values())


def nest(count: int, step: str, last: str = "true") -> str:
    """Nest `step` in itself, with {i} and {p} for the current and the previous number."""
    text = last
    for i in range(count, 0, -1):
        text = f"cel.bind(a{i}, {step.format(i=i, p=i - 1)}, {text})"
    return text


def test_types_are_bounded() -> None:
    # Each of these doubles or deepens a type at every step; upstream would not come back.
    for first, step in (
        ("1", "{{a{p}: a{p}}}"),
        ("[]", "[[], [{{a{p}: a{p}}}]][0]"),
        ("1", "[" * 40 + "a{p}" + "]" * 40),
    ):
        source = f"cel.bind(a0, {first}, {nest(200, step)})"
        with pytest.raises(CelCompileError, match="too large"):
            check(source, STORED)


def test_text_that_is_not_unicode() -> None:
    with pytest.raises(CelCompileError, match="Unicode"):
        check("'\ud800' == ''", STORED)
