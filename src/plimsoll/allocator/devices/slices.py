"""Cached views of ResourceSlices: flattened once, matched against many selectors.

`SliceView` caches the matches of every selector and includes the taints added by DeviceTaintRules
(docs/spec/allocator.md, "Taints, admin access, binding").
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from weakref import WeakValueDictionary

import msgspec

from plimsoll.api.codec import encode
from plimsoll.api.identity import PoolId
from plimsoll.api.request_policies import resolve_request_policies
from plimsoll.api.resource import Device, DeviceTaintRule, ResourceSlice
from plimsoll.cel import (
    DerivedAttribute,
    DerivedResult,
    Selector,
    SelectorMatches,
    derive_all,
    flatten,
    match_all,
)
from plimsoll.cel.static.environment import Environment

#: Maximum number of cached matches per slice.
MAX_CACHED_MATCHES = 256


class SliceContent:
    """Devices in the form that selectors read, and cached matches and derived attributes."""

    __slots__ = ("__weakref__", "_derived", "_flat", "_matches")

    def __init__(self, devices: Iterable[Device], driver: str) -> None:
        self._flat = tuple(flatten(device, driver) for device in devices)
        self._matches: dict[tuple[str, Environment], SelectorMatches] = {}
        self._derived: dict[tuple[str, Environment], tuple[DerivedResult, ...]] = {}

    def matches(self, selector: Selector) -> SelectorMatches:
        key = (selector.expression, selector.environment)
        found = self._matches.get(key)
        if found is None:
            if len(self._matches) >= MAX_CACHED_MATCHES:
                self._matches.pop(next(iter(self._matches)))
            found = self._matches[key] = match_all(selector, self._flat)
        return found

    def derive(self, derived: DerivedAttribute) -> tuple[DerivedResult, ...]:
        key = (derived.expression, derived.environment)
        found = self._derived.get(key)
        if found is None:
            if len(self._derived) >= MAX_CACHED_MATCHES:
                self._derived.pop(next(iter(self._derived)))
            found = self._derived[key] = derive_all(derived, self._flat)
        return found


#: By signature: identical machines publish identical devices and are evaluated together.
_contents: WeakValueDictionary[bytes, SliceContent] = WeakValueDictionary()
#: Signatures by the identity of devices and counters, which slices that were read together share; the values
#: keep these alive.
_signatures: dict[tuple[str, int, int, tuple[str, ...]], tuple[bytes, object, object]] = {}
_SIGNATURES_MAX = 256


class SliceView:
    """One version of a slice, with everything computed from it. Immutable except for its caches."""

    __slots__ = ("_content", "_has_groups", "_signature", "devices", "is_counters", "pool", "slice")

    def __init__(self, slice: ResourceSlice, devices: tuple[Device, ...] | None = None) -> None:
        self.slice = slice
        self.devices = resolve_request_policies(slice.spec.devices or () if devices is None else devices)
        self.pool = PoolId(slice.spec.driver, slice.spec.pool.name)
        #: Whether it has counters instead of devices.
        self.is_counters = bool(slice.spec.shared_counters)
        self._content: SliceContent | None = None
        self._signature: bytes | None = None
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
            spec = self.slice.spec
            key = (spec.driver, id(self.devices), id(spec.shared_counters), spec.skip_node_operations)
            known = _signatures.get(key)
            if known is None:
                whole = encode((spec.driver, self.devices, spec.shared_counters, spec.skip_node_operations))
                known = blake2b(whole, digest_size=16).digest(), self.devices, spec.shared_counters
                if len(_signatures) >= _SIGNATURES_MAX:
                    del _signatures[next(iter(_signatures))]
                _signatures[key] = known
            self._signature = known[0]
        return self._signature

    @property
    def name(self) -> str:
        return self.slice.metadata.name

    def matches(self, selector: Selector) -> SelectorMatches:
        """Return the devices a selector matches, and its errors; evaluated at the first call."""
        return self._flattened().matches(selector)

    def derive(self, derived: DerivedAttribute) -> tuple[DerivedResult, ...]:
        """Return the values of a derived attribute, by device; evaluated at the first call."""
        return self._flattened().derive(derived)

    def _flattened(self) -> SliceContent:
        if self._content is None:
            known = _contents.get(self.signature)
            if known is None:
                known = _contents[self.signature] = SliceContent(self.devices, self.slice.spec.driver)
            self._content = known
        return self._content


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
