"""ResourceSlices as they should be: cut from pools, compared with what is there, and what mends them.

Owns `cut`, which makes slices of a pool, and `plan`, which says what to write and what to delete. Pure.
Promises: slices that are as wanted are not written; when more than one must be, all get a new generation, so
that nobody takes a pool half old and half new for the whole; names say the place of a slice in its pool, so
that a later run, or another program that names them alike, finds them again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from plimsoll.api import codec
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import Device
from plimsoll.drivers.plugin.driver import Pool
from plimsoll.errors import DecodeError, QuantityError

#: What the API takes in one slice: devices, devices if one has taints, counters or lists, counter sets.
MOST_DEVICES, MOST_WITH_EXTRAS, MOST_COUNTER_SETS = 128, 64, 8
#: Hex digits of a slice's place in its pool, at least.
_INDEX_DIGITS = 5
_NAME = re.compile(r"([0-9a-f]+)-")
_LONGEST_PREFIX = 240

Tree: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PoolFault:
    """Why a pool cannot be published as it is."""

    kind: str
    pool: str
    device: str = ""
    counter_set: str = ""
    counter: str = ""
    detail: str = ""

    def __str__(self) -> str:
        return _TEXTS[self.kind].format(self)


_TEXTS = {
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
class Wanted:
    """A slice that should be there: `content` is what its spec says of devices or counters."""

    index: int
    content: Tree
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """A slice that is there."""

    name: str
    uid: str
    revision: str
    pool: str
    generation: int
    count: int
    owners: frozenset[str]
    content: Tree
    tree: Tree
    annotations: Tree = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The revision as a number; larger is later."""
        text = self.revision
        return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else 0


# -- what is wanted


def cut(pool: Pool) -> tuple[Wanted, ...] | PoolFault:
    """The slices of a pool, counters first; what is wrong with it if it cannot be published."""
    try:
        devices = [_plain(device) for device in pool.devices]
        counters = [_plain(counter_set) for counter_set in pool.counters]
        most = max(1, min(int(pool.per_slice), MOST_DEVICES))
    except (DecodeError, TypeError, ValueError) as error:
        return PoolFault("malformed", pool.name, detail=str(error))
    if (fault := _check(pool.name, devices, counters)) is not None:
        return fault
    parts: list[Tree] = [
        {"sharedCounters": counters[start : start + MOST_COUNTER_SETS]}
        for start in range(0, len(counters), MOST_COUNTER_SETS)
    ]
    parts += [{"devices": part} for part in _chunks(devices, most)]
    return tuple(
        Wanted(index, content, {} if index else dict(pool.annotations))
        for index, content in enumerate(parts or [{"devices": []}])
    )


def _plain(given: Mapping[str, Any] | Device) -> Tree:
    """A device or counter set as a plain tree of its own; DecodeError if it is none."""
    try:
        tree = codec.to_tree(given)
    except (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError) as error:
        raise DecodeError(f"a device or counter set that is no JSON: {error}") from None
    if not isinstance(tree, dict) or not isinstance(tree.get("name"), str):
        raise DecodeError("a device or counter set without a name")
    return tree


def _chunks(devices: Sequence[Tree], most: int) -> list[list[Tree]]:
    """Devices in order, as many in each slice as the API takes."""
    chunks: list[list[Tree]] = []
    extras = False
    for device in devices:
        special = has_extras(device)
        room = min(most, MOST_WITH_EXTRAS) if extras or special else most
        if not chunks or len(chunks[-1]) >= room:
            chunks.append([])
            extras = False
        chunks[-1].append(device)
        extras = extras or special
    return chunks


def has_extras(device: Mapping[str, Any]) -> bool:
    """Whether fewer devices fit in a slice with this one: it has taints, counters or lists of values."""
    if device.get("taints") or device.get("consumesCounters"):
        return True
    attributes = device.get("attributes")
    values = attributes.values() if isinstance(attributes, dict) else ()
    return any(
        isinstance(inner, list) for value in values if isinstance(value, dict) for inner in value.values()
    )


