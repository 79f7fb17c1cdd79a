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

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plimsoll.api.core import NodeAddress, ResourceList, Taint
from plimsoll.api.names import label_key, label_value
from plimsoll.api.quantity import Format, Quantity
from plimsoll.common.config_file import ConfigSection, read_document
from plimsoll.errors import ConfigError, InputError
from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.units import CPU, EPHEMERAL_STORAGE, MEMORY, PODS, is_extended_resource
from plimsoll.node.machine.machine import HUGE_PAGES, MAX_PODS, Machine, NumaNode, format_cpus, parse_cpus

KIND = "Machine"
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
ADDRESS_TYPES = ("Hostname", "InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS")
_PLAIN = (CPU, MEMORY, EPHEMERAL_STORAGE, PODS)
_MOST_CPUS = 65_536


def read_machine_file(path: Path) -> Machine:
    """Read the machine described by a file."""
    return parse_machine(read_document(path, "machine"), str(path))


def parse_machine(tree: Any, where: str = "machine") -> Machine:
    """Parse the machine described by a tree."""
    top = ConfigSection(tree, where)
    top.text("kind", KIND, choices=(KIND,))
    top.text("apiVersion", "")
    capacity = _capacity(top)
    cpus = _cpus(top, capacity)
    machine = Machine(
        capacity=capacity,
        cpus=cpus,
        numa=_numa(top, cpus, capacity),
        pids=top.number("pids", 32_768, least=1, most=2**22),
        hostname=top.text("hostname", ""),
        boot_id=top.text("bootID", ""),
        machine_id=top.text("machineID", ""),
        system_uuid=top.text("systemUUID", ""),
        kernel=top.text("kernelVersion", "6.1.0"),
        os_image=top.text("osImage", "Linux"),
        arch=top.text("architecture", "amd64"),
        labels=read_labels(top.take("labels"), f"{top.where}: labels"),
        taints=read_taints(top.sections("taints")),
        addresses=_addresses(top.sections("addresses")),
    )
    top.end()
    return machine


def _capacity(top: ConfigSection) -> ResourceList:
    amounts = read_amounts(top.take("capacity"), f"{top.where}: capacity")
    for name in (CPU, MEMORY):
        if name not in amounts or amounts[name].sign() == 0:
            raise ConfigError(f"{top.where}: capacity.{name}: required; set an amount such as 8")
    amounts.setdefault(EPHEMERAL_STORAGE, Quantity.parse("100Gi"))
    amounts.setdefault(PODS, Quantity.of(MAX_PODS))
    return amounts


def read_amounts(tree: Any, where: str) -> ResourceList:
    """Parse amounts by resource; raise ConfigError with the resource if one is invalid."""
    if tree is None:
        return {}
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{where}: must be amounts by resource, such as cpu: 8")
    found: ResourceList = {}
    for key, value in tree.items():
        name = str(key)
        if name not in _PLAIN and not is_huge_page(name) and not is_extended_resource(name):
            raise ConfigError(
                f"{where}.{name}: unknown resource; valid resources: {', '.join(_PLAIN)}, "
                f"{HUGE_PAGES}SIZE, or a name with a domain such as example.com/gpu"
            )
        try:
            amount = Quantity.from_json(value)
        except InputError as error:
            raise ConfigError(f"{where}.{name}: {error}") from None
        if amount.sign() < 0:
            raise ConfigError(f"{where}.{name}: must not be negative, {amount} is")
        if name != CPU and amount != Quantity.of(amount.value()):
            raise ConfigError(f"{where}.{name}: must be a whole number, {amount} is not")
        if is_huge_page(name):
            _check_pages(name, amount, where)
        found[name] = amount
    return found


def _check_pages(name: str, amount: Quantity, where: str) -> None:
    try:
        size = Quantity.parse(name.removeprefix(HUGE_PAGES)).value()
    except InputError:
        size = 0
    if size <= 0:
        raise ConfigError(f"{where}.{name}: names no page size; write {HUGE_PAGES}2Mi or {HUGE_PAGES}1Gi")
    if amount.value() % size:
        raise ConfigError(f"{where}.{name}: must be whole pages, {amount} is not")


def _cpus(top: ConfigSection, capacity: ResourceList) -> tuple[int, ...]:
    count = capacity[CPU].value()
    if count > _MOST_CPUS:
        raise ConfigError(f"{top.where}: capacity.cpu: no machine has more than {_MOST_CPUS} cpus")
    given = _cpu_list(top, "cpus")
    if given is None:
        return tuple(range(count))
    if len(given) != count:
        raise top.bad("cpus", f"has {len(given)} cpus, but capacity.cpu is {count}; make them agree")
    return given


def _cpu_list(section: ConfigSection, name: str) -> tuple[int, ...] | None:
    value = section.take(name)
    if value is None:
        return None
    if isinstance(value, list) and all(isinstance(v, int) and not isinstance(v, bool) for v in value):
        value = ",".join(map(str, value))
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    try:
        if not isinstance(value, str):
            raise InputError(f"{value!r} is not a CPU list: use a format such as 0-3,8")
        return parse_cpus(value)
    except InputError as error:
        raise section.bad(name, str(error)) from None


