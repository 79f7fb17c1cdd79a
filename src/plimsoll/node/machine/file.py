"""Machine description file, so that one machine can simulate many nodes.

docs/node.md lists the fields. Guarantees that every error is a ConfigError that names the file, the field and
the fix, and that omitted fields have working defaults.

   capacity: {cpu: 16, memory: 64Gi, ephemeral-storage: 100Gi, hugepages-2Mi: 1Gi, example.com/gpu: 4}
   cpus: 0-15
   numa:
   - {id: 0, cpus: 0-7, memory: 32Gi, hugePages: {2Mi: 512Mi}}
   - {id: 1, cpus: 8-15, memory: 32Gi, hugePages: {2Mi: 512Mi}}
   labels: {topology.kubernetes.io/zone: a}
   taints: [{key: dedicated, value: x, effect: NoSchedule}]
   addresses: [{type: InternalIP, address: 10.0.0.7}]
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta, field
from msgspec.structs import asdict

from plimsoll.api.config import Config, convert_config
from plimsoll.api.core import NodeAddress, ResourceList
from plimsoll.api.quantity import Format, Quantity
from plimsoll.common.config_file import read_config, read_document
from plimsoll.errors import DecodeError, InputError
from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.units import CPU, EPHEMERAL_STORAGE, MEMORY, PODS
from plimsoll.node.machine.file_values import Amounts, Labels, Taints, read_amounts
from plimsoll.node.machine.machine import HUGE_PAGES, MAX_PODS, Machine, NumaNode, format_cpus, parse_cpus

_DEFAULT_CAPACITY = {EPHEMERAL_STORAGE: Quantity.parse("100Gi"), PODS: Quantity.of(MAX_PODS)}
_MAX_CPUS = 65_536


def read_machine_file(path: Path) -> Machine:
    """Read the machine described by a file."""
    return parse_machine(read_document(path, "machine"), str(path))


def parse_machine(tree: Any, where: str = "machine") -> Machine:
    """Parse the machine described by a tree."""
    return read_config(tree, _read_machine, where)


def _read_pages(tree: Any) -> dict[str, int]:
    """Parse bytes by page size."""
    sizes = convert_config(tree, dict[str, Any])
    amounts = read_amounts({f"{HUGE_PAGES}{size}": value for size, value in sizes.items()})
    return {name.removeprefix(HUGE_PAGES): amount.value() for name, amount in amounts.items()}


def _read_bytes(value: Any) -> int:
    amount = Quantity.from_json(value)
    if amount.sign() < 0 or amount != Quantity.of(amount.value(), Format.BINARY_SI):
        raise InputError(f"must be a whole number of bytes such as 32Gi, {amount} is not")
    return amount.value()


def _read_cpu_list(value: Any) -> tuple[int, ...]:
    if isinstance(value, list) and all(isinstance(v, int) and not isinstance(v, bool) for v in value):
        value = ",".join(map(str, value))
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise InputError(f"{value!r} is not a CPU list: use a format such as 0-3,8")
    return parse_cpus(value)


def _read_address(value: Any) -> str:
    if not isinstance(value, str) or not value or any(char.isspace() for char in value):
        raise InputError("must be an address such as 10.0.0.7")
    return value


_CpuList: TypeAlias = Annotated[tuple[int, ...], _read_cpu_list]


class _AddressFile(Config, frozen=True, kw_only=True):
    address: Annotated[str, _read_address, Meta(examples=["10.0.0.7"])]
    type: Literal["Hostname", "InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS"] = "InternalIP"


class _NumaFile(Config, frozen=True, kw_only=True):
    id: Annotated[int, Meta(ge=0, le=1023)] | None = None
    cpus: _CpuList = ()
    memory: Annotated[int, _read_bytes] = 0
    huge_pages: Annotated[Mapping[str, int], _read_pages] = field(default_factory=dict)


class _MachineFile(Config, frozen=True, kw_only=True):
    kind: Literal["Machine"] = "Machine"
    api_version: str = ""
    capacity: Amounts = field(default_factory=dict)
    cpus: _CpuList | None = None
    numa: Annotated[tuple[_NumaFile, ...], Meta(min_length=1)] = ()
    pids: Annotated[int, Meta(ge=1, le=2**22)] = 32_768
    hostname: str = ""
    boot_id: str = field(default="", name="bootID")
    machine_id: str = field(default="", name="machineID")
    system_uuid: str = field(default="", name="systemUUID")
    kernel: str = field(default="6.1.0", name="kernelVersion")
    os_image: str = "Linux"
    arch: str = field(default="amd64", name="architecture")
    labels: Labels = field(default_factory=dict)
    taints: Taints = ()
    addresses: Annotated[tuple[_AddressFile, ...], Meta(min_length=1)] = ()


def _read_machine(tree: Any) -> Machine:
    file: _MachineFile = convert_config(tree, _MachineFile)
    capacity = _complete_capacity(file.capacity)
    cpus = _choose_cpus(file.cpus, capacity)
    addresses = [NodeAddress(type=each.type, address=each.address) for each in file.addresses]
    given = asdict(file)
    del given["kind"], given["api_version"]
    given |= {"capacity": capacity, "cpus": cpus, "numa": _make_numa(file.numa, cpus, capacity)}
    return Machine(**given | {"addresses": tuple(dict.fromkeys(addresses))})


def _complete_capacity(given: ResourceList) -> ResourceList:
    for name in (CPU, MEMORY):
        if name not in given or given[name].sign() == 0:
            raise DecodeError("required; set an amount such as 8", f"capacity.{name}")
    if given[CPU].value() > _MAX_CPUS:
        raise DecodeError(f"no machine has more than {_MAX_CPUS} cpus", "capacity.cpu")
    return {**given, **{name: amount for name, amount in _DEFAULT_CAPACITY.items() if name not in given}}


def _choose_cpus(given: tuple[int, ...] | None, capacity: ResourceList) -> tuple[int, ...]:
    count = capacity[CPU].value()
    if given is None:
        return tuple(range(count))
    if len(given) != count:
        raise DecodeError(f"has {len(given)} cpus, but capacity.cpu is {count}; make them agree", "cpus")
    return given


def _make_numa(
    given: tuple[_NumaFile, ...], cpus: tuple[int, ...], capacity: ResourceList
) -> tuple[NumaNode, ...]:
    found: dict[int, NumaNode] = {}
    owners: dict[int, int] = {}
    for place, each in enumerate(given):
        number = len(found) if each.id is None else each.id
        if number in found:
            raise DecodeError(
                f"{number} is given twice; each NUMA node needs its own number", f"numa[{place}].id"
            )
        for cpu in each.cpus:
            problem = ""
            if cpu not in cpus:
                problem = f"cpu {cpu} does not exist; the machine has {format_cpus(cpus)}"
            elif cpu in owners:
                problem = f"cpu {cpu} is in NUMA node {owners[cpu]} already; give it to one"
            if problem:
                raise DecodeError(problem, f"numa[{place}].cpus")
            owners[cpu] = number
        found[number] = NumaNode(id=number, cpus=each.cpus, memory=each.memory, huge_pages=each.huge_pages)
    nodes = tuple(found[number] for number in sorted(found))
    if not nodes:
        return (_single_numa_node(cpus, capacity),)
    if problem := _check_sums(nodes, cpus, capacity):
        raise DecodeError(problem, "numa")
    return nodes


def _single_numa_node(cpus: tuple[int, ...], capacity: ResourceList) -> NumaNode:
    pages = {
        name.removeprefix(HUGE_PAGES): amount.value()
        for name, amount in capacity.items()
        if is_huge_page(name)
    }
    return NumaNode(id=0, cpus=cpus, memory=capacity[MEMORY].value(), huge_pages=pages)


def _check_sums(nodes: tuple[NumaNode, ...], cpus: tuple[int, ...], capacity: ResourceList) -> str:
    """Return the problem if NUMA nodes do not match the machine, or ""."""
    left = set(cpus).difference(*(node.cpus for node in nodes))
    if left:
        return f"cpu {min(left)} is in no NUMA node; give it to one"
    memory = sum(node.memory for node in nodes)
    if memory > capacity[MEMORY].value():
        return f"has {memory} bytes of memory in total, more than capacity.memory"
    for size in {size for node in nodes for size in node.huge_pages}:
        total = sum(node.huge_pages.get(size, 0) for node in nodes)
        total_amount = capacity.get(HUGE_PAGES + size)
        if total_amount is None or total > total_amount.value():
            return f"has {total} bytes of {size} pages, more than capacity.{HUGE_PAGES}{size}"
    return ""
