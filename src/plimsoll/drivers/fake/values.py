"""Values of a device file that need more than a type: quantities, patterns, attributes, container edits.

Placeholders in strings are not evaluated here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from plimsoll.api.config import Config, convert_config, format_value
from plimsoll.api.forms import AccountingPolicy
from plimsoll.api.names import dns_subdomain
from plimsoll.api.quantity import Number
from plimsoll.errors import DecodeError, InputError

_DRIVER_MAX = 63
#: Attribute types with the YAML types of their values.
_SCALARS: dict[str, tuple[type, ...]] = {
    "int": (int, str),
    "bool": (bool,),
    "string": (str,),
    "version": (str,),
}
_TYPES = (*_SCALARS, *(f"{name}s" for name in _SCALARS))


def read_quantity(value: Any) -> str:
    """Convert a quantity to its text."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        raise InputError(f"must be a quantity such as 8, 500m or 40Gi, not {format_value(value)}")
    return str(value)


def read_strings(value: Any) -> tuple[str, ...]:
    """Convert a list of strings; a single string is a list of one."""
    if isinstance(value, str) and value:
        return (value,)
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise InputError(f"must be a list of strings, not {format_value(value)}")
    return tuple(value)


def _read_patterns(value: Any) -> tuple[str, ...]:
    return read_strings(value) or ("*",)


def _read_class_name(value: Any) -> str:
    name = str(convert_config(value, str))
    if problems := dns_subdomain(name):
        raise InputError(f"{name!r} is not a valid class name: it {problems[0]}")
    return name


def _read_driver_name(value: Any) -> str:
    name = str(convert_config(value, str))
    problems = dns_subdomain(name)
    if problems or len(name) > _DRIVER_MAX:
        problem = problems[0] if problems else f"must be at most {_DRIVER_MAX} bytes long"
        raise InputError(f"{name!r} is not a valid driver name: it {problem}, such as gpu.example.com")
    return name


def _read_policy(value: Any) -> str:
    return value if value == "" else str(convert_config(value, AccountingPolicy).value)


def _read_attribute(value: Any) -> tuple[str, Any]:
    """Return (type, value); the type of a string stays open, because placeholders may make it a number."""
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int):
        return "int", value
    if isinstance(value, str):
        return "", value
    if isinstance(value, list) and value:
        kinds = {"bool" if isinstance(item, bool) else type(item).__name__ for item in value}
        if kinds <= {"bool"} or kinds <= {"int"} or kinds <= {"str"}:
            return {"bool": "bools", "int": "ints", "str": "strings"}[kinds.pop()], value
    if isinstance(value, Mapping) and len(value) == 1:
        ((kind, inner),) = value.items()
        if kind in _TYPES and _is_of(kind, inner):
            return kind, inner
    raise InputError(
        "must be a string, an integer, a boolean, a list of one of these, or one value with its type, "
        f"such as {{version: 1.2.3}} (types: {', '.join(_TYPES)}), not {format_value(value)}"
    )


def _is_of(kind: str, value: Any) -> bool:
    if kind in _SCALARS:
        allowed = _SCALARS[kind]
        return isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool))
    return isinstance(value, list) and bool(value) and all(_is_of(kind[:-1], item) for item in value)


def _read_env(value: Any) -> dict[str, str]:
    """Convert environment variables; whole numbers need no quotes."""
    found = {}
    for name, text in convert_config(value, dict[str, Any]).items():
        if isinstance(text, bool) or not isinstance(text, str | int):
            raise DecodeError(f"must be a string, not {format_value(text)}", name)
        if not name or "=" in name or "\0" in name or "\0" in str(text):
            raise DecodeError("is not a valid environment variable", name)
        found[name] = str(text)
    return found


def _read_absolute(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith(("/", "{")):
        raise InputError(f"must be an absolute path, such as /dev/null, not {format_value(value)}")
    return value


Amount: TypeAlias = Annotated[str, read_quantity, Meta(examples=["40Gi"])]
Strings: TypeAlias = Annotated[tuple[str, ...], read_strings]
Patterns: TypeAlias = Annotated[tuple[str, ...], _read_patterns]
ClassName: TypeAlias = Annotated[str, _read_class_name, Meta(examples=["gpu.example.com"])]
DriverName: TypeAlias = Annotated[str, _read_driver_name, Meta(examples=["gpu.example.com"])]
Policy: TypeAlias = Annotated[str, _read_policy]
#: (type or "", value)
Attribute: TypeAlias = Annotated[tuple[str, Any], _read_attribute]
Environment: TypeAlias = Annotated[Mapping[str, str], _read_env]
_Path: TypeAlias = Annotated[str, _read_absolute, Meta(examples=["/dev/null"])]
_Number: TypeAlias = Annotated[int, Meta(ge=0, le=2**31)]


class _Mount(Config, frozen=True, kw_only=True, omit_defaults=True):
    host_path: _Path
    container_path: _Path
    type: str = ""
    options: Strings = ()


class _DeviceNode(Config, frozen=True, kw_only=True, omit_defaults=True):
    path: _Path
    host_path: str = ""
    type: str = ""
    major: _Number = 0
    minor: _Number = 0
    file_mode: _Number = 0
    permissions: str = ""
    uid: _Number = 0
    gid: _Number = 0


class _ValidRange(Config, frozen=True, kw_only=True, omit_defaults=True):
    min: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None


class _RequestPolicy(Config, frozen=True, kw_only=True, omit_defaults=True):
    default: Amount | None = None
    valid_values: Annotated[tuple[Amount, ...], Meta(min_length=1)] | None = None
    valid_range: _ValidRange | None = None
    zero_consumption: bool = False
    request_policy_name: str = ""


def _read_tree(value: Any, kind: type[Config]) -> dict[str, Any]:
    """Check a value by its type and return it as a tree, without empty fields."""
    found: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(convert_config(value, kind)))
    return found


def _read_mount(value: Any) -> dict[str, Any]:
    return _read_tree(value, _Mount)


def _read_device_node(value: Any) -> dict[str, Any]:
    return _read_tree({"path": value} if isinstance(value, str) else value, _DeviceNode)


def _read_request_policy(value: Any) -> dict[str, Any]:
    tree = _read_tree(value, _RequestPolicy)
    for name in ("zeroConsumption", "requestPolicyName"):
        if name in tree and len(tree) > 1:
            raise DecodeError("must be the only field of the request policy", name)
    return tree


#: Mappings with the keys of CDI or of the API.
Mount: TypeAlias = Annotated[Mapping[str, Any], _read_mount]
DeviceNode: TypeAlias = Annotated[Mapping[str, Any], _read_device_node]
RequestPolicyTree: TypeAlias = Annotated[Mapping[str, Any], _read_request_policy]