def _check(pool: str, devices: Iterable[Tree], counters: Iterable[Tree]) -> PoolFault | None:
    """What no server finds because it sees one slice at a time."""
    sets: dict[str, Tree] = {}
    for counter_set in counters:
        if counter_set["name"] in sets:
            return PoolFault("counter set", pool, counter_set=counter_set["name"])
        sets[counter_set["name"]] = counter_set
    names: set[str] = set()
    for device in devices:
        name = device["name"]
        if name in names:
            return PoolFault("device", pool, device=name)
        names.add(name)
        for use in _dicts(device.get("consumesCounters")):
            wanted = str(use.get("counterSet"))
            if wanted not in sets:
                return PoolFault("no counter set", pool, name, wanted)
            for counter in _dict(use.get("counters")):
                if counter not in _dict(sets[wanted].get("counters")):
                    return PoolFault("no counter", pool, name, wanted, counter)
    return None


# -- what is there


def see(raw: bytes) -> Seen:
    """A slice as an API server sent it; whatever it is, it is seen somehow (DecodeError: it is no JSON)."""
    return see_tree(_dict(codec.decode_tree(raw)))


def see_tree(tree: Tree) -> Seen:
    """The same for one that is read already."""
    meta, spec = _dict(tree.get("metadata")), _dict(tree.get("spec"))
    pool = _dict(spec.get("pool"))
    return Seen(
        name=_text(meta.get("name")),
        uid=_text(meta.get("uid")),
        revision=_text(meta.get("resourceVersion")),
        pool=_text(pool.get("name")),
        generation=_number(pool.get("generation")),
        count=_number(pool.get("resourceSliceCount")),
        owners=frozenset(_text(owner.get("uid")) for owner in _dicts(meta.get("ownerReferences"))),
        content={name: value for name, value in spec.items() if name not in _NOT_CONTENT},
        tree=tree,
        annotations=_dict(meta.get("annotations")),
    )


_NOT_CONTENT = ("driver", "pool", "nodeName")


def same(wanted: Mapping[str, Any], seen: Mapping[str, Any]) -> bool:
    """Whether two contents mean the same: amounts count by value, and nothing is as good as empty.

    The time of a taint that a driver leaves open is the server's to fill in.
    """
    try:
        return _same(wanted, seen, "", False)
    except RecursionError:
        return False


def _same(wanted: Any, seen: Any, key: str, taint: bool) -> bool:
    if isinstance(wanted, dict) and isinstance(seen, dict):
        names = {name for tree in (wanted, seen) for name, value in tree.items() if not _is_nothing(value)}
        if taint and not wanted.get("timeAdded"):
            names.discard("timeAdded")
        return all(_same(wanted.get(name), seen.get(name), name, taint or name == "taints") for name in names)
    if isinstance(wanted, list) and isinstance(seen, list):
        return len(wanted) == len(seen) and all(
            _same(a, b, key, taint) for a, b in zip(wanted, seen, strict=True)
        )
    if _is_nothing(wanted) and _is_nothing(seen):
        return True
    if type(wanted) is type(seen) and wanted == seen:
        return True
    if taint:
        return _second(wanted or "") == _second(seen or "") if key == "timeAdded" else not (wanted or seen)
    return key in _AMOUNTS and _amount(wanted) is not None and _amount(wanted) == _amount(seen)


