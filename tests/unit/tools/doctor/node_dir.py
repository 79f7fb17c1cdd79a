"""Node directories to examine: a healthy one, and ways to damage it."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from plimsoll.common.checkpoint import render
from plimsoll.node.admission.admission_handler import KIND as ADMITTED
from plimsoll.node.cgroups.ownership import default_root, owner_of
from plimsoll.node.claim_info import ClaimInfo, ClaimRef, PreparedDevice
from plimsoll.node.claims.checkpoint import KIND as CLAIMS
from plimsoll.node.claims.checkpoint import encode_body, encode_claim
from plimsoll.node.layout import Layout
from plimsoll.node.process.settings import NodeSettings
from plimsoll.protocols.cdi import CdiSpec, CdiSpecDevice, Edits, write_spec
from plimsoll.tools.doctor.doctor import Doctor
from plimsoll.tools.doctor.report import DoctorReport
from plimsoll.tools.findings import Finding, Severity
from tests.waiting import DEADLINE

NODE = "node-a"
POD = "11111111-2222-4333-8444-555555555555"
CLAIM = "aaaaaaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee"
GONE = "99999999-9999-4999-8999-999999999999"
DRIVER = "gpu.example.com"


class NodeDir:
    """Directory of a node, next to directories for cgroups and the machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.layout = Layout(directory / "node")
        self.mount = directory / "cgroup"
        self.cdi = self.layout.cdi

    def furnish(self) -> NodeDir:
        """Create a healthy node with one pod and one claim, whose agent was stopped."""
        self.layout.root.mkdir(mode=0o755)
        self.put_claims(a_claim())
        self.put_admitted(POD)
        self.put_cdi(CLAIM)
        return self

    def put_claims(self, *claims: ClaimInfo) -> None:
        self.put(self.layout.claims, render(CLAIMS, 1, encode_body(map(encode_claim, claims))))

    def put_admitted(self, *uids: str) -> None:
        rows = [{"uid": uid, "namespace": "default", "name": f"pod-{uid[:4]}"} for uid in uids]
        self.put(self.layout.admitted, render(ADMITTED, 1, {"pods": rows}))

    def put(self, path: Path, data: bytes = b"", mode: int = 0o600) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(mode)
        return path

    def put_cdi(self, uid: str, directory: Path | None = None, device: str = "") -> Path:
        edits = Edits(env=("GPU=1",))
        spec = CdiSpec(
            version="0.6.0",
            kind="example.com/gpu",
            devices=(CdiSpecDevice(name=device or f"{uid}-gpu-0", edits=edits),),
        )
        path = write_spec(directory or self.cdi, f"example.com-gpu_{uid}", spec)
        assert isinstance(path, Path), path
        return path

    def put_socket(self, path: Path, mode: int = 0o600) -> Path:
        """Create a socket without a server, an hour old."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(path))
        path.chmod(mode)
        os.utime(path, (os.stat(path).st_atime, os.stat(path).st_mtime - 3600))
        return path

    @property
    def cgroups(self) -> Path:
        """Return the root of the node's cgroups."""
        return self.mount / default_root(NODE, self.layout.root)

    def put_cgroups(self, *pods: str, owner: str = "", controllers: str = "cpu cpuset memory pids") -> None:
        self.put(self.mount / "cgroup.controllers", controllers.encode())
        root, owner = self.cgroups, owner or owner_of(NODE, self.layout.root)
        for name in (f"owner.{owner}", "burstable", "besteffort", *(f"burstable/pod{uid}" for uid in pods)):
            (root / name).mkdir(parents=True, exist_ok=True)

    def examine(self, *, runtime: str = "none", **changes: Any) -> DoctorReport:
        return asyncio.run(self.ask(runtime=runtime, **changes))

    async def ask(self, *, runtime: Any = "none", **changes: Any) -> DoctorReport:
        client, timeout = changes.pop("client", None), changes.pop("timeout", DEADLINE)
        settings: dict[str, Any] = {"root": self.layout.root, "name": NODE, "cdi": (self.cdi,), **changes}
        doctor = Doctor(
            settings=NodeSettings(**settings),
            runtime=runtime,
            mount=self.mount,
            client=client,
            timeout=timeout,
        )
        return await doctor.examine()

    def snapshot(self) -> dict[str, tuple[int, bytes]]:
        """Return modes and contents of all files."""
        found = {}
        for path in sorted(self.directory.rglob("*")):
            info = path.lstat()
            data = path.read_bytes() if stat.S_ISREG(info.st_mode) else b""
            found[os.fspath(path)] = (info.st_mode, data)
        return found


@contextmanager
def temporary_node_dir() -> Iterator[NodeDir]:
    directory = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
    try:
        yield NodeDir(directory)
    finally:
        shutil.rmtree(directory)


def a_claim(uid: str = CLAIM, *pods: str, name: str = "gpu", cdi: str = "", **changes: Any) -> ClaimInfo:
    device = PreparedDevice("pool", "gpu-0", ("gpu",), (cdi or f"example.com/gpu={uid}-gpu-0",))
    fields: dict[str, Any] = {
        "ref": ClaimRef("default", name, uid),
        "pods": frozenset(pods or (POD,)),
        "drivers": {DRIVER: (device,)},
        "ready": True,
        **changes,
    }
    return ClaimInfo(**fields)


def of(report: DoctorReport, id: str) -> list[Finding]:
    return [each for each in report.findings if each.id == id]


def bad(report: DoctorReport) -> list[tuple[str, str]]:
    found = (each for each in report.findings if each.severity.reaches(Severity.WARNING))
    return [(each.id, each.severity.value) for each in found]


def check_fault(node_dir: NodeDir, id: str, severity: Severity, **asked: Any) -> Finding:
    """Check that a fault is found, that looking changes nothing, and that the printed command corrects it."""
    before = node_dir.snapshot()
    (found,) = of(node_dir.examine(**asked), id)
    assert node_dir.snapshot() == before
    assert found.severity is severity
    run_command(found)
    after = node_dir.examine(**asked)
    assert bad(after) == []
    assert [each for each in of(after, id) if each.severity is severity] == []
    return found


def run_command(found: Finding) -> None:
    """Run the command at the end of a fix."""
    subprocess.run(["bash", "-ec", found.fix.rpartition(": ")[2]], check=True)
