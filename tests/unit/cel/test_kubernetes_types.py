"""Quantities, versions and named formats in expressions."""

from __future__ import annotations

import itertools

import pytest

from plimsoll.cel.functions import semver
from plimsoll.errors import CelRuntimeError
from tests.unit.cel.evaluation import fails, sample, value

M = "device.capacity['gpu.example.com'].memory"


@pytest.mark.parametrize(
    "expression",
    [
        f"{M} == quantity('40960Mi') && {M}.compareTo(quantity('40Gi')) == 0",
        f"{M}.isGreaterThan(quantity('39Gi')) && {M}.isLessThan(quantity('41Gi'))",
        f"{M}.add(quantity('1Gi')).sub(1).isLessThan(quantity('41Gi'))",
        f"{M}.add(1).asInteger() == 42949672961",
        f"sign({M}) == 1 && sign(quantity('-1')) == -1 && sign(quantity('0')) == 0",
        f"{M}.asInteger() == 42949672960 && {M}.isInteger() && !quantity('1500m').isInteger()",
        "!quantity('1.5Gi').isInteger() && !quantity('9223372036854775808').isInteger()",
        "quantity('1.5').asApproximateFloat() == 1.5 && quantity('1k').asApproximateFloat() == 1000.0",
        "quantity('1.5Gi').asApproximateFloat() == 1610612736.0",
        "quantity('1n').asApproximateFloat() == 1e-9",
        "isQuantity('1.5Gi') && !isQuantity('1.5gi') && quantity('100m') == quantity('0.1')",
        f"{M} in [quantity('40Gi')] && !({M} in [quantity('41Gi')])",
        "semver('1.2.3').major() == 1 && semver('1.2.3').minor() == 2 && semver('1.2.3').patch() == 3",
        "semver('1.10.0').isGreaterThan(semver('1.9.0')) && semver('1.0.0-a').isLessThan(semver('1.0.0'))",
        "semver('1.0.0+x') == semver('1.0.0+y') && semver('1.0.0').compareTo(semver('1.0.1')) == -1",
        "isSemver('1.0.0') && !isSemver('1.0') && isSemver('v1.0', true) && !isSemver('v1.0', false)",
        "semver('v01.02', true) == semver('1.2.0')",
        "semver('18446744073709551615.0.0').major() == -1",  # an int equal_or_false no more
        "device.attributes['gpu.example.com'].version.isGreaterThan(semver('535.0.0'))",
        "format.dns1123Label().validate('a-b') == optional.none()",
        "format.dns1123Label().validate('A').value().size() == 1",
        "!format.dns1123Subdomain().validate('a.b-c.d').hasValue()",
        "format.dns1123Subdomain().validate('a..b').hasValue()",
        "!format.dns1035Label().validate('a1').hasValue() && format.dns1035Label().validate('1a').hasValue()",
        "!format.dns1123LabelPrefix().validate('a-').hasValue()",
        "format.dns1123LabelPrefix().validate('-').hasValue()",
        "!format.qualifiedName().validate('a.b/C_d').hasValue()",
        "format.qualifiedName().validate('a/b/c').hasValue()",
        "format.qualifiedName().validate('/b').hasValue()",
        "format.qualifiedName().validate('a/').hasValue()",
        "!format.labelValue().validate('').hasValue() && format.labelValue().validate('-a').hasValue()",
        "!format.uri().validate('https://h/').hasValue() && format.uri().validate('h').hasValue()",
        "!format.uuid().validate('123e4567-e89b-12d3-a456-426614174000').hasValue()",
        "format.uuid().validate('x').hasValue()",
        "!format.byte().validate('aGk=').hasValue() && format.byte().validate('').hasValue()",
        "!format.date().validate('2024-02-29').hasValue() && format.date().validate('2023-02-29').hasValue()",
        "!format.datetime().validate('2024-02-29T23:59:59z').hasValue()",
        "format.datetime().validate('2024-02-29T24:00:00Z').hasValue()",
        "format.named('uuid').value() == format.uuid() && !format.named('nope').hasValue()",
        "type(quantity('1')) != type(semver('1.0.0'))",
    ],
)
def test_holds(expression: str) -> None:
    assert value(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "quantity('1Kb').isInteger()",
        "quantity('1500m').asInteger() == 1",
        "quantity('9223372036854775808').asInteger() == 1",
        "semver('1.2').major() == 1",
        "semver('1.2-a', true).major() == 1",
        "device.attributes['gpu.example.com'].model.isGreaterThan(semver('1.0.0'))",
        "dyn(quantity('1')) == 1",
        "dyn(semver('1.0.0')) == '1.0.0'",
        "dyn(quantity('1')).compareTo(dyn(semver('1.0.0'))) == 0",
        "quantity('1').add(dyn('1')) == quantity('2')",
        "format.uuid().validate(dyn(1)).hasValue()",
    ],
)
def test_fails(expression: str) -> None:
    assert fails(expression)


def test_sum_compares_on_either_side() -> None:
    assert value("quantity('2') == quantity('1').add(1) && quantity('1').add(1) == quantity('2')")
    assert value(
        "quantity('2') in [quantity('1').add(1)] && [quantity('1').add(1)].indexOf(quantity('2')) == 0"
    )
    assert not value("[quantity('2')] == [quantity('1').add(quantity('3'))]")


def test_addition_does_not_change_the_operand() -> None:
    device = sample()
    assert value(
        "device.capacity['gpu.example.com'].half.add(quantity('1.5Gi')).sub(1) != quantity('0')", device
    )
    big = "device.capacity['gpu.example.com'].memory.add(quantity('0.5Gi'))"
    assert value(f"{big}.compareTo({big}) == 0 && {M} == quantity('40Gi')", device)
    assert value("cel.bind(q, quantity('1.5Gi'), q.add(1) != q && q == quantity('1.5Gi'))")


@pytest.mark.parametrize(
    "text", ["", "1", "1.2.3.4", "01.2.3", "1.2.3-", "1.2.3-01", "1.2.3+", "1.2.3-a..b", "a.b.c"]
)
def test_invalid_versions(text: str) -> None:
    with pytest.raises(CelRuntimeError):
        semver.parse(text)


def test_versions_in_order() -> None:
    texts = "0.9.9 1.0.0-1 1.0.0-2 1.0.0-10 1.0.0-alpha 1.0.0-alpha.1 1.0.0-beta 1.0.0 1.0.1 1.1.0 2.0.0-rc.1"
    versions = [semver.parse(text) for text in texts.split()]
    for low, high in itertools.pairwise(versions):
        assert semver.compare(low, high) == -1
        assert semver.compare(high, low) == 1
