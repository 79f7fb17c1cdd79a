"""Checks of devices that are node resources without a mapping, or whose class charges too little.

One finding per driver rather than per slice: the fix is one change in one place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from plimsoll.api.forms import device_forms, read_device_class
from plimsoll.api.identity import DeviceId
from plimsoll.api.resource import Device, DeviceClass
from plimsoll.ledger.claims import find_requested_class
from plimsoll.tools.audit.charges import charged_claims
from plimsoll.tools.audit.checks.drivers import DeviceTally, list_devices
from plimsoll.tools.audit.facts import AuditFacts, shared
from plimsoll.tools.audit.findings import CheckProblem
from plimsoll.tools.class_mappings import (
    ClassMapping,
    charges_in_full,
    describe_mappings,
    selects,
    whole_device,
)
from plimsoll.tools.cluster_state.assumed_mappings import may_serve
from plimsoll.tools.cluster_state.node_resources import NodeResourceGuess
from plimsoll.tools.columns import format_count
from plimsoll.tools.facts import join_names
from plimsoll.tools.findings import Severity

#: Driver, resource, and the class that charges too little; "" if none charges.
_Group = tuple[str, str, str]
_MAX_LISTED = 3


@shared
def _uncounted_devices(facts: AuditFacts) -> list[tuple[_Group, DeviceId, str, NodeResourceGuess]]:
    """Return the devices without a mapping that no class charges in full, with their nodes."""
    return [
        ((id.driver, guess.resource, name), id, node, guess)
        for id, node, device in list_devices(facts)
        if not device_forms(device)
        for guess in facts.node_resources(id.driver, device)
        for name in _classes_at_fault(facts, id, device, guess)
    ]


def _classes_at_fault(facts: AuditFacts, id: DeviceId, device: Device, guess: NodeResourceGuess) -> list[str]:
    """Return the classes that charge a device too little; [""] if none of its classes charges."""
    charging = _charging_classes(facts)
    if not any(may_serve(each, id.driver) for each in charging.values()):
        return [""]
    published = facts.find_device(id)
    assert published is not None
    features, profile = facts.cluster_state.snapshot.features, facts.cluster_state.profile
    selecting = [
        each for each in facts.classes.values() if selects(each, published.view, published.index, features)
    ]
    by_mapping = [each for each in selecting if each.metadata.name in charging]
    if not by_mapping:
        return [""] if selecting else []
    result = whole_device(id.driver, device)
    return [
        each.metadata.name
        for each in by_mapping
        if not (
            charges_in_full(result, device, read_device_class(each), profile)
            if guess.sure
            else guess.resource in read_device_class(each).rules
        )
    ]


@shared
def _charging_classes(facts: AuditFacts) -> dict[str, DeviceClass]:
    return {name: each for name, each in facts.classes.items() if read_device_class(each).rules}


def find_mappings_missing(facts: AuditFacts) -> Iterator[CheckProblem]:
    tallies: dict[_Group, DeviceTally] = {}
    for group, id, node, found in _uncounted_devices(facts):
        if not _is_dropped(facts, group, id, node, found):
            tallies.setdefault(group, DeviceTally(guess=found)).add(facts, id, node)
    for (driver, resource, name), tally in sorted(tallies.items()):
        guess = tally.guess
        assert guess is not None
        verb = "allocates" if guess.sure else "seems to allocate"
        message = f"{verb} {resource} of nodes ({guess.why}), but its devices have no mapping to {resource}"
        if name:
            message = (
                f"{verb} {resource} of nodes ({guess.why}), but the mapping of DeviceClass {name} charges "
                f"them too little {resource}, or cannot charge them"
            )
        mappings = describe_mappings(_suggest(facts, driver, name))
        yield CheckProblem(
            f"Driver/{driver}",
            message,
            (tally.describe(),),
            mappings and f"let the driver publish a mapping for each device, or {mappings}",
            f"{resource}/{name}" if name else resource,
            Severity.WARNING if guess.sure else Severity.INFO,
            bool(mappings),
        )


def _suggest(facts: AuditFacts, driver: str, name: str = "") -> tuple[ClassMapping, ...]:
    """Return how classes can declare the mappings of a driver's devices, the most used class first."""
    used = Counter(
        find_requested_class(each.claim, each.result.request)
        for held in facts.allocated.values()
        for each in held
        if each.id.driver == driver
    )
    serving = [
        each for each, found in facts.classes.items() if found.spec.selectors and may_serve(found, driver)
    ]
    for each in [name] if name else sorted(serving, key=lambda each: -used[each]):
        if found := facts.suggest_mappings(each, driver):
            return found
    return ()


