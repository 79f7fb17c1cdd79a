"""START HERE: `Doctor`: examine a node.

Facts are gathered area by area without changing anything; checks are functions of facts (`CHECKS`).
"""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from plimsoll.client import Client, ClientConfig
from plimsoll.errors import ConfigError
from plimsoll.node.cgroups import Cgroups
from plimsoll.node.layout import Layout
from plimsoll.node.process.assembly import CDI_SPEC_DIRS
from plimsoll.node.process.settings import NodeSettings
from plimsoll.tools.doctor import cdi, cgroups, cluster, machine, pods, privileges, records, sockets
from plimsoll.tools.doctor import root_dir as root
from plimsoll.tools.doctor.facts import ClusterFacts, NodeFacts
from plimsoll.tools.doctor.files import list_dir, probe_socket, stat_entry
from plimsoll.tools.doctor.report import DoctorReport
from plimsoll.tools.findings import Finding

_DENIED = os.strerror(errno.EACCES)
#: The checks by area, in the order of the report.
CHECKS: Mapping[str, Callable[[NodeFacts], Iterator[Finding]]] = {
    "root": root.check,
    "sockets": sockets.check,
    "privileges": privileges.check,
    "machine": machine.check,
    "cgroups": cgroups.check,
    "records": records.check,
    "pods": pods.check,
    "cdi": cdi.check,
    "cluster": cluster.check,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doctor:
    """Examination of one node, by its settings, and of its objects in a cluster if one is given."""

    settings: NodeSettings
    #: "": detected.
    runtime: Literal["", "process", "none"] = ""
    cluster: ClientConfig | None = None
    client: Client | None = None  #: instead of `cluster`
    mount: Path = cgroups.MOUNT
    #: Seconds for a response of a driver or of the agent.
    timeout: float = 5.0

    @property
    def node(self) -> str:
        return self.settings.names[0]

    @property
    def layout(self) -> Layout:
        return self.settings.layout(self.node)

    async def examine(self) -> DoctorReport:
        """Examine everything without changes. Raise ConfigError if the directory is not accessible."""
        facts = await self.gather()
        return DoctorReport(
            root=str(self.layout.root),
            node=facts.node,
            owner=facts.owner,
            running=facts.running,
            findings=check_node(facts),
        )

    # -- gathering

    async def gather(self) -> NodeFacts:
        facts = await asyncio.to_thread(self._gather_files)
        return replace(
            facts,
            sockets=await sockets.gather(
                self.layout, self._nri(), timeout=self.timeout, kubelet=facts.is_kubelet
            ),
            cluster=await self._cluster(),
        )

    def _gather_files(self) -> NodeFacts:
        """Gather everything except sockets and API objects."""
        layout, settings = self.layout, self.settings
        entry = stat_entry(layout.root)
        problem = entry.error or list_dir(layout.root, 1).error
        if problem and entry.kind in ("directory", "unknown"):
            raise ConfigError(f"{layout.root}: not accessible: {problem}; run the doctor as root")
        held = root.read_lock(layout.lock)
        found = records.gather(layout)
        problems = (held.problem, found.claims.problem, found.admitted.problem, found.kubelet.problem)
        if _DENIED in problems:
            # Without access a running agent would be mistaken for a stopped one.
            raise ConfigError(f"{layout.root}: not accessible: {_DENIED}; run the doctor as root")
        is_kubelet = not held.held and root.is_kubelets(layout)
        running, pid = held.held, held.pid if held.held else None
        if is_kubelet:
            pids = root.kubelet_pids()
            running = bool(pids) or self._is_served()
            pid = pids[0] if pids else None
        tree = None if is_kubelet else self._tree()
        directories = settings.cdi or (*CDI_SPEC_DIRS, *(() if is_kubelet else (layout.cdi,)))
        own_cgroups = cgroups.gather(*settings.cgroups_of(self.node), tree, self.mount)
        return NodeFacts(
            layout=layout,
            now=time.time(),
            node=self.node,
            owner="kubelet" if is_kubelet else "agent",
            running=running,
            pid=pid,
            runtime=self._runtime(running),
            uid=os.geteuid(),
            root=root.gather(layout, held),
            privileges=privileges.gather(pid if running else None),
            machine=machine.gather(settings),
            cgroups=replace(own_cgroups, planned=settings.cgroups == "plan"),
            records=found,
            pods=pods.gather(layout, kubelet=is_kubelet),
            cdi=cdi.gather(layout, directories, found),
        )

    def _is_served(self) -> bool:
        path = self.layout.pod_resources
        return stat_entry(path).exists and not probe_socket(path)

    async def _cluster(self) -> ClusterFacts | None:
        if self.client is not None:
            return await cluster.gather(self.client, self.node)
        if self.cluster is None:
            return None
        # Report an unreachable server instead of waiting for it.
        config = self.cluster.interactive()
        async with Client.connect(config) as client:
            return await cluster.gather(client, self.node, config.server)

    def _runtime(self, running: bool) -> str:
        """Return the container runtime: as configured, else as detected."""
        if self.runtime:
            return self.runtime
        shim = stat_entry(self.layout.root / "shim.pyc").exists
        return "none" if running and not shim else self.settings.runtime

    def _tree(self) -> Cgroups | None:
        root, owner = self.settings.cgroups_of(self.node)
        return cgroups.open_tree(root, owner, self.settings.cgroups, self.mount)

    def _nri(self) -> Path | None:
        nri = self.settings.nri
        return self.layout.nri if nri is None else None if nri == Path("") else nri


def check_node(facts: NodeFacts) -> tuple[Finding, ...]:
    """Return all findings about a node. Pure."""
    return tuple(finding for check in CHECKS.values() for finding in check(facts))
