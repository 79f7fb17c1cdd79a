"""Settings of the CRI runtime."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from plimsoll.errors import ConfigError

EXAMPLE_ENDPOINT = "unix:///run/containerd/containerd.sock"
_SCHEME = "unix://"


@dataclass(frozen=True, slots=True, kw_only=True)
class CriTiming:
    """Intervals and timeouts in seconds; the defaults are the kubelet's. Tests shorten them."""

    connect: float = 30.0  #: for the runtime to respond when the agent starts
    request: float = 120.0  #: timeout of a call; twice as long for a sandbox
    pull: float = 3600.0  #: timeout of an image pull
    relist: float = 1.0  #: between two relists without container events
    relist_with_events: float = 10.0
    status: float = 5.0  #: between two checks of the runtime's status
    log_check: float = 10.0  #: between two checks of the sizes of logs
    pull_backoff_first: float = 10.0  #: first back-off of a failed pull; doubles
    pull_backoff_max: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CriSettings:
    """Settings of the CRI runtime of one node."""

    endpoint: str = ""  #: socket of the runtime, such as EXAMPLE_ENDPOINT
    cluster_dns: tuple[str, ...] = ()  #: addresses of the cluster's DNS service
    cluster_domain: str = "cluster.local"
    resolv_conf: Path | None = Path("/etc/resolv.conf")  #: the machine's; None: pods get no DNS servers
    pod_logs: Path = Path("/var/log/pods")
    log_max_size: int = 10 << 20  #: bytes at which a container's log is rotated
    log_max_files: int = 5
    timing: CriTiming = CriTiming()

    @property
    def socket(self) -> Path:
        """Path of the runtime's socket; raises ConfigError if the endpoint is not one."""
        path = self.endpoint.removeprefix(_SCHEME)
        if not path.startswith("/") or (path == self.endpoint and ":" in path):
            raise ConfigError(
                f"--cri-endpoint: {self.endpoint!r} is not a Unix socket: use {EXAMPLE_ENDPOINT}"
            )
        return Path(path)
