"""The table of resources: complete, without conflicts, and with upstream's field labels."""

from __future__ import annotations

from collections import Counter

import pytest

from plimsoll.apiserver.registry.resource import ALL_VERBS, Resource
from plimsoll.apiserver.registry.resources import (
    RESOURCES,
    SUBRESOURCES,
    find_resource,
    find_resource_by_kind,
    group_versions,
)
from plimsoll.apiserver.registry.schema import schema_for
from tests.unit.apiserver.registry.resource_keys import RESOURCE_BY_KEY

FULL = {
    "bindings",
    "deviceclasses",
    "devicetaintrules",
    "events",
    "leases",
    "namespaces",
    "nodes",
    "podgroups",
    "pods",
} | {
    "priorityclasses",
    "resourceclaims",
    "resourceclaimtemplates",
    "resourcepoolstatusrequests",
    "resourcequotas",
    "resourceslices",
    "workloads",
}


def the(plural: str, group: str = "", version: str = "v1") -> Resource:
    found = find_resource(group, version, plural)
    assert found is not None
    return found


def test_the_kinds_with_full_behaviour() -> None:
    assert {row.plural for row in RESOURCES if row.has_strategy} == FULL


def test_names_do_not_clash() -> None:
    paths = Counter((row.group, version, row.plural) for row in RESOURCES for version in row.versions)
    assert max(paths.values()) == 1
    # Events stand in two groups under the same short name, as upstream.
    names = Counter(name for row in RESOURCES for name in (row.singular, *row.short_names))
    assert {name for name, count in names.items() if count > 1} == {"event", "ev"}


@pytest.mark.parametrize("row", RESOURCES, ids=lambda row: row.key)
def test_every_row_is_found_by_path_kind_and_key(row: Resource) -> None:
    assert RESOURCE_BY_KEY[row.key] is row
    for version in row.versions:
        assert find_resource(row.group, version, row.plural) is row
        assert find_resource_by_kind(row.group, version, row.kind) is row
        assert schema_for(row.group, version, row.kind) is not None
    assert set(row.subresources) <= set(SUBRESOURCES)
    assert set(row.verbs) <= set(ALL_VERBS)
    assert row.is_stored == ("get" in row.verbs and not row.computed)
    assert RESOURCE_BY_KEY.get(row.storage_key, row).is_stored or not row.is_stored


def test_unknown_resources_are_not_found() -> None:
    assert find_resource("", "v2", "pods") is None
    assert find_resource("apps", "v1", "pods") is None
    assert find_resource_by_kind("", "v1", "Nothing") is None


def test_groups_and_their_preferred_versions() -> None:
    groups = group_versions()
    assert next(iter(groups)) == ""
    assert groups["resource.k8s.io"] == ("v1", "v1beta2", "v1beta1", "v1alpha3")
    assert groups["autoscaling"] == ("v2", "v1")


def test_keys_and_versions() -> None:
    assert the("pods").key == "pods"
    assert the("resourceclaims", "resource.k8s.io").key == "resourceclaims.resource.k8s.io"
    assert the("events", "events.k8s.io").storage_key == the("events").key == "events"
    assert the("pods").api_version() == "v1"
    assert the("deviceclasses", "resource.k8s.io").api_version("v1beta2") == "resource.k8s.io/v1beta2"
    assert the("deviceclasses", "resource.k8s.io").list_kind == "DeviceClassList"


@pytest.mark.parametrize(
    ("plural", "group", "tree", "label", "text"),
    [
        ("pods", "", {"spec": {"nodeName": "n"}}, "spec.nodeName", "n"),
        ("pods", "", {"spec": {"nodeName": "n"}}, "spec.host", "n"),
        ("pods", "", {}, "spec.hostNetwork", "false"),
        ("pods", "", {"spec": {"hostNetwork": True}}, "spec.hostNetwork", "true"),
        ("pods", "", {"status": {"podIPs": [{"ip": "1.2.3.4"}]}}, "status.podIPs", ""),
        ("pods", "", {"metadata": {"name": "a"}}, "metadata.name", "a"),
        ("pods", "", {"spec": "nonsense"}, "spec.nodeName", ""),
        ("pods", "", {"spec": {"nodeName": ["x"]}}, "spec.nodeName", ""),
        ("nodes", "", {}, "spec.unschedulable", "false"),
        ("replicationcontrollers", "", {}, "status.replicas", "0"),
        ("replicationcontrollers", "", {"status": {"replicas": 7}}, "status.replicas", "7"),
        ("jobs", "batch", {"status": {"succeeded": 2}}, "status.successful", "2"),
        ("events", "", {"involvedObject": {"kind": "Pod"}}, "involvedObject.kind", "Pod"),
        ("events", "", {"source": {"component": "c"}, "reportingComponent": "r"}, "source", "c"),
        ("events", "", {"reportingComponent": "r"}, "source", "r"),
        ("events", "events.k8s.io", {"involvedObject": {"kind": "Pod"}}, "regarding.kind", "Pod"),
        ("events", "events.k8s.io", {"reportingComponent": "r"}, "reportingController", "r"),
        ("resourceslices", "resource.k8s.io", {"spec": {"driver": "d"}}, "spec.driver", "d"),
    ],
)
def test_field_labels(plural: str, group: str, tree: object, label: str, text: str) -> None:
    row = the(plural, group)
    assert row.field_label_path(label) is not None
    assert row.field_value(tree, label) == text


def test_unknown_field_labels_are_refused() -> None:
    assert the("pods").field_label_path("spec.foo") is None
    assert the("pods").field_label_error("spec.foo") == "field label not supported: spec.foo"
    assert the("nodes").field_label_path("metadata.namespace") is None
    assert the("deviceclasses", "resource.k8s.io").field_label_path("metadata.namespace") is not None
    assert the("configmaps").field_label_path("data") is None
    wanted = '"data" is not a known field selector: only "metadata.name", "metadata.namespace"'
    assert the("configmaps").field_label_error("data") == wanted
