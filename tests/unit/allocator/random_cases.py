"""Small random allocation cases: a few devices and claims that together cover every rule.

Names are few and amounts small, so that requests get in each other's way; what makes an input faulty is rare,
because a fault ends the story early. Everything is made by a `CaseGenerator` from one source of small
numbers: hypothesis, which finds the smallest question that fails, or a seeded generator, which is much
quicker.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.allocator.features import Features
from plimsoll.allocator.state import AllocationState
from plimsoll.api.codec import convert
from plimsoll.api.core import Node
from plimsoll.api.identity import DeviceId
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import (
    OPTIONAL_NODE_OPERATIONS,
    Device,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from tests.build import CLASS, DRIVER, NODE, claim, device, device_class, node, resource_slice
from tests.unit.allocator.reference_allocator import AllocationCase

T = TypeVar("T")

OTHER_DRIVER = "nic.example.com"
OURS = f'device.attributes["{DRIVER}"]'

SELECTORS = (
    f'device.driver == "{DRIVER}"',
    f'device.driver != "{OTHER_DRIVER}"',
    f'{OURS}.?grp.orValue("") == "a"',
    f'{OURS}.?grp.orValue("") != "b"',
    f'"numa" in {OURS}',
    "device.allowMultipleAllocations",
    "!device.allowMultipleAllocations",
    f'"mem" in device.capacity["{DRIVER}"] && device.capacity["{DRIVER}"].mem.compareTo(quantity("2")) >= 0',
)
#: Expressions of derived attributes; the last two fail on devices without the attribute, or always.
DERIVED = (
    f'{OURS}.?grp.orValue("") == "a"',
    f'{OURS}.?grp.orValue("none")',
    f'"numa" in {OURS} ? {OURS}.numa : 7',
    f'{OURS}.?grp.orValue("") == "b" ? [] : ["x", {OURS}.?grp.orValue("y")]',
    f"{OURS}.grp",
    "device.nothing",
)
DERIVED_NAMES = ("derived/side", f"{DRIVER}/grp")
GROUPS: tuple[list[str], ...] = (["a"], ["a", "b"], ["b"], [])
FAULTY_SELECTORS = (f'{OURS}.grp == "a"', f"{OURS}.numa.includes(0)", "device.nothing")

ZONE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["x"]}]}]}
ELSEWHERE = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}]}
TWO_TERMS = {"nodeSelectorTerms": [*ELSEWHERE["nodeSelectorTerms"], *ZONE["nodeSelectorTerms"]]}

HERE: tuple[dict[str, Any], ...] = (
    {"nodeName": NODE},
    {"allNodes": True},
    {"nodeSelector": ZONE},
    {"perDeviceNodeSelection": True},
)
THERE: tuple[dict[str, Any], ...] = ({"nodeName": "node-b"}, {"nodeSelector": ELSEWHERE})
DEVICE_PLACES: tuple[dict[str, Any], ...] = (*HERE[:3], *HERE[:3], *THERE, {"nodeSelector": TWO_TERMS})

POLICIES: tuple[Mapping[str, Any] | None, ...] = (
    None,
    {"default": "1"},
    {"default": "0"},
    {"default": "2", "validValues": ["1", "2", "4"]},
    {"default": "1", "validRange": {"min": "1"}},
    {"default": "1", "validRange": {"min": "1", "max": "3"}},
    {"default": "2", "validRange": {"min": "2", "max": "4", "step": "2"}},
    {"default": "500m", "validRange": {"min": "500m", "max": "3500m", "step": "250m"}},
    {"default": "1", "validRange": {"min": "250m", "step": "750m"}},
)

TAINTS = (
    {"key": "sick", "value": "yes", "effect": "NoSchedule"},
    {"key": "sick", "value": "no", "effect": "NoExecute"},
    {"key": "odd", "effect": "None"},
)
TOLERATIONS = (
    {"operator": "Exists"},
    {"key": "sick", "operator": "Equal", "value": "yes"},
    {"key": "sick", "operator": "Exists", "effect": "NoExecute"},
)
FEATURES = (
    "list_attributes",
    "consumable_capacity",
    "partitionable_devices",
    "device_taints",
    "binding_conditions",
    "admin_access",
    "prioritized_list",
    "compatibility_groups",
    "derived_attributes",
    "fractional_ranges",
    "optional_node_operations",
)


def charge(_: ResourceClaim, result: DeviceRequestAllocationResult, device: Device) -> dict[str, int]:
    """Return a charge that depends on the device, its consumed capacity and the request."""
    number = int(device.name[1:]) if device.name[1:].isdigit() else 0
    consumed = sum(amount.value() for amount in result.consumed_capacity.values())
    return {"cpu": number % 3, "memory": consumed + len(result.request) % 2}


class CaseGenerator:
    """Generator of allocation cases from numbers: `choose(n)` returns one from 0 to n - 1, the simplest
    first.
    """

    def __init__(self, choose: Callable[[int], int]) -> None:
        self.choose = choose

    def pick(self, options: Sequence[T]) -> T:
        return options[self.choose(len(options))]

    def chance(self, one_in: int) -> bool:
        return self.choose(one_in) == one_in - 1

    def some(self, options: Sequence[T], most: int) -> list[T]:
        """Return between one and `most` different options."""
        left = list(options)
        return [left.pop(self.choose(len(left))) for _ in range(1 + self.choose(most))]

    # -- cases

    def case(self, budget: bool = False, features: Features | None = None) -> AllocationCase:
        if features is None:
            features = Features(**{self.pick(FEATURES): False}) if self.chance(6) else Features()
        slices = self.slices()
        bounds: list[dict[str, int]] = []
        if budget:
            for _ in range(1 + self.choose(2)):
                resources = self.some(["cpu", "memory"], 2)
                bounds.append({resource: self.pick([4, 3, 2, 1, 6, 0]) for resource in resources})
        capacity = features.consumable_capacity or self.chance(4)
        count = self.pick([1, 1, 2, 2, 3])
        claims = [self.claim(f"c{number}", 3 if count == 1 else 2, capacity) for number in range(count)]
        select = f'device.driver == "{DRIVER}" && !("grp" in {OURS} && {OURS}.grp == "c")'
        classes = [device_class(), device_class("other", select=select)]
        return AllocationCase(
            slices=slices,
            claims=claims,
            node=self.node(),
            classes={each.metadata.name: each for each in classes},
            state=self.state(slices, features.consumable_capacity),
            features=features,
            taint_rules=[self.taint_rule() for _ in range(1 + self.choose(2))] if self.chance(10) else (),
            charge=charge if bounds else None,
            bounds=bounds,
        )

    def node(self) -> Node:
        """Return the node; most can skip node operations."""
        plain = node(labels={"zone": "x"})
        features = () if self.chance(3) else (OPTIONAL_NODE_OPERATIONS,)
        return replace(plain, status=replace(plain.status, declared_features=features))

    def puzzle(self, budget: bool = False, features: Features | None = None) -> AllocationCase:
        """Return a case that makes the search backtrack: many devices, few solutions."""
        counting, sharing, values = self.chance(3), self.chance(3), range(self.pick([6, 8, 10, 4]))
        grouping = self.chance(2)
        devices = []
        for number in range(self.pick([7, 8, 9, 6])):
            attributes: dict[str, Any] = {
                key: self.some(values, self.pick([2, 1, 3])) for key in ("grp", "numa")
            }
            draws = {"set": {"units": str(self.pick([1, 2, 3])), "lanes": str(self.pick([1, 0, 2]))}}
            devices.append(device(f"d{number}", draws=draws if counting else None, **attributes))
            if counting and grouping:
                devices[-1]["consumesCounters"][0]["compatibilityGroups"] = self.pick(GROUPS[:3])
            if sharing and self.chance(2):
                policy = {"default": self.pick("12")}
                devices[-1]["allowMultipleAllocations"] = True
                devices[-1]["capacity"] = {"mem": {"value": "3", "requestPolicy": policy}}
        counters = {"units": str(self.pick([6, 4, 8])), "lanes": str(self.pick([4, 3, 2]))}
        requests = []
        several = self.pick([1, 1, 2, 3])
        for number in range(several):
            body: dict[str, Any] = {"deviceClassName": CLASS, "allocationMode": "ExactCount"}
            body["count"] = self.pick([3, 4, 2]) if several == 1 else self.pick([2, 1, 3])
            if several > 1 and self.chance(2):
                expression = f"{OURS}.{self.pick(['grp', 'numa'])}.includes({self.pick(values)})"
                body["selectors"] = [{"cel": {"expression": expression}}]
            if self.chance(4):
                body["derivedAttributes"] = [{"name": f"{DRIVER}/grp", "expression": f"{OURS}.numa"}]
            requests.append({"name": f"r{number}", "exactly": body})
        constraints = []
        for _ in range(self.pick([1, 1, 1, 2, 0])):
            kind = self.pick(["distinctAttribute", "matchAttribute"])
            constraint: dict[str, Any] = {kind: f"{DRIVER}/{self.pick(['grp', 'numa'])}"}
            if self.chance(2):
                constraint["requests"] = [self.pick(requests)["name"]]
            constraints.append(constraint)
        bounds = [{"cpu": self.pick([3, 2, 4]), "memory": 9}] if budget else []
        return AllocationCase(
            slices=[
                resource_slice(devices, name="a", count=2),
                resource_slice(counters={"set": counters}, name="b", count=2),
            ],
            claims=[claim("c", *requests, constraints=constraints)],
            node=node(),
            classes={CLASS: device_class()},
            features=features or Features(),
            charge=charge if bounds else None,
            bounds=bounds,
        )

    # -- devices

    def slices(self, most: int = 6) -> list[ResourceSlice]:
        names = [(DRIVER, "p"), (DRIVER, "o"), (OTHER_DRIVER, "p")]
        made: list[ResourceSlice] = []
        for driver, pool in names[: self.pick([1, 1, 2, 3])]:
            if most > 0:
                more = self.pool(driver, pool, most)
                most -= sum(len(each.spec.devices or ()) for each in more)
                made += more
        turn = self.choose(len(made))
        return made[turn:] + made[:turn]

    def pool(self, driver: str, pool: str, most: int) -> list[ResourceSlice]:
        counters = self.chance(2)
        sizes = [min(most, self.pick([3, 4, 5, 2, 6, 1]))]
        if sizes[0] < most and self.chance(3):
            sizes.append(1 + self.choose(most - sizes[0]))
        total = len(sizes) + counters
        common: dict[str, Any] = {"pool": pool, "driver": driver, "generation": 2, "count": total}
        if self.chance(25):
            common["count"] += self.pick([1, -1])
        made, number = [], 0
        for index, size in enumerate(sizes):
            place = self.pick(THERE) if index and self.chance(3) else self.pick([HERE[0], HERE[0], *HERE])
            names = [f"d{number + offset}" for offset in range(size)]
            number += size
            if index and self.chance(16):
                names[0] = "d0"  # twice in one pool
            per_device = "perDeviceNodeSelection" in place
            content = [self.device(name, counters, per_device) for name in names]
            if self.chance(12):
                place = {**place, "skipNodeOperations": ["*"]}
            made.append(resource_slice(content, name=f"{self.pick('abc')}{index}", **common, **place))
        if counters:
            amounts = {"units": str(self.pick([4, 5, 6, 3, 2, 1])), "lanes": str(self.pick([4, 3, 2, 1]))}
            place = self.pick(HERE[:2])
            made.append(resource_slice(counters={"set": amounts}, name="counters", **common, **place))
        if self.chance(16):
            common["generation"] = 1
            made.append(resource_slice([device("old")], name="old", **common))
        return made

    def device(self, name: str, counters: bool, per_device: bool) -> dict[str, Any]:
        attributes: dict[str, Any] = {"grp": self.pick(["a", "b", "c"]), "numa": self.pick([0, 1])}
        if self.chance(3):
            attributes["numa"] = self.some([0, 1, 2], 2)
        if self.chance(8):
            del attributes[self.pick(["grp", "numa"])]
        shareable = self.chance(2)
        capacity: dict[str, Any] = {}
        for key in self.pick([[], ["mem"], ["mem"], ["mem", "cores"]]):
            capacity[key] = {"value": self.pick(["4", "5", "2", "8"])}
            policy = self.pick(POLICIES) if shareable else None
            if policy is not None:
                capacity[key]["requestPolicy"] = policy
        draws = None
        if counters and self.choose(4):
            draws = {"set": {"units": str(self.pick([1, 2, 3, 0]))}}
            if self.chance(2):
                draws["set"]["lanes"] = str(self.pick([1, 2, 0]))
        fields = dict(self.pick(DEVICE_PLACES)) if per_device else {}
        groups = self.pick(GROUPS) if draws is not None and self.chance(3) else None
        if self.chance(30):
            fields["bindingConditions"] = ["ready"]
        taints = self.some(TAINTS, 2) if self.chance(10) else ()
        made = device(
            name, capacity=capacity, shared=shareable, draws=draws, taints=taints, fields=fields, **attributes
        )
        if groups is not None:
            made["consumesCounters"][0]["compatibilityGroups"] = groups
        return made

    def taint_rule(self) -> DeviceTaintRule:
        spec: dict[str, Any] = {"taint": self.pick(TAINTS)}
        if self.choose(4):
            spec["deviceSelector"] = {}
            named = {"device": ["d0", "d1"], "pool": ["p", "o"], "driver": [DRIVER, OTHER_DRIVER]}
            for key, names in named.items():
                if self.chance(3):
                    spec["deviceSelector"][key] = self.pick(names)
        return convert({"spec": spec}, DeviceTaintRule)

    # -- devices of other claims

    def state(self, slices: Sequence[ResourceSlice], shared: bool) -> AllocationState:
        state = AllocationState(shared)
        if self.chance(2):
            for each in slices:
                for one in each.spec.devices or ():
                    if self.chance(3):
                        id = DeviceId(each.spec.driver, each.spec.pool.name, one.name)
                        for result in self.results_on(id, one):
                            state.hold(result)
        return state

    def results_on(self, id: DeviceId, device: Device) -> list[DeviceRequestAllocationResult]:
        driver, pool, name = id
        if self.chance(8):
            return [DeviceRequestAllocationResult(driver=driver, pool=pool, device=name, admin_access=True)]
        if self.chance(6) == bool(device.allow_multiple_allocations):
            return [DeviceRequestAllocationResult(driver=driver, pool=pool, device=name)]
        return [
            DeviceRequestAllocationResult(
                driver=driver,
                pool=pool,
                device=name,
                share_id=f"s{number}",
                consumed_capacity={key: Quantity.of(self.pick([1, 2, 0])) for key in device.capacity},
            )
            for number in range(1 + self.choose(2))
        ]

    # -- claims

    def claim(self, name: str, most: int, capacity: bool) -> ResourceClaim:
        requests: list[dict[str, Any]] = []
        for number in range(1 + self.choose(most)):
            request = f"r{number}"
            if self.choose(4):
                requests.append({"name": request, "exactly": self.body(False, capacity)})
            else:
                bodies = [self.body(True, capacity) for _ in range(1 + self.choose(3))]
                named = [{"name": f"s{index}", **body} for index, body in enumerate(bodies)]
                requests.append({"name": request, "firstAvailable": named})
        names = [each["name"] for each in requests]
        names += [
            f"{each['name']}/{sub['name']}" for each in requests for sub in each.get("firstAvailable", ())
        ]
        constraints = []
        for _ in range(self.pick([0, 0, 0, 1, 1, 2])):
            kind = self.pick(["matchAttribute", "distinctAttribute"])
            constraint: dict[str, Any] = {kind: f"{DRIVER}/{self.pick(['grp', 'numa'])}"}
            if self.chance(4):
                constraint[kind] = DERIVED_NAMES[0]
            if self.chance(3):
                constraint["requests"] = self.some(names, min(2, len(names)))
            constraints.append(constraint)
        return claim(name, *requests, constraints=constraints)

    def body(self, sub: bool, capacity: bool) -> dict[str, Any]:
        everything = self.chance(12)
        body: dict[str, Any] = {"deviceClassName": CLASS, "allocationMode": "ExactCount"}
        if everything:
            body["allocationMode"] = "All"
        else:
            body["count"] = self.pick([1, 1, 1, 1, 2, 3])
        if self.chance(8):
            body["deviceClassName"] = "missing" if self.chance(16) else "other"
        expressions = []
        if everything or self.chance(2):
            expressions = self.some(SELECTORS, self.pick([1, 1, 2]))
        if self.chance(24):
            expressions.append(self.pick(FAULTY_SELECTORS))
        if expressions:
            body["selectors"] = [{"cel": {"expression": each}} for each in expressions]
        if capacity and self.chance(5):
            amounts = ["1", "2", "3", "0", "4", "600m", "1500m"]
            body["capacity"] = {"requests": {"mem": self.pick(amounts)}}
        if self.chance(3):
            rare = len(DERIVED) if self.chance(8) else len(DERIVED) - 2
            body["derivedAttributes"] = [
                {"name": name, "expression": self.pick(DERIVED[:rare])}
                for name in self.pick([DERIVED_NAMES[:1], DERIVED_NAMES])
            ]
        if not sub and self.chance(12):
            body["adminAccess"] = True
        if self.chance(6):
            body["tolerations"] = self.some(TOLERATIONS, 2)
        return body


@st.composite
def allocation_cases(draw: st.DrawFn, budget: bool = False) -> AllocationCase:
    """Allocation cases as a Hypothesis strategy."""
    return CaseGenerator(lambda size: draw(st.integers(0, size - 1)) if size > 1 else 0).case(budget)


def generate_case(seed: int, budget: bool = False, features: Features | None = None) -> AllocationCase:
    """Return the case of a seed."""
    return CaseGenerator(random.Random(seed).randrange).case(budget, features)


def generate_hard_case(seed: int, budget: bool = False, features: Features | None = None) -> AllocationCase:
    """Return the hard case of a seed."""
    return CaseGenerator(random.Random(seed).randrange).puzzle(budget, features)