#: Members that are quantities, wherever they stand in a device or counter set (taints have texts as values).
_AMOUNTS = frozenset(
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


def _amount(value: Any) -> Quantity | None:
    if value is None:
        return None
    try:
        return Quantity.from_json(value)
    except QuantityError:
        return None


def _second(value: Any) -> str:
    """A time without what servers do not keep."""
    return re.sub(r"\.\d+", "", str(value))


def _is_nothing(value: Any) -> bool:
    return value is None or value == {} or value == []


# -- what mends it


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do, in this order, so that a pool is as wanted; the pool as its slices should have it."""

    delete: tuple[Seen, ...] = ()
    update: tuple[tuple[Seen, Wanted], ...] = ()
    create: tuple[Wanted, ...] = ()
    generation: int = 0
    count: int = 0

    def __bool__(self) -> bool:
        return bool(self.delete or self.update or self.create)


def plan(
    wanted: Sequence[Wanted],
    seen: Iterable[Seen],
    *,
    owner: str = "",
    taken: Mapping[int, tuple[Tree, Tree]] | None = None,
    unkept: Mapping[int, Mapping[str, str]] | None = None,
) -> Plan:
    """What to do about the slices of one pool; no slices wanted: the pool is to go.

    `owner` is the UID that slices should be owned by. `taken` are contents of which the server keeps
    something else, by index: the content, and what the server makes of it. `unkept` are annotations that
    somebody takes off again.
    """
    present = sorted(seen, key=lambda slice_: slice_.name)
    if not wanted:
        return Plan(delete=tuple(present))
    digits = index_digits(len(wanted))
    generation = max((slice_.generation for slice_ in present), default=0)
    goals = {each.index: each for each in wanted}

    def is_right(slice_: Seen) -> bool:
        index = read_index(slice_.name, digits)
        goal, said = goals[index].content, goals[index].annotations
        if not has_annotations(slice_, said) and (unkept or {}).get(index) != said:
            return False
        if same(goal, slice_.content):
            return True
        sent, kept = (taken or {}).get(index, (None, {}))
        return sent == goal and same(kept, slice_.content)

    current: dict[int, Seen] = {}
    for slice_ in present:
        index = read_index(slice_.name, digits)
        if index not in goals or slice_.generation < generation:
            continue
        if index not in current or (is_right(slice_) and not is_right(current[index])):
            current[index] = slice_
    kept = {slice_.name for slice_ in current.values()}
    changed = [
        index
        for index, slice_ in sorted(current.items())
        if slice_.count != len(wanted) or (owner and owner not in slice_.owners) or not is_right(slice_)
    ]
    create = tuple(each for each in wanted if each.index not in current)
    if create or len(changed) > 1:
        # A reader must not take a mixture of old and new slices for a pool.
        generation += 1
        changed = sorted(current)
    return Plan(
        delete=tuple(slice_ for slice_ in present if slice_.name not in kept),
        update=tuple((current[index], goals[index]) for index in changed),
        create=create,
        generation=generation,
        count=len(wanted),
    )


def has_annotations(slice_: Seen, wanted: Mapping[str, str]) -> bool:
    """Whether a slice has these annotations; others may have theirs on it."""
    return all(slice_.annotations.get(name) == text for name, text in wanted.items())


def index_digits(count: int) -> int:
    """How many digits the places of so many slices have in their names."""
    return max(_INDEX_DIGITS, len(f"{count - 1:x}"))


def read_index(name: str, digits: int) -> int:
    """The place that a slice's name says, or -1."""
    found = _NAME.match(name)
    return int(found[1], 16) if found and len(found[1]) == digits else -1


def name_prefix(index: int, count: int, driver: str, node: str) -> str:
    """What a slice's name begins with, no longer than servers take; they add what makes it unique."""
    whole = f"{index:0{index_digits(count)}x}-{driver}-{node}"
    return whole[:_LONGEST_PREFIX].rstrip(".-") + "-"


def keep_times(content: Tree, seen: Tree) -> Tree:
    """The content with the times that taints have already, where it leaves them open."""
    before = {device.get("name"): _dicts(device.get("taints")) for device in _dicts(seen.get("devices"))}
    if not any(before.values()) or "devices" not in content:
        return content

    def mend(taint: Any, old: Sequence[Tree]) -> Any:
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
            {**device, "taints": [mend(taint, before.get(device["name"], ())) for taint in device["taints"]]}
            if isinstance(device.get("taints"), list)
            else device
            for device in content["devices"]
        ],
    }


def dropped(wanted: Mapping[str, Any], kept: Mapping[str, Any]) -> tuple[str, ...]:
    """The feature gates that a server seems to have off, from what it made of a content."""
    found = []
    pairs = list(zip(_dicts(wanted.get("devices")), _dicts(kept.get("devices")), strict=False))
    lost_sets = len(_dicts(wanted.get("sharedCounters"))) > len(_dicts(kept.get("sharedCounters")))
    for gate, members in _GATES:
        if any(not _is_nothing(a.get(m)) and _is_nothing(b.get(m)) for a, b in pairs for m in members) or (
            gate == "DRAPartitionableDevices" and lost_sets
        ):
            found.append(gate)
    return tuple(found)


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


def _dict(value: Any) -> Tree:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[Tree]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 2**62 else -1