# -- mappings that are published elsewhere


@shared
def _published_elsewhere(facts: AuditFacts) -> dict[tuple[str, str, str], DeviceTally]:
    """Return the devices that have mappings, by driver, resource and what shows that they are one."""
    found: dict[tuple[str, str, str], DeviceTally] = {}
    for id, node, device in list_devices(facts):
        if device_forms(device):
            for guess in facts.node_resources(id.driver, device):
                found.setdefault((id.driver, guess.resource, guess.why), DeviceTally()).add(facts, id, node)
    return found


@shared
def _charged_before(facts: AuditFacts) -> dict[tuple[str, str], list[str]]:
    """Return the pods whose recorded charges show that there was a mapping, by driver and resource."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in charged_claims(facts):
        if each.recorded is not None and each.priced is None:
            for driver in sorted({result.driver for result in each.claim.allocation_results}):
                for resource in each.recorded.charge.resources:
                    found.setdefault((driver, resource), []).append(each.pod.metadata.full_name)
    return found


def _is_dropped(facts: AuditFacts, group: _Group, id: DeviceId, node: str, guess: NodeResourceGuess) -> bool:
    """Return whether the mapping of a device is known to exist: for devices that are the same resource, or
    by the charge of a pod.
    """
    driver, resource, name = group
    elsewhere = (driver, resource, guess.why) in _published_elsewhere(facts)
    return not name and (elsewhere or (driver, resource) in _charged_before(facts))


def find_mappings_dropped(facts: AuditFacts) -> Iterator[CheckProblem]:
    tallies: dict[tuple[str, str, str], DeviceTally] = {}
    others: set[str] = set()  # drivers with other devices, by PLM010
    for group, id, node, guess in _uncounted_devices(facts):
        if _is_dropped(facts, group, id, node, guess):
            key = id.driver, guess.resource, guess.why
            tallies.setdefault(key, DeviceTally()).add(facts, id, node)
        else:
            others.add(id.driver)
    for (driver, resource, why), tally in sorted(tallies.items()):
        where = join_names(sorted(tally.nodes), _MAX_LISTED)
        message = f"has no mapping to {resource} for {format_count(tally.count, 'device')} with {why}"
        evidence = [tally.describe()]
        if published := _published_elsewhere(facts).get((driver, resource, why)):
            message += f", and has one for {published.count}"
            evidence.append(f"with a mapping: {published.describe()}")
        if charged := _charged_before(facts).get((driver, resource), []):
            message += "" if published else ", and had one when pods were scheduled"
            evidence += [f"Pod/{name} was charged for it" for name in charged[:_MAX_LISTED]]
        mappings = describe_mappings(_suggest(facts, driver), brief=driver in others)
        yield CheckProblem(
            f"Driver/{driver}",
            message,
            tuple(evidence),
            "see that every kube-apiserver has the feature gate DRANodeAllocatableResources, then restart "
            f"the driver on {where or 'its nodes'}, so that it publishes its slices again"
            + (mappings and f"; or {mappings}"),
            f"{resource}/{why}",
        )


CHECKS = {
    "PLM010": find_mappings_missing,
    "PLM017": find_mappings_dropped,
}
