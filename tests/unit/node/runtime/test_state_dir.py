"""State directory of the runtime, command lines and CPU lists."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.common.checkpoint import NodeFinding
from plimsoll.errors import StoreError
from plimsoll.ledger.containers import ContainerRole
from plimsoll.node.containers import ContainerPhase, ContainerSpec, RuntimeFault
from plimsoll.node.resources import LinuxResources
from plimsoll.node.runtime.commands import Command, command_of, cpus_in, image_names, stop_signal
from plimsoll.node.runtime.state_dir import (
    ContainerRecord,
    ExitRecord,
    LaunchParameters,
    PodRecord,
    RunRecord,
    container_info,
    load,
    remove_tree,
    save,
)
from tests.directories import short_directory
from tests.sizes import examples

from .runtime_harness import a_container, a_plan, a_pod

_texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_maybe = st.none() | st.integers(0, 2**40)
_resources = st.builds(
    LinuxResources,
    cpu_shares=_maybe,
    cpu_quota=st.none() | st.integers(-1, 10**6),
    cpus=st.sampled_from(["", "0", "0-3,5"]),
    memory_limit=_maybe,
    huge_pages=st.dictionaries(st.sampled_from(["2MB", "1GB"]), st.integers(0, 2**40)),
    unified=st.dictionaries(_texts, _texts, max_size=2),
    pids=_maybe,
)
_specs = st.builds(
    ContainerSpec,
    id=_texts,
    pod=_texts,
    name=_texts,
    attempt=st.integers(0, 9),
    image=_texts,
    command=st.lists(_texts, max_size=3).map(tuple),
    env=st.dictionaries(_texts, _texts, max_size=3),
    cdi=st.lists(_texts, max_size=2).map(tuple),
    plan=st.builds(a_plan, _texts, st.sampled_from(ContainerRole), memory_limit=st.integers(0, 2**40)),
)
_records = st.builds(
    ContainerRecord,
    spec=_specs,
    resources=_resources,
    launch=st.builds(
        LaunchParameters,
        oom_score_adj=st.none() | st.integers(-1000, 1000),
        gids=st.lists(st.integers(0, 2**32 - 1), max_size=2).map(tuple),
        mounts=st.just(({"source": "/a", "target": "/b", "type": "", "options": ["ro"]},)) | st.just(()),
        devices=st.just(({"path": "/dev/a", "host_path": ""},)) | st.just(()),
        pause=st.booleans(),
    ),
    created_at=st.floats(0, 2e9),
    started=st.booleans(),
    notes=st.lists(_texts, max_size=2).map(tuple),
)


@settings(max_examples=examples(50))
@given(_records)
def test_container_records_survive_a_round_trip(record: ContainerRecord) -> None:
    with short_directory() as directory:
        save(directory / "state.json", record)
        assert load(directory / "state.json", ContainerRecord) == record
        assert (directory / "state.json").stat().st_mode & 0o777 == 0o600
        assert [path.name for path in directory.iterdir()] == ["state.json"]


def test_pod_records_survive_a_round_trip(tmp_path: Path) -> None:
    pod = a_pod(labels={"a": "b"}, annotations={"c": "d"})
    record = PodRecord(spec=pod, running=True, created_at=1.5, ip="10.0.0.1")
    save(tmp_path / "sandbox.json", record)
    assert load(tmp_path / "sandbox.json", PodRecord) == record
    assert (record.state.uid, record.state.ip, record.state.running) == (pod.uid, "10.0.0.1", True)


@given(st.binary(max_size=60) | st.sampled_from([b"", b"{}", b"null", b"[" * 10_000, b'{"pid": "x"}']))
def test_any_file_content_is_read_or_refused(data: bytes) -> None:
    with short_directory() as directory:
        (directory / "file").write_bytes(data)
        for kind in (ContainerRecord, PodRecord, RunRecord, ExitRecord):
            found = load(directory / "file", kind)
            assert isinstance(found, (NodeFinding, kind))


def test_malformed_files_are_refused(tmp_path: Path) -> None:
    assert load(tmp_path / "absent", ExitRecord) is None
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "pipe")
    for name in ("directory", "link", "pipe"):
        assert isinstance(load(tmp_path / name, ExitRecord), NodeFinding)
    with pytest.raises(StoreError, match="cannot write"):
        save(tmp_path / "absent" / "file", {})
    with pytest.raises(StoreError, match="cannot write"):
        save(tmp_path / "file", {"a": "\ud800"})


_runs = st.none() | st.builds(
    RunRecord,
    pid=st.just(7),
    pid_start=st.just(1),
    shim=st.just(6),
    shim_start=st.just(1),
    boot_id=st.just("b"),
    started_at=st.just(5.0),
    notes=st.sampled_from([(), ("note",)]),
)
_exits = st.none() | st.builds(
    ExitRecord,
    exit_code=st.integers(0, 255),
    finished_at=st.just(9.0),
    oom=st.booleans(),
    error=st.sampled_from(["", "no such command"]),
    lost=st.sampled_from(["", "unknown"]),
)


@given(_runs, _exits)
def test_states(run: RunRecord | None, exit: ExitRecord | None) -> None:
    record = ContainerRecord(
        spec=a_container("true"), resources=LinuxResources(), launch=LaunchParameters(), created_at=1.0
    )
    state = container_info(record, run, exit, Path("/f"))
    if exit is not None:
        assert (state.phase, state.finished_at, state.exit_code) == (
            ContainerPhase.EXITED,
            9.0,
            exit.exit_code,
        )
        expected = (
            "ContainerStatusUnknown" if exit.lost
            else "StartError" if exit.error
            else "OOMKilled" if exit.oom
            else "Error" if exit.exit_code
            else "Completed"
        )  # fmt: skip
        assert state.reason == expected
    else:
        assert state.phase is (ContainerPhase.CREATED if run is None else ContainerPhase.RUNNING)
        assert state.reason == ""
    assert (state.pid != 0) == (state.phase is ContainerPhase.RUNNING)
    assert state.log == "/f/log"


def test_directories_are_removed_with_any_content(tmp_path: Path) -> None:
    top = tmp_path / "top"
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_text("")
    top.mkdir()
    (top / "link").symlink_to(outside)
    (top / ".gone-1").mkdir()
    (top / ".gone-1" / "x").write_text("")
    os.mkfifo(top / "pipe")
    directory = os.open(top, os.O_RDONLY)
    for _ in range(3000):  # far deeper than any path may be long
        os.mkdir("deep", dir_fd=directory)
        inner = os.open("deep", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = inner
    os.symlink(outside, "out", dir_fd=directory)
    os.close(directory)
    assert remove_tree(top) == ""
    assert not top.exists()
    assert (outside / "keep").exists()
    assert remove_tree(top) == ""
    assert "Not a directory" in remove_tree(outside / "keep")


@pytest.mark.parametrize(
    ("image", "names"),
    [
        ("nginx", ("nginx", "nginx", "nginx")),
        ("r:5000/a/b:v1@sha256:0", ("r:5000/a/b:v1@sha256:0", "r:5000/a/b", "b")),
        ("r:5000/b", ("r:5000/b", "r:5000/b", "b")),
        ("", ("", "", "")),
    ],
)
def test_names_of_images(image: str, names: tuple[str, str, str]) -> None:
    assert image_names(image) == names


def test_commands() -> None:
    images = {"r/web:v1": ["full"], "r/web": ["bare"], "web": ["last"], "empty": []}

    def of(image: str, *command: str) -> Command | RuntimeFault:
        return command_of(a_container(*command, image=image), images)

    assert of("r/web:v1", "own", "words") == Command(("own", "words"))
    assert of("r/web:v1") == Command(("full",))
    assert of("r/web:v2") == Command(("bare",))
    assert of("s/web:v2") == Command(("last",))
    assert of("registry.example/pause:3.10") == Command(pause=True)
    assert of("pause") == Command(pause=True)
    for image in ("", "empty", "r/other", "pause/other", "a/pause/"):
        assert isinstance(of(image), RuntimeFault)


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("", 15),
        ("SIGTERM", 15),
        ("SIGUSR1", 10),
        ("usr1", 10),
        ("9", 9),
        ("0", 15),
        ("9999999", 15),
        ("SIGNONE", 15),
        ("SIGRTMIN+3", 37),
        ("SIGRTMAX-1", 63),
        ("SIGRTMAX+9", 15),
    ],
)
def test_stop_signals(name: str, number: int) -> None:
    assert stop_signal(name) == number


@given(st.text(max_size=12))
def test_any_stop_signal_text_has_a_signal(name: str) -> None:
    assert 0 < stop_signal(name) < 65


def naive_cpus(text: str) -> set[int] | None:
    result: set[int] = set()
    for piece in text.split(","):
        ends = piece.split("-")
        if len(ends) > 2 or not all(end and all(c in "0123456789" for c in end) for end in ends):
            return None
        if int(ends[0]) > int(ends[-1]):
            return None
        for cpu in range(int(ends[0]), int(ends[-1]) + 1):
            result.add(cpu)
    return result


@given(
    st.text(alphabet="0123-,x", max_size=9).filter(lambda text: not any(len(p) > 3 for p in text.split("-")))
)
def test_lists_of_cpus(text: str) -> None:
    assert cpus_in(text) == naive_cpus(text)


@pytest.mark.parametrize("text", ["", "0-70000", "99999999", "1-", "-1", "a", "٣"])
def test_malformed_cpu_lists_are_refused(text: str) -> None:
    assert cpus_in(text) is None
