"""Checks of node-allocatable mappings that drivers publish: conflicting or ineffective ones.

One finding per driver rather than per slice: the fix is one change in one place.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise, product

from msgspec.structs import replace

from plimsoll.api.forms import DeviceRule, Form, device_forms, read_device, read_device_class
from plimsoll.api.forms.statuses import status_form
from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import Device
from plimsoll.ledger.claims import ChargedClaim, charge_results, find_requested_class
from plimsoll.ledger.units import PODS, is_accounted
from plimsoll.tools.audit.charges import AuditedClaim, amounts_of, charged_claims, format_amounts
from plimsoll.tools.audit.facts import AuditFacts, PoolFacts, shared, subject_of
from plimsoll.tools.audit.findings import CheckProblem
from plimsoll.tools.cluster_state.node_resources import NodeResourceGuess

#: Combinations of equally named devices tried to explain a charge.
_COMBINATIONS = 256


@dataclass(slots=True)
class DeviceTally:
    """Devices with the same problem."""

    count: int = 0
    first: str = ""
    nodes: set[str] = field(default_factory=set)
    held: int = 0
    guess: NodeResourceGuess | None = None

    def add(self, facts: AuditFacts, id: DeviceId, node: str) -> None:
        self.count += 1
        self.first = self.first or str(id)
        if node:
            self.nodes.add(node)
        self.held += id in facts.held

    def describe(self) -> str:
        """Return the number of devices, the first one, and how many nodes and allocations are affected."""
        text = f"{self.count} device{'s' if self.count > 1 else ''}, such as {self.first}"
        if len(self.nodes) > 1:
            text += f", on {len(self.nodes)} nodes"
        return text + (f"; {self.held} allocated now" if self.held else "")


@shared
def list_devices(facts: AuditFacts) -> list[tuple[DeviceId, str, Device]]:
    """Return every device that has mappings or represents a node resource, with the node of its slice."""
    return [
        (DeviceId(*pool.id, name), slice.spec.node_name or "", device)
        for pool in facts.pools.values()
        if facts.may_represent_resources(pool)
        for name, (slice, device) in pool.devices.items()
        if facts.node_resources(pool.id.driver, device) or device_forms(device)
    ]


# -- equal device names of two drivers


def find_name_clashes(facts: AuditFacts) -> Iterator[CheckProblem]:
    forms = {form for _, _, device in list_devices(facts) for form in device_forms(device)}
    if Form.V1_36 not in forms:
        return  # only 1.36 looks devices up without their driver
    tallies: dict[tuple[str, str], DeviceTally] = {}
    for clash in _clashes(facts).values():
        for one, other in pairwise(clash):
            rules = [read_device(device) for device in (one[1], other[1])]
            if rules[0] != rules[1]:
                tally = tallies.setdefault((one[0].driver, other[0].driver), DeviceTally())
                tally.add(facts, one[0], "")
    for (one_driver, other_driver), tally in sorted(tallies.items()):
        yield CheckProblem(
            f"Driver/{one_driver}",
            f"has pools and devices with the same names as {other_driver}, but other mappings",
            (tally.describe(), "kube-scheduler 1.36 looks mappings up by pool and device, not by driver"),
            f"rename the devices or the pools of {one_driver} or of {other_driver}; Kubernetes 1.37 and "
            "Plimsoll distinguish them",
            other_driver,
        )


@shared
def _clashes(facts: AuditFacts) -> dict[tuple[str, str], list[tuple[DeviceId, Device]]]:
    """Return the devices of different drivers with equal pool and device names."""
    by_name: dict[str, list[PoolFacts]] = {}
    for pool_id, pool in facts.pools.items():
        by_name.setdefault(pool_id.pool, []).append(pool)
    found: dict[tuple[str, str], list[tuple[DeviceId, Device]]] = {}
    for name, pools in by_name.items():
        for device_name in _find_repeated_names(pools):
            found[name, device_name] = [
                (DeviceId(*pool.id, device_name), pool.devices[device_name][1])
                for pool in pools
                if device_name in pool.devices
            ]
    return found


def _find_repeated_names(pools: Sequence[PoolFacts]) -> list[str]:
    """Return the names of devices that several of these pools have."""
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    for number, pool in enumerate(pools):
        names = pool.devices.keys()
        if number and not seen.isdisjoint(names):
            repeated.update(dict.fromkeys(name for name in names if name in seen))
        if number + 1 < len(pools):
            seen.update(names)
    return list(repeated)


def is_of_other_driver(facts: AuditFacts, each: AuditedClaim) -> str:
    """Return the driver by whose mapping a claim is charged although its devices belong to another; "" if
    none.
    """
    if each.recorded is None or (isinstance(each.priced, ChargedClaim) and _same(each.recorded, each.priced)):
        return ""
    clashes = _clashes(facts)
    results = each.claim.allocation_results
    choices = [
        [id.driver for id, _ in clashes.get((result.pool, result.device), ())] or [result.driver]
        for result in results
    ]
    if all(len(drivers) == 1 for drivers in choices):
        return ""
    snapshot = facts.cluster_state.snapshot
    place = snapshot.row_of(each.pod.spec.node_name)
    charge_context = snapshot.charge_context(place)
    containers = each.recorded.charge.containers
    for drivers in islice(product(*choices), _COMBINATIONS):
        swapped = [replace(result, driver=driver) for result, driver in zip(results, drivers, strict=True)]
        charged_claim = charge_results(each.claim, swapped, containers, charge_context)
        if isinstance(charged_claim, ChargedClaim) and _same(each.recorded, charged_claim):
            return next(d for d, r in zip(drivers, results, strict=True) if d != r.driver)
    return ""


def _same(one: ChargedClaim, other: ChargedClaim) -> bool:
    return amounts_of(one) == amounts_of(other)


def find_wrong_drivers(facts: AuditFacts) -> Iterator[CheckProblem]:
    for each in charged_claims(facts):
        driver = is_of_other_driver(facts, each)
        if not driver or each.recorded is None:
            continue
        right = (
            format_amounts(amounts_of(each.priced)) if isinstance(each.priced, ChargedClaim) else "nothing"
        )
        own = ", ".join(sorted({str(DeviceId.of(result)) for result in each.claim.allocation_results}))
        yield CheckProblem(
            subject_of(each.pod),
            f"claim {each.claim.metadata.name} is charged {format_amounts(amounts_of(each.recorded))}, "
            f"as a device of {driver} would be; its own devices charge {right}",
            (f"its devices: {own}", f"on node {each.pod.spec.node_name}"),
            key=each.claim.metadata.name,
        )


# -- ineffective mappings


def find_unknown_keys(facts: AuditFacts) -> Iterator[CheckProblem]:
    tallies: dict[tuple[str, str, str], DeviceTally] = {}
    for id, node, device in list_devices(facts):
        for resource, rule in read_device(device).items():
            if rule.capacity_key and rule.capacity_key not in device.capacity:
                key = (f"Driver/{id.driver}", resource, rule.capacity_key)
                tallies.setdefault(key, DeviceTally()).add(facts, id, node)
    by_class = {name: read_device_class(each).rules for name, each in facts.classes.items()}
    for claim in facts.claims.values() if any(by_class.values()) else ():
        for result in claim.allocation_results:
            class_name = find_requested_class(claim, result.request)
            rules = by_class.get(class_name)
            found = facts.device(DeviceId.of(result)) if rules else None
            if not rules or found is None or device_forms(found):
                continue
            device_class = facts.classes[class_name]
            for resource, rule in rules.items():
                if rule.capacity_key and rule.capacity_key not in found.capacity:
                    key = (subject_of(device_class), resource, rule.capacity_key)
                    tallies.setdefault(key, DeviceTally()).add(facts, DeviceId.of(result), "")
    for (subject, resource, capacity), tally in sorted(tallies.items()):
        yield CheckProblem(
            subject,
            f"{resource} is charged by capacity {capacity}, which the devices do not have",
            (tally.describe(),),
            key=f"{resource}/{capacity}",
        )


def find_uncounted_resources(facts: AuditFacts) -> Iterator[CheckProblem]:
    unknown: dict[tuple[str, str], DeviceTally] = {}
    absent: dict[tuple[str, str], DeviceTally] = {}
    for id, node_name, device in list_devices(facts):
        for resource in read_device(device):
            if not is_accounted(resource) or resource == PODS:
                unknown.setdefault((id.driver, resource), DeviceTally()).add(facts, id, node_name)
                continue
            node = facts.nodes.get(node_name)
            if node is not None and resource not in node.status.allocatable:
                absent.setdefault((id.driver, resource), DeviceTally()).add(facts, id, node_name)
    for (driver, resource), tally in sorted(unknown.items()):
        message = f"maps devices to {resource}, which is not a node resource: nothing is charged"
        yield CheckProblem(f"Driver/{driver}", message, (tally.describe(),), key=resource)
    for (driver, resource), tally in sorted(absent.items()):
        message = f"maps devices to {resource}, which their nodes do not have: no pod can use them"
        where = ", ".join(sorted(tally.nodes)[:3])
        yield CheckProblem(f"Driver/{driver}", message, (tally.describe(), f"nodes: {where}"), key=resource)


# -- forms


def find_mixed_forms(facts: AuditFacts) -> Iterator[CheckProblem]:
    """Find drivers that do not publish in the form of most charges or devices in the cluster.

    Charges in another form than the mappings are valid: their writer understood the mappings.
    """
    by_driver: dict[str, dict[Form, DeviceTally]] = {}
    devices = list_devices(facts)
    distinct = {id(device): device for _, _, device in devices}
    if len({form for device in distinct.values() for form in device_forms(device)}) < 2:
        return  # most clusters
    for id_, node, device in devices:
        for form in device_forms(device):
            by_driver.setdefault(id_.driver, {}).setdefault(form, DeviceTally()).add(facts, id_, node)
    published: Counter[Form] = Counter()
    for forms in by_driver.values():
        published.update({form: tally.count for form, tally in forms.items()})
    charges = Counter(status_form(pod.status) for pod in facts.pods.values())
    used = max(published, key=lambda form: (charges[form], published[form], form.value))
    for driver, forms in sorted(by_driver.items()):
        if set(forms) == {used}:
            continue
        names = " and ".join(sorted(form.value for form in forms))
        evidence = [
            f"form of {form.value}: {tally.describe()}"
            for form, tally in sorted(forms.items(), key=lambda item: item[0].value)
        ]
        of = f"{published[used]} devices and {charges[used]} pods with charges"
        yield CheckProblem(
            f"Driver/{driver}",
            f"publishes mappings in the form of {names}, the cluster uses that of {used.value}",
            (*evidence, f"form of {used.value} in all: {of}"),
        )


# -- ignored fields


def find_ignored_fields(facts: AuditFacts) -> Iterator[CheckProblem]:
    """Find fields of mappings that the server ignores too, with the amounts that remain."""
    for each in facts.slices:
        for text in facts.cluster_state.objects.ignored_fields.get(each.metadata.name, ()):
            match = _DEVICE_PATH.search(text)
            number = int(match[1]) if match is not None else -1
            devices = each.spec.devices or ()
            evidence: tuple[str, ...] = ()
            if 0 <= number < len(devices):
                charged = ", ".join(
                    f"{resource} {_describe_rule(rule)}"
                    for resource, rule in read_device(devices[number]).items()
                )
                evidence = (f"device {devices[number].name} charges {charged or 'nothing'}",)
            yield CheckProblem(subject_of(each), f"{text} is ignored", evidence, key=text)


_DEVICE_PATH = re.compile(r"spec\.devices\[(\d+)\]")


def _describe_rule(rule: DeviceRule) -> str:
    if not rule.mapped:
        return "nothing"
    amount = "1" if rule.multiplier is None else str(rule.multiplier)
    return f"{amount} per unit of {rule.capacity_key}" if rule.capacity_key else f"{amount} per device"


CHECKS = {
    "PLM011": find_name_clashes,
    "PLM012": find_wrong_drivers,
    "PLM013": find_unknown_keys,
    "PLM014": find_mixed_forms,
    "PLM015": find_uncounted_resources,
    "PLM016": find_ignored_fields,
}
