"""Settings of node agents: from a file, from flags, and the messages for mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.api.core import NodeAddress, Taint
from plimsoll.api.forms import Form
from plimsoll.common.addresses import host_name
from plimsoll.errors import ConfigError, InputError
from plimsoll.node.machine.machine import EVICTION_HARD
from plimsoll.node.podresources import RateLimit
from plimsoll.node.process.settings import LISTEN, ROOT, NodeSettings, override
from plimsoll.node.process.settings_file import parse_settings, read_settings

TEXT = """
kind: NodeConfiguration
name: sim
count: 3
root: /tmp/nodes
runtime: none
machine: /etc/machine.yaml
labels: {rack: "1"}
taints: [{key: a, effect: NoExecute}]
addresses: [10.0.0.1]
maxPods: 50
systemReserved: {cpu: 500m, memory: 1Gi}
kubeReserved: {memory: 512Mi}
reservedCPUs: 0-1
eviction:
  hard: {memory.available: 200Mi}
  soft: {memory.available: 10%}
  softGracePeriod: {memory.available: 30s}
  minimumReclaim: {memory.available: 50Mi}
cdiSpecDirs: [/a, /b]
nri: {socket: /run/nri.sock, config: /etc/nri}
podResources: {callsPerSecond: 5, burst: 2}
cgroups: {mode: plan, root: pods}
images: {nginx: [sleep, inf]}
unsupportedSecurityContext: warn
featureGates: {DRANodeAllocatableResources: false}
form: "1.37"
heartbeat: {leaseSeconds: 20, renew: 5s, statusCheck: 1s, statusReport: 1m}
leave: true
listen: 127.0.0.1:0
log: {format: json, verbose: true}
"""


def test_all_settings_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(TEXT)
    found = read_settings(path)
    assert found.names == ("sim-0", "sim-1", "sim-2")
    assert found.layout("sim-1").root == Path("/tmp/nodes/sim-1")
    assert (found.runtime, found.max_pods, found.cgroups, found.cgroup_root) == ("none", 50, "plan", "pods")
    assert found.taints == (Taint(key="a", effect="NoExecute"),)
    assert found.addresses == (NodeAddress(type="InternalIP", address="10.0.0.1"),)
    assert str(found.reservations.system["cpu"]) == "500m"
    assert found.reservations.cpus == (0, 1)
    assert found.reservations.eviction_hard == {"memory.available": "200Mi"}
    assert [(t.signal, t.value, t.grace, t.min_reclaim) for t in found.thresholds if not t.is_hard] == [
        ("memory.available", "10%", 30.0, "50Mi")
    ]
    assert (found.cdi, found.nri) == ((Path("/a"), Path("/b")), Path("/run/nri.sock"))
    assert found.pod_resources == RateLimit(5, 2)
    assert not found.gates.enabled("DRANodeAllocatableResources")
    assert (found.form, found.leave, found.images) == (Form.V1_37, True, {"nginx": ("sleep", "inf")})
    assert (found.timing.lease, found.timing.renew, found.timing.report) == (20, 5.0, 60.0)
    assert found.on_unsupported_security == "warn"
    assert found.checked().is_bare


def test_default_settings() -> None:
    found = read_settings(None)
    assert found.names == (host_name(),)
    assert (found.root, found.runtime, found.listen, found.is_bare) == (ROOT, "process", LISTEN, False)
    assert found.layout(host_name()).root == ROOT
    assert found.reservations.eviction_hard == EVICTION_HARD
    assert found.on_unsupported_security == "refuse"
    assert parse_settings({"nri": {"enabled": False}}).nri == Path("")
    assert parse_settings({"podResources": {"unlimited": True}}).pod_resources is None


def test_flags_override_the_file() -> None:
    found = override(
        parse_settings({"name": "a", "labels": {"x": "1", "y": "2"}, "listen": "127.0.0.1:1"}),
        name="b",
        labels=("y=3,z=4", "w=5"),
        taints=("k=v:NoSchedule",),
        addresses=("10.1.1.1",),
        system_reserved="cpu=1,memory=2Gi",
        kube_reserved="",
        reserved_cpus="3",
        eviction_hard="memory.available<1Gi",
        gates="DRAConsumableCapacity=false",
        form="1.37",
        cdi=(Path("/c"),),
        listen="",
        root=None,
        runtime="none",
    )
    assert found.name == "b"
    assert found.labels == {"x": "1", "y": "3", "z": "4", "w": "5"}
    assert found.taints == (Taint(key="k", value="v", effect="NoSchedule"),)
    assert str(found.reservations.system["memory"]) == "2Gi"
    assert found.reservations.cpus == (3,)
    assert found.reservations.eviction_hard == {"memory.available": "1Gi"}
    assert {t.value for t in found.thresholds} == {"1Gi"}
    assert not found.gates.enabled("DRAConsumableCapacity")
    assert (found.root, found.runtime, found.listen, found.form) == (ROOT, "none", "", Form.V1_37)


@pytest.mark.parametrize(
    ("tree", "place"),
    [
        ({"kind": "Pod"}, "kind"),
        ({"count": 0}, "count"),
        ({"runtime": "docker"}, "runtime"),
        ({"unsupportedSecurityContext": "ignore"}, "unsupportedSecurityContext"),
        ({"labels": {"a b": "x"}}, "labels"),
        ({"taints": [{}]}, "taints[0].key"),
        ({"addresses": "x"}, "addresses"),
        ({"systemReserved": {"cpu": "x"}}, "systemReserved.cpu"),
        ({"reservedCPUs": "x"}, "reservedCPUs"),
        ({"eviction": {"hard": {"x": "1"}}}, "eviction"),
        ({"eviction": {"soft": {"memory.available": "1Gi"}}}, "eviction"),
        ({"eviction": {"other": 1}}, "eviction.other"),
        ({"podResources": {"burst": 0}}, "podResources.burst"),
        ({"cgroups": {"mode": "v3"}}, "cgroups.mode"),
        ({"featureGates": {"No": True}}, "featureGates"),
        ({"featureGates": {"DRAAdminAccess": 1}}, "featureGates.DRAAdminAccess"),
        ({"form": "1.35"}, "form"),
        ({"heartbeat": {"leaseSeconds": 5, "renew": "5s"}}, "heartbeat.renew"),
        ({"images": {"a": "b"}}, "images.a"),
        ({"nri": {"strange": 1}}, "nri.strange"),
        ({"strange": 1}, "strange"),
    ],
)
def test_mistakes_in_a_file_name_their_position(tree: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_settings(tree, "node.yaml")
    assert str(caught.value).startswith(f"node.yaml: {place}"), str(caught.value)


@pytest.mark.parametrize(
    ("flags", "place"),
    [
        ({"labels": ("x",)}, "--label"),
        ({"taints": ("x",)}, "--taint"),
        ({"system_reserved": "cpu"}, "--system-reserved"),
        ({"kube_reserved": "cpu=x"}, "--kube-reserved.cpu"),
        ({"reserved_cpus": "x"}, "--reserved-cpus"),
        ({"eviction_hard": "memory.available=1Gi"}, "--eviction-hard"),
        ({"eviction_hard": "memory.available<x"}, "--eviction-hard"),
        ({"gates": "X=true"}, "unknown feature gate"),
        ({"name": "A b"}, "name"),
        ({"name": "a" * 254}, "name"),
        ({"count": 2}, "count"),
        ({"bare": True}, "bare"),
        ({"listen": "x"}, "--listen"),
    ],
)
def test_mistakes_in_flags_name_them(flags: dict[str, Any], place: str) -> None:
    with pytest.raises(InputError) as caught:
        override(NodeSettings(name="n"), **flags)
    assert str(caught.value).startswith(place), str(caught.value)


@pytest.mark.parametrize("text", ["a: 1\n---\nb: 2", "{", "[]"])
def test_malformed_settings_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "node.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"node\.yaml"):
        read_settings(path)
    with pytest.raises(ConfigError, match="No such file"):
        read_settings(tmp_path / "absent")
