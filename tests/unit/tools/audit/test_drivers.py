"""Checks of mappings: missing, clashing, unknown, mixed."""

from __future__ import annotations

import pytest

from plimsoll.tools.findings import Severity
from tests.unit.tools.audit.build import (
    Tree,
    claim,
    cpus,
    device,
    device_class,
    found,
    node,
    only,
    pod,
    result,
    share,
    slice_of,
    well,
)

OTHER = "nic.example.com"


def mapped(name: str, amount: str) -> Tree:
    return device(name, nodeAllocatableResourceMappings={"cpu": {"allocationMultiplier": amount}})


def test_a_cpu_driver_without_mappings() -> None:
    finding = only("PLM010", slice_of(cpus(form="none"), driver="dra.cpu"))
    assert finding.severity is Severity.WARNING
    assert finding.subject == "Driver/dra.cpu"
    assert finding.message.startswith("allocates cpu of nodes (capacity dra.cpu/cpu)")
    assert finding.evidence == ("1 device, such as dra.cpu/n1/cpus",)


def test_cpus_one_by_one_without_mappings() -> None:
    single = device("cpu0", attributes={"dra.cpu/cpuID": {"int": 0}})
    assert "attribute dra.cpu/cpuID" in only("PLM010", slice_of(single, driver="dra.cpu")).message


def test_capacity_names_of_other_drivers_are_a_hint() -> None:
    finding = only("PLM010", slice_of(cpus(driver=OTHER, form="none"), driver=OTHER))
    assert finding.severity is Severity.INFO
    assert finding.message.startswith("seems to allocate cpu")


def test_huge_pages_are_recognized_by_their_capacity() -> None:
    pages = device("h", capacity={"x.example.com/hugepages-2Mi": {"value": "1Gi"}})
    assert only("PLM010", slice_of(pages)).key == "hugepages-2Mi"


@pytest.mark.parametrize("form", ["1.36", "1.37"])
def test_mappings_are_seen_in_every_form(form: str) -> None:
    assert found("PLM010", slice_of(cpus(form=form), driver="dra.cpu")) == []


# -- names


def test_two_drivers_with_one_name_and_other_mappings() -> None:
    finding = only("PLM011", slice_of(mapped("d0", "1")), slice_of(mapped("d0", "2"), driver=OTHER))
    assert finding.subject == "Driver/gpu.example.com"
    assert finding.key == OTHER


@pytest.mark.parametrize(
    "other",
    [
        slice_of(mapped("d1", "2"), driver=OTHER),
        slice_of(mapped("d0", "2"), driver=OTHER, pool="n2", on="n2"),
        slice_of(mapped("d0", "1"), driver=OTHER),
    ],
    ids=["other device", "other pool", "same mapping"],
)
def test_pool_names_without_clash(other: Tree) -> None:
    assert found("PLM011", slice_of(mapped("d0", "1")), other) == []


def test_1_37_distinguishes_drivers() -> None:
    one, other = cpus(form="1.37", driver="a.example.com"), cpus(form="1.37", driver="b.example.com")
    assert (
        found("PLM011", slice_of(one, driver="a.example.com"), slice_of(other, driver="b.example.com")) == []
    )


def clash(charged: str) -> list[Tree]:
    return [
        node(),
        device_class(),
        slice_of(mapped("d0", "1")),
        slice_of(mapped("d0", "2"), driver=OTHER),
        claim("c", result("d0")),
        pod("p", claims="c", charges={"c": {"cpu": charged}}),
    ]


def test_a_charge_by_the_other_drivers_mapping() -> None:
    finding = only("PLM012", *clash("2"))
    assert finding.severity is Severity.ERROR
    assert finding.message == (
        "claim c is charged cpu 2, as a device of nic.example.com would be; its own devices charge cpu 1"
    )
    assert found("PLM006", *clash("2")) == []


def test_a_correct_or_outdated_charge() -> None:
    assert found("PLM012", *clash("1")) == []
    assert found("PLM012", *clash("3")) == []
    assert len(found("PLM006", *clash("3"))) == 1


# -- keys and resources


def test_a_capacity_that_the_device_does_not_have() -> None:
    odd = device("d0", nodeAllocatableResourceMappings={"cpu": {"capacityKey": "x/cores"}})
    finding = only("PLM013", slice_of(odd))
    assert finding.message == "cpu is charged by capacity x/cores, which the devices do not have"
    assert found("PLM013", *well()) == []


