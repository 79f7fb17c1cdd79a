"""What a client must know to reach one cluster as one user.

Owns `ClientConfig`, which `cluster.kubeconfig` reads from kubeconfig files or from inside a pod, and which
code may also write out by hand. It holds settings only: files are read when they are needed, and again when
they change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from plimsoll.errors import ConfigError


def check_server(server: str, origin: str = "") -> str:
    """The address of an API server in the form requests are built on; ConfigError if it is none."""
    try:
        parts = urlsplit(server)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        valid = valid and not any(char.isspace() for char in server)
    except ValueError:
        valid = False
    if not valid:
        where = f"{origin}: " if origin else ""
        raise ConfigError(f"{where}server {server!r} is no address: write https://HOST:PORT")
    return parts._replace(query="", fragment="").geturl().rstrip("/")


@dataclass(frozen=True, slots=True)
class Material:
    """A certificate, key or token: given in the configuration itself, or in a file that may be renewed."""

    data: bytes | None = field(default=None, repr=False)
    file: Path | None = None
    #: Where the setting stands, for messages.
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Impersonation:
    """Who to act as (`as`, `as-groups`, `as-uid`, `as-user-extra`)."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """A program that is asked for credentials (client.authentication.k8s.io)."""

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
    """One cluster, one user, one default namespace."""

    server: str
    namespace: str = "default"
    # -- whom we trust
    authority: Material | None = None
    insecure: bool = False
    tls_server_name: str = ""
    # -- who we are; a client certificate may stand beside any one of the others
    certificate: Material | None = None
    key: Material | None = None
    token: Material | None = None
    basic: tuple[str, str] | None = field(default=None, repr=False)
    exec_plugin: ExecPlugin | None = None
    impersonation: Impersonation | None = None
    # -- how to get there
    proxy: str = ""
    compression: bool | None = None  # None: on, except on loopback
    # -- manners
    user_agent: str = ""
    timeout: float = 30.0
    attempts: int = 6
    in_flight: int = 128
    qps: float = 0.0  # 0: no limit of our own
    burst: int = 0
    #: Where this was read, for messages: the file and the context.
    origin: str = ""
