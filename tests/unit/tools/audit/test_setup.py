"""Checks of the set-up: blast radius, missing names, annotations."""

from __future__ import annotations

import pytest

from plimsoll.tools.findings import Severity
from tests.unit.tools.audit.build import (
    V1,
    Tree,
    api_object,
    claim,
    device,
    device_class,
    found,
    only,
    pod,
    result,
    slice_of,
    well,
)


def rule(effect: str, selector: Tree | None) -> Tree:
    spec: Tree = {"taint": {"key": "x", "effect": effect}}
    if selector is not None:
        spec["deviceSelector"] = selector
    return api_object(V1, "DeviceTaintRule", "r", spec=spec)


@pytest.mark.parametrize(
    ("effect", "severity"), [("NoExecute", Severity.ERROR), ("NoSchedule", Severity.WARNING)]
)
def test_a_taint_rule_without_selector(effect: str, severity: Severity) -> None:
    trees = [slice_of(device("d0")), claim("c", result()), pod("p", claims="c")]
    finding = only("PLM060", rule(effect, {}), *trees)
    assert finding.severity is severity
    assert finding.evidence == ("1 devices, 1 allocated claims and 1 pods are affected",)


def test_taint_rules_with_selectors() -> None:
    assert found("PLM060", rule("NoExecute", {"driver": "x"})) == []
    assert found("PLM060", rule("NoExecute", None)) == []


def test_a_class_without_selectors() -> None:
    one, two = slice_of(device("d0")), slice_of(device("d0"), driver="x.example.com")
    assert only("PLM061", device_class("all", ""), one, two).severity is Severity.WARNING
    assert only("PLM061", device_class("all", ""), one).severity is Severity.INFO
    assert found("PLM061", *well()) == []


def test_a_missing_class() -> None:
    finding = only("PLM062", device_class("any"), claim("c", klass="gone"))
    assert finding.message == "requests devices of class gone, which does not exist"
    assert finding.evidence == ("existing classes: any",)
    assert found("PLM062", device_class("any"), claim("c", klass="any")) == []


def test_a_missing_template() -> None:
    tree = pod("p", template="t", on="", phase="Pending")
    assert "claim template t does not exist" in only("PLM063", tree).message
    there = api_object(V1, "ResourceClaimTemplate", "t", "work", spec={"spec": {}})
    assert found("PLM063", tree, there) == []


def test_a_missing_claim() -> None:
    tree = pod("p", claims="c", on="", phase="Pending")
    assert only("PLM063", tree).message == "is pending: claim c does not exist"
    assert found("PLM063", tree, claim("c")) == []


def test_a_dump_without_templates_yields_no_template_findings() -> None:
    tree = pod("p", template="t", on="", phase="Pending")
    assert found("PLM063", tree, live=False) == []


def test_invalid_annotations() -> None:
    klass = device_class()
    klass["metadata"]["annotations"] = {"plimsoll.dev/node-allocatable": "{"}
    finding = only("PLM064", klass)
    assert finding.subject == "DeviceClass/any"
    assert finding.message.startswith("annotation plimsoll.dev/node-allocatable is invalid: ")
    tree = pod("p", claims="c")
    tree["metadata"]["annotations"] = {"plimsoll.dev/claim-charges": "[1]"}
    finding = only("PLM064", tree)
    assert finding.severity is Severity.WARNING
    assert "kubectl annotate pod -n work p plimsoll.dev/claim-charges-" in finding.fix
    assert found("PLM064", *well()) == []