def test_a_capacity_in_the_annotation_of_a_class() -> None:
    words = '{"nodeAllocatableResourceMappings":{"cpu":{"capacityKey":"x/cores"}}}'
    klass = device_class()
    klass["metadata"]["annotations"] = {"plimsoll.dev/node-allocatable": words}
    finding = only("PLM013", klass, slice_of(device("d0")), claim("c", result("d0")))
    assert finding.subject == "DeviceClass/any"


def test_a_resource_that_is_not_counted() -> None:
    odd = device("d0", nodeAllocatableResourceMappings={"foo": {"allocationMultiplier": "1"}})
    assert "foo, which is not a node resource" in only("PLM015", node(), slice_of(odd)).message


def test_a_resource_missing_from_the_node() -> None:
    pages = device("d0", nodeAllocatableResourceMappings={"hugepages-1Gi": {"allocationMultiplier": "1Gi"}})
    finding = only("PLM015", node(), slice_of(pages))
    assert "which their nodes do not have" in finding.message
    assert found("PLM015", node(**{"hugepages-1Gi": "4Gi"}), slice_of(pages)) == []


# -- forms


def of_form(form: str, driver: str) -> Tree:
    return slice_of(cpus(driver=driver, form=form), driver=driver)


def test_several_forms_in_one_cluster() -> None:
    old, new, third = of_form("1.36", "a.x"), of_form("1.37", "b.x"), of_form("1.37", "c.x")
    finding = only("PLM014", old, new, third)
    assert finding.subject == "Driver/a.x"
    assert finding.message == "publishes mappings in the form of 1.36, the cluster uses that of 1.37"
    assert found("PLM014", old) == []
    assert found("PLM014", new, third) == []


def test_the_form_of_the_charges_is_that_of_the_cluster() -> None:
    old, new, third = of_form("1.36", "a.x"), of_form("1.37", "b.x"), of_form("1.37", "c.x")
    tree = pod("p", claims="c", charges={"c": {"cpu": "4"}})
    subjects = [each.subject for each in found("PLM014", node(), old, new, third, tree)]
    assert subjects == ["Driver/b.x", "Driver/c.x"]
    assert found("PLM014", node(), new, tree) == []  # the writer of the charge has read the mapping


def test_a_device_in_two_forms() -> None:
    both = cpus() | {"nodeAllocatableResources": cpus(form="1.37")["nodeAllocatableResources"]}
    assert "in the form of 1.36 and 1.37" in only("PLM014", slice_of(both, driver="dra.cpu")).message


# -- mappings that were dropped


def bare(pool: str) -> Tree:
    return slice_of(cpus(form="none"), driver="dra.cpu", pool=pool, on=pool)


def test_a_mapping_that_devices_of_other_nodes_have() -> None:
    trees = [node("n1"), node("n2"), slice_of(cpus(), driver="dra.cpu"), bare("n2")]
    finding = only("PLM017", *trees)
    assert "n2" in finding.fix
    assert found("PLM010", *trees) == []
    assert found("PLM017", *trees[:3]) == []


def test_a_mapping_by_which_a_pod_was_charged() -> None:
    """Its record is the only evidence."""
    trees = [node("n1"), device_class("cpu", "dra.cpu"), bare("n1"), claim("c", share("4"), klass="cpu")]
    assert found("PLM017", *trees, pod("p", claims="c")) == []
    assert len(found("PLM010", *trees, pod("p", claims="c"))) == 1
    charged = pod("p", claims="c", charges={"c": {"cpu": "4"}})
    assert "Pod/work/p" in only("PLM017", *trees, charged).evidence[-1]
    assert found("PLM010", *trees, charged) == []


def test_one_annotation_must_count_all_devices_of_its_class() -> None:
    """One that is right for the shared devices fails for single CPUs, and the other way round."""
    single = device("cpu0", attributes={"dra.cpu/cpuID": {"int": 0}})
    shared = cpus(form="none")
    for mapping, subject in (
        ('{"capacityKey":"dra.cpu/cpu"}', single),
        ('{"allocationMultiplier":"1"}', shared),
    ):
        words = f'{{"nodeAllocatableResourceMappings":{{"cpu":{mapping}}}}}'
        klass = device_class("cpu", "dra.cpu", **{"plimsoll.dev/node-allocatable": words})
        finding = only("PLM010", node(), klass, slice_of(single, shared, driver="dra.cpu"))
        assert finding.evidence[0].startswith(f"1 device, such as dra.cpu/n1/{subject['name']}")
        right = shared if subject is single else single
        assert found("PLM010", node(), klass, slice_of(right, driver="dra.cpu")) == []
