"""CDI files of claims: equal to the Go driver's, and tolerant reading."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.drivers.cpu.state.cdi import (
    CpuClaimCdiFile,
    file_name,
    has_unknown_claims,
    make_spec,
    read_file,
    read_files,
    remove_file,
    validate_uid,
    write_file,
)
from plimsoll.drivers.cpu.state.claim_allocation import ClaimAllocation, CpuAssignment
from plimsoll.protocols.cdi import CdiCache, Edits
from plimsoll.protocols.dra import ClaimRef
from tests.sizes import examples
from tests.unit.drivers.cpu.state.fixtures import NODE, uid_of

UID = uid_of(7)
SHELL = f"DRA_CLAIM_CPUSET_{UID.replace('-', '_')}"


def make_holding(
    *cpus: str, per_request: bool = False, requests: tuple[str, ...] = ("a", "b/big")
) -> ClaimAllocation:
    assignments = tuple(
        CpuAssignment(request, NODE, "cpudevnuma000", CpuSet.parse(text))
        for request, text in zip(requests, cpus, strict=False)
    )
    return ClaimAllocation(ClaimRef("default", "c", UID), assignments, per_request=per_request)


def test_the_cdi_file_equals_the_go_drivers_with_one_more_variable(tmp_path: Path) -> None:
    assert write_file(tmp_path, make_holding("2-3", "10-11")) is None
    path = tmp_path / f"dra.k8s.io-cpu_claim-{UID}.json"
    assert [path] == list(tmp_path.iterdir())
    assert json.loads(path.read_text()) == {
        "cdiVersion": "0.8.0",
        "kind": "dra.k8s.io/cpu",
        "devices": [
            {
                "name": f"claim-{UID}",
                "containerEdits": {"env": [f"DRA_CPUSET_{UID}=2-3,10-11", f"{SHELL}=2-3,10-11"]},
            },
        ],
    }


def test_a_cdi_file_survives_a_round_trip(tmp_path: Path) -> None:
    allocation = make_holding("2-3", "10-11", per_request=True)
    assert write_file(tmp_path, allocation) is None
    found, faults = read_files(tmp_path)
    assert not faults
    assert found[UID].fault == ""
    assert found[UID].cpus == allocation.assigned
    assert found[UID].requests == {"a": CpuSet([2, 3]), "b": CpuSet([10, 11])}
    assert remove_file(tmp_path, UID) is None
    assert remove_file(tmp_path, UID) is None
    assert read_files(tmp_path) == ({}, ())


def test_separate_requests_have_separate_devices(tmp_path: Path) -> None:
    assert write_file(tmp_path, make_holding("2-3", "10-11", per_request=True)) is None
    directories = CdiCache([tmp_path])
    one = directories.edits([f"dra.k8s.io/cpu=claim-{UID}_b"])
    assert isinstance(one, Edits)
    assert one.variables == {
        f"DRA_CPUSET_{UID}": "2-3,10-11",  # what the Go driver would believe
        SHELL: "2-3,10-11",
        f"DRA_REQUEST_CPUSET_{UID}_b": "10-11",
    }
    whole = directories.edits([f"dra.k8s.io/cpu=claim-{UID}"])
    assert isinstance(whole, Edits)
    assert whole.variables == {f"DRA_CPUSET_{UID}": "2-3,10-11", SHELL: "2-3,10-11"}


def test_shared_cpus_are_included(tmp_path: Path) -> None:
    assert write_file(tmp_path, make_holding("2-3"), CpuSet([0, 1])) is None
    edits = CdiCache([tmp_path]).edits([f"dra.k8s.io/cpu=claim-{UID}"])
    assert isinstance(edits, Edits)
    assert edits.variables == {f"DRA_CPUSET_{UID}": "2-3", SHELL: "2-3", "DRA_SHARED_CPUSET": "0-1"}
    assert read_file(tmp_path, UID).cpus == CpuSet([2, 3])


def test_the_cpus_are_in_a_variable_for_shells(tmp_path: Path) -> None:
    assert write_file(tmp_path, make_holding("2-3")) is None
    edits = CdiCache([tmp_path]).edits([f"dra.k8s.io/cpu=claim-{UID}"])
    assert isinstance(edits, Edits)
    shown = subprocess.run(
        ["sh", "-c", f'echo "${SHELL}"'], env=edits.variables, capture_output=True, text=True, check=True
    )
    assert shown.stdout == "2-3\n"


def test_requests_without_cpus_have_no_device() -> None:
    spec = make_spec(make_holding("2-3", "", per_request=True))
    assert [device.name for device in spec.devices] == [f"claim-{UID}", f"claim-{UID}_a"]


@pytest.mark.parametrize("uid", ["", "a/b", "../x", "a\n", "x" * 300, "ü", "a=b", "-"])
def test_invalid_uids_are_refused(uid: str) -> None:
    assert validate_uid(uid)


def tree_of(*env: str, name: str = f"claim-{UID}", kind: str = "dra.k8s.io/cpu") -> str:
    device = {"name": name, "containerEdits": {"env": list(env)}}
    return json.dumps({"cdiVersion": "0.8.0", "kind": kind, "devices": [device]})


@pytest.mark.parametrize(
    ("content", "cpus", "fault"),
    [
        ("", "", "failed to parse"),
        ("[]", "", "failed to parse"),
        ("{", "", "failed to parse"),
        (tree_of("A=1"), "", "has no DRA_CPUSET_"),
        (tree_of(f"DRA_CPUSET_{UID}="), "", "names no CPU"),
        (tree_of(f"DRA_CPUSET_{UID}=1-x"), "", "not a set of CPUs"),
        (tree_of(f"DRA_CPUSET_{UID}=0-99999999999"), "", "not a set of CPUs"),
        (tree_of(f"DRA_CPUSET_{UID}=1", f"DRA_CPUSET_{UID}=2"), "1-2", "contains 1 and 2"),
        (tree_of(f"DRA_CPUSET_{UID}=1", "DRA_CPUSET_other=2"), "1-2", "another claim: other"),
        (tree_of(f"DRA_CPUSET_{UID}=1", name="claim-x"), "1", f"no device claim-{UID}"),
        (tree_of(f"DRA_CPUSET_{UID}=1", kind="dra.k8s.io/gpu"), "", "of kind dra.k8s.io/gpu"),
    ],
)
def test_files_that_cannot_be_trusted(tmp_path: Path, content: str, cpus: str, fault: str) -> None:
    (tmp_path / file_name(UID)).write_text(content)
    found = read_file(tmp_path, UID)
    assert fault in found.fault
    assert str(found.cpus) == cpus


def test_hostile_names(tmp_path: Path) -> None:
    prefix = b"dra.k8s.io-cpu_claim-"
    for name in (prefix + b".json", prefix + b"\xff\xfe.json", prefix + b"a\nb.json", prefix + b"-.json"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_text("{}")
    (tmp_path / f"dra.k8s.io-cpu_claim-{UID}.json").mkdir()
    (tmp_path / "dra.k8s.io-cpu_claim-pipe.json").symlink_to(tmp_path / "nowhere")
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / f"dra.k8s.io-cpu_claim-{UID}.json.tmp").write_text("{}")
    files, faults = read_files(tmp_path)
    assert len(faults) == 4
    assert set(files) == {UID, "pipe"}
    for fault in faults:
        str(fault).encode()  # can be written to a log
    assert all(file.fault and not file.cpus for file in files.values())


def test_a_missing_directory_has_no_files(tmp_path: Path) -> None:
    assert read_files(tmp_path / "missing") == ({}, ())
    (tmp_path / "file").write_text("")
    files, faults = read_files(tmp_path / "file")
    assert not files
    assert len(faults) == 1
    assert write_file(tmp_path / "file", make_holding("1")) is not None


@given(st.binary(max_size=300))
@hypothesis_settings(max_examples=examples(100), deadline=None)
def test_any_content_is_read(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    directory = tmp_path_factory.mktemp("cdi")
    (directory / file_name(UID)).write_bytes(content)
    found = read_file(directory, UID)
    assert isinstance(found, CpuClaimCdiFile)
    assert found.fault or found.cpus != EMPTY


@given(st.sets(st.integers(0, 4)), st.sets(st.integers(0, 4)), st.booleans())
@hypothesis_settings(max_examples=examples(30), deadline=None)
def test_files_of_unknown_claims_are_noticed(there: set[int], known: set[int], others: bool) -> None:
    uids = {uid_of(number) for number in known}
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        for number in there:
            ref = ClaimRef("default", "c", uid_of(number))
            write_file(directory, ClaimAllocation(ref, make_holding(str(number)).assignments))
        for name in ("dra.cpu_metadata_1.json", "dra.k8s.io-cpu_claim-x.tmp", "dra.k8s.io-cpu_claim-.json"):
            if others:
                (directory / name).write_text("{}")
        files, _ = read_files(directory)
        unknown = [file for uid, file in files.items() if uid not in uids and file.cpus]
        assert has_unknown_claims(directory, uids) == bool(unknown)
