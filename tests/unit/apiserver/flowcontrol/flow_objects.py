"""FlowSchemas and PriorityLevelConfigurations of tests."""

from __future__ import annotations

from typing import Any

API_VERSION = "flowcontrol.apiserver.k8s.io/v1"


Tree = dict[str, Any]


def flow_schema(name: str = "fs", level: str = "pl", precedence: int = 1000, **rule: Any) -> Tree:
    rule.setdefault("subjects", [{"kind": "User", "user": {"name": "eve"}}])
    if "resourceRules" not in rule and "nonResourceRules" not in rule:
        every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        rule["resourceRules"] = [{**every, "namespaces": ["*"], "clusterScope": True}]
        rule["nonResourceRules"] = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
    spec = {
        "priorityLevelConfiguration": {"name": level},
        "matchingPrecedence": precedence,
        "distinguisherMethod": {"type": "ByUser"},
        "rules": [rule],
    }
    return {"apiVersion": API_VERSION, "kind": "FlowSchema", "metadata": {"name": name}, "spec": spec}


def priority_level(name: str = "pl", shares: int = 1, **queuing: int) -> Tree:
    response: Tree = {"type": "Queue", "queuing": queuing} if queuing else {"type": "Reject"}
    limited = {"nominalConcurrencyShares": shares, "lendablePercent": 0, "limitResponse": response}
    return {
        "apiVersion": API_VERSION,
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name},
        "spec": {"type": "Limited", "limited": {**limited, "borrowingLimitPercent": 0}},
    }
