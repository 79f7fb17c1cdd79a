"""Faults of folders, records, sockets, CDI files and cgroups: found where they are, and only there."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.common.checkpoint import render
from plimsoll.common.lock_file import RootLock
from plimsoll.errors import ConfigError
from plimsoll.node.cgroups.ownership import RootMark, owner_of, read_directory
from plimsoll.node.claims import kubelet_checkpoint as kubelet_file
from plimsoll.tools.doctor.findings import Level
from plimsoll.tools.doctor.repair_executor import RepairResult
from plimsoll.tools.doctor.repairs import RemoveCgroupRoot

from .ward import CLAIM, DRIVER, GONE, NODE, POD, Ward, a_claim, a_ward, bad, mended, of


@pytest.fixture
def ward() -> Iterator[Ward]:
    with a_ward() as found:
        yield found.furnish()


def test_a_node_in_order_is_clean_and_stays_as_it_is(ward: Ward) -> None:
    before = ward.snapshot()
    report = ward.examine()
    assert bad(report) == []
    assert report.exit_code == 0
    assert report.repairs == ()
    assert (report.owner, report.running) == ("agent", False)
    assert ward.examine(repair=True).outcomes == ()
    assert ward.snapshot() == before
    assert of(report, "records.claims")[0].evidence.startswith("version 1, checksum valid, 1 prepared claims")
    assert of(report, "records.admitted")[0].level is Level.OK
    assert of(report, "cdi.missing")[0].evidence == "all of their 1 CDI devices are defined"


def test_a_node_that_is_not_there_yet(ward: Ward) -> None:
    report = ward.examine(root=ward.folder / "new")
    assert of(report, "root.folder")[0].level is Level.INFO
    assert bad(report) == []
    assert not (ward.folder / "new").exists()


def put_odd(ward: Ward, path: Path, kind: str) -> None:
    """Something that is no file."""
    if kind == "link":
        path.symlink_to("/etc/shadow")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        ward.put_socket(path)


# -- the root folder


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_root_that_is_no_folder(ward: Ward, kind: str) -> None:
    path = ward.folder / "other"
    path.write_bytes(b"") if kind == "file" else path.symlink_to(ward.layout.root)
    (found, *_) = of(ward.examine(root=path), "root.folder")
    assert (found.level, found.evidence) == (Level.ERROR, f"it is a {kind}, not a directory")


def test_a_root_that_others_can_write(ward: Ward) -> None:
    ward.layout.root.chmod(0o777)
    found = mended(ward, "root.mode", Level.ERROR)
    assert found.evidence == "its mode is 0777"
    assert ward.layout.root.stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_a_root_of_somebody_else(ward: Ward) -> None:
    os.chown(ward.layout.root, 12345, 12345)
    (found,) = of(ward.examine(), "root.owner")
    assert (found.level, found.evidence) == (Level.ERROR, "it belongs to user 12345")


@pytest.mark.parametrize(("length", "level"), [(40, Level.OK), (60, Level.WARNING), (100, Level.ERROR)])
def test_paths_of_sockets_have_to_be_short(ward: Ward, length: int, level: Level) -> None:
    root = ward.folder / ("x" * (length - len(str(ward.folder)) - 1))
    assert of(ward.examine(root=root), "root.path")[0].level is level


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_what_is_in_the_place_of_the_lock(ward: Ward, kind: str) -> None:
    put_odd(ward, ward.layout.lock, kind)
    found = mended(ward, "root.lock", Level.ERROR)
    assert found.evidence == f"it is a {kind}, not a file"
    assert len(list(ward.layout.quarantine.iterdir())) == 1


def test_locks_that_are_left_and_locks_that_are_held(ward: Ward) -> None:
    ward.put(ward.layout.lock, b"999999999\n")
    (found,) = of(ward.examine(), "root.agent")
    assert found.evidence == "no agent running; the last one was process 999999999, it has exited"
    ward.put(ward.layout.lock, b"1\n")
    assert "its PID is now used by another process" in of(ward.examine(), "root.agent")[0].evidence
    ward.put(ward.layout.lock, b"\xff\n not a pid")
    assert of(ward.examine(), "root.agent")[0].evidence == "no agent running"
    lock = RootLock(ward.layout.lock)
    lock.take()
    try:
        report = ward.examine()
        assert report.running
        assert of(report, "root.agent")[0].evidence == f"agent running: process {os.getpid()}"
    finally:
        lock.release()
    assert not ward.examine().running


def test_roots_of_many_agents(ward: Ward) -> None:
    above = ward.folder / "many"
    for name in ("a", "b"):
        ward.put(above / name / "lock", b"1")
    (found,) = of(ward.examine(root=above), "root.agents")
    assert found.evidence == "2 agent directories below it: a, b"


# -- sockets


@pytest.mark.parametrize("name", ["pod_resources", "nri"])
def test_sockets_that_were_left_behind(ward: Ward, name: str) -> None:
    ward.put_socket(getattr(ward.layout, name))
    found = mended(ward, "sockets.stale", Level.WARNING)
    assert found.evidence == "stale: not served for 60m"
    assert not getattr(ward.layout, name).exists()


def test_what_is_in_the_place_of_a_socket(ward: Ward) -> None:
    ward.put(ward.layout.pod_resources, b"hello")
    mended(ward, "sockets.pod-resources", Level.ERROR)
    (kept,) = ward.layout.quarantine.iterdir()
    assert kept.read_bytes() == b"hello"


def test_a_socket_that_somebody_serves_is_left_alone(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plimsoll.tools.doctor.sockets._LIST_SECONDS", 0.2)
    path = ward.layout.pod_resources
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        report = ward.examine(repair=True)
        assert ("sockets.pod-resources", "warning") in bad(report)
        assert report.outcomes == ()
        assert path.exists()


@pytest.mark.parametrize("place", ["plugins_registry/x-reg.sock", "plugins/x/dra.sock"])
def test_sockets_of_drivers_that_are_gone(ward: Ward, place: str) -> None:
    path = ward.put_socket(ward.layout.root / place)
    level = Level.WARNING if "registry" in place else Level.INFO
    mended(ward, "sockets.stale", level)
    assert not path.exists()


def test_a_socket_that_was_just_made_may_be_about_to_be_served(ward: Ward) -> None:
    path = ward.put_socket(ward.layout.registry / "x-reg.sock")
    os.utime(path)
    report = ward.examine(repair=True)
    assert of(report, "sockets.stale")[0].level is Level.INFO
    assert path.exists()


def test_a_registration_folder_that_others_can_write(ward: Ward) -> None:
    ward.layout.registry.mkdir()
    ward.layout.registry.chmod(0o777)
    mended(ward, "sockets.registry", Level.ERROR)


# -- records


@pytest.mark.parametrize("name", ["claims", "admitted"])
@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 100, b"[1]", render("Other", 1, {}), b"[" * 100_000])
def test_damaged_records(ward: Ward, name: str, content: bytes) -> None:
    path: Path = getattr(ward.layout, name)
    ward.put(path, content)
    if name == "admitted":
        ward.put_claims()
        (ward.cdi / f"example.com-gpu_{CLAIM}.json").unlink()
    else:
        (ward.cdi / f"example.com-gpu_{CLAIM}.json").unlink()
    found = mended(ward, f"records.{name}", Level.ERROR)
    assert found.evidence.startswith("not usable: ")
    (kept,) = ward.layout.quarantine.iterdir()
    assert kept.read_bytes() == content


def test_a_checksum_that_does_not_match(ward: Ward) -> None:
    path = ward.layout.claims
    path.write_bytes(path.read_bytes().replace(b'"ready": true', b'"ready": false'))
    (found,) = of(ward.examine(), "records.claims")
    assert found.evidence == "not usable: its checksum does not match"


def test_a_record_of_a_newer_program_is_not_put_aside(ward: Ward) -> None:
    ward.put(ward.layout.claims, render("PreparedClaims", 7, {}))
    report = ward.examine(repair=True)
    (found,) = of(report, "records.claims")
    assert found.level is Level.ERROR
    assert "version 7" in found.evidence
    assert report.outcomes == ()
    assert ward.layout.claims.exists()


@pytest.mark.parametrize("kind", ["pipe", "link", "directory", "socket"])
def test_what_is_in_the_place_of_a_record(ward: Ward, kind: str) -> None:
    path = ward.layout.claims
    path.unlink()
    (ward.cdi / f"example.com-gpu_{CLAIM}.json").unlink()
    put_odd(ward, path, kind)
    mended(ward, "records.claims", Level.ERROR)


def test_records_are_for_their_owner_alone(ward: Ward) -> None:
    ward.layout.admitted.chmod(0o644)
    mended(ward, "records.admitted", Level.WARNING)


def test_claims_whose_pods_are_not_here(ward: Ward) -> None:
    ward.put_cdi(GONE)
    ward.put_claims(
        a_claim(), a_claim(GONE, GONE, name="old"), a_claim(POD, name="idle", pods=frozenset(), drivers={})
    )
    found = of(ward.examine(), "records.users")
    assert {(f.subject, f.level, f.evidence) for f in found} == {
        (f"default/old ({GONE})", Level.WARNING, f"none of its 1 pods exists here, such as {GONE}"),
        (f"default/idle ({POD})", Level.WARNING, "no pod uses it"),
    }


def test_claims_that_wait_for_a_driver(ward: Ward) -> None:
    ward.put_claims(a_claim(ready=False, pending=frozenset({DRIVER})))
    (found,) = of(ward.examine(), "records.driver")
    assert found.evidence == "is not registered; 1 claims use it, 1 are waiting for it"


# -- a kubelet's folder


def kubelets(ward: Ward, raw: bytes) -> Path:
    root = ward.folder / "kubelet"
    ward.put(root / "dra_manager_state", raw)
    (root / "pods" / POD).mkdir(parents=True)
    return root


def a_kubelets_claim(*pods: str) -> bytes:
    device = kubelet_file.KubeletDevice("pool", "gpu-0", None, ("gpu",), (f"example.com/gpu={CLAIM}-gpu-0",))
    claim = kubelet_file.KubeletClaim(CLAIM, "gpu", "default", frozenset(pods), {DRIVER: (device,)})
    return kubelet_file.encode([claim])


def test_a_kubelets_folder(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plimsoll.tools.doctor.root_dir.kubelet_pids", tuple)
    root = kubelets(ward, a_kubelets_claim(POD))
    report = ward.examine(root=root)
    assert (report.owner, report.running) == ("kubelet", False)
    assert bad(report) == []
    assert of(report, "records.kubelet")[0].evidence == "checksum valid, 1 prepared claims"
    assert of(report, "records.users")[0].level is Level.OK
    ward.put(root / "dra_manager_state", a_kubelets_claim(POD, GONE))
    (found,) = of(ward.examine(root=root), "records.users")
    assert found.evidence == f"1 of its 2 pods do not exist here, such as {GONE}"


def test_a_kubelets_damaged_record(ward: Ward, monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = [4711]
    monkeypatch.setattr("plimsoll.tools.doctor.root_dir.kubelet_pids", lambda: tuple(pids))
    root = kubelets(ward, a_kubelets_claim(POD)[:-2] + b"9}")
    before = ward.snapshot()
    report = ward.examine(root=root, repair=True)
    assert report.running
    (found,) = of(report, "records.kubelet")
    assert (found.level, found.evidence) == (Level.ERROR, "not usable: checkpoint is corrupted")
    assert [outcome.problem for outcome in report.outcomes] == [
        "not possible while the kubelet is running: stop it first"
    ]
    assert ward.snapshot() == before  # nothing of a kubelet that runs is changed
    pids.clear()
    report = ward.examine(root=root, repair=True)
    assert [outcome.problem for outcome in report.outcomes] == [""]
    assert not (root / "dra_manager_state").exists()
    assert not (root / "lock").exists()
    # What is left is a kubelet's still: its pods are not taken for leftovers of ours.
    report = ward.examine(root=root, repair=True)
    assert (report.owner, report.outcomes) == ("kubelet", ())
    assert (root / "pods" / POD).is_dir()


def test_an_agent_in_a_kubelets_old_folder(ward: Ward) -> None:
    ward.put(ward.layout.kubelet_claims, a_kubelets_claim(POD))
    report = ward.examine()
    assert report.owner == "agent"
    assert "not used" in of(report, "records.kubelet")[0].evidence


# -- CDI files


def test_cdi_files_of_claims_that_are_gone(ward: Ward) -> None:
    path = ward.put_cdi(GONE)
    found = mended(ward, "cdi.leftover", Level.WARNING)
    assert found.evidence.startswith(f"belongs to claim {GONE}, which is not prepared here")
    assert not path.exists()


def test_cdi_files_of_the_machine_are_only_reported(ward: Ward) -> None:
    path = ward.put_cdi(GONE, ward.folder / "etc-cdi")
    report = ward.examine(cdi=(ward.folder / "etc-cdi", ward.cdi), repair=True)
    (found, *_) = of(report, "cdi.leftover")
    assert (found.level, found.repair) == (Level.INFO, None)
    assert path.exists()


@pytest.mark.parametrize("device", [f"GPU-{GONE}", "gpu-0", f"MIG-{GONE}", CLAIM.upper()])
def test_devices_with_names_of_their_own_are_nobodys_leftovers(ward: Ward, device: str) -> None:
    path = ward.put_cdi("x", device=device)
    path.rename(ward.cdi / "vendor.json")
    assert bad(ward.examine()) == []


def test_claims_without_cdi_files(ward: Ward) -> None:
    (ward.cdi / f"example.com-gpu_{CLAIM}.json").unlink()
    (found,) = of(ward.examine(), "cdi.missing")
    assert (found.level, found.subject) == (Level.ERROR, f"example.com/gpu={CLAIM}-gpu-0")
    assert found.evidence.startswith(f"claim default/gpu ({CLAIM}) of {DRIVER} uses this device: no CDI file")


def test_cdi_files_that_cannot_be_used(ward: Ward) -> None:
    ward.put(ward.cdi / "broken.json", b"{")
    ward.put_cdi("x", device="same").rename(ward.cdi / "one.json")
    ward.put_cdi("y", device="same").rename(ward.cdi / "two.json")
    os.mkfifo(ward.cdi / "pipe.yaml")
    report = ward.examine()
    assert [Path(f.subject).name for f in of(report, "cdi.file")] == ["broken.json", "pipe.yaml"]
    assert [f.subject for f in of(report, "cdi.conflict")] == ["example.com/gpu=same"]


# -- cgroups


def test_cgroups_in_order(ward: Ward) -> None:
    ward.put_cgroups(POD)
    report = ward.examine(runtime="process")
    assert not [each for each in bad(report) if each[0].startswith("cgroups")]
    assert of(report, "cgroups.root")[0].evidence == f"of {NODE}, with its QoS tiers; 1 pods"
    assert of(report, "cgroups.leftover")[0].level is Level.OK


def test_cgroups_of_pods_that_are_gone(ward: Ward) -> None:
    ward.put_cgroups(POD, GONE)
    left = ward.cgroups / "burstable"
    report = ward.examine(runtime="process")
    (found,) = of(report, "cgroups.leftover")
    assert (found.level, found.subject) == (Level.WARNING, f"pod {GONE}")
    assert (left / f"pod{GONE}").is_dir()
    report = ward.examine(runtime="process", repair=True)
    assert [outcome.problem for outcome in report.outcomes] == [""]
    assert of(report, "cgroups.leftover")[0].level is Level.OK
    assert sorted(path.name for path in left.iterdir()) == [f"pod{POD}"]


def test_a_root_of_cgroups_that_is_somebody_elses(ward: Ward) -> None:
    ward.put_cgroups(GONE, owner="other")
    report = ward.examine(runtime="process", repair=True)
    (found,) = of(report, "cgroups.root")
    assert (found.level, found.evidence) == (
        Level.ERROR,
        f"it belongs to other, not to {owner_of(NODE, ward.layout.root)}",
    )
    assert (ward.cgroups / f"burstable/pod{GONE}").is_dir()


def test_the_root_of_an_agent_whose_directory_is_gone_is_removed(ward: Ward) -> None:
    ward.put_cgroups()
    data, other = ward.folder / "other-data", ward.mount / "plimsoll-other"
    data.mkdir()
    for name in ("owner.other", "burstable", "besteffort"):
        (other / name).mkdir(parents=True)
    mark = RootMark(data)
    mark.take([other])
    if not read_directory([other]).data:
        pytest.skip("no extended attributes here")

    def repaired() -> list[RepairResult]:
        report = ward.examine(repair=True, runtime="process")
        return [each for each in report.outcomes if isinstance(each.repair, RemoveCgroupRoot)]

    data.rmdir()
    assert repaired() == [], "its agent runs"
    data.mkdir()
    mark.release()
    assert repaired() == [], "its directory exists: the agent can be started again"
    assert other.is_dir()
    report = ward.examine(runtime="process")
    (note,) = of(report, "cgroups.others")
    assert f"plimsoll-other ({data}: not running, 0 processes inside)" in note.evidence
    data.rmdir()
    (outcome,) = repaired()
    assert outcome.problem == ""
    assert not other.exists()
    assert ward.cgroups.is_dir(), "its own root stays"


def test_controllers_that_are_missing(ward: Ward) -> None:
    ward.put_cgroups(controllers="cpu memory")
    assert [f.subject for f in of(ward.examine(runtime="process"), "cgroups.controller")] == [
        "cpuset",
        "pids",
    ]
    assert of(ward.examine(runtime="none"), "cgroups.controller") == []


def test_a_machine_without_cgroups(ward: Ward) -> None:
    (found,) = of(ward.examine(runtime="process"), "cgroups.version")
    assert (found.level, found.evidence) == (Level.WARNING, "not available")


# -- leftovers


def test_temporary_files(ward: Ward) -> None:
    for path in (ward.layout.root / ".claims.json.tmp", ward.cdi / "spec.1234.tmp"):
        os.utime(ward.put(path, b"half"), (1, 1))
    report = ward.examine()
    assert len(of(report, "pods.temporary")) == 2
    assert bad(report) == []
    assert [o.problem for o in ward.examine(repair=True).outcomes] == ["", ""]
    assert of(ward.examine(), "pods.temporary") == []


def test_what_lies_in_quarantine_is_told_and_kept(ward: Ward) -> None:
    path = ward.put(ward.layout.quarantine / "claims.json.20260101T000000Z", b"x" * 2048)
    os.utime(path, (0, 1_767_225_600))
    report = ward.examine(repair=True)
    (found,) = of(report, "pods.quarantine")
    assert found.evidence == "quarantined 2026-01-01T00:00:00Z, 2Ki"
    assert path.exists()


def test_strange_things_among_the_pods(ward: Ward) -> None:
    pods = ward.layout.pods
    pods.mkdir()
    target = ward.put(ward.folder / "precious" / "file", b"precious")
    (pods / "link").symlink_to(target.parent)
    os.mkfifo(pods / "pipe")
    (pods / "a\nb").mkdir()
    ward.put(pods / "file\x1b[31m", b"data")
    (pods / os.fsdecode(b"\xff\xfe")).mkdir()
    report = ward.examine()
    assert len(of(report, "pods.strange")) == 5
    report = ward.examine(repair=True)
    assert [o.problem for o in report.outcomes] == [""] * 5
    assert bad(report) == []
    assert list(pods.iterdir()) == []
    assert target.read_bytes() == b"precious"
    assert len(list(ward.layout.quarantine.iterdir())) == 3


def test_a_pods_folder_without_a_record(ward: Ward) -> None:
    (ward.layout.pods / GONE / "containers" / "main" / "0").mkdir(parents=True)
    ward.put(ward.layout.pods / GONE / "sandbox.json", b"\0\1\2")
    found = mended(ward, "pods.damaged", Level.ERROR)
    assert "cannot be read" in found.evidence
    assert not (ward.layout.pods / GONE).exists()


# -- who may look


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another owner")
@pytest.mark.parametrize("name", ["", "lock", "claims.json", "admitted.json"])
def test_who_may_not_look_does_not_judge(ward: Ward, name: str) -> None:
    ward.put(ward.layout.lock, b"1")
    ward.folder.chmod(0o755)
    for path in (ward.layout.lock, ward.layout.claims, ward.layout.admitted):
        path.chmod(0o600 if path.name == name else 0o644)
    ward.layout.root.chmod(0o755 if name else 0o700)
    os.seteuid(65534)
    try:
        with pytest.raises(ConfigError, match="not accessible: Permission denied; run the doctor as root"):
            ward.examine(repair=True)
    finally:
        os.seteuid(0)


def test_cgroups_that_are_only_planned(ward: Ward) -> None:
    ward.put_cgroups(GONE, owner="other")
    assert [
        f.level for f in ward.examine(runtime="process", cgroups="plan").findings if f.area == "cgroups"
    ] == [Level.INFO]
