"""Schemas of the most important kinds, and that all data files can be read."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from plimsoll.apiserver.registry.resources import RESOURCES
from plimsoll.apiserver.registry.schema import SchemaType, schema_for


def pod() -> SchemaType:
    found = schema_for("", "v1", "Pod")
    assert found is not None
    return found


def at(type: SchemaType | None, path: str) -> SchemaType:
    assert type is not None
    for name in path.split("."):
        while type.item is not None:
            type = type.item
        type = type.fields[name].type
    return type


def everything(type: SchemaType, seen: dict[int, SchemaType]) -> Iterator[SchemaType]:
    """Return every type that can be reached from one."""
    if id(type) in seen:
        return
    seen[id(type)] = type
    yield type
    if type.item is not None:
        yield from everything(type.item, seen)
    for field in type.fields.values():
        yield from everything(field.type, seen)


def test_lists_of_containers_ports_and_volumes() -> None:
    containers = at(pod(), "spec.containers")
    assert (containers.list_type, containers.keys) == ("map", ("name",))
    assert (containers.merge_key, set(containers.strategies)) == ("name", {"merge"})
    ports = at(pod(), "spec.containers.ports")
    assert (ports.keys, ports.merge_key) == (("containerPort", "protocol"), "containerPort")
    assert ports.key_defaults == {"protocol": "TCP"}
    volumes = at(pod(), "spec.volumes")
    assert volumes.strategies == {"merge", "retainKeys"}
    assert at(pod(), "metadata.finalizers").list_type == "set"
    assert at(pod(), "metadata.finalizers").merge_key == ""
    assert at(pod(), "spec.tolerations").list_type == "atomic"
    assert at(pod(), "spec.containers.command").list_type == "atomic"


def test_atomic_maps_and_objects() -> None:
    assert at(pod(), "spec.nodeSelector").atomic
    assert not at(pod(), "metadata.labels").atomic
    assert at(schema_for("", "v1", "Service"), "spec.selector").atomic
    assert at(pod(), "metadata.ownerReferences").item is not None
    claim = schema_for("", "v1", "PersistentVolume")
    assert not at(claim, "spec.claimRef").atomic
    assert at(schema_for("", "v1", "Event"), "involvedObject").atomic


def test_numbers_of_protobuf() -> None:
    spec = at(pod(), "spec")
    assert spec.fields["nodeName"].number == 10
    volume = at(pod(), "spec.volumes").item
    assert volume is not None
    assert (volume.fields["secret"].message_path, volume.fields["secret"].number) == ((2,), 6)
    assert spec.fields["terminationGracePeriodSeconds"].emits_zero
    assert not spec.fields["hostNetwork"].emits_zero


def test_strategies_of_objects_stand_on_the_field() -> None:
    strategy = at(schema_for("apps", "v1", "Deployment"), "spec.strategy")
    assert strategy.strategies == {"retainKeys"}
    assert "rollingUpdate" in strategy.fields


@pytest.mark.parametrize("version", ["v1", "v1beta2"])
def test_node_allocatable_fields_of_every_age(version: str) -> None:
    device = at(schema_for("resource.k8s.io", version, "ResourceSlice"), "spec.devices").item
    assert device is not None
    for path in (
        "nodeAllocatableResourceMappings.allocationMultiplier",
        "nodeAllocatableResources.mapping.deviceMultiplier",
        "nodeAllocatableResources.overhead.perPod",
        "nativeResourceMappings.quantityFrom.perInstanceQuantity",
    ):
        assert at(device, path).kind == "quantity"
    classes = at(schema_for("resource.k8s.io", version, "DeviceClass"), "spec")
    assert {"managesNodeAllocatableResources", "managesNativeResources"} <= set(classes.fields)
    entry = at(pod(), "status.nodeAllocatableResourceClaimStatuses").item
    assert entry is not None
    assert {"resources", "mapping", "overhead", "accountingPolicies", "drawn"} <= set(entry.fields)
    assert at(pod(), "status.nativeResourceClaimStatus.resources.quantity").kind == "quantity"


def test_versions_of_one_shape() -> None:
    claims = [schema_for("resource.k8s.io", version, "ResourceClaim") for version in ("v1beta2", "v1")]
    old, new = (at(claim, "spec.devices.requests.exactly") for claim in claims)
    assert list(old.fields) == list(new.fields)
    rules = [schema_for("resource.k8s.io", version, "DeviceTaintRule") for version in ("v1beta2", "v1alpha3")]
    assert [list(at(rule, "spec.taint").fields) for rule in rules] == [
        ["key", "value", "effect", "timeAdded"]
    ] * 2
    assert schema_for("resource.k8s.io", "v1", "DeviceTaintRule") is None


def test_list_kinds_options_and_unknown_kinds() -> None:
    listed = schema_for("", "v1", "PodList")
    assert listed is not None
    assert listed.fields["items"].type.item is pod()
    assert at(listed, "metadata.remainingItemCount").kind == "integer"
    assert schema_for("apps", "v1", "DeleteOptions") is schema_for("", "v1", "DeleteOptions") is not None
    assert schema_for("", "v1", "Container") is None
    assert schema_for("", "v1", "ContainerList") is None
    assert schema_for("example.com", "v1", "Thing") is None


def test_all_schema_data_can_be_read() -> None:
    seen: dict[int, SchemaType] = {}
    for row in RESOURCES:
        for version in row.versions:
            for kind in (row.kind, row.list_kind):
                found = schema_for(row.group, version, kind)
                assert found is not None
                for type in everything(found, seen):
                    assert type.list_type != "map" or type.keys
                    numbers = [(f.message_path, f.number) for f in type.fields.values() if f.number]
                    assert len(numbers) == len(set(numbers)), type
    assert len(seen) > 900


@pytest.mark.parametrize("version", ["x" * 5000, "../v1", "v1/../v1", "\x00", "", "v1.txt"])
def test_unknown_versions_name_no_file(version: str) -> None:
    assert schema_for("", version, "Pod") is None
    assert schema_for("../core", version, "Pod") is None
