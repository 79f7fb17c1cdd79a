"""Users, their groups, and the names that Kubernetes reserves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

ALL_AUTHENTICATED = "system:authenticated"
ALL_UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"
NODES = "system:nodes"
MONITORING = "system:monitoring"
ALL_SERVICE_ACCOUNTS = "system:serviceaccounts"
DRIVERS = "plimsoll:drivers"
VIEWERS = "plimsoll:viewers"

NODE_PREFIX = "system:node:"
DRIVER_PREFIX = "plimsoll:driver:"
SERVICE_ACCOUNT_PREFIX = "system:serviceaccount:"

#: Extra fields of bound service account tokens: pod and node.
EXTRA_POD_NAME = "authentication.kubernetes.io/pod-name"
EXTRA_POD_UID = "authentication.kubernetes.io/pod-uid"
EXTRA_NODE_NAME = "authentication.kubernetes.io/node-name"
EXTRA_NODE_UID = "authentication.kubernetes.io/node-uid"
EXTRA_CREDENTIAL = "authentication.kubernetes.io/credential-id"

_NO_EXTRA: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def _no_extra() -> Mapping[str, tuple[str, ...]]:
    return _NO_EXTRA


@dataclass(frozen=True, slots=True)
class User:
    """Authenticated (or anonymous) user. `extra` are further attributes from the credentials."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=_no_extra, hash=False)

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_anonymous(self) -> bool:
        """Return whether the request has no credentials (or impersonates the anonymous user)."""
        return self.name == ANONYMOUS.name

    def as_authenticated(self) -> User:
        """Return the user with `system:authenticated` among its groups."""
        if ALL_AUTHENTICATED in self.groups or ALL_UNAUTHENTICATED in self.groups:
            return self
        return replace(self, groups=(*self.groups, ALL_AUTHENTICATED))


ANONYMOUS = User("system:anonymous", groups=(ALL_UNAUTHENTICATED,))

#: Users of the server's own components.
ADMIN = User("plimsoll:admin", groups=(MASTERS, ALL_AUTHENTICATED))
#: The API server itself, as a client of kubelets.
KUBELET_CLIENT = User("kube-apiserver-kubelet-client", groups=(MASTERS, ALL_AUTHENTICATED))
CONTROLLERS = User("plimsoll:controllers", groups=(ALL_AUTHENTICATED,))
CONTROLLER_MANAGER = User("system:kube-controller-manager", groups=(ALL_AUTHENTICATED,))
SCHEDULER = User("system:kube-scheduler", groups=(ALL_AUTHENTICATED,))


def node_user(name: str) -> User:
    """Return the user of a node."""
    return User(NODE_PREFIX + name, groups=(NODES, ALL_AUTHENTICATED))


def driver_user(driver: str) -> User:
    """Return the user of a DRA driver that serves any node."""
    return User(DRIVER_PREFIX + driver, groups=(DRIVERS, ALL_AUTHENTICATED))


def service_account_user(namespace: str, name: str, uid: str = "") -> User:
    """Return the user of a service account."""
    groups = (ALL_SERVICE_ACCOUNTS, f"{ALL_SERVICE_ACCOUNTS}:{namespace}", ALL_AUTHENTICATED)
    return User(f"{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}", uid, groups)


def node_name_of(user: User) -> str | None:
    """Return the name of the node that a user is; "" if the name is missing; None if it is no node."""
    if user.name.startswith(NODE_PREFIX) and NODES in user.groups:
        return user.name[len(NODE_PREFIX) :]
    return None


def driver_name_of(user: User) -> str | None:
    """Return the name of the DRA driver that a user is, or None."""
    if user.name.startswith(DRIVER_PREFIX) and DRIVERS in user.groups:
        return user.name[len(DRIVER_PREFIX) :]
    return None


def split_service_account(name: str) -> tuple[str, str] | None:
    """Split the user name of a service account into namespace and name; None if it is none."""
    if not name.startswith(SERVICE_ACCOUNT_PREFIX):
        return None
    namespace, colon, account = name[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")
    if not colon or not namespace or not account or ":" in account:
        return None
    return namespace, account
