"""The records of the functions are complete."""

from __future__ import annotations

import pytest

from plimsoll.cel import types
from plimsoll.cel.functions import FUNCTIONS
from plimsoll.cel.overloads.costs import ONE
from plimsoll.cel.overloads.overload import unreachable
from plimsoll.cel.overloads.signatures import Signature, parse_signature
from tests.unit.cel.evaluation import cost, fails

#: Operators that the back ends evaluate themselves.
OWN = {"_?_:_", "_&&_", "_||_", "_==_", "_!=_", "_[_]", "_[?_]", "_?._", "or", "orValue"}


def test_every_overload_has_one_implementation() -> None:
    for name, function in FUNCTIONS.items():
        implemented = {overload.call is not unreachable for overload in function.overloads}
        evaluated_elsewhere = name in OWN or function.dynamic is not None
        assert implemented == {not evaluated_elsewhere}, name


def test_overload_ids_are_unique_within_a_function() -> None:
    for function in FUNCTIONS.values():
        assert len(function.by_id) == len(function.overloads), function.name


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        ("(string, list(A)) -> bool", (False, (types.STRING, types.list_of(types.param("A"))), types.BOOL)),
        (
            "map(K, V).() -> optional(V)",
            (
                True,
                (types.map_of(types.param("K"), types.param("V")),),
                types.optional_of(types.param("V")),
            ),
        ),
        ("() -> Format", (False, (), types.FORMAT)),
    ],
)
def test_signatures_are_parsed(signature: str, expected: Signature) -> None:
    assert parse_signature(signature) == expected


def test_overloads_of_one_name_keep_the_order_of_their_libraries() -> None:
    assert [one.id for one in FUNCTIONS["ip"].overloads] == ["string_to_ip", "cidr_ip"]
    assert FUNCTIONS["ip"].cost is FUNCTIONS["ip"].by_id["string_to_ip"].cost
    assert FUNCTIONS["ip"].by_id["cidr_ip"].cost is ONE


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("dyn(1).path('/x').check('get').allowed()", 1 + 350_000 + 1),
        ("dyn(1).group('').resource('pods').name('b').check('get').errored()", 3 + 350_000 + 1),
        ("dyn(1).serviceAccount('a', 'b').path('/').check('get').reason() == 'x'", 1 + 1 + 350_000 + 2),
        ("dyn(1).fieldSelector('a=b').check('get').allowed()", 10 + 1 + 100 + 350_000 + 1),
    ],
)
def test_authorizer_functions_fail_like_any_call_on_the_wrong_type(call: str, expected: int) -> None:
    assert fails(call)
    assert cost(call) == expected
