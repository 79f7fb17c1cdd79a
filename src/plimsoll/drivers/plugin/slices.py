"""Desired ResourceSlices of a pool, and the changes that lead to them. Pure.

`build_slices` splits a pool into slices; `plan_slices` compares them with the existing ones. Guarantees:
slices with the desired content are not written; if more than one must be written, all get a new generation,
so that readers never mix old and new slices; names encode the index of a slice in its pool, so that a later
process, or the Go helper, recognizes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from plimsoll.api import codec
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import Device
from plimsoll.common.json_tree import branch, items, text
from plimsoll.drivers.plugin.driver import DevicePool
from plimsoll.errors import DecodeError, QuantityError

#: Limits of the API for one slice: devices, devices if one has taints, counters or lists, and counter sets.
MAX_DEVICES, MAX_DEVICES_WITH_EXTRAS, MAX_COUNTER_SETS = 128, 64, 8
#: Minimum number of hex digits of a slice's index in its name.
_INDEX_DIGITS = 5
_NAME = re.compile(r"([0-9a-f]+)-")
_MAX_PREFIX_LENGTH = 240

Tree: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PoolError:
    """Reason why a pool cannot be published."""

    kind: str
    pool: str
    device: str = ""
    counter_set: str = ""
    counter: str = ""
    detail: str = ""

    def __str__(self) -> str:
        return _MESSAGES[self.kind].format(self)


_MESSAGES = {
    "pool": 'found duplicate pool "{0.pool}"',
    "device": 'found duplicate device "{0.device}" in pool "{0.pool}"',
    "counter set": 'found duplicate counter set "{0.counter_set}" in pool "{0.pool}"',
    "no counter set": 'counter set "{0.counter_set}" referenced by device "{0.device}" not found',
    "no counter": (
        'counter "{0.counter}" referenced by device "{0.device}" not found in counter set "{0.counter_set}"'
    ),
    "malformed": 'pool "{0.pool}": {0.detail}',
}


@dataclass(frozen=True, slots=True)
class DesiredSlice:
    """Desired slice: `content` is the part of its spec that describes devices or counters."""

    index: int
    content: Tree
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExistingSlice:
    """Slice that exists in the API."""

    name: str
    uid: str
    resource_version: str
    pool: str
    generation: int
    count: int
    owners: frozenset[str]
    content: Tree
    tree: Tree
    annotations: Tree = field(default_factory=dict)

    @property
    def version(self) -> int:
        """Resource version as a number, 0 if it is not one."""
        text = self.resource_version
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


# -- desired slices


def build_slices(pool: DevicePool) -> tuple[DesiredSlice, ...] | PoolError:
    """Split a pool into slices, counter sets first; return the error if the pool is invalid."""
    try:
        devices = [_to_tree(device) for device in pool.devices]
        counters = [_to_tree(counter_set) for counter_set in pool.counters]
        most = max(1, min(int(pool.per_slice), MAX_DEVICES))
    except (DecodeError, TypeError, ValueError) as error:
        return PoolError("malformed", pool.name, detail=str(error))
    if (invalid := _validate_pool(pool.name, devices, counters)) is not None:
        return invalid
    parts: list[Tree] = [
        {"sharedCounters": counters[start : start + MAX_COUNTER_SETS]}
        for start in range(0, len(counters), MAX_COUNTER_SETS)
    ]
    parts += [{"devices": part} for part in _split_devices(devices, most)]
    return tuple(
        DesiredSlice(index, content, {} if index else dict(pool.annotations))
        for index, content in enumerate(parts or [{"devices": []}])
    )


def _to_tree(given: Mapping[str, Any] | Device) -> Tree:
    """Convert a device or counter set to a JSON object; raises DecodeError if it is none."""
    try:
        tree = codec.to_tree(given)
    except (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError) as error:
        raise DecodeError(f"a device or counter set that is not valid JSON: {error}") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("name"), str):
        raise DecodeError("a device or counter set without a name")
    return tree


def _split_devices(devices: Sequence[Tree], most: int) -> list[list[Tree]]:
    """Distribute devices over slices, in order, within the limits of the API."""
    chunks: list[list[Tree]] = []
    extras = False
    for device in devices:
        special = has_extras(device)
        room = min(most, MAX_DEVICES_WITH_EXTRAS) if extras or special else most
        if not chunks or len(chunks[-1]) >= room:
            chunks.append([])
            extras = False
        chunks[-1].append(device)
        extras = extras or special
    return chunks


def has_extras(device: Mapping[str, Any]) -> bool:
    """Report whether a device has taints, counters or list attributes, which halve the limit of its slice."""
    if device.get("taints") or device.get("consumesCounters"):
        return True
    attributes = device.get("attributes")
    values = attributes.values() if isinstance(attributes, dict) else ()
    return any(
        isinstance(inner, list) for value in values if isinstance(value, dict) for inner in value.values()
    )


def _validate_pool(pool: str, devices: Iterable[Tree], counters: Iterable[Tree]) -> PoolError | None:
    """Check rules across slices, which an API server cannot check."""
    sets: dict[str, Tree] = {}
    for counter_set in counters:
        if counter_set["name"] in sets:
            return PoolError("counter set", pool, counter_set=counter_set["name"])
        sets[counter_set["name"]] = counter_set
    names: set[str] = set()
    for device in devices:
        name = device["name"]
        if name in names:
            return PoolError("device", pool, device=name)
        names.add(name)
        for use in items(device, "consumesCounters"):
            desired = str(use.get("counterSet"))
            if desired not in sets:
                return PoolError("no counter set", pool, name, desired)
            for counter in branch(use, "counters"):
                if counter not in branch(sets[desired], "counters"):
                    return PoolError("no counter", pool, name, desired, counter)
    return None


# -- existing slices


def decode_slice(raw: bytes) -> ExistingSlice:
    """Decode a slice as sent by the API; malformed fields become empty (DecodeError: invalid JSON)."""
    return parse_slice(branch(codec.decode_tree(raw)))


def parse_slice(tree: Tree) -> ExistingSlice:
    """Read a decoded slice; malformed fields become empty."""
    meta, spec = branch(tree, "metadata"), branch(tree, "spec")
    pool = branch(spec, "pool")
    return ExistingSlice(
        name=text(meta, "name"),
        uid=text(meta, "uid"),
        resource_version=text(meta, "resourceVersion"),
        pool=text(pool, "name"),
        generation=_number(pool.get("generation")),
        count=_number(pool.get("resourceSliceCount")),
        owners=frozenset(text(owner, "uid") for owner in items(meta, "ownerReferences")),
        content={name: value for name, value in spec.items() if name not in _NOT_CONTENT},
        tree=tree,
        annotations=branch(meta, "annotations"),
    )


_NOT_CONTENT = ("driver", "pool", "nodeName")


def is_same_content(desired: Mapping[str, Any], existing: Mapping[str, Any]) -> bool:
    """Report whether two contents are equal: quantities by value, absent fields equal to empty ones.

    A taint time that the driver leaves unset may have any value.
    """
    try:
        return _is_same(desired, existing, "", False)
    except RecursionError:
        return False


def _is_same(desired: Any, existing: Any, key: str, taint: bool) -> bool:
    if isinstance(desired, dict) and isinstance(existing, dict):
        names = {name for tree in (desired, existing) for name, value in tree.items() if not _is_empty(value)}
        if taint and not desired.get("timeAdded"):
            names.discard("timeAdded")
        return all(
            _is_same(desired.get(name), existing.get(name), name, taint or name == "taints") for name in names
        )
    if isinstance(desired, list) and isinstance(existing, list):
        return len(desired) == len(existing) and all(
            _is_same(a, b, key, taint) for a, b in zip(desired, existing, strict=True)
        )
    if _is_empty(desired) and _is_empty(existing):
        return True
    if type(desired) is type(existing) and desired == existing:
        return True
    if taint:
        return (
            _drop_fraction(desired or "") == _drop_fraction(existing or "")
            if key == "timeAdded"
            else not (desired or existing)
        )
    return (
        key in _QUANTITY_FIELDS
        and _parse_quantity(desired) is not None
        and _parse_quantity(desired) == _parse_quantity(existing)
    )


#: Fields that are quantities anywhere in a device or counter set (taint values are strings).
_QUANTITY_FIELDS = frozenset(
    {
        "value",
        "default",
        "validValues",
        "min",
        "max",
        "step",
        "allocationMultiplier",
        "capacityMultiplier",
        "deviceMultiplier",
        "perPod",
        "perContainer",
        "perInstanceQuantity",
    }
)


def _parse_quantity(value: Any) -> Quantity | None:
    if value is None:
        return None
    try:
        return Quantity.from_json(value)
    except QuantityError:
        return None


def _drop_fraction(value: Any) -> str:
    """Remove the fraction of a second, which servers do not store."""
    return re.sub(r"\.\d+", "", str(value))


def _is_empty(value: Any) -> bool:
    return value is None or value == {} or value == []


# -- changes


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """Ordered changes that bring a pool to its desired state, with its generation and slice count."""

    delete: tuple[ExistingSlice, ...] = ()
    update: tuple[tuple[ExistingSlice, DesiredSlice], ...] = ()
    create: tuple[DesiredSlice, ...] = ()
    generation: int = 0
    count: int = 0

    def __bool__(self) -> bool:
        return bool(self.delete or self.update or self.create)


def plan_slices(
    desired: Sequence[DesiredSlice],
    existing: Iterable[ExistingSlice],
    *,
    owner: str = "",
    altered: Mapping[int, tuple[Tree, Tree]] | None = None,
    dropped_annotations: Mapping[int, Mapping[str, str]] | None = None,
) -> SlicePlan:
    """Plan the changes to the slices of one pool; no desired slices means that the pool is removed.

    `owner` is the UID of the desired owner. `altered` are contents that the server stores differently, by
    index: the content sent and the content stored. `dropped_annotations` are annotations that do not survive
    a write.
    """
    present = sorted(existing, key=lambda slice_: slice_.name)
    if not desired:
        return SlicePlan(delete=tuple(present))
    digits = index_digits(len(desired))
    generation = max((slice_.generation for slice_ in present), default=0)
    desired_by_index = {each.index: each for each in desired}

    def is_right(slice_: ExistingSlice) -> bool:
        index = parse_index(slice_.name, digits)
        content, annotations = desired_by_index[index].content, desired_by_index[index].annotations
        if not has_annotations(slice_, annotations) and (dropped_annotations or {}).get(index) != annotations:
            return False
        if is_same_content(content, slice_.content):
            return True
        sent, kept = (altered or {}).get(index, (None, {}))
        return sent == content and is_same_content(kept, slice_.content)

    current: dict[int, ExistingSlice] = {}
    for slice_ in present:
        index = parse_index(slice_.name, digits)
        if index not in desired_by_index or slice_.generation < generation:
            continue
        if index not in current or (is_right(slice_) and not is_right(current[index])):
            current[index] = slice_
    kept = {slice_.name for slice_ in current.values()}
    changed = [
        index
        for index, slice_ in sorted(current.items())
        if slice_.count != len(desired) or (owner and owner not in slice_.owners) or not is_right(slice_)
    ]
    create = tuple(each for each in desired if each.index not in current)
    if create or len(changed) > 1:
        # Readers must not mix old and new slices of a pool.
        generation += 1
        changed = sorted(current)
    return SlicePlan(
        delete=tuple(slice_ for slice_ in present if slice_.name not in kept),
        update=tuple((current[index], desired_by_index[index]) for index in changed),
        create=create,
        generation=generation,
        count=len(desired),
    )


def has_annotations(slice_: ExistingSlice, desired: Mapping[str, str]) -> bool:
    """Report whether a slice has these annotations; it may have others."""
    return all(slice_.annotations.get(name) == text for name, text in desired.items())


def index_digits(count: int) -> int:
    """Return the number of digits of an index in slice names."""
    return max(_INDEX_DIGITS, len(f"{count - 1:x}"))


def parse_index(name: str, digits: int) -> int:
    """Return the index encoded in a slice name, or -1."""
    found = _NAME.match(name)
    return int(found[1], 16) if found and len(found[1]) == digits else -1


def format_name_prefix(index: int, count: int, driver: str, node: str) -> str:
    """Build the generateName of a slice within the length limit of servers."""
    prefix = f"{index:0{index_digits(count)}x}-{driver}-{node}"
    return prefix[:_MAX_PREFIX_LENGTH].rstrip(".-") + "-"


def keep_taint_times(content: Tree, existing: Tree) -> Tree:
    """Fill in the existing times of taints where the content leaves them unset."""
    before = {device.get("name"): items(device, "taints") for device in items(existing, "devices")}
    if not any(before.values()) or "devices" not in content:
        return content

    def keep_time(taint: Any, old: Sequence[Tree]) -> Any:
        if not isinstance(taint, dict) or taint.get("timeAdded"):
            return taint
        for each in old:
            if each.get("timeAdded") and all(
                (each.get(name) or "") == (taint.get(name) or "") for name in ("key", "value", "effect")
            ):
                return {**taint, "timeAdded": each["timeAdded"]}
        return taint

    return {
        **content,
        "devices": [
            {
                **device,
                "taints": [keep_time(taint, before.get(device["name"], ())) for taint in device["taints"]],
            }
            if isinstance(device.get("taints"), list)
            else device
            for device in content["devices"]
        ],
    }


def find_dropped_gates(desired: Mapping[str, Any], kept: Mapping[str, Any]) -> tuple[str, ...]:
    """Guess the disabled feature gates from the fields that a server dropped."""
    found = []
    pairs = list(zip(items(desired, "devices"), items(kept, "devices"), strict=False))
    lost_sets = len(items(desired, "sharedCounters")) > len(items(kept, "sharedCounters"))
    for gate, members in _GATES:
        if any(not _is_empty(a.get(m)) and _is_empty(b.get(m)) for a, b in pairs for m in members) or (
            gate == "DRAPartitionableDevices" and lost_sets
        ):
            found.append(gate)
    if any(_count_groups(a) > _count_groups(b) > -1 for a, b in pairs):
        found.append("DRADeviceCompatibilityGroups")
    return tuple(found)


def _count_groups(device: Mapping[str, Any]) -> int:
    """Return the number of compatibility groups of a device; -1 if it consumes no counters."""
    uses = items(device, "consumesCounters")
    return sum(len(use.get("compatibilityGroups") or ()) for use in uses) if uses else -1


_GATES = (
    ("DRADeviceTaints", ("taints",)),
    ("DRAPartitionableDevices", ("consumesCounters",)),
    ("DRADeviceBindingConditions", ("bindingConditions", "bindingFailureConditions", "bindsToNode")),
    ("DRAConsumableCapacity", ("allowMultipleAllocations",)),
    (
        "DRANodeAllocatableResources",
        ("nodeAllocatableResourceMappings", "nodeAllocatableResources", "nativeResourceMappings"),
    ),
)


def _number(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 2**62 else -1