def _numa(top: ConfigSection, cpus: tuple[int, ...], capacity: ResourceList) -> tuple[NumaNode, ...]:
    found: dict[int, NumaNode] = {}
    owners: dict[int, int] = {}
    for section in top.sections("numa"):
        number = section.number("id", len(found), least=0, most=1023)
        if number in found:
            raise section.bad("id", f"{number} is given twice; each NUMA node needs its own number")
        own = _cpu_list(section, "cpus") or ()
        for cpu in own:
            if cpu not in cpus:
                raise section.bad("cpus", f"there is no cpu {cpu}; there are {format_cpus(cpus)}")
            if cpu in owners:
                raise section.bad("cpus", f"cpu {cpu} is in NUMA node {owners[cpu]} already; give it to one")
            owners[cpu] = number
        memory = _bytes(section, "memory")
        pages = section.section("hugePages")
        sizes = {
            name.removeprefix(HUGE_PAGES): amount.value()
            for name, amount in read_amounts(
                {f"{HUGE_PAGES}{size}": value for size, value in pages.rest().items()}, pages.where
            ).items()
        }
        section.end()
        found[number] = NumaNode(id=number, cpus=own, memory=memory, huge_pages=sizes)
    nodes = tuple(found[number] for number in sorted(found))
    _check_sums(top, nodes, cpus, capacity)
    return nodes or (_single_numa_node(cpus, capacity),)


def _single_numa_node(cpus: tuple[int, ...], capacity: ResourceList) -> NumaNode:
    pages = {
        name.removeprefix(HUGE_PAGES): amount.value()
        for name, amount in capacity.items()
        if is_huge_page(name)
    }
    return NumaNode(id=0, cpus=cpus, memory=capacity[MEMORY].value(), huge_pages=pages)


def _check_sums(
    top: ConfigSection, nodes: tuple[NumaNode, ...], cpus: tuple[int, ...], capacity: ResourceList
) -> None:
    if not nodes:
        return
    left = set(cpus).difference(*(node.cpus for node in nodes))
    if left:
        raise top.bad("numa", f"cpu {min(left)} is in no NUMA node; give it to one")
    memory = sum(node.memory for node in nodes)
    if memory > capacity[MEMORY].value():
        raise top.bad("numa", f"has {memory} bytes of memory in total, more than capacity.memory")
    for size in {size for node in nodes for size in node.huge_pages}:
        total = sum(node.huge_pages.get(size, 0) for node in nodes)
        total_amount = capacity.get(HUGE_PAGES + size)
        if total_amount is None or total > total_amount.value():
            raise top.bad("numa", f"has {total} bytes of {size} pages, more than capacity.{HUGE_PAGES}{size}")


def _bytes(section: ConfigSection, name: str) -> int:
    value = section.take(name)
    if value is None:
        return 0
    try:
        amount = Quantity.from_json(value)
    except InputError as error:
        raise section.bad(name, str(error)) from None
    if amount.sign() < 0 or amount != Quantity.of(amount.value(), Format.BINARY_SI):
        raise section.bad(name, f"must be a whole number of bytes such as 32Gi, {amount} is not")
    return amount.value()


def read_labels(tree: Any, where: str) -> dict[str, str]:
    """Parse labels; raise ConfigError with the key if one is invalid."""
    if tree is None:
        return {}
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{where}: must be labels as key: value")
    found = {}
    for key, value in tree.items():
        if not isinstance(key, str) or label_key(key):
            raise ConfigError(
                f"{where}: {key!r} is not a valid label key: use a name such as example.com/rack"
            )
        if not isinstance(value, str) or label_value(value):
            raise ConfigError(f"{where}.{key}: {value!r} is not a valid label value: use a short string")
        found[key] = value
    return found


def read_taints(sections: list[ConfigSection]) -> tuple[Taint, ...]:
    """Parse taints; raise ConfigError with the field if one is invalid."""
    found: dict[tuple[str, str], Taint] = {}
    for section in sections:
        key, value = section.text("key", ""), section.text("value", "")
        effect = section.text("effect", "", choices=EFFECTS)
        if label_key(key):
            raise section.bad("key", f"{key!r} is not a valid taint key: use a name such as dedicated")
        if label_value(value):
            raise section.bad("value", f"{value!r} is not a valid taint value: use a short string")
        if not effect:
            raise section.bad("effect", f"must be one of {', '.join(EFFECTS)}")
        if (key, effect) in found:
            raise section.bad("key", f"{key} with {effect} is given twice")
        section.end()
        found[key, effect] = Taint(key=key, value=value, effect=effect)
    return tuple(found.values())


def parse_taint(text: str) -> Taint:
    """Parse `key=value:Effect` or `key:Effect`; raise InputError if it is malformed."""
    match = re.fullmatch(r"([^=:]+)(?:=([^:]*))?:(\w+)", text)
    if not match or label_key(match[1]) or label_value(match[2] or "") or match[3] not in EFFECTS:
        raise InputError(
            f"{text!r} is not a taint: use key=value:EFFECT with EFFECT one of {', '.join(EFFECTS)}"
        )
    return Taint(key=match[1], value=match[2] or "", effect=match[3])


def _addresses(sections: list[ConfigSection]) -> tuple[NodeAddress, ...]:
    found = []
    for section in sections:
        kind = section.text("type", "InternalIP", choices=ADDRESS_TYPES)
        address = section.text("address", "")
        if not address or any(char.isspace() for char in address):
            raise section.bad("address", "must be an address such as 10.0.0.7")
        section.end()
        found.append(NodeAddress(type=kind, address=address))
    return tuple(dict.fromkeys(found))
