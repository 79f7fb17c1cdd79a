"""Kubeconfigs with client certificates for components of the cluster.

Components have short names (`admin`, `scheduler`, `controllers`, `node:NAME`, `driver:NAME`, `viewer:NAME`).
Certificates are issued from a data directory; the server need not run.
"""

from __future__ import annotations

from pathlib import Path

from plimsoll.api.names import dns_subdomain
from plimsoll.apiserver.auth.certificates import CLIENT_DAYS, CertificateAuthority
from plimsoll.apiserver.auth.kubeconfig import write_kubeconfig
from plimsoll.apiserver.auth.users import (
    ADMIN,
    ALL_AUTHENTICATED,
    CONTROLLER_MANAGER,
    CONTROLLERS,
    SCHEDULER,
    VIEWERS,
    User,
    driver_user,
    node_user,
)
from plimsoll.errors import ConfigError

_COMPONENTS = {
    "admin": ADMIN,
    "scheduler": SCHEDULER,
    "controllers": CONTROLLERS,
    "controller-manager": CONTROLLER_MANAGER,
}
_VALID_NAMES = "admin, scheduler, controllers, controller-manager, node:NAME, driver:NAME or viewer:NAME"


def parse_component_user(text: str) -> User:
    """Return the user of a short name, such as `admin` or `node:worker-1`."""
    if text in _COMPONENTS:
        return _COMPONENTS[text]
    kind, _, name = text.partition(":")
    if kind == "viewer" and name and not name.startswith("system:"):
        return User(name, groups=(VIEWERS, ALL_AUTHENTICATED))
    if kind in ("node", "driver") and name:
        if dns_subdomain(name):
            raise ConfigError(f"{name!r} is not a valid {kind} name: use the lower-case name of its objects")
        return node_user(name) if kind == "node" else driver_user(name)
    raise ConfigError(f"unknown user {text!r}; valid values: {_VALID_NAMES}")


def issue_kubeconfig(
    directory: Path, user: User, path: Path, server: str, *, days: int = CLIENT_DAYS
) -> None:
    """Write a kubeconfig for a user, with a certificate of the CA in a data directory.

    ConfigError if the directory has no CA: no server would trust a new one.
    """
    if not (directory / "ca.crt").exists():
        raise ConfigError(f"{directory} is not a data directory of a server: it has no ca.crt")
    authority = CertificateAuthority.load_or_create(directory)
    client = authority.issue_client(user, days)
    write_kubeconfig(path, server, authority=authority.certificate, client=client, user=user.name)
