"""Client configuration for one cluster and one user.

`kubeconfig` reads a `ClientConfig` from kubeconfig files or inside a pod; it may also be constructed
directly. It holds settings only: files are read when they are needed, and again when they change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from plimsoll.errors import ConfigError

#: Seconds without a byte after which a command gives up, unless configured otherwise.
REQUEST_TIMEOUT = 10.0
_INTERACTIVE_ATTEMPTS = 3
_FOREVER = 7 * 86_400.0


def check_server(server: str, origin: str = "") -> str:
    """Return the URL of an API server in canonical form; raises ConfigError if it is invalid."""
    try:
        parts = urlsplit(server)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        valid = valid and not any(char.isspace() for char in server)
    except ValueError:
        valid = False
    if not valid:
        where = f"{origin}: " if origin else ""
        raise ConfigError(f"{where}server {server!r} is not a URL: write https://HOST:PORT")
    return parts._replace(query="", fragment="").geturl().rstrip("/")


@dataclass(frozen=True, slots=True)
class Material:
    """Certificate, key or token: inline, or in a file that may be renewed."""

    data: bytes | None = field(default=None, repr=False)
    file: Path | None = None
    #: Location of the setting, for messages.
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Impersonation:
    """User to impersonate (`as`, `as-groups`, `as-uid`, `as-user-extra`)."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """Exec credential plugin (client.authentication.k8s.io)."""

    command: str
    api_version: str
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = "IfAvailable"
    #: The cluster's own settings for the plugin, from its `client.authentication.k8s.io/exec` extension.
    cluster_extension: object = None
    origin: str = ""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Cluster, user and default namespace."""

    server: str
    namespace: str = "default"
    # -- server certificate
    authority: Material | None = None
    insecure: bool = False
    tls_server_name: str = ""
    # -- credentials; a client certificate can be combined with any one of the others
    certificate: Material | None = None
    key: Material | None = None
    token: Material | None = None
    basic: tuple[str, str] | None = field(default=None, repr=False)
    exec_plugin: ExecPlugin | None = None
    impersonation: Impersonation | None = None
    # -- connection
    proxy: str = ""
    compression: bool | None = None  # None: on, except on loopback
    # -- requests
    user_agent: str = ""
    timeout: float = 30.0  #: seconds for one complete response
    idle_timeout: float = 0.0  #: seconds without data, including the time to connect; 0: `timeout`
    attempts: int = 6
    retry_timeout: float = 0.0  #: seconds after which a call is not retried; 0: only `attempts` count
    in_flight: int = 128
    qps: float = 0.0  # 0: no client-side limit
    burst: int = 0
    #: Origin of this configuration, for messages: the file and the context.
    origin: str = ""

    def interactive(self, request_timeout: float | None = None) -> ClientConfig:
        """Return a config for interactive commands: a server that does not respond fails soon.

        `request_timeout` is the number of seconds without a byte (None: the default, 0: no timeout). A
        long response may take longer, as long as data arrives.
        """
        attempts = min(self.attempts, _INTERACTIVE_ATTEMPTS)
        if request_timeout == 0:
            return replace(self, attempts=attempts, timeout=_FOREVER, idle_timeout=0.0, retry_timeout=0.0)
        if request_timeout is None:
            idle_timeout, timeout = min(REQUEST_TIMEOUT, self.timeout), self.timeout
        else:
            idle_timeout, timeout = request_timeout, max(self.timeout, 4 * request_timeout)
        return replace(
            self, attempts=attempts, timeout=timeout, idle_timeout=idle_timeout, retry_timeout=idle_timeout
        )
