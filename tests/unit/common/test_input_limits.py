"""Input limits: scaled to memory, and raised on request."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from plimsoll.common.archives import TextReader
from plimsoll.common.input_limits import (
    DEFAULT_MAX,
    Bounds,
    available_memory,
    check_density,
    default_bounds,
    show_size,
)
from plimsoll.errors import ConfigError, InputError
from plimsoll.tools.cluster_state.manifests import parse_objects
from tests.dumps import big_cluster

MIB = 1 << 20


@pytest.mark.parametrize(
    ("memory", "text"),
    [
        (64 << 30, DEFAULT_MAX),
        (4 << 30, 512 * MIB),
        (2 << 30, 256 * MIB),
        (1 << 30, 128 * MIB),
        (0, 16 * MIB),
    ],
)
def test_the_limit_is_an_eighth_of_the_memory(memory: int, text: int) -> None:
    bounds = default_bounds({}, memory)
    assert bounds.text == text
    assert bounds.memory <= max(memory, 12 * 16 * MIB)


def test_the_input_limit_can_be_raised() -> None:
    bounds = default_bounds({"PLIMSOLL_MAX_INPUT": "2Gi"}, 0)
    assert (bounds.text, bounds.ratio_from) == (2 << 30, 2 << 30)
    assert default_bounds({"PLIMSOLL_MAX_INPUT": ""}, 64 << 30).text == DEFAULT_MAX


@pytest.mark.parametrize("given", ["much", "0", "-1Gi", "1 Gi", "Gi"])
def test_an_invalid_limit(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLIMSOLL_MAX_INPUT", given)
    with pytest.raises(ConfigError, match="PLIMSOLL_MAX_INPUT"):
        list(TextReader().read(io.BytesIO(b"kind: Pod\n"), "f"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_memory_is_that_of_the_machine_or_of_the_cgroup(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n")
    assert available_memory(tmp_path) == 8000 * 1024
    _write(tmp_path / "proc/self/cgroup", "0::/a/b\n")
    top = tmp_path / "sys/fs/cgroup"
    _write(top / "a/b/memory.max", "max\n")
    _write(top / "a/b/memory.current", "1000\n")
    assert available_memory(tmp_path) == 8000 * 1024
    _write(top / "a/memory.max", "5000000\n")
    _write(top / "a/memory.current", "1000000\n")
    assert available_memory(tmp_path) == 4_000_000
    _write(top / "a/memory.current", "6000000\n")
    assert available_memory(tmp_path) == 0


def test_memory_of_a_cgroup_of_version_1(tmp_path: Path) -> None:
    _write(tmp_path / "proc/meminfo", "MemAvailable:    8000 kB\n")
    _write(tmp_path / "proc/self/cgroup", "5:cpu:/x\n4:memory,hugetlb:/pod\n")
    directory = tmp_path / "sys/fs/cgroup/memory/pod"
    _write(directory / "memory.limit_in_bytes", "3000000\n")
    _write(directory / "memory.usage_in_bytes", "1000000\n")
    assert available_memory(tmp_path) == 2_000_000


def test_unknown_memory_has_a_default_limit(tmp_path: Path) -> None:
    assert available_memory(tmp_path) > 0
    assert available_memory() > 0


@pytest.mark.parametrize(
    "text", ["[" + "[]," * 50_000 + "0]", '{"items":[' + "{}," * 50_000 + "0]}", "[" + "0," * 99_999 + "0]"]
)
def test_json_of_brackets_is_refused(text: str) -> None:
    bounds = Bounds(memory=4 * MIB)
    for form in (text, text.encode()):
        with pytest.raises(
            InputError, match=r"f: would need about [0-9.]+ MiB of memory; the limit is 4 MiB"
        ):
            list(parse_objects(form, "f", bounds=bounds))


def test_a_small_file_of_brackets_is_refused_with_any_memory() -> None:
    text = b"[" + b"{}," * 2_000_000 + b"0]"
    with pytest.raises(InputError, match=r"f: would need about 576 MiB .* for a text of 5\.7 MiB; split it"):
        check_density(text, "f", default_bounds({}, 64 << 30))
    check_density(text, "f", default_bounds({"PLIMSOLL_MAX_INPUT": "1Gi"}, 64 << 30))


@pytest.mark.parametrize("indent", [None, 4])
def test_cluster_dumps_are_accepted(indent: int | None) -> None:
    """A dump as large as the limit for texts stays within the limit for objects, however it is written."""
    text = json.dumps(
        {"kind": "List", "items": big_cluster(5)}, indent=indent, separators=None if indent else (",", ":")
    )
    bounds = default_bounds({"PLIMSOLL_MAX_INPUT": str(len(text))})
    check_density(text, "f", bounds)


def test_human_readable_sizes() -> None:
    assert [show_size(size) for size in (5, 2048, 512 * MIB, 3 << 29)] == [
        "5 B",
        "2 KiB",
        "512 MiB",
        "1.5 GiB",
    ]
