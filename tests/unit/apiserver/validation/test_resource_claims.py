"""ResourceClaim and ResourceClaimTemplate: requests, constraints, configuration, admin access."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.apiserver.validation.objects import (
    ADMIN,
    GONE,
    claim,
    edit,
    field_errors,
    run,
    stored,
    template,
)

DEVICES = "spec.devices"
FIRST = f"{DEVICES}.requests[0]"
SECOND = f"{DEVICES}.requests[1]"


def _request(**fields: Any) -> dict[str, Any]:
    return {f"spec.devices.requests.0.exactly.{name}": value for name, value in fields.items()}


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({}, []),
        ({"spec": GONE}, []),  # zero requests are legal
        (
            {"spec.devices.requests.0.name": "A"},
            [
                f"{DEVICES}.config[0].requests[0] Invalid",
                f"{DEVICES}.constraints[0].requests[0] Invalid",
                f"{FIRST}.name Invalid",
            ],
        ),
        ({"spec.devices.requests.1.name": "gpus"}, [f"{SECOND} Duplicate"]),
        ({"spec.devices.requests.0.exactly": GONE}, [f"{FIRST} Required"]),
        ({"spec.devices.requests.1.firstAvailable": []}, [f"{SECOND} Required"]),
        ({"spec.devices.requests.1.exactly": {}}, [f"{SECOND} Invalid"]),
        (_request(deviceClassName=GONE), [f"{FIRST}.exactly.deviceClassName Required"]),
        (_request(deviceClassName="A"), [f"{FIRST}.exactly.deviceClassName Invalid"]),
        (_request(count=0), []),  # becomes 1
        (_request(count=-1), [f"{FIRST}.exactly.count Invalid"]),
        (_request(allocationMode="All"), [f"{FIRST}.exactly.count Invalid"]),
        (_request(allocationMode="All", count=0), []),
        (_request(allocationMode="Some"), [f"{FIRST}.exactly.allocationMode NotSupported"]),
        (_request(capacity={"requests": {"any thing": "1"}}), []),  # not looked at
        (_request(selectors=[{}]), [f"{FIRST}.exactly.selectors[0].cel Required"]),
        (_request(selectors=[{"cel": {"expression": "true"}}] * 32), []),
        (_request(selectors=[{}] * 33), [f"{FIRST}.exactly.selectors TooMany"]),
        (_request(selectors=[{"cel": {}}]), [f"{FIRST}.exactly.selectors[0].cel.expression Invalid"]),
        (
            _request(selectors=[{"cel": {"expression": "1 +"}}]),
            [f"{FIRST}.exactly.selectors[0].cel.expression Invalid"],
        ),
        (
            _request(selectors=[{"cel": {"expression": "1"}}]),
            [f"{FIRST}.exactly.selectors[0].cel.expression Invalid"],
        ),
        (
            _request(selectors=[{"cel": {"expression": "true " + " " * 10240}}]),
            [f"{FIRST}.exactly.selectors[0].cel.expression TooLong"],
        ),
        (
            _request(selectors=[{"cel": {"expression": "lists.range(1000000).all(x, true)"}}]),
            [f"{FIRST}.exactly.selectors[0].cel.expression Forbidden"],
        ),
        (
            {"spec.devices.requests.1.firstAvailable.0.name": "slow"},
            [f"{SECOND}.firstAvailable[1] Duplicate"],
        ),
        ({"spec.devices.requests.1.firstAvailable.0.name": ""}, [f"{SECOND}.firstAvailable[0].name Invalid"]),
        (
            {"spec.devices.requests.1.firstAvailable.0": None},
            [
                f"{SECOND}.firstAvailable[0].deviceClassName Required",
                f"{SECOND}.firstAvailable[0].name Invalid",
            ],
        ),
        ({"spec.devices.requests.1.firstAvailable": [{}] * 9}, [f"{SECOND}.firstAvailable TooMany"]),
        (
            {"spec.devices.requests": [{}] * 33, "spec.devices.constraints": [], "spec.devices.config": []},
            [f"{DEVICES}.requests TooMany"],
        ),
    ],
)
def test_requests(changes: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(edit(claim(), changes)) == errors


@pytest.mark.parametrize(
    ("toleration", "errors"),
    [
        ({"operator": "Exists"}, []),
        ({"key": "example.com/x", "operator": "Equal", "value": "y", "effect": "NoExecute"}, []),
        ({}, []),  # the operator becomes Equal
        ({"key": "a b"}, [".key Invalid"]),
        ({"operator": "Exists", "value": "x"}, [".value Invalid"]),
        ({"operator": "Equal", "value": "a b"}, [".value Invalid"]),
        ({"value": " " * 64}, [".value Invalid"] * 2),
        ({"operator": "Like", "value": "a b"}, [".operator NotSupported"]),
        ({"effect": "Evict"}, [".effect NotSupported"]),
    ],
)
def test_tolerations(toleration: dict[str, Any], errors: list[str]) -> None:
    tree = edit(claim(), _request(tolerations=[toleration]))
    assert field_errors(tree) == [f"{FIRST}.exactly.tolerations[0]{error}" for error in errors]


def test_the_number_of_tolerations_is_free() -> None:
    assert field_errors(edit(claim(), _request(tolerations=[{"operator": "Exists"}] * 17))) == []


@pytest.mark.parametrize(
    ("reference", "errors"),
    [
        ("gpus", 0),
        ("nic", 0),
        ("nic/fast", 0),
        ("other", 1),
        ("nic/other", 1),
        ("gpus/fast", 1),
        ("a/b/c", 1),
        ("", 2),
        ("nic/", 2),
        ("A/B", 3),
        ("A" * 64, 3),
    ],
)
def test_references_to_requests(reference: str, errors: int) -> None:
    for field in ("constraints", "config"):
        tree = edit(claim(), {f"spec.devices.{field}.0.requests": [reference]})
        assert field_errors(tree) == [f"{DEVICES}.{field}[0].requests[0] Invalid"] * errors


def test_lists_of_references() -> None:
    for field in ("constraints", "config"):
        at = f"{DEVICES}.{field}[0].requests"
        assert field_errors(edit(claim(), {f"spec.devices.{field}.0.requests": ["gpus", "gpus"]})) == [
            f"{at}[1] Duplicate"
        ]
        assert field_errors(edit(claim(), {f"spec.devices.{field}.0.requests": ["x"] * 33})) == [
            f"{at} TooMany"
        ]
        assert field_errors(edit(claim(), {f"spec.devices.{field}.0.requests": GONE})) == []


@pytest.mark.parametrize(
    ("constraint", "errors"),
    [
        ({"matchAttribute": "a.io/x"}, []),
        ({"distinctAttribute": "a.io/x"}, []),
        ({}, [" Required"]),
        ({"matchAttribute": "x"}, [".matchAttribute Invalid"]),
        ({"matchAttribute": ""}, [".matchAttribute Invalid"] * 2),
        ({"distinctAttribute": "a.io/1"}, [".distinctAttribute Invalid"]),
        ({"distinctAttribute": "a.io/" + "x" * 33}, [".distinctAttribute TooLong"]),
    ],
)
def test_constraints(constraint: dict[str, Any], errors: list[str]) -> None:
    tree = edit(claim(), {"spec.devices.constraints": [constraint]})
    assert field_errors(tree) == [f"{DEVICES}.constraints[0]{error}" for error in errors]


def test_constraints_without_consumable_capacity_need_match_attribute() -> None:
    tree = edit(claim(), {"spec.devices.constraints": [{"distinctAttribute": "a.io/x"}]})
    off = {"DRAConsumableCapacity": False}
    assert field_errors(tree, gates=off) == [f"{DEVICES}.constraints[0].matchAttribute Required"]


def test_numbers_of_constraints_and_configurations() -> None:
    for field in ("constraints", "config"):
        assert field_errors(edit(claim(), {f"spec.devices.{field}": [{}] * 33})) == [
            f"{DEVICES}.{field} TooMany"
        ]


@pytest.mark.parametrize(
    ("opaque", "errors"),
    [
        (None, [" Required"]),
        ({}, [".driver Required", ".parameters Required"]),
        ({"driver": "a b", "parameters": {}}, [".driver Invalid"]),
        ({"driver": "a", "parameters": {}}, []),
        ({"driver": "a", "parameters": None}, [".parameters Required"]),
        ({"driver": "a", "parameters": []}, [".parameters Invalid"]),
        ({"driver": "a", "parameters": "x"}, [".parameters Invalid"]),
        ({"driver": "a", "parameters": 1.5}, [".parameters Invalid"]),
        ({"driver": "a", "parameters": {"x": "y" * (10240 - 8)}}, []),
        ({"driver": "a", "parameters": {"x": "y" * (10240 - 7)}}, [".parameters TooLong"]),
        ({"driver": "a", "parameters": ["y" * 10240]}, [".parameters TooLong"]),
        ({"driver": "a", "parameters": {"x": 10**30}}, []),
    ],
)
def test_configuration(opaque: Any, errors: list[str]) -> None:
    tree = edit(claim(), {"spec.devices.config.0.opaque": opaque})
    assert field_errors(tree) == [f"{DEVICES}.config[0].opaque{error}" for error in errors]


def test_admin_access_needs_a_namespace_that_allows_it() -> None:
    tree = edit(claim(), _request(adminAccess=True))
    inner = edit(template(), {"spec.spec": tree["spec"]})
    for write in (tree, inner):  # the same path for both
        assert field_errors(write) == [f"{FIRST}.adminAccess Forbidden"]
        assert field_errors(write, namespace_labels={"resource.kubernetes.io/admin-access": "True"}) == [
            f"{FIRST}.adminAccess Forbidden"
        ]
        assert field_errors(write, namespace_labels=ADMIN) == []
        assert field_errors(write, namespace_labels=None) == [f"{FIRST}.adminAccess InternalError"]
    assert field_errors(edit(claim(), _request(adminAccess=False))) == []
    # Only the first request that asks is reported, and nothing on update.
    second = edit(
        tree,
        {"spec.devices.requests.1": {"name": "x", "exactly": {"deviceClassName": "c", "adminAccess": True}}},
    )
    assert field_errors(second) == [f"{FIRST}.adminAccess Forbidden"]
    for write in (tree, inner):
        assert field_errors(stored(write), stored(write)) == []


def test_a_claim_spec_is_immutable_and_not_validated_again() -> None:
    old = stored(edit(claim(), {"spec.devices.requests.0.name": "BAD NAME"}))
    assert field_errors(edit(old, {"metadata.labels": {"a": "b"}}), old) == []
    assert field_errors(edit(old, {"spec.devices.requests.0.name": "WORSE"}), old) == ["spec Invalid"]
    assert field_errors(edit(old, {"spec.devices.constraints": GONE}), old) == ["spec Invalid"]


def test_semantically_equal_specs() -> None:
    old = stored(edit(claim(), _request(capacity={"requests": {"a": "1024Mi"}})))
    new = edit(old, _request(capacity={"requests": {"a": "1Gi"}}, selectors=[], tolerations=None))
    new = edit(new, {"spec.devices.config.0.opaque.parameters": {"a": 1}})
    assert field_errors(new, old) == []
    assert field_errors(edit(old, _request(adminAccess=False)), old) == [
        "spec Invalid"
    ]  # given is not absent
    reordered = {"x": 1, "a": 1}
    first = edit(old, {"spec.devices.config.0.opaque.parameters": reordered})
    second = edit(old, {"spec.devices.config.0.opaque.parameters": {"a": 1, "x": 1}})
    assert field_errors(second, first) == ["spec Invalid"]  # free JSON is compared as it is written


def test_status_in_the_body_is_ignored() -> None:
    assert run(edit(claim(), {"status": {"allocation": {}}})).tree["status"] == {}
    old = edit(stored(claim()), {"status": {"reservedFor": []}})
    assert run(edit(old, {"status": {"allocation": {}}}), old).tree["status"] == {"reservedFor": []}


# -- templates


@pytest.mark.parametrize(
    ("metadata", "errors"),
    [
        ({"labels": {"a": "b"}, "annotations": {"a": "any thing"}}, []),
        ({"labels": {"a b": ""}}, ["spec.metadata.labels Invalid"]),
        ({"annotations": {"a b": ""}}, ["spec.metadata.annotations Invalid"]),
        ({"name": "x"}, ["spec.metadata.name Forbidden"]),
        ({"uid": "x"}, ["spec.metadata.uID Forbidden"]),
        ({"generation": 1}, ["spec.metadata.generation Forbidden"]),
        ({"finalizers": []}, ["spec.metadata.finalizers Forbidden"]),
        ({"ownerReferences": None}, []),
        ({"deletionGracePeriodSeconds": 0}, ["spec.metadata.deletionGracePeriodSeconds Forbidden"]),
        ({"creationTimestamp": None, "generation": 0, "name": ""}, []),
        (
            {"managedFields": [{}], "selfLink": "x"},
            ["spec.metadata.managedFields Forbidden", "spec.metadata.selfLink Forbidden"],
        ),
    ],
)
def test_metadata_inside_a_template(metadata: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(edit(template(), {"spec.metadata": metadata})) == errors


def test_a_template_holds_a_claim_spec() -> None:
    tree = edit(template(), {"spec.spec.devices.requests.0.exactly.deviceClassName": "A"})
    assert field_errors(tree) == ["spec.spec.devices.requests[0].exactly.deviceClassName Invalid"]


def test_a_template_is_immutable_and_checked_again() -> None:
    old = stored(template())
    assert field_errors(edit(old, {"metadata.labels": {"a": "b"}}), old) == []
    assert field_errors(edit(old, {"spec.metadata.labels.team": "audio"}), old) == ["spec Invalid"]
    assert field_errors(edit(old, {"spec.metadata.managedFields": [{}]}), old) == [
        "spec Invalid",
        "spec.metadata.managedFields Forbidden",
    ]
    changed = edit(old, {"spec.spec.devices.requests.0.exactly.deviceClassName": "A"})
    assert field_errors(changed, old) == [
        "spec Invalid",
        "spec.spec.devices.requests[0].exactly.deviceClassName Invalid",
    ]


def test_a_constraint_has_one_attribute() -> None:
    both = {"matchAttribute": "a.io/x", "distinctAttribute": "a.io/y"}
    tree = edit(claim(), {"spec.devices.constraints": [both]})
    assert field_errors(tree) == ["spec.devices.constraints[0] Invalid"]


def test_capacity_requests_must_not_be_negative() -> None:
    at = "spec.devices.requests.0.exactly.capacity"
    tree = edit(claim(), {at: {"requests": {"bandwidth": "-1"}}})
    assert field_errors(tree) == ["spec.devices.requests[0].exactly.capacity.requests[bandwidth] Invalid"]
