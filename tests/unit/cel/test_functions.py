"""The function table matches what the checker declares."""

from __future__ import annotations

import pytest

from plimsoll.cel.functions import FUNCTIONS
from plimsoll.cel.static.declarations import functions
from tests.unit.cel.evaluation import cost, fails

#: Operators that the back ends evaluate themselves.
OWN = {"_?_:_", "_&&_", "_||_", "_==_", "_!=_", "_[_]", "_[?_]", "_?._", "or", "orValue"}


def test_every_declared_overload_is_implemented_in_order() -> None:
    for name, declared in functions(True).items():
        if name in OWN or FUNCTIONS[name].dynamic is not None:
            continue
        implemented = FUNCTIONS[name].overloads
        assert [overload.id for overload in implemented] == [overload.id for overload in declared], name
        for mine, theirs in zip(implemented, declared, strict=True):
            assert len(mine.params) == len(theirs.args), theirs.id


def test_nothing_is_implemented_that_is_not_declared() -> None:
    assert set(FUNCTIONS) - set(functions(True)) == set()


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
