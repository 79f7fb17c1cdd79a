"""Configurations of sandboxes and containers, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plimsoll.errors import ConfigError, InputError
from plimsoll.node.process.settings import NodeSettings, override
from plimsoll.node.process.settings_file import parse_settings
from plimsoll.node.runtime.cri.container_config import devices_of, mounts_of
from plimsoll.node.runtime.cri.security import (
    ImageUser,
    container_security,
    namespaces,
    sandbox_security,
    sysctls,
)
from plimsoll.node.runtime.cri.settings import CriSettings, CriTiming
from plimsoll.protocols.cdi import DeviceNode, Edits, Mount
from plimsoll.protocols.messages import cri

from .harness import a_pod, app

ROOT = Path("/var/lib/node/seccomp")


@pytest.mark.parametrize(
    ("spec", "modes"),
    [
        ({}, (cri.POD, cri.CONTAINER, cri.POD)),
        ({"hostNetwork": True, "hostPID": True, "hostIPC": True}, (cri.NODE, cri.NODE, cri.NODE)),
        ({"shareProcessNamespace": True}, (cri.POD, cri.POD, cri.POD)),
    ],
)
def test_namespaces(spec: dict[str, Any], modes: tuple[int, int, int]) -> None:
    found = namespaces(a_pod(**spec))
    assert (found.network, found.pid, found.ipc) == modes


def test_the_context_of_a_container_takes_precedence() -> None:
    own = {
        "runAsUser": 5,
        "privileged": True,
        "capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]},
        "seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"},
        "appArmorProfile": {"type": "Localhost", "localhostProfile": "mine"},
        "procMount": "Unmasked",
    }
    whole = {"runAsUser": 1, "runAsGroup": 2, "fsGroup": 3, "supplementalGroups": [4]}
    whole |= {"supplementalGroupsPolicy": "Strict", "seLinuxOptions": {"level": "s0"}}
    pod = a_pod(app(securityContext=own), securityContext=whole)
    found = container_security(pod, pod.spec.containers[0], ImageUser(9), ROOT)
    assert (found.run_as_user.value, found.run_as_group.value) == (5, 2)
    assert list(found.supplemental_groups) == [3, 4]
    assert found.supplemental_groups_policy == cri.Strict
    assert found.privileged
    assert not found.masked_paths
    assert list(found.capabilities.add_capabilities) == ["NET_ADMIN"]
    assert found.seccomp.localhost_ref == "/var/lib/node/seccomp/a/b.json"
    assert found.apparmor.localhost_ref == "mine"
    assert found.selinux_options.level == "s0"
    assert sandbox_security(pod).privileged
    assert sandbox_security(pod).run_as_user.value == 1


def test_defaults_of_a_container() -> None:
    pod = a_pod()
    found = container_security(pod, pod.spec.containers[0], ImageUser(None, "nginx"), ROOT)
    assert (found.HasField("run_as_user"), found.run_as_username) == (False, "nginx")
    assert found.seccomp.profile_type == cri.SecurityProfile.Unconfined
    assert "/proc/kcore" in found.masked_paths
    assert "/proc/sys" in found.readonly_paths
    assert not found.no_new_privs
    assert not found.HasField("apparmor")


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"hostUsers": False}, "spec.hostUsers"),
        ({"securityContext": {"sysctls": [{"name": "vm.swappiness", "value": "1"}]}}, "vm.swappiness"),
    ],
)
def test_what_is_not_supported_is_refused(spec: dict[str, Any], problem: str) -> None:
    pod = a_pod(**spec)
    with pytest.raises(InputError, match=problem):
        _ = (sandbox_security(pod), sysctls(pod))


@pytest.mark.parametrize("name", ["", "/etc/passwd", "../../x", "a/../../x"])
def test_profiles_are_below_the_root(name: str) -> None:
    profile = {"seccompProfile": {"type": "Localhost", "localhostProfile": name}}
    pod = a_pod(app(securityContext=profile))
    with pytest.raises(InputError, match="localhostProfile"):
        container_security(pod, pod.spec.containers[0], ImageUser(), ROOT)


def test_safe_sysctls_are_passed() -> None:
    own = {"sysctls": [{"name": "net/ipv4/tcp_syncookies", "value": "0"}]}
    assert sysctls(a_pod(securityContext=own)) == {"net.ipv4.tcp_syncookies": "0"}


def test_mounts_and_devices_of_device_plugins() -> None:
    edits = Edits(
        mounts=(Mount(host_path="/h", container_path="/c", options=("ro", "rslave")),),
        device_nodes=(
            DeviceNode(path="/dev/x"),
            DeviceNode(path="/dev/y", host_path="/dev/z", permissions="r"),
        ),
    )
    (mount,) = mounts_of(edits)
    assert mount == cri.Mount(
        container_path="/c", host_path="/h", readonly=True, propagation=cri.PROPAGATION_HOST_TO_CONTAINER
    )
    assert [(each.container_path, each.host_path, each.permissions) for each in devices_of(edits)] == [
        ("/dev/x", "/dev/x", "rwm"),
        ("/dev/y", "/dev/z", "r"),
    ]


# -- settings


def test_settings_of_a_file_and_of_flags() -> None:
    tree = {
        "runtime": "cri",
        "cri": {
            "endpoint": "unix:///run/crio/crio.sock",
            "clusterDNS": ["10.96.0.10"],
            "clusterDomain": "c.local",
            "resolvConf": "",
            "podLogsDir": "/logs",
            "requestTimeout": "5m",
        },
    }
    found = parse_settings(tree).checked().cri
    assert found == CriSettings(
        endpoint="unix:///run/crio/crio.sock",
        cluster_dns=("10.96.0.10",),
        cluster_domain="c.local",
        resolv_conf=None,
        pod_logs=Path("/logs"),
        timing=CriTiming(request=300.0),
    )
    assert found.socket == Path("/run/crio/crio.sock")
    flags = override(NodeSettings(), runtime="cri", cri_endpoint="/run/c.sock", cluster_dns=("10.0.0.10",))
    assert (flags.cri.socket, flags.cri.cluster_dns) == (Path("/run/c.sock"), ("10.0.0.10",))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"runtime": "cri"}, "--cri-endpoint"),
        ({"cri": CriSettings(endpoint="unix:///a")}, "require --runtime cri"),
        ({"cgroup_driver": "systemd"}, "requires --runtime cri"),
        ({"runtime": "cri", "cri": CriSettings(endpoint="tcp://host:1")}, "not a Unix socket"),
        ({"runtime": "cri", "cri": CriSettings(endpoint="unix:///a"), "images": {"a": ("b",)}}, "images"),
        ({"runtime": "cri", "cri": CriSettings(endpoint="unix:///a"), "nri": Path("/x")}, "nri"),
        ({"runtime": "cri", "cri": CriSettings(endpoint="unix:///a"), "cdi": (Path("/x"),)}, "cdi_spec_dirs"),
        (
            {"runtime": "cri", "cri": CriSettings(endpoint="unix:///a"), "on_unsupported_security": "warn"},
            "unsupportedSecurityContext",
        ),
    ],
)
def test_settings_that_would_have_no_effect_are_refused(fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        NodeSettings(**fields).checked()
