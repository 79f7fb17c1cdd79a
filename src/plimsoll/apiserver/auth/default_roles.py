"""The roles that are always there, and who has them.

Owns the built-in ClusterRoles and their bindings: those that Kubernetes creates for its own parts and for
people (`cluster-admin`, `admin`, `edit`, `view`, `system:*`), and ours (`plimsoll:*`). They hold whatever
the store says, so nobody can lock the administrator out; stored roles and bindings only add to them.

DIFF: Kubernetes stores these roles and lets them be changed; see test_built_in_roles_cannot_be_taken_away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plimsoll.apiserver.auth import users
from plimsoll.apiserver.auth.rbac_rules import Rule

READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
READ_WRITE = READ + WRITE
READ_UPDATE = (*READ, "update", "patch")
CHANGE = ("update", "patch")

CORE, EVENTS, DRA = "", "events.k8s.io", "resource.k8s.io"
APPS, BATCH, POLICY, LEASES = "apps", "batch", "policy", "coordination.k8s.io"
STORAGE, CERTIFICATES = "storage.k8s.io", "certificates.k8s.io"
TOKENS, REVIEWS, RBAC = "authentication.k8s.io", "authorization.k8s.io", "rbac.authorization.k8s.io"

_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"


@dataclass(frozen=True, slots=True)
class ClusterRole:
    """Rules under a name; with `aggregates`, the rules of all roles that carry that label as well."""

    name: str
    rules: tuple[Rule, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    aggregates: str = ""


@dataclass(frozen=True, slots=True)
class Binding:
    """A role for users and groups, in all namespaces."""

    role: str
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


def on(verbs: tuple[str, ...] | str, group: tuple[str, ...] | str, *resources: str, names: str = "") -> Rule:
    """A rule over resources."""
    return Rule(
        (verbs,) if isinstance(verbs, str) else verbs,
        (group,) if isinstance(group, str) else group,
        resources,
        (names,) if names else (),
    )


def at(*paths: str) -> Rule:
    """A rule to read paths."""
    return Rule(("get",), paths=paths)


_RECORD_EVENTS = on(("create", "patch", "update"), (CORE, EVENTS), "events")
_CHECK_ACCESS = (on("create", TOKENS, "tokenreviews"), on("create", REVIEWS, "subjectaccessreviews"))

_VIEW = (
    on(READ, CORE, "pods", "pods/status", "pods/log", "serviceaccounts", "services", "services/status"),
    on(READ, CORE, "replicationcontrollers", "replicationcontrollers/scale", "replicationcontrollers/status"),
    on(READ, CORE, "persistentvolumeclaims", "persistentvolumeclaims/status", "configmaps", "endpoints"),
    on(READ, CORE, "limitranges", "resourcequotas", "resourcequotas/status", "bindings"),
    on(READ, CORE, "namespaces", "namespaces/status"),
    on(READ, (CORE, EVENTS), "events"),
    on(READ, "discovery.k8s.io", "endpointslices"),
    on(READ, APPS, "controllerrevisions", "daemonsets", "daemonsets/status"),
    on(READ, APPS, "statefulsets", "statefulsets/status", "statefulsets/scale"),
    on(READ, APPS, "deployments", "deployments/status", "deployments/scale"),
    on(READ, APPS, "replicasets", "replicasets/status", "replicasets/scale"),
    on(READ, "autoscaling", "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
    on(READ, BATCH, "jobs", "jobs/status", "cronjobs", "cronjobs/status"),
    on(READ, POLICY, "poddisruptionbudgets", "poddisruptionbudgets/status"),
    on(READ, "networking.k8s.io", "networkpolicies", "ingresses", "ingresses/status"),
    on(READ, DRA, "resourceclaims", "resourceclaims/status", "resourceclaimtemplates"),
)
_EDIT = (
    on(READ, CORE, "pods/attach", "pods/proxy", "pods/exec", "pods/portforward", "secrets", "services/proxy"),
    on("impersonate", CORE, "serviceaccounts"),
    on(WRITE, CORE, "pods", "pods/attach", "pods/proxy", "pods/exec", "pods/portforward"),
    on("create", CORE, "pods/eviction", "serviceaccounts/token"),
    on(WRITE, CORE, "replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts", "services"),
    on(WRITE, CORE, "services/proxy", "persistentvolumeclaims", "configmaps", "secrets"),
    on(WRITE, (CORE, EVENTS), "events"),
    on(WRITE, APPS, "statefulsets", "statefulsets/scale", "daemonsets", "replicasets", "replicasets/scale"),
    on(WRITE, APPS, "deployments", "deployments/scale", "deployments/rollback"),
    on(WRITE, "autoscaling", "horizontalpodautoscalers"),
    on(WRITE, BATCH, "jobs", "cronjobs"),
    on(WRITE, POLICY, "poddisruptionbudgets"),
    on(WRITE, "networking.k8s.io", "networkpolicies", "ingresses"),
    on(READ_WRITE, LEASES, "leases"),
    on(WRITE, DRA, "resourceclaims", "resourceclaimtemplates"),
)
_ADMIN = (
    on("create", REVIEWS, "localsubjectaccessreviews"),
    on(READ_WRITE, RBAC, "roles", "rolebindings"),
)

_SCHEDULER = (
    _RECORD_EVENTS,
    on("create", LEASES, "leases"),
    on(("get", "update", "list", "watch"), LEASES, "leases", names="kube-scheduler"),
    on(READ_WRITE, LEASES, "leasecandidates"),
    on(READ, CORE, "nodes", "namespaces", "services", "replicationcontrollers"),
    on((*READ, "delete"), CORE, "pods"),
    on("create", CORE, "pods/binding", "bindings"),
    on(CHANGE, CORE, "pods/status"),
    on("update", CORE, "pods/finalizers"),
    on(READ, APPS, "replicasets", "statefulsets"),
    on(READ, POLICY, "poddisruptionbudgets"),
    on(READ, CORE, "persistentvolumeclaims", "persistentvolumes"),
    *_CHECK_ACCESS,
    on(READ, STORAGE, "csinodes", "volumeattachments", "csidrivers", "csistoragecapacities"),
    on(READ, DRA, "deviceclasses", "resourceslices", "devicetaintrules"),
    on((*READ_UPDATE, "create", "delete"), DRA, "resourceclaims"),
    on(READ_UPDATE, DRA, "resourceclaims/status"),
    on(CHANGE, DRA, "resourceclaims/binding"),
    # Where the scheduler runs twice, ours holds a lease of its own name.
    on(("get", "update", "patch", "list", "watch"), LEASES, "leases", names="plimsoll-scheduler"),
)

#: What a node may do at all; `nodes.py` and `restriction.py` narrow it down to what concerns the node.
NODE_RULES = (
    on("create", TOKENS, "tokenreviews"),
    on("create", REVIEWS, "subjectaccessreviews", "localsubjectaccessreviews"),
    on(READ, CORE, "services"),
    on(("create", *READ, *CHANGE), CORE, "nodes"),
    on(CHANGE, CORE, "nodes/status", "pods/status"),
    _RECORD_EVENTS,
    on((*READ, "create", "delete"), CORE, "pods"),
    on("create", CORE, "pods/eviction", "serviceaccounts/token"),
    on(READ, CORE, "secrets", "configmaps"),
    on("get", CORE, "persistentvolumeclaims", "persistentvolumes", "endpoints", "serviceaccounts"),
    on(("get", *CHANGE), CORE, "persistentvolumeclaims/status"),
    on(("create", *READ), CERTIFICATES, "certificatesigningrequests", "podcertificaterequests"),
    on(READ, CERTIFICATES, "clustertrustbundles"),
    on(("get", "create", "update", "patch", "delete"), LEASES, "leases"),
    on("get", STORAGE, "volumeattachments"),
    on(READ, STORAGE, "csidrivers"),
    on(("get", "create", "update", "patch", "delete"), STORAGE, "csinodes"),
    on(READ, "node.k8s.io", "runtimeclasses"),
    on("get", DRA, "resourceclaims"),
    on("deletecollection", DRA, "resourceslices"),
)

_DRIVER = (
    on("get", CORE, "nodes"),
    on(READ, CORE, "pods"),
    on(READ, DRA, "resourceclaims", "deviceclasses"),
    on(READ_WRITE, DRA, "resourceslices"),
    on(CHANGE, DRA, "resourceclaims/status"),
    _RECORD_EVENTS,
    on(("get", "create", "update", "patch"), LEASES, "leases"),
)
_ON_OWN_NODE = on(("associated-node:update", "associated-node:patch"), DRA, "resourceclaims/driver")

#: Claims from templates, reservations, taint eviction, garbage: what our controllers need together.
_CONTROLLERS = (
    on((*READ, "update", "patch", "delete", "deletecollection"), "*", "*"),
    on("create", DRA, "resourceclaims"),
    on(CHANGE, DRA, "resourceclaims/binding", "resourceclaims/status", "devicetaintrules/status"),
    on("create", CORE, "pods/eviction", "serviceaccounts", "configmaps"),
    on("create", LEASES, "leases"),
    on("update", CORE, "namespaces/finalize"),
    on("create", CORE, "namespaces"),
    _RECORD_EVENTS,
)

#: Everything that holds no secrets.
_VIEWER = (
    *_VIEW,
    on(READ, CORE, "nodes", "nodes/status", "persistentvolumes", "persistentvolumes/status"),
    on(READ, CORE, "componentstatuses", "podtemplates", "pods/resize"),
    on(READ, DRA, "*"),
    on(READ, STORAGE, "*"),
    on(READ, LEASES, "*"),
    on(READ, "scheduling.k8s.io", "*"),
    on(READ, "node.k8s.io", "*"),
    on(READ, RBAC, "*"),
    on(READ, "apiextensions.k8s.io", "customresourcedefinitions"),
    at("/metrics"),
)

_HEALTH = ("/livez", "/readyz", "/healthz")

ROLES: tuple[ClusterRole, ...] = (
    ClusterRole("cluster-admin", (Rule(("*",), ("*",), ("*",)), Rule(("*",), paths=("*",)))),
    ClusterRole(
        "system:discovery",
        (
            at(
                *_HEALTH,
                "/version",
                "/version/",
                "/openapi",
                "/openapi/*",
                "/api",
                "/api/*",
                "/apis",
                "/apis/*",
            ),
        ),
    ),
    ClusterRole(
        "system:monitoring",
        (
            at("/metrics", "/metrics/slis", *_HEALTH, *(f"{p}/*" for p in _HEALTH)),
            on("get", CORE, "nodes/metrics"),
        ),
    ),
    ClusterRole(
        "system:basic-user",
        (
            on("create", REVIEWS, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
            on("create", TOKENS, "selfsubjectreviews"),
        ),
    ),
    ClusterRole("system:public-info-viewer", (at(*_HEALTH, "/version", "/version/"),)),
    ClusterRole("admin", aggregates=_AGGREGATE + "admin"),
    ClusterRole("edit", labels={_AGGREGATE + "admin": "true"}, aggregates=_AGGREGATE + "edit"),
    ClusterRole("view", labels={_AGGREGATE + "edit": "true"}, aggregates=_AGGREGATE + "view"),
    ClusterRole("system:aggregate-to-admin", _ADMIN, {_AGGREGATE + "admin": "true"}),
    ClusterRole("system:aggregate-to-edit", _EDIT, {_AGGREGATE + "edit": "true"}),
    ClusterRole("system:aggregate-to-view", _VIEW, {_AGGREGATE + "view": "true"}),
    ClusterRole("system:auth-delegator", _CHECK_ACCESS),
    ClusterRole("system:kube-scheduler", _SCHEDULER),
    ClusterRole(
        "system:volume-scheduler",
        (
            on(READ_UPDATE, CORE, "persistentvolumes", "persistentvolumeclaims"),
            on(READ, STORAGE, "storageclasses"),
        ),
    ),
    ClusterRole(
        "system:kube-controller-manager",
        (
            _RECORD_EVENTS,
            on("create", LEASES, "leases"),
            on(("get", "update"), LEASES, "leases", names="kube-controller-manager"),
            on(("create", "get", "update"), CORE, "secrets", "serviceaccounts"),
            on("delete", CORE, "secrets"),
            on("get", CORE, "namespaces", "configmaps"),
            *_CHECK_ACCESS,
            on(("list", "watch"), "*", "*"),
            on("create", CORE, "serviceaccounts/token"),
        ),
    ),
    ClusterRole(
        "system:node-proxier",
        (
            on(("list", "watch"), CORE, "services", "endpoints"),
            on(READ, CORE, "nodes"),
            on(("list", "watch"), "networking.k8s.io", "servicecidrs"),
            on(("list", "watch"), "discovery.k8s.io", "endpointslices"),
            _RECORD_EVENTS,
        ),
    ),
    ClusterRole("system:node", NODE_RULES),
    ClusterRole(
        "system:service-account-issuer-discovery",
        (
            at("/.well-known/openid-configuration", "/.well-known/openid-configuration/"),
            at("/openid/v1/jwks", "/openid/v1/jwks/"),
        ),
    ),
    ClusterRole("plimsoll:controllers", _CONTROLLERS),
    ClusterRole("plimsoll:viewer", _VIEWER),
    ClusterRole("plimsoll:driver", _DRIVER),
    ClusterRole("plimsoll:node-driver", (*_DRIVER, _ON_OWN_NODE)),
)

BINDINGS: tuple[Binding, ...] = (
    Binding("cluster-admin", groups=(users.MASTERS,)),
    Binding("system:monitoring", groups=(users.MONITORING,)),
    Binding("system:discovery", groups=(users.ALL_AUTHENTICATED,)),
    Binding("system:basic-user", groups=(users.ALL_AUTHENTICATED,)),
    Binding("system:public-info-viewer", groups=(users.ALL_AUTHENTICATED, users.ALL_UNAUTHENTICATED)),
    Binding("system:node-proxier", ("system:kube-proxy",)),
    Binding("system:kube-controller-manager", ("system:kube-controller-manager",)),
    Binding("system:kube-scheduler", ("system:kube-scheduler",)),
    Binding("system:volume-scheduler", ("system:kube-scheduler",)),
    Binding("system:service-account-issuer-discovery", groups=(users.ALL_SERVICE_ACCOUNTS,)),
    Binding("plimsoll:controllers", (users.CONTROLLERS.name,)),
    Binding("plimsoll:viewer", groups=(users.VIEWERS,)),
    Binding("plimsoll:driver", groups=(users.DRIVERS,)),
)


def driver_rules(driver: str) -> tuple[Rule, ...]:
    """What a driver may report of devices in claims: its own, on any node."""
    verbs = tuple(f"{where}:{verb}" for where in ("associated-node", "arbitrary-node") for verb in CHANGE)
    return (on(verbs, DRA, "resourceclaims/driver", names=driver),)
