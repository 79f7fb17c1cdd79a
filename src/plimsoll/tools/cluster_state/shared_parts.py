"""`SharedParts`: decoding of objects whose equal parts are decoded once and shared.

Machines of one type publish equal devices, and claims of one template have equal specs. Parts written with
the same text are decoded once: large dumps are read faster and take less memory, and what is computed from
such a part can be kept by its identity. Views are immutable, which makes sharing safe.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, TypeVar

import msgspec

from plimsoll.api import codec
from plimsoll.api.meta import ObjectMeta, Wire
from plimsoll.api.resource import (
    Device,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceSlice,
    ResourceSliceSpec,
)
from plimsoll.errors import DecodeError

T = TypeVar("T")
#: Most parts of one kind that are remembered: clusters whose parts all differ need no more.
_MOST = 4096
_NOTHING = msgspec.Raw()
_SPEC_FIELDS = tuple(name for name in ResourceSliceSpec.__struct_fields__ if name != "devices")


class _SliceSpec(ResourceSliceSpec, frozen=True):
    devices: msgspec.Raw = _NOTHING  # type: ignore[assignment]


class _Slice(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: _SliceSpec = _SliceSpec()


class _Claim(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: msgspec.Raw = _NOTHING
    status: ResourceClaimStatus = ResourceClaimStatus()


def text_key(tree: Any) -> bytes:
    """Return a text that is equal for equal trees only: JSON, if the tree can be written as such."""
    try:
        return codec.encode(tree)
    except (OverflowError, UnicodeEncodeError, RecursionError, NotImplementedError, TypeError):
        return repr(tree).encode(errors="backslashreplace")


class SharedParts:
    """Decoder of the objects of one cluster. Gives the same views as `codec`, with shared parts."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, bytes], Any] = {}

    def decode(self, raw: bytes | msgspec.Raw, view: type[T]) -> T:
        """Decode JSON text into a view; raises DecodeError naming the field."""
        decode = _DECODERS.get(view)
        if decode is not None:
            try:
                found: T = decode(self, raw)
                return found
            except (msgspec.MsgspecError, DecodeError, UnicodeDecodeError, RecursionError):
                pass  # decoded completely, to report the error
        return codec.decode(raw, view)

    def convert(self, tree: Any, view: type[T]) -> T:
        """Turn a plain tree into a view; raises DecodeError naming the field."""
        spec = tree.get("spec") if view is ResourceSlice and isinstance(tree, dict) else None
        devices = spec.get("devices") if isinstance(spec, dict) else None
        if not isinstance(spec, dict) or not isinstance(devices, list):
            return codec.convert_fast(tree, view)
        rest = {name: value for name, value in spec.items() if name != "devices"}
        slice = codec.convert_fast({**tree, "spec": rest}, ResourceSlice)
        try:
            shared = self._share(
                "tree", text_key(devices), lambda: codec.convert_fast(devices, tuple[Device, ...])
            )
        except DecodeError:
            return codec.convert_fast(tree, view)  # the error names the whole path
        fields = {name: getattr(slice.spec, name) for name in _SPEC_FIELDS}
        whole: Any = msgspec.structs.replace(slice, spec=ResourceSliceSpec(**fields, devices=shared))
        found: T = whole
        return found

    def _decode_slice(self, raw: bytes | msgspec.Raw) -> ResourceSlice:
        found = codec.decode_well_formed(raw, _Slice)
        spec = found.spec
        text = spec.devices
        devices = self._share_raw("devices", text, tuple[Device, ...] | None) if bytes(text) else None
        fields = {name: getattr(spec, name) for name in _SPEC_FIELDS}
        return ResourceSlice(
            api_version=found.api_version,
            kind=found.kind,
            metadata=found.metadata,
            spec=ResourceSliceSpec(**fields, devices=devices),
        )

    def _decode_claim(self, raw: bytes | msgspec.Raw) -> ResourceClaim:
        found = codec.decode_well_formed(raw, _Claim)
        text = found.spec
        spec = self._share_raw("claim", text, ResourceClaimSpec) if bytes(text) else ResourceClaimSpec()
        return ResourceClaim(
            api_version=found.api_version,
            kind=found.kind,
            metadata=found.metadata,
            spec=spec,
            status=found.status,
        )

    def _share_raw(self, kind: str, text: msgspec.Raw, view: Any) -> Any:
        return self._share(
            kind, blake2b(text, digest_size=16).digest(), lambda: codec.decode_well_formed(text, view)
        )

    def _share(self, kind: str, key: bytes, make: Callable[[], Any]) -> Any:
        found = self._known.get((kind, key), _NOTHING)
        if found is _NOTHING:
            found = make()
            if len(self._known) < _MOST:
                self._known[kind, key] = found
        return found


_DECODERS: dict[type[Any], Callable[[SharedParts, bytes | msgspec.Raw], Any]] = {
    ResourceSlice: SharedParts._decode_slice,
    ResourceClaim: SharedParts._decode_claim,
}
