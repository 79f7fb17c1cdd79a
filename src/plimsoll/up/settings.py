"""Settings of `plimsoll up`. Every field has a working default."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from plimsoll.api.core import Taint
from plimsoll.api.gates import Gates
from plimsoll.common.addresses import host_name
from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.node.runtime.stages import Stage
from plimsoll.node.security.policy import OnUnsupported

#: Data directory unless another is named.
DATA_DIR = "plimsoll-data"


@dataclass(frozen=True, slots=True, kw_only=True)
class UpSettings:
    """Components to run and the paths of their files."""

    data: Path = Path(DATA_DIR)
    host: str = "127.0.0.1"
    #: None: the port of the last run, the default, or any; 0: the port of the last run, or any.
    port: int | None = None
    dashboard: tuple[str, int | None] | None = None  #: host and port, as above; None: no dashboard
    name: str = ""  #: name of the node; "": the host's name
    runtime: Literal["process", "none"] = "process"
    #: Policy for containers whose security context cannot be applied in full.
    on_unsupported_security: OnUnsupported = "refuse"
    nodes: int = 0  #: number of simulated nodes in addition to it
    #: Labels and taints of the simulated nodes, in addition to the label `plimsoll.dev/simulated`.
    simulated_labels: Mapping[str, str] = field(default_factory=dict)
    simulated_taints: tuple[Taint, ...] = ()
    stages: tuple[Stage, ...] = ()  #: of simulated pods
    files: tuple[str, ...] = ()  #: manifests and dumps to apply
    demo: bool = False
    once: bool = False  #: exit when everything is ready and the demo has run
    driver: bool = True
    driver_listen: str = "127.0.0.1:0"  #: address of its health and metrics endpoints; "" for none
    devices: tuple[str, ...] = ()  #: device files for all nodes; see docs/drivers.md
    #: Settings of the CPU driver; node and directories are filled in.
    cpu: CpuSettings = field(default_factory=lambda: CpuSettings(node=""))
    leave_running: bool = False
    gates: Gates = field(default_factory=Gates.default)
    log_format: str = "text"
    verbose: bool = False  #: also log to the terminal, with debug messages

    @property
    def root(self) -> Path:
        """Directory of the node, with the sockets for drivers and monitoring agents."""
        return self.data / "node"

    @property
    def volumes(self) -> Path:
        """Directory of provisioned volumes."""
        return self.data / "volumes"

    @property
    def kubeconfig(self) -> Path:
        return self.data / "kubeconfig"

    @property
    def log(self) -> Path:
        return self.data / "log"

    @property
    def history(self) -> Path:
        """File with the history that the dashboard shows."""
        return self.data / "history.db"

    @property
    def control(self) -> Path:
        """Path of the drivers' control file."""
        return self.data / "control.yaml"

    @property
    def node(self) -> str:
        return self.name or name_for(host_name())


def name_for(host: str) -> str:
    """Convert a host name to a valid node name."""
    return re.sub(r"[^a-z0-9.-]+", "-", host.lower())[:63].strip("-.") or "node"
