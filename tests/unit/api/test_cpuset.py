"""CPU sets: text and arithmetic."""

from __future__ import annotations

import copy
import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.cpuset import EMPTY, MASK_LIMIT, MAX_SPARSE_CPUS, CpuSet
from plimsoll.errors import InputError

sets = st.sets(st.integers(0, 300) | st.integers(MASK_LIMIT - 3, MASK_LIMIT + 3))


def naive_text(cpus: set[int]) -> str:
    parts = []
    for cpu in sorted(cpus):
        if cpu - 1 not in cpus:
            last = cpu
            while last + 1 in cpus:
                last += 1
            parts.append(str(cpu) if last == cpu else f"{cpu}-{last}")
    return ",".join(parts)


@given(sets)
def test_texts_read_back(cpus: set[int]) -> None:
    made = CpuSet(cpus)
    assert str(made) == naive_text(cpus)
    assert CpuSet.parse(str(made)) == made
    assert list(made) == sorted(cpus)
    assert len(made) == len(cpus)
    assert bool(made) == bool(cpus)
    assert repr(made) == f"CpuSet({naive_text(cpus)!r})"
    assert pickle.loads(pickle.dumps(made)) == made
    assert copy.deepcopy(made) == made


@given(sets, sets)
def test_arithmetic_is_that_of_sets(one: set[int], other: set[int]) -> None:
    first, second = CpuSet(one), CpuSet(other)
    assert first | second == CpuSet(one | other)
    assert first & second == CpuSet(one & other)
    assert first - second == CpuSet(one - other)
    assert (first <= second) == (one <= other)
    assert (first == second) == (one == other)
    if one == other:
        assert hash(first) == hash(second)
    assert all((cpu in first) == (cpu in one) for cpu in one | other | {0, 301, MASK_LIMIT + 9})


@given(sets, st.integers(0, 400))
def test_lowest_cpus(cpus: set[int], count: int) -> None:
    assert list(CpuSet(cpus).lowest(count)) == sorted(cpus)[:count]


@given(sets)
def test_runs(cpus: set[int]) -> None:
    runs = list(CpuSet(cpus).runs())
    assert [cpu for first, last in runs for cpu in range(first, last + 1)] == sorted(cpus)
    assert all(after[0] > before[1] + 1 for before, after in pairwise(runs))


def test_sets_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        EMPTY.mask = 1
    assert str(EMPTY) == ""
    assert CpuSet.parse("") == EMPTY
    assert EMPTY != 0


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("5", "5"), ("+5", "5"), ("007", "7"), ("3-3", "3"), ("0-1,1-2", "0-2"), ("4294967296", "4294967296")],
)
def test_formats_that_kubernetes_accepts(text: str, cpus: str) -> None:
    assert str(CpuSet.parse(text)) == cpus


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (" ", 'strconv.Atoi: parsing " ": invalid syntax'),
        (",", 'strconv.Atoi: parsing "": invalid syntax'),
        ("-3", 'strconv.Atoi: parsing "": invalid syntax'),
        ("+", 'strconv.Atoi: parsing "+": invalid syntax'),
        ("1-", 'strconv.Atoi: parsing "": invalid syntax'),
        ("2-1", 'invalid range "2-1" (2 > 1)'),
        ("2--1", 'invalid range "2--1" (2 > -1)'),
        ("1_0", 'strconv.Atoi: parsing "1_0": invalid syntax'),
        ("\u0663", 'strconv.Atoi: parsing "\u0663": invalid syntax'),
        ('a"\\\x00\x7f\n', r'strconv.Atoi: parsing "a\"\\\x00\x7f\n": invalid syntax'),
        ("\u200b\U000e0001", r'strconv.Atoi: parsing "\u200b\U000e0001": invalid syntax'),
        ("9223372036854775808", 'strconv.Atoi: parsing "9223372036854775808": value out of range'),
        ("18446744073709551616x", 'strconv.Atoi: parsing "18446744073709551616x": value out of range'),
        ("18446744073709551615x", 'strconv.Atoi: parsing "18446744073709551615x": invalid syntax'),
        ("0-" + "9" * 5000, f'strconv.Atoi: parsing "{"9" * 5000}": value out of range'),
        ("\ud800", 'strconv.Atoi: parsing "\ufffd": invalid syntax'),
    ],
)
def test_invalid_sets_are_refused_with_the_message_of_kubernetes(text: str, problem: str) -> None:
    with pytest.raises(InputError) as error:
        CpuSet.parse(text)
    assert str(error.value) == problem


@pytest.mark.parametrize(
    "text",
    [
        "0-9223372036854775807",
        f"0-{MAX_SPARSE_CPUS}",
        f"5,1-{MASK_LIMIT},{MASK_LIMIT}-{MASK_LIMIT + MAX_SPARSE_CPUS}",
    ],
)
def test_huge_ranges_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^invalid range .*: more than 1048576 CPUs$"):
        CpuSet.parse(text)


@given(st.text())
def test_any_text_is_a_set_or_refused(text: str) -> None:
    try:
        cpus = CpuSet.parse(text)
    except InputError:
        return
    assert CpuSet.parse(str(cpus)) == cpus
