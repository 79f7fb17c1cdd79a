"""JSON decoding into typed views, and encoding.

Accepts what Go's decoder accepts (null means absent, quantities may be numbers or strings) and rejects what
it rejects, with a DecodeError that names the field. Well-formed input is decoded in one msgspec pass.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar, cast

import msgspec

from plimsoll.api.coercion import coerce, unknown_fields
from plimsoll.api.core import Namespace, Node, Pod
from plimsoll.api.meta import Object, Wire
from plimsoll.api.policy import PodDisruptionBudget
from plimsoll.api.quantity import Number, Quantity
from plimsoll.api.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from plimsoll.api.scheduling import PodGroup
from plimsoll.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from plimsoll.errors import DecodeError, QuantityError

T = TypeVar("T")

#: Kinds with a typed view, by (group, kind). All served versions of a group use the same view.
KINDS: dict[tuple[str, str], type[Wire]] = {
    ("", "Pod"): Pod,
    ("", "Node"): Node,
    ("", "Namespace"): Namespace,
    ("", "PersistentVolume"): PersistentVolume,
    ("", "PersistentVolumeClaim"): PersistentVolumeClaim,
    ("policy", "PodDisruptionBudget"): PodDisruptionBudget,
    ("resource.k8s.io", "ResourceSlice"): ResourceSlice,
    ("resource.k8s.io", "ResourceClaim"): ResourceClaim,
    ("resource.k8s.io", "ResourceClaimTemplate"): ResourceClaimTemplate,
    ("resource.k8s.io", "DeviceClass"): DeviceClass,
    ("resource.k8s.io", "DeviceTaintRule"): DeviceTaintRule,
    ("scheduling.k8s.io", "PodGroup"): PodGroup,
    ("storage.k8s.io", "CSIDriver"): CSIDriver,
    ("storage.k8s.io", "CSINode"): CSINode,
    ("storage.k8s.io", "CSIStorageCapacity"): CSIStorageCapacity,
    ("storage.k8s.io", "StorageClass"): StorageClass,
    ("storage.k8s.io", "VolumeAttachment"): VolumeAttachment,
}


def _decode_leaf(wanted: type[Any], value: Any) -> Any:
    """Decode a quantity (msgspec hook); known texts cost one lookup."""
    if wanted is Quantity:
        try:
            return _parse(value)
        except (QuantityError, TypeError):
            pass
        try:
            return Quantity.from_json(value)  # not a string, or one with surrounding blanks
        except QuantityError as error:
            raise ValueError(str(error)) from None
    raise NotImplementedError(wanted)


_parse = Quantity.parse


def _encode_leaf(value: Any) -> Any:
    if isinstance(value, Quantity):
        return str(value)
    if isinstance(value, Number):
        return msgspec.Raw(value.text.encode())
    raise NotImplementedError(type(value))


@lru_cache(maxsize=256)
def _decoder(view: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(view, dec_hook=_decode_leaf, float_hook=Number)


_encoder = msgspec.json.Encoder(enc_hook=_encode_leaf)
_tree_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=Number)


def decode(raw: bytes | str, view: type[T]) -> T:
    """Decode JSON text into a view; raises DecodeError naming the field."""
    try:
        return cast(T, _decoder(cast(Any, view)).decode(raw))
    except msgspec.ValidationError:
        return convert(decode_tree(raw), view)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad_json(error) from None


def decode_well_formed(raw: bytes | msgspec.Raw, view: type[T]) -> T:
    """Decode JSON text into a view in one msgspec pass; raises the errors of msgspec."""
    return cast(T, _decoder(cast(Any, view)).decode(raw))


def decode_tree(raw: bytes | str) -> Any:
    """Decode JSON text into plain dicts and lists; numbers with a fraction keep their text."""
    try:
        return _tree_decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _bad_json(error) from None


def convert(tree: Any, view: type[T]) -> T:
    """Turn a plain tree into a view; raises DecodeError naming the field."""
    return cast(T, coerce(tree, view))


def convert_strictly(tree: Any, view: type[T]) -> T:
    """Turn a plain tree into a view like `convert`; raises DecodeError for fields that the view lacks."""
    found = convert(tree, view)
    for field in unknown_fields(tree, view):
        raise DecodeError("unknown field", field)
    return found


def convert_fast(tree: Any, view: type[T]) -> T:
    """Convert a tree to a view like `convert`, trying msgspec first; faster for well-formed trees."""
    try:
        return msgspec.convert(tree, view, dec_hook=_decode_leaf)
    except (msgspec.ValidationError, RecursionError):
        return convert(tree, view)


def encode(view: Any) -> bytes:
    """Encode a view or a plain tree as compact JSON."""
    return _encoder.encode(view)


def to_tree(view: Any) -> Any:
    """Convert a view to plain dicts and lists, omitting defaults."""
    return decode_tree(encode(view))


def split_api_version(api_version: str) -> tuple[str, str]:
    """Split an API version: `resource.k8s.io/v1` -> (`resource.k8s.io`, `v1`); `v1` -> (``, `v1`)."""
    group, _, version = api_version.rpartition("/")
    return group, version


def view_type(api_version: str, kind: str) -> type[Wire]:
    """Return the view for a kind; `Object` for unknown kinds."""
    return KINDS.get((split_api_version(api_version)[0], kind), Object)


def decode_object(raw: bytes | str) -> Wire:
    """Decode any API object into the view of its apiVersion and kind."""
    head = decode(raw, Object)
    if not head.kind:
        raise DecodeError("is missing; every object needs apiVersion and kind", "kind")
    return decode(raw, view_type(head.api_version, head.kind))


def _bad_json(error: Exception) -> DecodeError:
    if isinstance(error, RecursionError):
        return DecodeError("the JSON is nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return DecodeError("the JSON is not UTF-8")
    return DecodeError(f"not JSON: {error}")
