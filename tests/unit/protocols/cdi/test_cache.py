"""CDI directories: precedence, conflicts, changes, and hostile files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.protocols.cdi import (
    CdiCache,
    CdiFault,
    CdiSpec,
    CdiSpecDevice,
    Edits,
    Mount,
    remove_spec,
    spec_name,
    write_spec,
)
from plimsoll.protocols.cdi.cache import combine
from plimsoll.protocols.cdi.reading import MAX_SIZE, read_spec


def a_spec(*names: str, value: str = "1", kind: str = "v.com/c", common: str = "") -> CdiSpec:
    return CdiSpec(
        version="0.8.0",
        kind=kind,
        devices=tuple(
            CdiSpecDevice(name=name, edits=Edits(env=(f"{name.upper()}={value}",))) for name in names
        ),
        edits=Edits(env=(common,)) if common else Edits(),
    )


def write(directory: Path, name: str, spec: CdiSpec) -> Path:
    path = write_spec(directory, name, spec)
    assert isinstance(path, Path)
    return path


@pytest.fixture
def two(tmp_path: Path) -> tuple[Path, Path]:
    low, high = tmp_path / "etc", tmp_path / "run"
    low.mkdir()
    high.mkdir()
    return low, high


def test_edits_of_a_file_come_once_and_first(two: tuple[Path, Path]) -> None:
    low, high = two
    write(low, "a", a_spec("x", "y", common="FILE=a"))
    write(high, "b", a_spec("z", kind="v.com/d", common="FILE=b"))
    directories = CdiCache([low, high])
    edits = directories.edits(["v.com/c=y", "v.com/d=z", "v.com/c=x", "v.com/c=y"])
    assert isinstance(edits, Edits)
    assert edits.env == ("FILE=a", "Y=1", "FILE=b", "Z=1", "X=1")
    assert edits.variables == {"FILE": "b", "Y": "1", "Z": "1", "X": "1"}


def test_later_directory_wins(two: tuple[Path, Path]) -> None:
    low, high = two
    write(low, "a", a_spec("x", "only", value="low"))
    write(high, "a", a_spec("x", value="high"))
    directories = CdiCache([low, high])
    assert directories.edits(["v.com/c=x"]) == Edits(env=("X=high",))
    assert directories.edits(["v.com/c=only"]) == Edits(env=("ONLY=low",))
    assert directories.faults() == ()


def test_a_conflict_in_a_directory_drops_both_and_is_reported(two: tuple[Path, Path]) -> None:
    low, high = two
    first, second = write(high, "a", a_spec("x", "other")), write(high, "b.yaml", a_spec("x"))
    directories = CdiCache([low, high])
    faults = directories.edits(["v.com/c=x"])
    assert isinstance(faults, tuple)
    assert faults[0].code == "conflict"
    assert str(first) in faults[0].message
    assert str(second) in faults[0].message
    assert isinstance(directories.edits(["v.com/c=other"]), Edits)
    second.unlink()
    assert isinstance(directories.edits(["v.com/c=x"]), Edits)


def naive_devices(directories: list[list[tuple[str, list[str]]]]) -> dict[str, str]:
    """Return device -> file, resolving each device separately."""
    names = {device for files in directories for _, devices in files for device in devices}
    result = {}
    for name in names:
        places = [[path for path, devices in files if name in devices] for files in directories]
        if all(len(files) < 2 for files in places):
            result[name] = [files for files in places if files][-1][0]
    return result


@given(
    st.lists(
        st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True), max_size=3),
        max_size=3,
    )
)
def test_precedence_agrees_with_the_reference(content: list[list[list[str]]]) -> None:
    directories = [
        [(f"/{i}/{j}.json", devices) for j, devices in enumerate(files)] for i, files in enumerate(content)
    ]
    catalogue = combine(
        [[(Path(path), a_spec(*devices)) for path, devices in files] for files in directories]
    )
    found = {name.partition("=")[2]: str(device.path) for name, device in catalogue.devices.items()}
    assert found == naive_devices(directories)


def test_changes_are_seen(tmp_path: Path) -> None:
    directories = CdiCache([tmp_path / "not-yet"])
    assert isinstance(directories.edits(["v.com/c=x"]), tuple)
    path = write(tmp_path / "not-yet", "a", a_spec("x", value="1"))
    assert directories.edits(["v.com/c=x"]) == Edits(env=("X=1",))
    write(tmp_path / "not-yet", "a", a_spec("x", value="2"))
    assert directories.edits(["v.com/c=x"]) == Edits(env=("X=2",))
    text = path.read_text()
    for digit in "3456789":  # in place, same size, within one tick of the clock
        path.write_text(text.replace("X=2", f"X={digit}"))
        assert directories.edits(["v.com/c=x"]) == Edits(env=(f"X={digit}",))
    path.unlink()
    faults = directories.edits(["v.com/c=x"])
    assert isinstance(faults, tuple)
    assert faults[0].message == "no CDI file is of kind v.com/c"


def test_an_unchanged_file_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, "a", a_spec("x"))
    old = time.time() - 1000
    os.utime(path, (old, old))
    reads: list[Path] = []

    def counting(path: Path) -> CdiSpec | CdiFault:
        reads.append(path)
        return read_spec(path)

    monkeypatch.setattr("plimsoll.protocols.cdi.cache.read_spec", counting)
    monkeypatch.setattr("plimsoll.protocols.cdi.cache.UNSETTLED_NANOSECONDS", -1)
    directories = CdiCache([tmp_path])
    for _ in range(5):
        assert isinstance(directories.edits(["v.com/c=x"]), Edits)
    assert reads == [path]


def test_unknown_device_names(tmp_path: Path) -> None:
    write(tmp_path, "a", a_spec("x"))
    faults = CdiCache([tmp_path]).edits(["v.com/c=y", "v.com/c=x", "w.com/c=x", "what"])
    assert isinstance(faults, tuple)
    assert [fault.where for fault in faults] == ["v.com/c=y", "w.com/c=x", "what"]
    assert [fault.message for fault in faults] == [
        "no CDI file defines it",
        "no CDI file is of kind w.com/c",
        "not a qualified CDI device name: write vendor/class=device",
    ]


def test_no_names_resolve_to_no_edits(tmp_path: Path) -> None:
    assert CdiCache([tmp_path]).edits([]) == Edits()


def deep_yaml() -> bytes:
    return b"[" * 100_000


HOSTILE = {
    "binary.json": b"\x00\xff\xfe" * 100,
    "binary.yaml": b"\x00\x01\x02" * 100,
    "empty.json": b"",
    "empty.yaml": b"",
    "deep.json": b"[" * 1_000_000,
    "deep.yaml": deep_yaml(),
    "deepmap.yaml": b"{a: " * 50_000,
    "flow.yaml": b"- " * 20_000,
    "twice.json": b'{"kind": "a/b", "kind": "a/c"}',
    "twice.yaml": b"kind: a/b\nkind: a/c\n",
    "bomb.yaml": b"a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
    "key.yaml": b"? [a]\n: b\n",
    "tag.yaml": b"!!python/object/apply:os.system ['true']\n",
    "many.yaml": b"a: 1\n---\nb: 2\n",
    "number.json": b"1" * 100_000,
    "nan.json": b'{"cdiVersion": NaN}',
    "list.json": b"[]",
    "text.json": b'"kind"',
    "surrogate.json": b'{"cdiVersion": "0.3.0", "kind": "\\ud800/b", "devices": []}',
    "date.yaml": b"cdiVersion: 2001-01-01\nkind: a/b\n",
}


def test_hostile_files_are_reported_and_others_still_work(tmp_path: Path) -> None:
    for name, data in HOSTILE.items():
        (tmp_path / name).write_bytes(data)
    with open(tmp_path / "huge.json", "wb") as file:
        file.truncate(MAX_SIZE + 1)
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    (tmp_path / "nowhere.json").symlink_to(tmp_path / "absent")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "directory.json").mkdir()
    (tmp_path / "notes.txt").write_text("{")
    write(tmp_path, "good", a_spec("x"))
    (tmp_path / "link.yaml").symlink_to(write(tmp_path, "good2", a_spec("y", kind="w/c")).name)
    (tmp_path / "good2.json").rename(tmp_path / "elsewhere")
    (tmp_path / "link.yaml").unlink()
    (tmp_path / "link.json").symlink_to(tmp_path / "elsewhere")
    directories = CdiCache([tmp_path])
    started = time.monotonic()
    assert directories.edits(["v.com/c=x"]) == Edits(env=("X=1",))
    assert directories.edits(["w/c=y"]) == Edits(env=("Y=1",))
    faults = directories.faults()
    assert time.monotonic() - started < 60
    bad = {*HOSTILE, "huge.json", "loop.json", "nowhere.json", "zero.json", "pipe.json"}
    assert {Path(fault.where).name for fault in faults} == bad
    assert all(len(fault.message) < 2500 for fault in faults)


def test_a_path_that_is_not_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    directories = CdiCache([tmp_path / "file", tmp_path])
    write(tmp_path, "a", a_spec("x"))
    assert isinstance(directories.edits(["v.com/c=x"]), Edits)
    assert [fault.code for fault in directories.faults()] == ["unreadable"]


def test_yaml_files_are_read(tmp_path: Path) -> None:
    mount = Mount(host_path="/a", container_path="/b", options=("ro", "bind"))
    spec = CdiSpec(
        version="0.5.0",
        kind="a/b",
        devices=(CdiSpecDevice(name="0", edits=Edits(env=("A=1: 2", "B=yes"), mounts=(mount,))),),
    )
    assert read_spec(write(tmp_path, "x.yaml", spec)) == read_spec(write(tmp_path, "x.json", spec)) == spec


def test_writes_are_atomic(tmp_path: Path) -> None:
    name = spec_name("v.com", "c", "ns/claim")
    assert name == "v.com-c_ns_claim"
    assert spec_name("v.com", "c") == "v.com-c"
    path = write(tmp_path, name, a_spec("x"))
    assert path == tmp_path / "v.com-c_ns_claim.json"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    refused = write_spec(tmp_path, name, a_spec())
    assert isinstance(refused, CdiFault)
    assert refused.code == "invalid"
    assert isinstance(read_spec(path), CdiSpec)
    assert remove_spec(tmp_path, name) is None
    assert remove_spec(tmp_path, name) is None
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_crash_are_removed_with_the_file(tmp_path: Path) -> None:
    for tidy in (lambda: write(tmp_path, "a.json", a_spec("x")), lambda: remove_spec(tmp_path, "a.json")):
        (tmp_path / ".a.json.tmp").write_text("half of")
        assert CdiCache([tmp_path]).faults() == ()
        tidy()
        assert not (tmp_path / ".a.json.tmp").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "a\0b", "/etc/x"])
def test_file_names_cannot_leave_the_directory(tmp_path: Path, name: str) -> None:
    assert isinstance(write_spec(tmp_path, name, a_spec("x")), CdiFault)
    assert isinstance(remove_spec(tmp_path, name), CdiFault)


def test_an_unwritable_directory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    fault = write_spec(tmp_path / "file", "a", a_spec("x"))
    assert isinstance(fault, CdiFault)
    assert fault.code == "unwritable"
