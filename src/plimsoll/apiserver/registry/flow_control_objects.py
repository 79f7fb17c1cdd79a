"""FlowSchemas and PriorityLevelConfigurations that every cluster has, as kube-apiserver defines them.

The mandatory ones (`exempt`, `catch-all`) always apply, even if they are not stored; the suggested ones are
the initial configuration, which an administrator may change. `flowcontrol/bootstrap.py` stores them.
"""

from __future__ import annotations

from typing import Any

Tree = dict[str, Any]

API_VERSION = "flowcontrol.apiserver.k8s.io/v1"
#: "true" if the server keeps the spec of an object as it defines it.
AUTO_UPDATE = "apf.kubernetes.io/autoupdate-spec"
EXEMPT, CATCH_ALL = "exempt", "catch-all"

_EVERY = ["*"]
_EVERYONE = ("system:unauthenticated", "system:authenticated")


def _object(kind: str, name: str, spec: Tree) -> Tree:
    metadata = {"name": name, "annotations": {AUTO_UPDATE: "true"}}
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}


def _queuing_level(name: str, shares: int, lendable: int, queues: int, hand_size: int) -> Tree:
    queuing = {"queues": queues, "handSize": hand_size, "queueLengthLimit": 50}
    return _limited_level(name, shares, lendable, {"type": "Queue", "queuing": queuing})


def _limited_level(name: str, shares: int, lendable: int, response: Tree) -> Tree:
    limited = {
        "nominalConcurrencyShares": shares,
        "lendablePercent": lendable,
        "limitResponse": response,
    }
    return _object("PriorityLevelConfiguration", name, {"type": "Limited", "limited": limited})


def _flow_schema(
    name: str,
    level: str,
    precedence: int,
    distinguisher: str,
    subjects: list[Tree],
    resources: list[Tree] | None = None,
    urls: list[Tree] | None = None,
) -> Tree:
    """Build a FlowSchema with one rule; without resources and URLs it applies to all requests."""
    if resources is None and urls is None:
        resources, urls = [_resources(_EVERY, "*", _EVERY)], [{"verbs": _EVERY, "nonResourceURLs": _EVERY}]
    rule: Tree = {"subjects": subjects}
    if resources:
        rule["resourceRules"] = resources
    if urls:
        rule["nonResourceRules"] = urls
    spec: Tree = {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "rules": [rule],
    }
    if distinguisher:
        spec["distinguisherMethod"] = {"type": distinguisher}
    return _object("FlowSchema", name, spec)


def _resources(verbs: list[str], group: str, names: list[str], *, cluster_scope: bool = True) -> Tree:
    rule: Tree = {"verbs": verbs, "apiGroups": [group], "resources": names, "namespaces": _EVERY}
    return {**rule, "clusterScope": True} if cluster_scope else rule


def _groups(*names: str) -> list[Tree]:
    return [{"kind": "Group", "group": {"name": name}} for name in names]


def _users(*names: str) -> list[Tree]:
    return [{"kind": "User", "user": {"name": name}} for name in names]


_SYSTEM_ACCOUNTS = [{"kind": "ServiceAccount", "serviceAccount": {"namespace": "kube-system", "name": "*"}}]
_CONTROLLER_MANAGER, _SCHEDULER = "system:kube-controller-manager", "system:kube-scheduler"
_LEASES = "coordination.k8s.io"

MANDATORY_LEVELS = (
    _limited_level(CATCH_ALL, 5, 0, {"type": "Reject"}),
    _object(
        "PriorityLevelConfiguration",
        EXEMPT,
        {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}},
    ),
)
MANDATORY_FLOW_SCHEMAS = (
    _flow_schema(EXEMPT, EXEMPT, 1, "", _groups("system:masters")),
    _flow_schema(CATCH_ALL, CATCH_ALL, 10_000, "ByUser", _groups(*_EVERYONE)),
)
SUGGESTED_LEVELS = (
    _queuing_level("system", 30, 33, 64, 6),
    _queuing_level("node-high", 40, 25, 64, 6),
    _queuing_level("leader-election", 10, 0, 16, 4),
    _queuing_level("workload-high", 40, 50, 128, 6),
    _queuing_level("workload-low", 100, 90, 128, 6),
    _queuing_level("global-default", 20, 50, 128, 6),
)
SUGGESTED_FLOW_SCHEMAS = (
    _flow_schema(
        "probes",
        EXEMPT,
        2,
        "",
        _groups(*_EVERYONE),
        urls=[{"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}],
    ),
    _flow_schema(
        "system-leader-election",
        "leader-election",
        100,
        "ByUser",
        [*_users(_CONTROLLER_MANAGER, _SCHEDULER), *_SYSTEM_ACCOUNTS],
        [_resources(["get", "create", "update"], _LEASES, ["leases"], cluster_scope=False)],
    ),
    _flow_schema(
        "system-node-high",
        "node-high",
        400,
        "ByUser",
        _groups("system:nodes"),
        [
            _resources(_EVERY, "", ["nodes", "nodes/status"]),
            _resources(_EVERY, _LEASES, ["leases"], cluster_scope=False),
        ],
    ),
    _flow_schema("system-nodes", "system", 500, "ByUser", _groups("system:nodes")),
    _flow_schema("kube-controller-manager", "workload-high", 800, "ByNamespace", _users(_CONTROLLER_MANAGER)),
    _flow_schema("kube-scheduler", "workload-high", 800, "ByNamespace", _users(_SCHEDULER)),
    _flow_schema("kube-system-service-accounts", "workload-high", 900, "ByNamespace", _SYSTEM_ACCOUNTS),
    _flow_schema("service-accounts", "workload-low", 9000, "ByUser", _groups("system:serviceaccounts")),
    _flow_schema("global-default", "global-default", 9900, "ByUser", _groups(*_EVERYONE)),
)
