"""A real kubelet with containerd and runc on this machine, isolated from it.

They live in a directory and in a mount namespace of their own where `/run`, `/var/lib` and `/var/log` are
empty, so other kubelets and runtimes of the machine do not notice, and all mounts are gone with the last
process. Containers are in a cgroup of their own (`cgroup_root`), images are made here (`images`).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.kube_apiserver import free_ports
from tests.real.cgroup_root import CgroupRoot, SliceRoot
from tests.real.images import Image, with_shell, write_images
from tests.real.pod_network import PodNetwork
from tests.real.programs import ASSETS, missing
from tests.waiting import PATIENCE, wait_until

RUNTIME = ("containerd", "containerd-shim-runc-v2", "runc", "ctr")
PROGRAMS = ("kubelet", *RUNTIME)
#: What pods name.
IMAGE = "local/app:1"
_PAUSE = "local/pause:1"
#: What kubelets set for the whole machine.
_SYSCTLS = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)

_NAMESPACE = """
set -e
resolver=$(readlink -f /etc/resolv.conf || true)
cp "$resolver" "$1/resolv.conf" || true
for name in $2; do mkdir -p "$1/kept/$name"; mount --bind "/run/$name" "$1/kept/$name"; done
for place in /run /var/lib /var/log; do mount -t tmpfs none $place; done
case "$resolver" in /run/*) mkdir -p "${resolver%/*}"; cp "$1/resolv.conf" "$resolver";; esac
for name in $2; do mkdir -p "/run/$name"; mount --bind "$1/kept/$name" "/run/$name"; done
mkdir -p /run/nri /run/cdi /var/lib/kubelet
mount --bind "$1/k" /var/lib/kubelet
mount --bind "$1/cdi" /run/cdi
mount --bind "$1/nri" /run/nri
echo ready
exec sleep infinity
"""
_NETWORK = """#!/bin/sh
case "$CNI_COMMAND" in
VERSION) echo '{"cniVersion":"1.0.0","supportedVersions":["0.4.0","1.0.0"]}';;
ADD) echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"'$CNI_NETNS'"}],
  "ips":[{"interface":0,"address":"10.9.0.'$(($$ % 250 + 2))'/24"}]}';;
esac
"""
#: For a runc without seccomp: kubelets want it for the sandbox of every pod.
_WRAPPER = """#!{python} -IS
import json, os, sys
words = sys.argv[1:]
if "create" in words and "--bundle" in words:
    path = words[words.index("--bundle") + 1] + "/config.json"
    with open(path) as file:
        config = json.load(file)
    config.get("linux", {{}}).pop("seccomp", None)
    with open(path, "w") as file:
        json.dump(config, file)
os.execv({runc!r}, ["runc", *words])
"""


def cannot_run(*programs: str) -> str:
    """Return why no node with these programs (by default a kubelet's) can run here, or an empty string."""
    if absent := missing(*(programs or PROGRAMS)):
        return absent
    if os.geteuid() != 0:
        return "a node must be root"
    if len(os.sched_getaffinity(0)) < 2:
        return "two CPUs are needed"
    tools = [tool for tool in ("unshare", "nsenter", "mount", "ldd") if not shutil.which(tool)]
    if tools:
        return f"this machine has no {' and no '.join(tools)}"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True)
    return f"no mount namespace: {tried.stderr.strip()}" if tried.returncode else ""


def _snapshotter(directory: Path) -> str:
    """Return how containerd keeps images in a directory: overlays take less time than copies."""
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", directory], capture_output=True, text=True
    ).stdout.strip()
    known = "overlay" in Path("/proc/filesystems").read_text().split()
    return "overlayfs" if known and kind != "overlayfs" else "native"


class Process:
    """Program with a log that can be restarted."""

    def __init__(self, command: Sequence[object], log: Path, env: dict[str, str] | None = None) -> None:
        self.command = [str(word) for word in command]
        self.log = log
        self._env = {**os.environ, **(env or {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        assert self._process is None, f"{self.command[0]} runs"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command, stdout=log, stderr=log, env=self._env)

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 20.0) -> int:
        """Stop the program, by force if needed; return its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


class RealNode:
    """Node `name` in a short directory. `start` it with the kubeconfig of a cluster."""

    def __init__(
        self,
        directory: Path,
        name: str = "real",
        images: Mapping[str, Image] | None = None,
        gates: Mapping[str, bool] | None = None,
        address: str = "127.0.0.1",
        network: PodNetwork | None = None,
        systemd: bool = False,
    ) -> None:
        """Create a node with further images and feature gates; a server asks its kubelet at `address`.

        Without a network, pods have addresses that lead nowhere. With `systemd` the runtime uses the systemd
        cgroup driver (cgroup v2 only).
        """
        self.directory, self.name = directory, name
        self._images = {
            f"docker.io/{_PAUSE}": with_shell(("/bin/sleep", "2147483647"), "sh", "sleep"),
            f"docker.io/{IMAGE}": with_shell(("/bin/sh",), "sh", "sleep"),
            **(images or {}),
        }
        self._gates = {"DRANodeAllocatableResources": True, **(gates or {})}
        self._address, self._network = address, network
        self.root = directory / "k"
        self.cdi, self.nri = directory / "cdi", directory / "nri" / "nri.sock"
        self._systemd = systemd
        name_of_root = f"plimsoll-{uuid.uuid4().hex[:8]}"
        self.cgroups = SliceRoot(name_of_root) if systemd else CgroupRoot(name_of_root)
        self._holder: subprocess.Popen[bytes] | None = None
        self.socket = directory / "c.sock"
        path = {"PATH": f"{ASSETS}:{os.environ['PATH']}"}
        self.containerd = Process((), directory / "containerd.log", path)
        self.kubelet = Process((), directory / "kubelet.log")
        self._sysctls: dict[Path, str] = {}

    # -- lifecycle

    def start(self, kubeconfig: Path) -> str:
        """Return why it cannot run, or nothing; AssertionError with its log if it does not start."""
        if reason := self.start_runtime():
            return reason
        self.kubelet.command = self.inside(
            *(ASSETS / "kubelet", "--kubeconfig", kubeconfig, "--config", self.directory / "kubelet.yaml"),
            *(
                "--hostname-override",
                self.name,
                "--root-dir",
                self.root,
                "--cert-dir",
                self.directory / "pki",
            ),
        )
        self.kubelet.start()
        return ""

    def start_runtime(self) -> str:
        """Start containerd alone, for another agent; return why it cannot run, or nothing."""
        if reason := self.cgroups.make():
            return reason
        self._sysctls = {Path("/proc/sys", name): Path("/proc/sys", name).read_text() for name in _SYSCTLS}
        self._write()
        self._holder = subprocess.Popen(
            [
                "unshare",
                "--mount",
                "--propagation=private",
                "sh",
                "-c",
                _NAMESPACE,
                "sh",
                str(self.directory),
                "systemd dbus" if self._systemd else "",
            ],
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == b"ready\n", "no mount namespace"
        self.containerd.command = self.inside(ASSETS / "containerd", "-c", self.directory / "containerd.toml")
        self.start_containerd()
        path = self.directory / "images.tar"
        write_images(path, self._images)
        self.import_image(path)
        path.unlink()
        return ""

    def import_image(self, path: Path) -> None:
        """Import a tar file in the OCI layout."""
        self.ctr("images", "import", "--local", "--snapshotter", _snapshotter(path.parent), path)

    def start_containerd(self) -> None:
        self.containerd.start()

        def answers() -> bool:
            assert self.containerd.alive, self.containerd.text()[-2000:]
            return self.ctr("version", check=False).returncode == 0

        wait_until(answers, context="containerd does not answer")

    def stop(self) -> None:
        """Stop everything and remove all files."""
        self.kubelet.stop()
        self.cgroups.remove()
        with suppress(AssertionError):  # they are killed then
            wait_until(
                lambda: not self._shims(),
                context="shims do not end",
                seconds=5 if self.containerd.alive else 0,
            )
        self.containerd.stop()
        for shim in self._shims():
            with suppress(ProcessLookupError):
                os.kill(shim, signal.SIGKILL)
        if self._holder is not None:
            self._holder.kill()
            self._holder.wait()
            assert self._holder.stdout is not None
            self._holder.stdout.close()
        for path, before in self._sysctls.items():
            if path.read_text() != before:
                path.write_text(before)

    def inside(self, *words: object) -> list[str]:
        """Return a command in the node's mount namespace."""
        assert self._holder is not None
        return ["nsenter", f"--mount=/proc/{self._holder.pid}/ns/mnt", "--", *map(str, words)]

    # -- state

    def processes(self, container: str) -> list[int]:
        """Return the processes of a container by its ID."""
        endings = (container, f"{container}.scope")
        return sorted(pid for pid, where in self.cgroups.processes().items() if where.endswith(endings))

    def _shims(self) -> list[int]:
        found = []
        for directory in Path("/proc").iterdir():
            with suppress(OSError):
                if directory.name.isdigit():
                    words = (directory / "cmdline").read_bytes().split(b"\0")
                    if b"containerd-shim" in words[0] and str(self.socket).encode() in words:
                        found.append(int(directory.name))
        return found

    # -- files

    def ctr(self, *words: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command of containerd's client."""
        command = self.inside(ASSETS / "ctr", "-a", self.socket, "-n", "k8s.io", *words)
        done = subprocess.run(command, capture_output=True, text=True)
        assert not check or done.returncode == 0, done.stderr
        return done

    def _write(self) -> None:
        directory = self.directory
        for name in ("cdi", "cni", "cni/conf", "nri", "nri.d", "nri.d/plugins", "nri.d/conf", "k"):
            (directory / name).mkdir()
        _write_program(directory / "cni/plain", self._network.plugin if self._network else _NETWORK)
        _write_program(directory / "cni/loopback", _NETWORK)
        chain = {"cniVersion": "1.0.0", "name": "plain", "plugins": [{"type": "plain"}]}
        (directory / "cni/conf/10-plain.conflist").write_text(json.dumps(chain))
        runc = ASSETS / "runc"
        output = subprocess.run([runc, "--version"], capture_output=True, text=True).stdout
        if "libseccomp" not in output:
            _write_program(directory / "runc", _WRAPPER.format(python=sys.executable, runc=str(runc)))
            runc = directory / "runc"
        (directory / "containerd.toml").write_text(_toml(self._containerd_settings(runc)))
        (directory / "kubelet.yaml").write_text(yaml.safe_dump(self._kubelet_settings()))

    def _containerd_settings(self, runc: Path) -> dict[str, Any]:
        directory = self.directory
        engine = {
            "runtime_type": "io.containerd.runc.v2",
            "options": {"BinaryName": str(runc), "SystemdCgroup": self._systemd},
        }
        runtime = {
            "restrict_oom_score_adj": True,
            "disable_apparmor": True,
            "enable_cdi": True,
            "cdi_spec_dirs": [str(self.cdi)],
            "cni": {
                "bin_dirs": [str(directory / "cni")],
                "conf_dir": str(directory / "cni/conf"),
                "use_internal_loopback": True,  # to which ports of pods are forwarded
            },
            "containerd": {"default_runtime_name": "runc", "runtimes": {"runc": engine}},
        }
        images = {"snapshotter": _snapshotter(directory), "pinned_images": {"sandbox": _PAUSE}}
        nri = {
            "disable": False,
            "socket_path": str(self.nri),
            "plugin_path": str(directory / "nri.d/plugins"),
            "plugin_config_path": str(directory / "nri.d/conf"),
            "default_validator": {"enable": True},  # pods may demand plugins
            "plugin_registration_timeout": f"{5 * PATIENCE:g}s",
            "plugin_request_timeout": f"{2 * PATIENCE:g}s",
        }
        return {
            "version": 3,
            "root": str(directory / "r"),
            "state": str(directory / "s"),
            "grpc": {"address": str(self.socket)},
            "plugins": {
                "io.containerd.cri.v1.runtime": runtime,
                "io.containerd.cri.v1.images": images,
                "io.containerd.nri.v1.nri": nri,
                "io.containerd.internal.v1.opt": {"path": str(directory / "opt")},
            },
        }

    def _kubelet_settings(self) -> dict[str, Any]:
        port, health = free_ports(2)
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": self._address,
            "port": port,
            "healthzPort": health,
            "readOnlyPort": 0,
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": self.cgroups.path,
            "enforceNodeAllocatable": [],
            "makeIPTablesUtilChains": False,
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "featureGates": self._gates,
            "volumePluginDir": str(self.directory / "volumes"),
            "podLogsDir": str(self.directory / "logs"),
            "resolvConf": "",
            "syncFrequency": "10s",
            "nodeStatusUpdateFrequency": "5s",
        }


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _toml(tree: dict[str, Any], path: str = "") -> str:
    """Format tables of strings, booleans, numbers and lists, which TOML writes as JSON does."""
    lines, tables = [], []
    for key, value in tree.items():
        if isinstance(value, dict):
            name = f"{path}.{json.dumps(key)}" if path else json.dumps(key)
            tables.append(f"[{name}]\n{_toml(value, name)}")
        else:
            lines.append(f"{key} = {json.dumps(value)}\n")
    return "".join(lines + tables)
