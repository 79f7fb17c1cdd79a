"""Plugin names, and the NRI version of a runtime."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.protocols.nri.names import index_fault, name_fault, nri_version, read_version


def test_texts_of_bad_names() -> None:
    assert name_fault("") == "invalid plugin name: name is empty"
    assert name_fault("b@d") == "invalid plugin name \"b@d\": contains invalid character '@'"
    assert name_fault("a" * 254) == "invalid plugin name: longer than 253 characters"
    assert name_fault("plimsoll.cpu") is None
    assert index_fault("1") == 'invalid plugin index "1", must be 2 digits'
    assert index_fault("a1") == 'invalid plugin index "a1" (not [0-9][0-9])'
    assert index_fault("٣٣") == 'invalid plugin index "٣٣", must be 2 digits'
    assert index_fault("07") is None


@given(st.text(max_size=8))
def test_names_by_a_pattern(name: str) -> None:
    assert (name_fault(name) is None) == bool(re.fullmatch(r"[A-Za-z0-9_.+-]+", name))
    assert (index_fault(name) is None) == bool(re.fullmatch(r"[0-9]{2}", name))


def test_versions() -> None:
    assert read_version("v0.12.0") == (0, 12, 0)
    assert read_version("0.12.2-31-g8ec8b28.m") == (0, 12, 2)
    assert read_version("0.0.0-unknown") is None
    assert read_version("") is None
    assert read_version("devel") is None


@pytest.mark.parametrize(
    ("runtime", "release", "reported", "version"),
    [
        ("containerd", "2.3.4+unknown", "v0.12.0", (0, 12, 0)),
        ("containerd", "v2.2.7", "", (0, 11, 0)),
        ("containerd", "v2.3.4", "", (0, 12, 0)),
        ("containerd", "2.4.0-beta.0", "", (0, 12, 1)),
        ("containerd", "1.7.0", "", None),
        ("cri-o", "1.34", "", None),
        ("cri-o", "1.34", "v0.12.1", (0, 12, 1)),
    ],
)
def test_the_nri_of_a_runtime(
    runtime: str, release: str, reported: str, version: tuple[int, int, int] | None
) -> None:
    assert nri_version(runtime, release, reported) == version
