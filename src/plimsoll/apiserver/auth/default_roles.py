"""Built-in ClusterRoles and their bindings.

Those that Kubernetes creates for its components and users (`cluster-admin`, `admin`, `edit`, `view`,
`system:*`), and Plimsoll's own (`plimsoll:*`). They apply regardless of the store, so that the administrator
cannot be locked out; stored roles and bindings only add to them.

DIFF: Kubernetes stores these roles and lets them be changed; see test_built_in_roles_cannot_be_removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from plimsoll.apiserver.auth import users
from plimsoll.apiserver.auth.controller_roles import CONTROLLER_ROLES
from plimsoll.apiserver.auth.rbac_rules import PolicyRule

READ = ("get", "list", "watch")
WRITE = ("create", "update", "patch", "delete", "deletecollection")
READ_WRITE = READ + WRITE
READ_UPDATE = (*READ, "update", "patch")
CHANGE = ("update", "patch")

CORE, EVENTS, DRA = "", "events.k8s.io", "resource.k8s.io"
APPS, BATCH, POLICY, LEASES = "apps", "batch", "policy", "coordination.k8s.io"
STORAGE, CERTIFICATES = "storage.k8s.io", "certificates.k8s.io"
SCHEDULING = "scheduling.k8s.io"
TOKENS, REVIEWS, RBAC = "authentication.k8s.io", "authorization.k8s.io", "rbac.authorization.k8s.io"

_AGGREGATE = "rbac.authorization.k8s.io/aggregate-to-"


@dataclass(frozen=True, slots=True)
class ClusterRole:
    """Built-in ClusterRole; with `aggregates`, it includes the rules of all roles that carry that label."""

    name: str
    rules: tuple[PolicyRule, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    aggregates: str = ""


@dataclass(frozen=True, slots=True)
class BuiltInRoleBinding:
    """Binding of a ClusterRole to users and groups, cluster-wide or in one namespace."""

    role: str
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    namespace: str = ""


def allow(
    verbs: tuple[str, ...] | str, group: tuple[str, ...] | str, *resources: str, names: str = ""
) -> PolicyRule:
    """Return a rule for resources."""
    return PolicyRule(
        (verbs,) if isinstance(verbs, str) else verbs,
        (group,) if isinstance(group, str) else group,
        resources,
        (names,) if names else (),
    )


def allow_paths(*paths: str) -> PolicyRule:
    """Return a rule to get paths."""
    return PolicyRule(("get",), paths=paths)


_RECORD_EVENTS = allow(("create", "patch", "update"), (CORE, EVENTS), "events")
_CHECK_ACCESS = (allow("create", TOKENS, "tokenreviews"), allow("create", REVIEWS, "subjectaccessreviews"))

_VIEW = (
    allow(READ, CORE, "pods", "pods/status", "pods/log", "serviceaccounts", "services", "services/status"),
    allow(
        READ, CORE, "replicationcontrollers", "replicationcontrollers/scale", "replicationcontrollers/status"
    ),
    allow(READ, CORE, "persistentvolumeclaims", "persistentvolumeclaims/status", "configmaps", "endpoints"),
    allow(READ, CORE, "limitranges", "resourcequotas", "resourcequotas/status", "bindings"),
    allow(READ, CORE, "namespaces", "namespaces/status"),
    allow(READ, (CORE, EVENTS), "events"),
    allow(READ, "discovery.k8s.io", "endpointslices"),
    allow(READ, APPS, "controllerrevisions", "daemonsets", "daemonsets/status"),
    allow(READ, APPS, "statefulsets", "statefulsets/status", "statefulsets/scale"),
    allow(READ, APPS, "deployments", "deployments/status", "deployments/scale"),
    allow(READ, APPS, "replicasets", "replicasets/status", "replicasets/scale"),
    allow(READ, "autoscaling", "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
    allow(READ, BATCH, "jobs", "jobs/status", "cronjobs", "cronjobs/status"),
    allow(READ, POLICY, "poddisruptionbudgets", "poddisruptionbudgets/status"),
    allow(READ, "networking.k8s.io", "networkpolicies", "ingresses", "ingresses/status"),
    allow(READ, DRA, "resourceclaims", "resourceclaims/status", "resourceclaimtemplates"),
    allow(READ, SCHEDULING, "workloads", "podgroups", "podgroups/status"),
)
_EDIT = (
    allow(
        READ, CORE, "pods/attach", "pods/proxy", "pods/exec", "pods/portforward", "secrets", "services/proxy"
    ),
    allow("impersonate", CORE, "serviceaccounts"),
    allow(WRITE, CORE, "pods", "pods/attach", "pods/proxy", "pods/exec", "pods/portforward"),
    allow("create", CORE, "pods/eviction", "serviceaccounts/token"),
    allow(
        WRITE, CORE, "replicationcontrollers", "replicationcontrollers/scale", "serviceaccounts", "services"
    ),
    allow(WRITE, CORE, "services/proxy", "persistentvolumeclaims", "configmaps", "secrets"),
    allow(WRITE, (CORE, EVENTS), "events"),
    allow(
        WRITE, APPS, "statefulsets", "statefulsets/scale", "daemonsets", "replicasets", "replicasets/scale"
    ),
    allow(WRITE, APPS, "deployments", "deployments/scale", "deployments/rollback"),
    allow(WRITE, "autoscaling", "horizontalpodautoscalers"),
    allow(WRITE, BATCH, "jobs", "cronjobs"),
    allow(WRITE, POLICY, "poddisruptionbudgets"),
    allow(WRITE, "networking.k8s.io", "networkpolicies", "ingresses"),
    allow(READ_WRITE, LEASES, "leases"),
    allow(WRITE, DRA, "resourceclaims", "resourceclaimtemplates"),
    allow(WRITE, SCHEDULING, "workloads", "podgroups"),
)
_ADMIN = (
    allow("create", REVIEWS, "localsubjectaccessreviews"),
    allow(READ_WRITE, RBAC, "roles", "rolebindings"),
)

_SCHEDULER = (
    _RECORD_EVENTS,
    allow("create", LEASES, "leases"),
    allow(("get", "update", "list", "watch"), LEASES, "leases", names="kube-scheduler"),
    allow(READ_WRITE, LEASES, "leasecandidates"),
    allow(READ, CORE, "nodes", "namespaces", "services", "replicationcontrollers"),
    allow((*READ, "delete"), CORE, "pods"),
    allow("create", CORE, "pods/binding", "bindings"),
    allow(CHANGE, CORE, "pods/status"),
    allow("update", CORE, "pods/finalizers"),
    allow(READ, APPS, "replicasets", "statefulsets"),
    allow(READ, POLICY, "poddisruptionbudgets"),
    allow(READ, CORE, "persistentvolumeclaims", "persistentvolumes"),
    *_CHECK_ACCESS,
    allow(READ, STORAGE, "csinodes", "volumeattachments", "csidrivers", "csistoragecapacities"),
    allow(READ, DRA, "deviceclasses", "resourceslices", "devicetaintrules"),
    allow((*READ_UPDATE, "create", "delete"), DRA, "resourceclaims"),
    allow(READ_UPDATE, DRA, "resourceclaims/status"),
    allow(CHANGE, DRA, "resourceclaims/binding"),
    allow(READ, SCHEDULING, "podgroups"),
    allow(CHANGE, SCHEDULING, "podgroups/status"),
    # Next to kube-scheduler, ours holds a lease of its own name.
    allow(("get", "update", "patch", "list", "watch"), LEASES, "leases", names="plimsoll-scheduler"),
)

#: Rules of nodes; `node_authorizer.py` and `admission/node_restriction.py` limit them to related objects.
NODE_RULES = (
    allow("create", TOKENS, "tokenreviews"),
    allow("create", REVIEWS, "subjectaccessreviews", "localsubjectaccessreviews"),
    allow(READ, CORE, "services"),
    allow(("create", *READ, *CHANGE), CORE, "nodes"),
    allow(CHANGE, CORE, "nodes/status", "pods/status"),
    _RECORD_EVENTS,
    allow((*READ, "create", "delete"), CORE, "pods"),
    allow("create", CORE, "pods/eviction", "serviceaccounts/token"),
    allow(READ, CORE, "secrets", "configmaps"),
    allow("get", CORE, "persistentvolumeclaims", "persistentvolumes", "endpoints", "serviceaccounts"),
    allow(("get", *CHANGE), CORE, "persistentvolumeclaims/status"),
    allow(("create", *READ), CERTIFICATES, "certificatesigningrequests", "podcertificaterequests"),
    allow(READ, CERTIFICATES, "clustertrustbundles"),
    allow(("get", "create", "update", "patch", "delete"), LEASES, "leases"),
    allow("get", STORAGE, "volumeattachments"),
    allow(READ, STORAGE, "csidrivers"),
    allow(("get", "create", "update", "patch", "delete"), STORAGE, "csinodes"),
    allow(READ, "node.k8s.io", "runtimeclasses"),
    allow("get", DRA, "resourceclaims"),
    allow("deletecollection", DRA, "resourceslices"),
)

_DRIVER = (
    allow("get", CORE, "nodes"),
    allow(READ, CORE, "pods"),
    allow(READ, DRA, "resourceclaims", "deviceclasses"),
    allow(READ_WRITE, DRA, "resourceslices"),
    allow(CHANGE, DRA, "resourceclaims/status"),
    _RECORD_EVENTS,
    allow(("get", "create", "update", "patch"), LEASES, "leases"),
)
_ON_OWN_NODE = allow(("associated-node:update", "associated-node:patch"), DRA, "resourceclaims/driver")

#: Rules of all controllers together: claims from templates, reservations, taint eviction, garbage collection.
_CONTROLLERS = (
    allow((*READ, "update", "patch", "delete", "deletecollection"), "*", "*"),
    allow("create", DRA, "resourceclaims"),
    allow(CHANGE, DRA, "resourceclaims/binding", "resourceclaims/status", "devicetaintrules/status"),
    allow("create", CORE, "pods/eviction", "serviceaccounts", "configmaps"),
    allow("create", CORE, "pods", "persistentvolumes", "persistentvolumeclaims"),
    allow("create", APPS, "replicasets", "controllerrevisions"),
    allow("create", BATCH, "jobs"),
    allow("create", "discovery.k8s.io", "endpointslices"),
    allow("create", LEASES, "leases"),
    allow("update", CORE, "namespaces/finalize"),
    allow("create", CORE, "namespaces"),
    _RECORD_EVENTS,
)

#: Everything that contains no secrets.
_VIEWER = (
    *_VIEW,
    allow(READ, CORE, "nodes", "nodes/status", "persistentvolumes", "persistentvolumes/status"),
    allow(READ, CORE, "componentstatuses", "podtemplates", "pods/resize"),
    allow(READ, DRA, "*"),
    allow(READ, STORAGE, "*"),
    allow(READ, LEASES, "*"),
    allow(READ, SCHEDULING, "*"),
    allow(READ, "node.k8s.io", "*"),
    allow(READ, RBAC, "*"),
    allow(READ, "apiextensions.k8s.io", "customresourcedefinitions"),
    allow_paths("/metrics"),
)

_HEALTH = ("/livez", "/readyz", "/healthz")

ROLES: tuple[ClusterRole, ...] = (
    ClusterRole("cluster-admin", (PolicyRule(("*",), ("*",), ("*",)), PolicyRule(("*",), paths=("*",)))),
    ClusterRole(
        "system:discovery",
        (
            allow_paths(
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
            allow_paths("/metrics", "/metrics/slis", *_HEALTH, *(f"{p}/*" for p in _HEALTH)),
            allow("get", CORE, "nodes/metrics"),
        ),
    ),
    ClusterRole(
        "system:basic-user",
        (
            allow("create", REVIEWS, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
            allow("create", TOKENS, "selfsubjectreviews"),
        ),
    ),
    ClusterRole("system:public-info-viewer", (allow_paths(*_HEALTH, "/version", "/version/"),)),
    ClusterRole("admin", aggregates=_AGGREGATE + "admin"),
    ClusterRole("edit", labels={_AGGREGATE + "admin": "true"}, aggregates=_AGGREGATE + "edit"),
    ClusterRole("view", labels={_AGGREGATE + "edit": "true"}, aggregates=_AGGREGATE + "view"),
    ClusterRole("system:aggregate-to-admin", _ADMIN, {_AGGREGATE + "admin": "true"}),
    ClusterRole("system:aggregate-to-edit", _EDIT, {_AGGREGATE + "edit": "true"}),
    ClusterRole("system:aggregate-to-view", _VIEW, {_AGGREGATE + "view": "true"}),
    ClusterRole(
        "system:aggregated-metrics-reader",
        (allow(READ, "metrics.k8s.io", "nodes", "pods"),),
        {_AGGREGATE + role: "true" for role in ("admin", "edit", "view")},
    ),
    ClusterRole("system:auth-delegator", _CHECK_ACCESS),
    ClusterRole("system:kube-scheduler", _SCHEDULER),
    ClusterRole(
        "system:volume-scheduler",
        (
            allow(READ_UPDATE, CORE, "persistentvolumes", "persistentvolumeclaims"),
            allow(READ, STORAGE, "storageclasses"),
        ),
    ),
    ClusterRole(
        "system:kube-controller-manager",
        (
            _RECORD_EVENTS,
            allow("create", LEASES, "leases"),
            allow(("get", "update"), LEASES, "leases", names="kube-controller-manager"),
            allow(("create", "get", "update"), CORE, "secrets", "serviceaccounts"),
            allow("delete", CORE, "secrets"),
            allow("get", CORE, "namespaces", "configmaps"),
            *_CHECK_ACCESS,
            allow(("list", "watch"), "*", "*"),
            allow("create", CORE, "serviceaccounts/token"),
        ),
    ),
    ClusterRole(
        "system:node-proxier",
        (
            allow(("list", "watch"), CORE, "services", "endpoints"),
            allow(READ, CORE, "nodes"),
            allow(("list", "watch"), "networking.k8s.io", "servicecidrs"),
            allow(("list", "watch"), "discovery.k8s.io", "endpointslices"),
            _RECORD_EVENTS,
        ),
    ),
    ClusterRole("system:node", NODE_RULES),
    ClusterRole(
        "system:service-account-issuer-discovery",
        (
            allow_paths("/.well-known/openid-configuration", "/.well-known/openid-configuration/"),
            allow_paths("/openid/v1/jwks", "/openid/v1/jwks/"),
        ),
    ),
    ClusterRole(
        "extension-apiserver-authentication-reader",
        (allow(READ, CORE, "configmaps", names="extension-apiserver-authentication"),),
    ),
    *(ClusterRole(role.name, role.rules) for role in CONTROLLER_ROLES),
    ClusterRole("plimsoll:controllers", _CONTROLLERS),
    ClusterRole("plimsoll:viewer", _VIEWER),
    ClusterRole("plimsoll:driver", _DRIVER),
    ClusterRole("plimsoll:node-driver", (*_DRIVER, _ON_OWN_NODE)),
)

BINDINGS: tuple[BuiltInRoleBinding, ...] = (
    BuiltInRoleBinding("cluster-admin", groups=(users.MASTERS,)),
    BuiltInRoleBinding("system:monitoring", groups=(users.MONITORING,)),
    BuiltInRoleBinding("system:discovery", groups=(users.ALL_AUTHENTICATED,)),
    BuiltInRoleBinding("system:basic-user", groups=(users.ALL_AUTHENTICATED,)),
    BuiltInRoleBinding(
        "system:public-info-viewer", groups=(users.ALL_AUTHENTICATED, users.ALL_UNAUTHENTICATED)
    ),
    BuiltInRoleBinding("system:node-proxier", ("system:kube-proxy",)),
    BuiltInRoleBinding("system:kube-controller-manager", ("system:kube-controller-manager",)),
    BuiltInRoleBinding("system:kube-scheduler", ("system:kube-scheduler",)),
    BuiltInRoleBinding("system:volume-scheduler", ("system:kube-scheduler",)),
    BuiltInRoleBinding("system:service-account-issuer-discovery", groups=(users.ALL_SERVICE_ACCOUNTS,)),
    BuiltInRoleBinding(
        "extension-apiserver-authentication-reader",
        ("system:kube-controller-manager", "system:kube-scheduler"),
        namespace="kube-system",
    ),
    *(BuiltInRoleBinding(role.name, (role.user,), namespace=role.namespace) for role in CONTROLLER_ROLES),
    BuiltInRoleBinding("plimsoll:controllers", (users.CONTROLLERS.name,)),
    BuiltInRoleBinding("plimsoll:viewer", groups=(users.VIEWERS,)),
    BuiltInRoleBinding("plimsoll:driver", groups=(users.DRIVERS,)),
)


def driver_rules(driver: str) -> tuple[PolicyRule, ...]:
    """Return the rules of a driver for its own devices in claims, on any node."""
    verbs = tuple(f"{where}:{verb}" for where in ("associated-node", "arbitrary-node") for verb in CHANGE)
    return (allow(verbs, DRA, "resourceclaims/driver", names=driver),)
