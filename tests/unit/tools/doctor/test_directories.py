"""Faults of directories, checkpoints, sockets, CDI files and cgroups are found, and nothing else."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from plimsoll.common.checkpoint import render
from plimsoll.common.lock_file import RootLock
from plimsoll.errors import ConfigError
from plimsoll.node.cgroups.ownership import RootMark, owner_of, read_directory
from plimsoll.node.claims import kubelet_checkpoint as kubelet_file
from plimsoll.tools.findings import Finding, Severity
from tests.unit.node.claims.kubelet_files import encode as encode_kubelet_file

from .node_dir import (
    CLAIM,
    DRIVER,
    GONE,
    NODE,
    POD,
    NodeDir,
    a_claim,
    bad,
    check_fault,
    of,
    run_command,
    temporary_node_dir,
)


@pytest.fixture
def node_dir() -> Iterator[NodeDir]:
    with temporary_node_dir() as found:
        yield found.furnish()


def test_a_healthy_node_is_not_changed(node_dir: NodeDir) -> None:
    before = node_dir.snapshot()
    report = node_dir.examine()
    assert bad(report) == []
    assert report.exit_code == 0
    assert (report.owner, report.running) == ("agent", False)
    assert node_dir.snapshot() == before
    assert of(report, "records.claims")[0].message.startswith("version 1, checksum valid, 1 prepared claims")
    assert of(report, "records.admitted")[0].severity is Severity.OK
    assert of(report, "cdi.missing")[0].message == "all of their 1 CDI devices are defined"


def test_a_node_that_does_not_exist_yet(node_dir: NodeDir) -> None:
    report = node_dir.examine(root=node_dir.directory / "new")
    assert of(report, "root.directory")[0].severity is Severity.INFO
    assert bad(report) == []
    assert not (node_dir.directory / "new").exists()


def put_odd(node_dir: NodeDir, path: Path, kind: str) -> None:
    """Create something that is not a file."""
    if kind == "link":
        path.symlink_to("/etc/shadow")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        node_dir.put_socket(path)


# -- root directory


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_root_that_is_not_a_directory(node_dir: NodeDir, kind: str) -> None:
    path = node_dir.directory / "other"
    path.write_bytes(b"") if kind == "file" else path.symlink_to(node_dir.layout.root)
    (found, *_) = of(node_dir.examine(root=path), "root.directory")
    assert (found.severity, found.message) == (Severity.ERROR, f"it is a {kind}, not a directory")


def test_a_root_writable_by_others(node_dir: NodeDir) -> None:
    node_dir.layout.root.chmod(0o777)
    found = check_fault(node_dir, "root.mode", Severity.ERROR)
    assert found.message == "its mode is 0777"
    assert node_dir.layout.root.stat().st_mode & 0o777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_a_foreign_root_directory(node_dir: NodeDir) -> None:
    os.chown(node_dir.layout.root, 12345, 12345)
    (found,) = of(node_dir.examine(), "root.owner")
    assert (found.severity, found.message) == (Severity.ERROR, "it belongs to user 12345")


@pytest.mark.parametrize("kind", ["link", "pipe", "directory"])
def test_a_non_file_at_the_path_of_the_lock(node_dir: NodeDir, kind: str) -> None:
    put_odd(node_dir, node_dir.layout.lock, kind)
    found = check_fault(node_dir, "root.lock", Severity.ERROR)
    assert found.message == f"it is a {kind}, not a file"
    assert len(list(node_dir.layout.quarantine.iterdir())) == 1


def test_stale_and_held_locks(node_dir: NodeDir) -> None:
    node_dir.put(node_dir.layout.lock, b"999999999\n")
    (found,) = of(node_dir.examine(), "root.agent")
    assert found.message == "no agent running; the last one was process 999999999"
    node_dir.put(node_dir.layout.lock, b"\xff\n not a pid")
    assert of(node_dir.examine(), "root.agent")[0].message == "no agent running"
    lock = RootLock(node_dir.layout.lock)
    lock.take()
    try:
        report = node_dir.examine()
        assert report.running
        assert of(report, "root.agent")[0].message == f"agent running: process {os.getpid()}"
    finally:
        lock.release()
    assert not node_dir.examine().running


def test_roots_of_many_agents(node_dir: NodeDir) -> None:
    above = node_dir.directory / "many"
    for name in ("a", "b"):
        node_dir.put(above / name / "lock", b"1")
    (found,) = of(node_dir.examine(root=above), "root.agents")
    assert found.message == "2 agent directories below it: a, b"


# -- sockets


@pytest.mark.parametrize("name", ["pod_resources", "nri"])
def test_leftover_sockets(node_dir: NodeDir, name: str) -> None:
    node_dir.put_socket(getattr(node_dir.layout, name))
    found = check_fault(node_dir, "sockets.stale", Severity.WARNING)
    assert found.message == "stale: not served for 60m"
    assert not getattr(node_dir.layout, name).exists()


def test_a_non_socket_at_the_path_of_a_socket(node_dir: NodeDir) -> None:
    node_dir.put(node_dir.layout.pod_resources, b"hello")
    check_fault(node_dir, "sockets.pod-resources", Severity.ERROR)
    (kept,) = node_dir.layout.quarantine.iterdir()
    assert kept.read_bytes() == b"hello"


def test_a_served_socket_is_left_alone(node_dir: NodeDir) -> None:
    path = node_dir.layout.pod_resources
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        report = node_dir.examine(timeout=0.1)  # it never answers
        assert ("sockets.pod-resources", "warning") in bad(report)
        assert of(report, "sockets.stale") == []


@pytest.mark.parametrize("place", ["plugins_registry/x-reg.sock", "plugins/x/dra.sock"])
def test_sockets_of_drivers_that_are_gone(node_dir: NodeDir, place: str) -> None:
    path = node_dir.put_socket(node_dir.layout.root / place)
    level = Severity.WARNING if "registry" in place else Severity.INFO
    check_fault(node_dir, "sockets.stale", level)
    assert not path.exists()


def test_a_new_socket_is_not_stale(node_dir: NodeDir) -> None:
    path = node_dir.put_socket(node_dir.layout.registry / "x-reg.sock")
    os.utime(path)
    report = node_dir.examine()
    assert of(report, "sockets.stale")[0].severity is Severity.INFO


def test_a_registration_directory_writable_by_others(node_dir: NodeDir) -> None:
    node_dir.layout.registry.mkdir()
    node_dir.layout.registry.chmod(0o777)
    check_fault(node_dir, "sockets.registry", Severity.ERROR)


# -- records


@pytest.mark.parametrize("name", ["claims", "admitted"])
@pytest.mark.parametrize("content", [b"", b"{", b"\0" * 100, b"[1]", render("Other", 1, {}), b"[" * 100_000])
def test_damaged_records(node_dir: NodeDir, name: str, content: bytes) -> None:
    path: Path = getattr(node_dir.layout, name)
    node_dir.put(path, content)
    if name == "admitted":
        node_dir.put_claims()
        (node_dir.cdi / f"example.com-gpu_{CLAIM}.json").unlink()
    else:
        (node_dir.cdi / f"example.com-gpu_{CLAIM}.json").unlink()
    (found,) = of(node_dir.examine(), f"records.{name}")
    assert found.severity is Severity.ERROR
    assert found.message.startswith("not usable: ")
    assert found.fix.startswith("start the agent: it quarantines the file")


def test_a_checksum_that_does_not_match(node_dir: NodeDir) -> None:
    path = node_dir.layout.claims
    path.write_bytes(path.read_bytes().replace(b'"ready": true', b'"ready": false'))
    (found,) = of(node_dir.examine(), "records.claims")
    assert found.message == "not usable: its checksum does not match"


def test_a_checkpoint_of_a_newer_version_is_kept(node_dir: NodeDir) -> None:
    node_dir.put(node_dir.layout.claims, render("PreparedClaims", 7, {}))
    report = node_dir.examine()
    (found,) = of(report, "records.claims")
    assert found.severity is Severity.ERROR
    assert "version 7" in found.message
    assert found.fix.startswith("run the newer version")


@pytest.mark.parametrize("kind", ["pipe", "link", "directory", "socket"])
def test_a_non_file_at_the_path_of_a_record(node_dir: NodeDir, kind: str) -> None:
    path = node_dir.layout.claims
    path.unlink()
    (node_dir.cdi / f"example.com-gpu_{CLAIM}.json").unlink()
    put_odd(node_dir, path, kind)
    assert of(node_dir.examine(), "records.claims")[0].severity is Severity.ERROR


def test_checkpoints_readable_by_others(node_dir: NodeDir) -> None:
    node_dir.layout.admitted.chmod(0o644)
    check_fault(node_dir, "records.admitted", Severity.WARNING)


def test_claims_of_missing_pods(node_dir: NodeDir) -> None:
    node_dir.put_cdi(GONE)
    node_dir.put_claims(
        a_claim(), a_claim(GONE, GONE, name="old"), a_claim(POD, name="idle", pods=frozenset(), drivers={})
    )
    found = of(node_dir.examine(), "records.users")
    assert {(f.subject, f.severity, f.message) for f in found} == {
        (f"default/old ({GONE})", Severity.WARNING, f"none of its 1 pods exists here, such as {GONE}"),
        (f"default/idle ({POD})", Severity.WARNING, "no pod uses it"),
    }


def test_claims_that_wait_for_a_driver(node_dir: NodeDir) -> None:
    node_dir.put_claims(a_claim(ready=False, pending=frozenset({DRIVER})))
    (found,) = of(node_dir.examine(), "records.driver")
    assert found.message == "is not registered; has 1 claim on this node"


# -- a kubelet's directory


def kubelets(node_dir: NodeDir, raw: bytes) -> Path:
    root = node_dir.directory / "kubelet"
    node_dir.put(root / "dra_manager_state", raw)
    (root / "pods" / POD).mkdir(parents=True)
    return root


def a_kubelets_claim(*pods: str) -> bytes:
    device = kubelet_file.KubeletDevice("pool", "gpu-0", None, ("gpu",), (f"example.com/gpu={CLAIM}-gpu-0",))
    claim = kubelet_file.KubeletClaim(CLAIM, "gpu", "default", frozenset(pods), {DRIVER: (device,)})
    return encode_kubelet_file([claim])


def test_a_kubelets_directory(node_dir: NodeDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("plimsoll.tools.doctor.root_dir.kubelet_pids", tuple)
    root = kubelets(node_dir, a_kubelets_claim(POD))
    report = node_dir.examine(root=root)
    assert (report.owner, report.running) == ("kubelet", False)
    assert bad(report) == []
    assert of(report, "records.kubelet")[0].message == "checksum valid, 1 prepared claims"
    assert of(report, "records.users")[0].severity is Severity.OK
    # A kubelet does not record which drivers have responded: the claim is not reported as waiting.
    assert [found.message for found in of(report, "records.driver")] == [
        "is not registered; has 1 claim on this node"
    ]
    node_dir.put(root / "dra_manager_state", a_kubelets_claim(POD, GONE))
    (found,) = of(node_dir.examine(root=root), "records.users")
    assert found.message == f"1 of its 2 pods do not exist here, such as {GONE}"


def test_a_kubelets_damaged_record(node_dir: NodeDir, monkeypatch: pytest.MonkeyPatch) -> None:
    pids: list[int] = [4711]
    monkeypatch.setattr("plimsoll.tools.doctor.root_dir.kubelet_pids", lambda: tuple(pids))
    root = kubelets(node_dir, a_kubelets_claim(POD)[:-2] + b"9}")
    before = node_dir.snapshot()
    report = node_dir.examine(root=root)
    assert report.running
    (found,) = of(report, "records.kubelet")
    assert (found.severity, found.message) == (Severity.ERROR, "not usable: checkpoint is corrupted")
    assert ": stop the kubelet; mkdir " in found.fix
    assert node_dir.snapshot() == before
    pids.clear()
    (found,) = of(node_dir.examine(root=root), "records.kubelet")
    run_command(found)
    assert not (root / "dra_manager_state").exists()
    # What is left is a kubelet's still: its pods are not taken for leftovers of ours.
    report = node_dir.examine(root=root)
    assert (report.owner, bad(report)) == ("kubelet", [])


def test_an_agent_in_a_kubelets_old_directory(node_dir: NodeDir) -> None:
    node_dir.put(node_dir.layout.kubelet_claims, a_kubelets_claim(POD))
    report = node_dir.examine()
    assert report.owner == "agent"
    assert "not used" in of(report, "records.kubelet")[0].message


# -- CDI files


def test_cdi_files_of_claims_that_are_gone(node_dir: NodeDir) -> None:
    path = node_dir.put_cdi(GONE)
    found = check_fault(node_dir, "cdi.leftover", Severity.WARNING)
    assert found.message.startswith(f"belongs to claim {GONE}, which is not prepared here")
    assert not path.exists()


def test_cdi_files_of_the_machine_are_only_reported(node_dir: NodeDir) -> None:
    path = node_dir.put_cdi(GONE, node_dir.directory / "etc-cdi")
    report = node_dir.examine(cdi=(node_dir.directory / "etc-cdi", node_dir.cdi))
    (found, *_) = of(report, "cdi.leftover")
    assert (found.severity, found.fix) == (Severity.INFO, f"if no other agent runs here: rm {path}")


@pytest.mark.parametrize("device", [f"GPU-{GONE}", "gpu-0", f"MIG-{GONE}", CLAIM.upper()])
def test_devices_with_other_names_are_not_leftovers(node_dir: NodeDir, device: str) -> None:
    path = node_dir.put_cdi("x", device=device)
    path.rename(node_dir.cdi / "vendor.json")
    assert bad(node_dir.examine()) == []


def test_claims_without_cdi_files(node_dir: NodeDir) -> None:
    (node_dir.cdi / f"example.com-gpu_{CLAIM}.json").unlink()
    (found,) = of(node_dir.examine(), "cdi.missing")
    assert (found.severity, found.subject) == (Severity.ERROR, f"example.com/gpu={CLAIM}-gpu-0")
    assert found.message.startswith(f"claim default/gpu ({CLAIM}) of {DRIVER} uses this device: no CDI file")


def test_invalid_cdi_files(node_dir: NodeDir) -> None:
    node_dir.put(node_dir.cdi / "broken.json", b"{")
    node_dir.put_cdi("x", device="same").rename(node_dir.cdi / "one.json")
    node_dir.put_cdi("y", device="same").rename(node_dir.cdi / "two.json")
    os.mkfifo(node_dir.cdi / "pipe.yaml")
    report = node_dir.examine()
    assert [Path(f.subject).name for f in of(report, "cdi.file")] == ["broken.json", "pipe.yaml"]
    assert [f.subject for f in of(report, "cdi.conflict")] == ["example.com/gpu=same"]


# -- cgroups


def test_healthy_cgroups(node_dir: NodeDir) -> None:
    node_dir.put_cgroups(POD)
    report = node_dir.examine(runtime="process")
    assert not [each for each in bad(report) if each[0].startswith("cgroups")]
    assert of(report, "cgroups.root")[0].message == f"of {NODE}, with its QoS tiers; 1 pods"
    assert of(report, "cgroups.leftover")[0].severity is Severity.OK


def test_cgroups_of_pods_that_are_gone(node_dir: NodeDir) -> None:
    node_dir.put_cgroups(POD, GONE)
    report = node_dir.examine(runtime="process")
    (found,) = of(report, "cgroups.leftover")
    assert (found.severity, found.subject) == (Severity.WARNING, f"pod {GONE}")
    assert found.fix == "start the agent: it removes it"


def test_a_foreign_cgroup_root(node_dir: NodeDir) -> None:
    node_dir.put_cgroups(GONE, owner="other")
    report = node_dir.examine(runtime="process")
    (found,) = of(report, "cgroups.root")
    assert (found.severity, found.message) == (
        Severity.ERROR,
        f"it belongs to other, not to {owner_of(NODE, node_dir.layout.root)}",
    )


def test_the_root_of_an_agent_whose_directory_is_gone_can_be_removed(node_dir: NodeDir) -> None:
    node_dir.put_cgroups()
    data, other = node_dir.directory / "other-data", node_dir.mount / "plimsoll-other"
    data.mkdir()
    for name in ("owner.other", "burstable", "besteffort"):
        (other / name).mkdir(parents=True)
    mark = RootMark(data)
    mark.take([other])
    if not read_directory([other]).data:
        pytest.skip("no extended attributes here")

    def orphans() -> list[Finding]:
        return of(node_dir.examine(runtime="process"), "cgroups.orphan")

    data.rmdir()
    assert orphans() == [], "its agent runs"
    data.mkdir()
    mark.release()
    assert orphans() == [], "its directory exists: the agent can be started again"
    data.rmdir()
    (found,) = orphans()
    run_command(found)
    assert not other.exists()
    assert node_dir.cgroups.is_dir(), "its own root stays"


def test_controllers_that_are_missing(node_dir: NodeDir) -> None:
    node_dir.put_cgroups(controllers="cpu memory")
    assert [f.subject for f in of(node_dir.examine(runtime="process"), "cgroups.controller")] == [
        "cpuset",
        "pids",
    ]
    assert of(node_dir.examine(runtime="none"), "cgroups.controller") == []


def test_a_machine_without_cgroups(node_dir: NodeDir) -> None:
    (found,) = of(node_dir.examine(runtime="process"), "cgroups.version")
    assert (found.severity, found.message) == (Severity.WARNING, "not available")


# -- leftovers


def test_quarantined_files_are_reported(node_dir: NodeDir) -> None:
    path = node_dir.put(node_dir.layout.quarantine / "claims.json.20260101T000000Z", b"x" * 2048)
    os.utime(path, (0, time.time() - 7200))
    report = node_dir.examine()
    (found,) = of(report, "pods.quarantine")
    assert found.message == "quarantined 2h ago, 2Ki"
    run_command(found)
    assert of(node_dir.examine(), "pods.quarantine") == []


def test_unexpected_files_among_pod_directories(node_dir: NodeDir) -> None:
    pods = node_dir.layout.pods
    pods.mkdir()
    target = node_dir.put(node_dir.directory / "precious" / "file", b"precious")
    (pods / "link").symlink_to(target.parent)
    os.mkfifo(pods / "pipe")
    (pods / "a\nb").mkdir()
    node_dir.put(pods / "file\x1b[31m", b"data")
    (pods / os.fsdecode(b"\xff\xfe")).mkdir()
    report = node_dir.examine()
    found = of(report, "pods.strange")
    assert len(found) == 5
    for each in found:
        run_command(each)
    assert bad(node_dir.examine()) == []
    assert list(pods.iterdir()) == []
    assert target.read_bytes() == b"precious"
    assert len(list(node_dir.layout.quarantine.iterdir())) == 3


def test_a_pods_directory_without_a_record(node_dir: NodeDir) -> None:
    (node_dir.layout.pods / GONE / "containers" / "main" / "0").mkdir(parents=True)
    node_dir.put(node_dir.layout.pods / GONE / "sandbox.json", b"\0\1\2")
    (found,) = of(node_dir.examine(), "pods.damaged")
    assert found.severity is Severity.ERROR
    assert "cannot be read" in found.message


# -- permissions


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another owner")
@pytest.mark.parametrize("name", ["", "lock", "claims.json", "admitted.json"])
def test_unreadable_directories_are_not_judged(node_dir: NodeDir, name: str) -> None:
    node_dir.put(node_dir.layout.lock, b"1")
    node_dir.directory.chmod(0o755)
    for path in (node_dir.layout.lock, node_dir.layout.claims, node_dir.layout.admitted):
        path.chmod(0o600 if path.name == name else 0o644)
    node_dir.layout.root.chmod(0o755 if name else 0o700)
    os.seteuid(65534)
    try:
        with pytest.raises(ConfigError, match="not accessible: Permission denied; run the doctor as root"):
            node_dir.examine()
    finally:
        os.seteuid(0)


def test_cgroups_that_are_only_planned(node_dir: NodeDir) -> None:
    node_dir.put_cgroups(GONE, owner="other")
    report = node_dir.examine(runtime="process", cgroups="plan")
    assert [f.severity for f in report.findings if f.id.startswith("cgroups.")] == [Severity.INFO]
