"""Cached views of ResourceSlices: flattened once, matched against many selectors.

`SliceView` caches the matches of every selector and includes the taints added by DeviceTaintRules
(docs/spec/allocator.md, "Taints, admin access, binding").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TypeAlias
from weakref import WeakValueDictionary

import msgspec

from plimsoll.api.codec import encode
from plimsoll.api.identity import PoolId
from plimsoll.api.request_policies import resolve_request_policies
from plimsoll.api.resource import Device, DeviceTaintRule, ResourceSlice
from plimsoll.cel import (
    CelDevice,
    DerivedAttribute,
    DerivedResult,
    Selector,
    SelectorMatches,
    derive_all,
    flatten,
    has_invalid_attribute,
    match_all,
)
from plimsoll.cel.static.environment import Environment

#: (domain, name) of attributes.
AttributeNames: TypeAlias = "frozenset[tuple[str, str]]"
#: Maximum number of cached matches per slice.
MAX_CACHED_MATCHES = 256


class SliceContent:
    """Devices in the form that selectors read, and the results of selectors that read the same attributes."""

    __slots__ = ("__weakref__", "_derived", "_devices", "_driver", "_flat", "_matches")

    def __init__(self, devices: Iterable[Device], driver: str) -> None:
        self._devices, self._driver = devices, driver
        self._flat: tuple[CelDevice, ...] | None = None
        self._matches: dict[tuple[str, Environment], SelectorMatches] = {}
        self._derived: dict[tuple[str, Environment], tuple[DerivedResult, ...]] = {}

    def matches(self, selector: Selector) -> SelectorMatches:
        key = (selector.expression, selector.environment)
        found = self._matches.get(key)
        if found is None:
            if len(self._matches) >= MAX_CACHED_MATCHES:
                self._matches.pop(next(iter(self._matches)))
            found = self._matches[key] = match_all(selector, self._flattened())
        return found

    def derive(self, derived: DerivedAttribute) -> tuple[DerivedResult, ...]:
        key = (derived.expression, derived.environment)
        found = self._derived.get(key)
        if found is None:
            if len(self._derived) >= MAX_CACHED_MATCHES:
                self._derived.pop(next(iter(self._derived)))
            found = self._derived[key] = derive_all(derived, self._flattened())
        return found

    def _flattened(self) -> tuple[CelDevice, ...]:
        if self._flat is None:
            self._flat = tuple(flatten(device, self._driver) for device in self._devices)
        return self._flat


#: By structure and the attributes that are read: devices that a selector cannot distinguish are evaluated
#: together.
_contents: WeakValueDictionary[object, SliceContent] = WeakValueDictionary()
#: Digests by the identity of devices and counters, which slices that were read together share; the values
#: keep these alive.
_digests: dict[tuple[object, ...], tuple[bytes, object, object]] = {}
_DIGESTS_MAX = 512


class SliceView:
    """One version of a slice, with everything computed from it. Immutable except for its caches."""

    __slots__ = (
        "_contents",
        "_has_groups",
        "_invalid",
        "_signature",
        "_structure",
        "devices",
        "is_counters",
        "pool",
        "slice",
    )

    def __init__(self, slice: ResourceSlice, devices: tuple[Device, ...] | None = None) -> None:
        self.slice = slice
        self.devices = resolve_request_policies(slice.spec.devices or () if devices is None else devices)
        self.pool = PoolId(slice.spec.driver, slice.spec.pool.name)
        #: Whether it has counters instead of devices.
        self.is_counters = bool(slice.spec.shared_counters)
        self._contents: dict[AttributeNames | None, SliceContent] = {}
        self._invalid: bool | None = None
        self._signature: bytes | None = None
        self._structure: bytes | None = None
        self._has_groups: bool | None = None

    @property
    def has_groups(self) -> bool:
        """True if a device declares compatibility groups."""
        if self._has_groups is None:
            self._has_groups = any(
                consumption.compatibility_groups
                for device in self.devices
                for consumption in device.consumes_counters
            )
        return self._has_groups

    @property
    def signature(self) -> bytes:
        """Equal for slices that differ only in the name of their pool."""
        if self._signature is None:
            self._signature = self._digest(self.devices, "whole")
        return self._signature

    @property
    def structure(self) -> bytes:
        """Equal for slices that differ only in the name of their pool and in attributes."""
        if self._structure is None:
            bare = [msgspec.structs.replace(device, attributes={}) for device in self.devices]
            self._structure = self._digest(bare, "bare")
        return self._structure

    def _digest(self, devices: Sequence[Device], form: str) -> bytes:
        spec = self.slice.spec
        key = (form, spec.driver, id(self.devices), id(spec.shared_counters), spec.skip_node_operations)
        known = _digests.get(key)
        if known is None:
            text = encode((spec.driver, devices, spec.shared_counters, spec.skip_node_operations))
            known = blake2b(text, digest_size=16).digest(), self.devices, spec.shared_counters
            if len(_digests) >= _DIGESTS_MAX:
                del _digests[next(iter(_digests))]
            _digests[key] = known
        return known[0]

    @property
    def name(self) -> str:
        return self.slice.metadata.name

    def matches(self, selector: Selector) -> SelectorMatches:
        """Return the devices a selector matches, and its errors; evaluated at the first call."""
        return self._content(selector.attributes_read).matches(selector)

    def derive(self, derived: DerivedAttribute) -> tuple[DerivedResult, ...]:
        """Return the values of a derived attribute, by device; evaluated at the first call."""
        return self._content(derived.attributes_read).derive(derived)

    def _content(self, read: AttributeNames | None) -> SliceContent:
        """Return the devices as an expression sees them that reads these attributes, or any of them."""
        known = self._contents.get(read)
        if known is None:
            key = self.signature if read is None or self._has_invalid() else self._values(read)
            known = _contents.get(key)
            if known is None:
                known = _contents[key] = SliceContent(self.devices, self.slice.spec.driver)
            self._contents[read] = known
        return known

    def _has_invalid(self) -> bool:
        """Return whether some attribute is invalid, which makes every expression fail on its device."""
        if self._invalid is None:
            self._invalid = has_invalid_attribute(self.devices)
        return self._invalid

    def _values(self, read: AttributeNames) -> object:
        """Return the values of the attributes that are read, with everything that is not an attribute."""
        names = sorted(read)
        driver = self.slice.spec.driver
        keys = [f"{domain}/{name}" for domain, name in names]
        keys += [name for domain, name in names if domain == driver]
        values = (device.attributes.get(key) for key in keys for device in self.devices)
        return (self.structure, *names, *values)


def apply_taint_rules(slice: ResourceSlice, rules: Iterable[DeviceTaintRule]) -> SliceView:
    """Return the slice with the taints that the rules add to its devices."""
    devices = slice.spec.devices or ()
    changed = False
    for rule in rules:
        selector = rule.spec.device_selector
        # A rule without a selector taints no device; an empty selector matches every device.
        if selector is None or selector.driver not in (None, slice.spec.driver):
            continue
        if selector.pool not in (None, slice.spec.pool.name):
            continue
        devices = tuple(
            msgspec.structs.replace(device, taints=(*device.taints, rule.spec.taint))
            if selector.device in (None, device.name)
            else device
            for device in devices
        )
        changed = True
    return SliceView(slice, devices if changed else None)
