"""Checks as functions of facts: each with and without the fault."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Node, NodeStatus
from plimsoll.api.meta import Condition, ObjectMeta
from plimsoll.api.quantity import Quantity
from plimsoll.api.timestamps import parse_time
from plimsoll.node.layout import Layout
from plimsoll.node.machine.machine import Machine
from plimsoll.node.process.settings import NodeSettings
from plimsoll.tools.doctor import cdi, cgroups, cluster, machine, pods, privileges, sockets
from plimsoll.tools.doctor import root_dir as root
from plimsoll.tools.doctor.cluster import clock_skew
from plimsoll.tools.doctor.doctor import CHECKS, check_node
from plimsoll.tools.doctor.facts import (
    BoundPod,
    CgroupFacts,
    ClusterFacts,
    ContainerDir,
    DriverFact,
    MachineFacts,
    NodeFacts,
    PodDir,
    PodFacts,
    PrivilegeFacts,
    RecordFact,
    RecordFacts,
    ReservedClaim,
    RootFacts,
    SocketFact,
    SocketFacts,
)
from plimsoll.tools.doctor.files import FileEntry, age_text, size_text
from plimsoll.tools.doctor.findings import command
from plimsoll.tools.findings import Severity

from .node_dir import CLAIM, DRIVER, GONE, POD, a_claim

NOW = 1_800_000_000.0
ALL = (1 << 41) - 1
PLAIN = NodeFacts(layout=Layout(Path("/n")), now=NOW, node="a")
RUNS = replace(PLAIN, running=True, pid=7)


def severities_of(found: Any) -> dict[str, Severity]:
    """Return findings by check; the worst of each."""
    worst: dict[str, Severity] = {}
    for each in found:
        if each.severity.reaches(worst.get(each.id, Severity.OK)):
            worst[each.id] = each.severity
    return worst


# -- privileges and machine


def test_capabilities_that_are_missing() -> None:
    fine = replace(RUNS, privileges=PrivilegeFacts(pid=7, uid=0, capabilities=ALL))
    assert set(severities_of(privileges.check(fine)).values()) == {Severity.OK}
    less = replace(RUNS, privileges=PrivilegeFacts(pid=7, uid=1000, capabilities=ALL & ~(1 << 24)))
    found = list(privileges.check(less))
    assert [(f.id, f.severity, f.subject) for f in found] == [
        ("privileges.user", Severity.WARNING, "process 7"),
        ("privileges.capability", Severity.WARNING, "CAP_SYS_RESOURCE"),
    ]
    states = replace(less, runtime="none")
    assert not any(f.severity.reaches(Severity.WARNING) for f in privileges.check(states))
    assert severities_of(privileges.check(PLAIN)) == {
        "privileges.user": Severity.OK,
        "privileges.capability": Severity.INFO,
    }


def test_capabilities_of_this_process(tmp_path: Path) -> None:
    (tmp_path / "12").mkdir()
    (tmp_path / "12/status").write_text("Name:\tx\nUid:\t5\t6\t7\t8\nCapEff:\t0000000001000021\n")
    assert privileges.gather(12, tmp_path) == PrivilegeFacts(pid=12, uid=6, capabilities=0x1000021)
    assert privileges.gather(None).capabilities is not None


def a_machine(cpu: int = 4, memory: str = "8Gi", **changes: Any) -> Machine:
    amounts = {"cpu": Quantity.of(cpu), "memory": Quantity.parse(memory)}
    return Machine(capacity=amounts, cpus=tuple(range(cpu)), pids=32768, **changes)


def test_machines() -> None:
    fine = MachineFacts(real=a_machine())
    assert set(severities_of(machine.check(replace(PLAIN, machine=fine))).values()) == {Severity.OK}
    swap = MachineFacts(real=a_machine(swap=1 << 30))
    assert severities_of(machine.check(replace(PLAIN, machine=swap)))["machine.swap"] is Severity.INFO
    declared = replace(PLAIN, machine=replace(fine, declared=a_machine(8, "1Gi")))
    promise = [f for f in machine.check(declared) if f.id == "machine.promise"]
    assert [f.subject for f in promise] == ["cpu", "cpus"]
    assert promise[0].message == "the machine file declares 8, the machine has 4"
    assert not any(
        f.severity.reaches(Severity.WARNING) for f in machine.check(replace(declared, runtime="none"))
    )
    honest = replace(PLAIN, machine=replace(fine, declared=a_machine(2, "1Gi")))
    assert severities_of(machine.check(honest))["machine.promise"] is Severity.OK
    assert severities_of(machine.check(replace(PLAIN, machine=MachineFacts(real_error="no")))) == {
        "machine.unknown": Severity.ERROR
    }


def test_invalid_machine_files(tmp_path: Path) -> None:
    path = tmp_path / "machine.yaml"
    path.write_bytes(b"\0\xff")
    facts = machine.gather(NodeSettings(machine_file=path, root=tmp_path))
    assert facts.declared_error
    assert severities_of(machine.check(replace(PLAIN, machine=facts)))["machine.file"] is Severity.ERROR


# -- space, sockets, cgroups


@pytest.mark.parametrize(
    ("free", "inodes", "severity"),
    [
        (50 << 30, 500, Severity.OK),
        (1 << 30, 500, Severity.WARNING),
        (50 << 30, 10, Severity.WARNING),
        (1000, 500, Severity.ERROR),
        (50 << 30, 0, Severity.ERROR),
    ],
)
def test_space(free: int, inodes: int, severity: Severity) -> None:
    space = os.statvfs_result((1, 1, 100 << 30, free, free, 1000, inodes, inodes, 0, 255))
    facts = replace(PLAIN, root=RootFacts(space=space))
    assert severities_of(root.check(facts))["root.space"] is severity


def a_socket(role: Any, answer: str = "", **changes: Any) -> SocketFact:
    fields: dict[str, Any] = {"path": Path(f"/n/{role}"), "kind": "socket", "mode": 0o600, **changes}
    return SocketFact(role=role, answer=answer, entry=FileEntry(**fields))


def test_sockets_of_a_running_agent() -> None:
    registry = FileEntry(path=Path("/n/r"), kind="directory", mode=0o755)
    driver = DriverFact(socket=Path("/n/x"), name=DRIVER, endpoint="/n/y")
    fine = SocketFacts(
        registry=registry,
        sockets=(a_socket("pod-resources"), a_socket("nri"), a_socket("registration")),
        drivers=(driver,),
        listed=3,
    )
    assert set(severities_of(sockets.check(replace(RUNS, sockets=fine))).values()) == {Severity.OK}
    ill = SocketFacts(
        sockets=(
            a_socket("pod-resources", kind="absent"),
            a_socket("nri", "refused"),
            a_socket("registration", "refused"),
        ),
        drivers=(
            replace(driver, problem="no"),
            replace(driver, endpoint_answer="refused"),
        ),
        list_error="broken",
    )
    assert severities_of(sockets.check(replace(RUNS, sockets=ill))) == {
        "sockets.pod-resources": Severity.ERROR,
        "sockets.nri": Severity.ERROR,
        "sockets.list": Severity.ERROR,
        "sockets.registry": Severity.ERROR,
        "sockets.stale": Severity.WARNING,
        "sockets.driver": Severity.ERROR,
    }
    assert fine.served == {DRIVER}
    assert ill.served == frozenset()


def test_socket_permissions() -> None:
    for each, id in (
        (a_socket("pod-resources", mode=0o755), "sockets.mode"),
        (a_socket("pod-resources", uid=77), "sockets.owner"),
    ):
        facts = replace(RUNS, sockets=SocketFacts(sockets=(each,)))
        assert severities_of(sockets.check(facts))[id] is Severity.ERROR
    kubelets = replace(
        RUNS, owner="kubelet", sockets=SocketFacts(sockets=(a_socket("pod-resources", mode=0o755),))
    )
    assert severities_of(sockets.check(kubelets))["sockets.pod-resources"] is Severity.OK
    denied = replace(RUNS, sockets=SocketFacts(sockets=(a_socket("pod-resources", "Permission denied"),)))
    assert severities_of(sockets.check(denied))["sockets.pod-resources"] is Severity.WARNING


def test_cgroups_of_a_running_agent() -> None:
    there = CgroupFacts(
        version=2, controllers=tuple(cgroups.NEEDED), root="plimsoll-a", exists=True, owners=("a",), owner="a"
    )
    assert set(severities_of(cgroups.check(replace(RUNS, cgroups=there))).values()) == {Severity.OK}
    half = replace(there, missing_tiers=("/sys/fs/cgroup/plimsoll-a/burstable",))
    assert severities_of(cgroups.check(replace(RUNS, cgroups=half)))["cgroups.tiers"] is Severity.ERROR
    gone = replace(there, exists=False, owners=())
    assert severities_of(cgroups.check(replace(RUNS, cgroups=gone))) == {
        "cgroups.version": Severity.OK,
        "cgroups.root": Severity.WARNING,
        "cgroups.leftover": Severity.OK,
    }


# -- pods


def a_directory(uid: str = GONE, **changes: Any) -> PodDir:
    path = Path("/n/pods") / uid
    fields = {"path": path / "containers/main/0", "name": "main", "attempt": "0", "started": True, **changes}
    return PodDir(entry=FileEntry(path=path), uid=uid, name="ns/p", containers=(ContainerDir(**fields),))


ALIVE: dict[str, Any] = {"alive": True}
KNOWN = RecordFacts(pods={POD: "ns/p"})


def check_pod(facts: NodeFacts, pod: PodDir, **changes: Any) -> dict[str, Any]:
    judged = pods.check(replace(facts, records=KNOWN, pods=PodFacts(pods=(pod,)), **changes))
    return {f.id: f.severity for f in judged if f.id != "pods.directories"}


def test_processes_of_unknown_pods() -> None:
    assert check_pod(PLAIN, a_directory(POD, **ALIVE)) == {}
    assert check_pod(PLAIN, a_directory(**ALIVE)) == {"pods.unknown": Severity.WARNING}
    assert check_pod(RUNS, a_directory(**ALIVE)) == {"pods.unknown": Severity.INFO}
    unsure = replace(KNOWN, admitted=RecordFact(problem="damaged"))
    facts = replace(PLAIN, records=unsure, pods=PodFacts(pods=(a_directory(**ALIVE),)))
    assert severities_of(pods.check(facts)) == {"pods.directories": Severity.OK}


def test_pods_that_have_ended_keep_their_directories_until_the_api_forgets_them() -> None:
    ended = a_directory(exited=True)
    assert check_pod(PLAIN, ended) == {}
    api = ClusterFacts(node=Node(), pods=(BoundPod(uid=GONE, name="ns/p", ended=True),))
    assert check_pod(PLAIN, ended, cluster=api) == {}
    forgotten = ClusterFacts(node=Node(), pods=())
    assert check_pod(PLAIN, ended, cluster=forgotten) == {"pods.leftover": Severity.WARNING}
    # A cluster that does not know the node may be the wrong one.
    stranger = ClusterFacts(node_missing=True, pods=())
    assert check_pod(PLAIN, ended, cluster=stranger) == {}
    # What was admitted is the agent's to end.
    admitted = check_pod(PLAIN, a_directory(POD, **ALIVE), cluster=forgotten)
    assert admitted == {}


def test_containers_whose_processes_are_gone() -> None:
    assert check_pod(PLAIN, a_directory(POD, exited=True)) == {}
    assert check_pod(PLAIN, a_directory(POD)) == {"pods.lost": Severity.INFO}
    assert check_pod(RUNS, a_directory(POD)) == {"pods.lost": Severity.WARNING}
    assert check_pod(PLAIN, a_directory(POD, problem="x")) == {"pods.record": Severity.WARNING}


def test_processes_without_a_directory() -> None:
    orphans = {"/n/pods/x/containers/y/0/spec.json": (5, 6)}
    facts = replace(PLAIN, pods=PodFacts(orphans=orphans))
    (found,) = [f for f in pods.check(facts) if f.id == "pods.process"]
    assert (found.severity, found.fix) == (Severity.WARNING, "no agent tracks it: kill -9 5 6")


# -- CDI names


@pytest.mark.parametrize(
    ("stem", "device", "uids"),
    [
        (f"example.com-gpu_{CLAIM}", "gpu-0", (CLAIM, None)),
        (f"k8s.test-driver-{CLAIM}", f"claim-{CLAIM}-a", (CLAIM, CLAIM)),
        ("vendor", f"{CLAIM}-gpu-0", (None, CLAIM)),
        ("vendor", CLAIM, (None, CLAIM)),
        ("vendor", f"GPU-{CLAIM}", (None, None)),
        (CLAIM, f"x{CLAIM}", (None, None)),
        (f"{CLAIM}-x", f"{CLAIM}x", (None, None)),
    ],
)
def test_cdi_names_of_claims(stem: str, device: str, uids: tuple[str | None, str | None]) -> None:
    assert (cdi.uid_in_file(stem), cdi.uid_in_device(device)) == uids


# -- cluster


def a_node(ready: str = "True") -> Node:
    status = NodeStatus(
        capacity={"cpu": Quantity.of(4)},
        conditions=(Condition(type="Ready", status=ready),),
    )
    return Node(metadata=ObjectMeta(name="a"), status=status)


def in_cluster(facts: NodeFacts, **changes: Any) -> dict[str, Severity]:
    fields: dict[str, Any] = {"node": a_node(), "lease_age": 3.0, "skew": 0.0, "pods": (), **changes}
    return severities_of(cluster.check(replace(facts, cluster=ClusterFacts(**fields))))


def test_a_healthy_node_in_the_cluster() -> None:
    found = in_cluster(RUNS)
    assert set(found.values()) == {Severity.OK}
    assert {"cluster.ready", "cluster.lease", "cluster.clock", "cluster.pods"} <= set(found)
    assert severities_of(cluster.check(RUNS)) == {}


@pytest.mark.parametrize(
    ("facts", "changes", "id", "severity"),
    [
        (RUNS, {"node": None, "node_missing": True}, "cluster.node", Severity.ERROR),
        (PLAIN, {"node": None, "node_missing": True}, "cluster.node", Severity.INFO),
        (RUNS, {"node": a_node("Unknown")}, "cluster.ready", Severity.ERROR),
        (PLAIN, {"node": a_node("True")}, "cluster.ready", Severity.WARNING),
        (PLAIN, {"node": a_node("Unknown")}, "cluster.ready", Severity.OK),
        (RUNS, {"lease_age": 41.0}, "cluster.lease", Severity.ERROR),
        (PLAIN, {"lease_age": 3.0}, "cluster.lease", Severity.INFO),
        (PLAIN, {"lease_age": 500.0}, "cluster.lease", Severity.OK),
        (RUNS, {"lease_age": None, "lease_missing": True}, "cluster.lease", Severity.ERROR),
        (RUNS, {"skew": -6.0}, "cluster.clock", Severity.WARNING),
        (RUNS, {"skew": 600.0}, "cluster.clock", Severity.ERROR),
        (RUNS, {"slices": {DRIVER: 2}}, "cluster.slices", Severity.WARNING),
        (PLAIN, {"slices": {DRIVER: 2}}, "cluster.slices", Severity.INFO),
        (RUNS, {"refused": (("slices", "forbidden"),)}, "cluster.refused", Severity.WARNING),
        (RUNS, {"error": "refused"}, "cluster.reach", Severity.ERROR),
        (RUNS, {"pods": (BoundPod(uid="x", name="n/x", created=1.0),)}, "cluster.pods", Severity.WARNING),
        (RUNS, {"pods": (BoundPod(uid="x", name="n/x", created=NOW - 5),)}, "cluster.pods", Severity.OK),
        (RUNS, {"pods": (BoundPod(uid="x", name="n/x", ended=True),)}, "cluster.pods", Severity.OK),
        (PLAIN, {"pods": (BoundPod(uid="x", name="n/x"),)}, "cluster.pods", Severity.INFO),
        (replace(RUNS, records=KNOWN), {}, "cluster.pods", Severity.INFO),
    ],
)
def test_node_conditions_in_the_api(
    facts: NodeFacts, changes: dict[str, Any], id: str, severity: Severity
) -> None:
    assert in_cluster(facts, **changes)[id] is severity


def test_claims_that_are_reserved_and_not_prepared() -> None:
    claim = ReservedClaim(name="default/gpu", uid=CLAIM, pod=POD)
    bound = (BoundPod(uid=POD, name="ns/p"),)
    record = replace(KNOWN, claims=RecordFact(entry=FileEntry(path=Path("/n/c"), kind="file")))
    facts = replace(RUNS, records=replace(record, prepared=(a_claim(),)))
    assert in_cluster(facts, pods=bound, claims=(claim,))["cluster.claims"] is Severity.OK
    facts = replace(RUNS, records=replace(record, prepared=(a_claim(ready=False),)))
    assert in_cluster(facts, pods=bound, claims=(claim,))["cluster.claims"] is Severity.WARNING
    facts = replace(PLAIN, records=record)
    assert in_cluster(facts, pods=bound, claims=(claim,))["cluster.claims"] is Severity.INFO


def test_amounts_of_the_machine() -> None:
    facts = replace(RUNS, machine=MachineFacts(real=a_machine(8)))
    assert in_cluster(facts)["cluster.amounts"] is Severity.WARNING
    assert "cluster.amounts" not in in_cluster(replace(facts, runtime="none"))
    assert (
        in_cluster(replace(RUNS, machine=MachineFacts(real=a_machine(4))))["cluster.amounts"] is Severity.OK
    )


def test_clocks() -> None:
    date = "Fri, 15 Jan 2027 08:00:00 GMT"  # NOW
    assert clock_skew(date, NOW, NOW + 0.5) == 0
    assert clock_skew(date, NOW + 0.9, NOW + 0.95) == 0
    assert clock_skew(date, NOW - 11, NOW - 10) == 10
    assert clock_skew(date, NOW + 11, NOW + 12) == -10
    for text in ("", "soon", "Fri, 99 Jan 2027 08:00:00 GMT"):
        assert clock_skew(text, NOW, NOW) is None
    assert parse_time("2027-01-15T08:00:00.000000Z") == NOW
    assert parse_time("never") is parse_time(None) is parse_time(7) is None


@given(st.floats(0, NOW), st.floats(-10_000, 10_000), st.floats(0, 5), st.floats(0, 1))
def test_clock_skew_needs_a_measurement(now: float, ahead: float, took: float, when: float) -> None:
    """The reported skew never exceeds the real one, and is close to it."""
    from email.utils import formatdate  # noqa: PLC0415

    if now + ahead < 0:
        return
    date = formatdate(int(now + took * when + ahead), usegmt=True)
    found = clock_skew(date, now, now + took)
    assert found is not None
    assert abs(found) <= abs(ahead) + 1e-3
    assert abs(found - ahead) <= took + 1 + 1e-3


# -- all together


def test_unknown_facts_are_not_findings() -> None:
    for facts in (PLAIN, RUNS, replace(PLAIN, owner="kubelet"), replace(PLAIN, cluster=ClusterFacts())):
        found = check_node(facts)
        assert {each.id.partition(".")[0] for each in found} <= set(CHECKS)


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)))
def test_commands_are_printable_and_mean_the_same_to_a_shell(words: list[str]) -> None:
    printed = command("printf", "%s\\0", *words)
    assert printed.isprintable()
    output = subprocess.run(["bash", "-c", printed], check=True, capture_output=True).stdout
    assert output == b"".join(word.encode() + b"\0" for word in words) or not words


def test_texts() -> None:
    assert [size_text(n) for n in (0, 1, 1023, 1536, 100 << 20, 5 << 50)] == [
        "0B", "1B", "1023B", "1.5Ki", "100Mi", "5.0Pi",
    ]  # fmt: skip
    assert [age_text(n) for n in (0.4, 59, 119, 120, 7200, 200_000)] == [
        "0s",
        "59s",
        "119s",
        "2m",
        "2h",
        "2d",
    ]
