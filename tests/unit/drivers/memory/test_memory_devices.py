"""Memory of NUMA nodes as devices: sysfs, reserved amounts, policies, mappings, container settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from plimsoll.api.forms import Form
from plimsoll.drivers.memory.devices import CAPACITY, list_devices, make_devices
from plimsoll.drivers.memory.numa_memory import NumaMemory, read_numa_memory
from plimsoll.drivers.memory.pinning import MemoryGrant, MemoryNodePlugin, make_resources, variable_name
from plimsoll.drivers.memory.settings import parse_reserved
from plimsoll.errors import ConfigError, InputError
from tests.unit.apiserver.validation.objects import field_errors
from tests.unit.drivers.memory.sysfs_memory import write_memory

KI, MI, GI = 1 << 10, 1 << 20, 1 << 30


def test_nodes_are_read_from_sysfs(tmp_path: Path) -> None:
    write_memory(tmp_path, 0, 8 * GI, {2 * MI: 512, GI: 1})
    write_memory(tmp_path, 1, 4 * GI + 5 * KI, {2 * MI: 0})
    write_memory(tmp_path, 2, 0)  # CPUs only
    write_memory(tmp_path, 33, GI)
    (tmp_path / "sys/devices/system/node/node33/hugepages").write_text("not a directory")
    assert read_numa_memory(tmp_path) == (
        NumaMemory(0, 8 * GI, {2 * MI: GI, GI: GI}),
        NumaMemory(1, 4 * GI + 5 * KI, {2 * MI: 0}),
        NumaMemory(33, GI),
    )
    pages = tmp_path / "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"
    pages.write_text("-3 or so")
    assert read_numa_memory(tmp_path)[0].huge == {2 * MI: 0, GI: GI}


def test_a_machine_without_memory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="sys/devices/system/node"):
        read_numa_memory(tmp_path)
    write_memory(tmp_path, 0, 0)
    with pytest.raises(InputError, match="no NUMA node with memory"):
        read_numa_memory(tmp_path)


def test_huge_pages_are_not_memory_and_reserved_amounts_are_not_published() -> None:
    memory = [NumaMemory(0, 8 * GI, {2 * MI: GI, GI: 2 * GI}), NumaMemory(1, 4 * GI + KI, {2 * MI: 0})]
    reserved = parse_reserved("0:memory=512Mi,hugepages-2Mi=3Mi;1:memory=1Gi")
    found = {name: each.size for name, each in list_devices(memory, reserved).items()}
    assert found == {
        "memory-numa000": 5 * GI - 512 * MI,
        "hugepages-2mi-numa000": GI - 4 * MI,  # whole pages only
        "hugepages-1gi-numa000": 2 * GI,
        "memory-numa001": 3 * GI,
    }


@pytest.mark.parametrize(
    "text", ["0", "x:memory=1Gi", "0:memory", "0:cpu=1", "0:memory=-1", "0:memory=1;0:memory=1"]
)
def test_reserved_memory_that_is_malformed(text: str) -> None:
    with pytest.raises(ConfigError, match="reserved memory"):
        parse_reserved(text)


@pytest.mark.parametrize("form", [None, Form.V1_36, Form.V1_37])
@pytest.mark.parametrize("pages", [1, 2, 100])
def test_devices_are_valid_and_mapped_to_the_node(form: Form | None, pages: int) -> None:
    devices = make_devices(list_devices([NumaMemory(0, 9 * GI, {GI: pages * GI})], {}).values(), form)
    tree = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "s"},
        "spec": {
            "driver": "dra.memory",
            "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
            "devices": devices,
        },
    }
    assert field_errors(tree) == []
    huge = devices[-1]
    assert huge["name"] == "hugepages-1gi-numa000"
    assert huge["attributes"]["resource.kubernetes.io/numaNode"] == {"int": 0}
    if form is Form.V1_37:
        mapping = {"capacityKey": CAPACITY, "capacityMultiplier": "1"}
        assert huge["nodeAllocatableResources"] == {"hugepages-1Gi": {"mapping": mapping}}
    if form is Form.V1_36:
        mapping = {"capacityKey": CAPACITY, "allocationMultiplier": "1"}
        assert huge["nodeAllocatableResourceMappings"] == {"hugepages-1Gi": mapping}


def test_containers_get_nodes_and_limits_of_their_claims() -> None:
    grants = [MemoryGrant(2, "memory", GI), MemoryGrant(0, "hugepages-2Mi", 4 * MI)]
    made = make_resources([*grants, MemoryGrant(0, "hugepages-2Mi", 2 * MI)])
    assert made.cpu.mems == "0,2"
    assert [(each.page_size, each.limit) for each in made.hugepage_limits] == [("2MB", 6 * MI)]


def test_only_prepared_claims_count_not_the_environment(tmp_path: Path) -> None:
    uid = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
    name = variable_name(uid, "mem")
    assert name == "DRA_MEMORY_1b4e28ba_2fa1_11d2_883f_0016d3cca427_mem"
    known = {name: [MemoryGrant(1, "memory", GI)]}
    plugin = MemoryNodePlugin(tmp_path / "nri.sock", lambda asked: known.get(asked, []))
    decided = plugin.decide(["PATH=/bin", f"{name}=memory@0"])
    assert not isinstance(decided, str | None)
    assert decided.cpu.mems == "1"
    assert plugin.decide(["PATH=/bin"]) is None
    refused = plugin.decide([f"{variable_name(uid, 'other')}=memory@0"])
    assert isinstance(refused, str)
    assert "no such claim is prepared" in refused
