"""FlowSchemas and PriorityLevelConfigurations: defaults and validation."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.validation.generic_objects import created, minimal, write

RULE = "spec.rules[0]"
QUEUING = "spec.limited.limitResponse.queuing"


def test_defaults_of_a_flow_schema() -> None:
    assert created("FlowSchema")["spec"]["matchingPrecedence"] == 1000


def test_defaults_of_a_priority_level() -> None:
    limited = created("PriorityLevelConfiguration")["spec"]["limited"]
    assert limited == {
        "nominalConcurrencyShares": 30,
        "lendablePercent": 0,
        "limitResponse": {
            "type": "Queue",
            "queuing": {"queues": 9, "handSize": 8, "queueLengthLimit": 50},
        },
    }


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"spec.matchingPrecedence": -1}, "spec.matchingPrecedence"),
        ({"spec.matchingPrecedence": 10001}, "spec.matchingPrecedence"),
        ({"spec.matchingPrecedence": 1}, "spec.matchingPrecedence"),
        ({"spec.distinguisherMethod.type": "ByName"}, "spec.distinguisherMethod.type"),
        ({"spec.priorityLevelConfiguration.name": ""}, "spec.priorityLevelConfiguration.name"),
        ({"spec.priorityLevelConfiguration.name": "A_b"}, "spec.priorityLevelConfiguration.name"),
        ({"spec.rules.0.subjects": []}, f"{RULE}.subjects"),
        ({"spec.rules.0.subjects": [{"kind": "User"}]}, f"{RULE}.subjects[0].user"),
        ({"spec.rules.0.subjects": [{"kind": "Robot"}]}, f"{RULE}.subjects[0].kind"),
        (
            {"spec.rules.0.subjects": [{"kind": "User", "user": {"name": ""}}]},
            f"{RULE}.subjects[0].user.name",
        ),
        (
            {"spec.rules.0.subjects": [{"kind": "User", "user": {"name": "a"}, "group": {"name": "b"}}]},
            f"{RULE}.subjects[0].group",
        ),
        (
            {"spec.rules.0.subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": "a"}}]},
            f"{RULE}.subjects[0].serviceAccount.namespace",
        ),
        ({"spec.rules.0.resourceRules.0.verbs": []}, f"{RULE}.resourceRules[0].verbs"),
        ({"spec.rules.0.resourceRules.0.verbs": ["fly"]}, f"{RULE}.resourceRules[0].verbs"),
        ({"spec.rules.0.resourceRules.0.verbs": ["*", "get"]}, f"{RULE}.resourceRules[0].verbs"),
        ({"spec.rules.0.resourceRules.0.apiGroups": []}, f"{RULE}.resourceRules[0].apiGroups"),
        ({"spec.rules.0.resourceRules.0.resources": ["*", "a"]}, f"{RULE}.resourceRules[0].resources"),
        ({"spec.rules.0.resourceRules.0.namespaces": []}, f"{RULE}.resourceRules[0].namespaces"),
        ({"spec.rules.0.resourceRules.0.namespaces": ["A"]}, f"{RULE}.resourceRules[0].namespaces[0]"),
        (
            {"spec.rules.0.nonResourceRules.0.nonResourceURLs": []},
            f"{RULE}.nonResourceRules[0].nonResourceURLs",
        ),
        *(
            (
                {"spec.rules.0.nonResourceRules.0.nonResourceURLs": [url]},
                f"{RULE}.nonResourceRules[0].nonResourceURLs[0]",
            )
            for url in ("", "x", "/a b", "/a//b", "/a*", "/*/b", "/*/*")
        ),
    ],
)
def test_invalid_flow_schemas(changes: dict[str, Any], field: str) -> None:
    assert field in {error.field for error in write(minimal("FlowSchema", changes)).errors}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"spec.type": ""}, "spec.type"),
        ({"spec.type": "Other"}, "spec.type"),
        ({"spec.type": "Exempt"}, "spec.type"),
        ({"spec.exempt": {}}, "spec.exempt"),
        ({"spec.limited": None}, "spec.limited"),
        ({"spec.limited.nominalConcurrencyShares": -1}, "spec.limited.nominalConcurrencyShares"),
        ({"spec.limited.lendablePercent": 101}, "spec.limited.lendablePercent"),
        ({"spec.limited.borrowingLimitPercent": -1}, "spec.limited.borrowingLimitPercent"),
        ({"spec.limited.limitResponse.type": ""}, "spec.limited.limitResponse.type"),
        ({"spec.limited.limitResponse.type": "Wait"}, "spec.limited.limitResponse.type"),
        ({"spec.limited.limitResponse.type": "Reject"}, QUEUING),
        ({"spec.limited.limitResponse.queuing": None}, QUEUING),
        ({f"{QUEUING}.queues": -1}, f"{QUEUING}.queues"),
        ({f"{QUEUING}.queues": 10_000_001}, f"{QUEUING}.queues"),
        ({f"{QUEUING}.handSize": 10}, f"{QUEUING}.handSize"),
        ({f"{QUEUING}.queues": 1000, f"{QUEUING}.handSize": 7}, f"{QUEUING}.handSize"),
        ({f"{QUEUING}.queueLengthLimit": -1}, f"{QUEUING}.queueLengthLimit"),
    ],
)
def test_invalid_priority_levels(changes: dict[str, Any], field: str) -> None:
    assert field in {error.field for error in write(minimal("PriorityLevelConfiguration", changes)).errors}
