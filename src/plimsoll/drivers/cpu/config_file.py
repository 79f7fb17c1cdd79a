"""Driver settings from a configuration file and from flags.

`read_settings` merges defaults, file and flags, in increasing priority. Keys, flags, rules and messages are
the Go driver's where it has them (docs/spec/cpu-driver.md, "Configuration"), so that its files can be used;
flags of the other keys are the same words with dashes. Unknown or misspelled keys, and keys that are only
valid as flags, are errors that name the fix.

DIFF: node resource mappings are published wherever the API server supports them, unless a file sets
`publishNodeAllocatableResourceMapping: false`; in the Go driver they are off
(test_mapping_is_automatic_unless_disabled).
"""

from __future__ import annotations

import dataclasses
import posixpath
import re
import socket
from collections.abc import Callable, Mapping
from enum import StrEnum
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, TypeAlias, TypeVar

from plimsoll.api.config import config_fields, convert_field, format_value
from plimsoll.api.cpuset import CpuSet
from plimsoll.common.addresses import read_bind_address
from plimsoll.common.config_file import read_document, read_flag
from plimsoll.drivers.cpu.allocation import AssignOptions
from plimsoll.drivers.cpu.settings import (
    DRIVER_NAME,
    CpuOverhead,
    CpuSettings,
    DeviceMode,
    GroupBy,
    PinEnforcement,
    PinSettings,
    RequestPolicy,
)
from plimsoll.drivers.cpu.settings import Mapping as MappingChoice
from plimsoll.errors import ConfigError, InputError
from plimsoll.protocols.rpc import MAX_PATH_LENGTH

API_VERSION = "v1alpha1"
E = TypeVar("E", bound=StrEnum)


def read_settings(
    path: Path | None, flags: Mapping[str, Any] | None = None, *, hostname: str | None = None
) -> CpuSettings:
    """Read the settings of a driver; raises ConfigError with the problem and the fix.

    `flags` maps flag names without dashes to their values; None means not given. `hostname` is that of this
    machine.
    """
    found: dict[str, Any] = {}
    if path is not None:
        found = _merge_keys(_read_file(path), f"cannot apply {path}")
    found |= _merge_keys(_read_flags(flags or {}), "flags")
    return _build(found, socket.gethostname() if hostname is None else hostname)


def read_flags(given: Mapping[str, Any]) -> CpuSettings:
    """Build settings from arguments by name (`group_by`); `config` is the file. Raises ConfigError."""
    flags = {name.replace("_", "-"): value for name, value in given.items() if name != "config"}
    settings = read_settings(given.get("config"), {name: flags.get(name) for name in FLAGS})
    if settings.bind_address:
        read_bind_address(settings.bind_address)
    return settings


def _read_file(path: Path) -> dict[str, Any]:
    """Read the values of a file by key."""
    where = f"cannot apply {path}"
    tree = read_document(path, "configuration of the CPU driver")
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{where}: must be a mapping of settings, not {format_value(tree)}")
    keys = {str(key): value for key, value in tree.items()}
    version = keys.get("apiVersion", API_VERSION)
    if version != API_VERSION:
        shown = version if isinstance(version, str) else ""
        raise ConfigError(f'{where}: unsupported apiVersion "{shown}", want "{API_VERSION}"')
    keys.pop("apiVersion", None)
    problems = [problem for key in sorted(keys) if (problem := _suggest_spelling(key))]
    if problems:
        raise ConfigError(f"{where}: {'; '.join(problems)}")
    for key in sorted(keys):
        if key in FLAGS_ONLY:
            raise ConfigError(f"{where}: {_not_in_files(key, key)}")
        if key not in KEYS:
            there = ", ".join(name for name in KEYS if name not in FLAGS_ONLY)
            raise ConfigError(f'{where}: unknown field "{key}"; valid fields: {there}')
    try:
        given = {key: value for key, value in keys.items() if value is not None}
        return {key: convert_field(value, KEYS[key][1], key) for key, value in given.items()}
    except InputError as error:
        raise ConfigError(f"{where}: {error}") from None


def _suggest_spelling(key: str) -> str:
    """Return a message for a key that differs from a valid one only by case."""
    if key in KEYS or key == "apiVersion":
        return ""
    meant = next((name for name in ("apiVersion", *KEYS) if name.lower() == key.lower()), "")
    if not meant:
        return ""
    if meant in FLAGS_ONLY:
        return _not_in_files(key, meant)
    return f'field "{key}" is spelled differently from the schema; use "{meant}"'


def _not_in_files(key: str, meant: str) -> str:
    return f'field "{key}" is not configurable via the config file; use --{_flag_of(meant)} instead'


_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")


def _read_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Read the values of flags by key; numbers and booleans may be strings, as Go reads them."""
    found = {}
    for flag, value in flags.items():
        if value is None:
            continue
        key = FLAGS.get(flag)
        if key is None:
            raise ConfigError(f"--{flag}: unknown flag; valid flags: --{', --'.join(sorted(FLAGS))}")
        wanted = KEYS[key][1]
        if wanted is bool and value in _TRUE + _FALSE:
            value = value in _TRUE
        elif (
            wanted in (Count, MinShared)
            and isinstance(value, str)
            and re.fullmatch(r"[0-9]{1,6}", value, re.ASCII)
        ):
            value = int(value)
        found[key] = read_flag(value, wanted, f"--{flag}")
    return found


def _merge_keys(keys: dict[str, Any], where: str) -> dict[str, Any]:
    """Merge alternative keys of one setting into one, so that a flag overrides either."""
    found = dict(keys)
    if "reservedCPUs" in found and "reservedCPUCount" in found:
        raise ConfigError(f"{where}: set reservedCPUs or reservedCPUCount, not both")
    for key in ("reservedCPUs", "reservedCPUCount"):
        if key in found:
            found["reserved"] = found.pop(key)
    publish = found.pop("publishNodeAllocatableResourceMapping", None)
    form = found.pop("nodeAllocatableForm", None)
    if publish is not None and form is not None and publish is (form is MappingChoice.OFF):
        shown = "true" if publish else "false"
        raise ConfigError(
            f"{where}: publishNodeAllocatableResourceMapping is {shown} and nodeAllocatableForm {form}: "
            "remove one of them"
        )
    if form is not None:
        found["mapping"] = form
    elif publish is not None:
        found["mapping"] = MappingChoice.AUTO if publish else MappingChoice.OFF
    return found


def _build(found: Mapping[str, Any], hostname: str) -> CpuSettings:
    """Build the settings and check combinations of values."""
    given = {attribute: found[key] for key, (attribute, _) in KEYS.items() if found.get(key) is not None}
    given |= {name: found[name] for name in ("reserved", "mapping") if name in found}
    pin = {name.removeprefix("pin."): given.pop(name) for name in list(given) if name.startswith("pin.")}
    given["node"] = _node(given.get("node") or hostname)
    if "mode" in given:
        given["mode"] = _choose(DeviceMode, given["mode"], "cpuDeviceMode")
    group_by = given.pop("group_by", None)
    if group_by is not None and given.get("mode") is not DeviceMode.INDIVIDUAL:
        given["group_by"] = _choose(GroupBy, group_by, "groupBy")  # in other modes not checked, as in Go
    if "kubelet_root" in given:
        given["kubelet_root"] = _kubelet_root(given["kubelet_root"])
    return CpuSettings(**given, pin=PinSettings(**pin))


def _choose(kind: type[E], value: str, key: str) -> E:
    try:
        return kind(value)
    except ValueError:
        words = [f'"{word}"' for word in kind]
        listed = f"{', '.join(words[:-1])}, or {words[-1]}" if len(words) > 2 else " or ".join(words)
        raise ConfigError(f'cannot validate config: invalid {key} "{value}": must be {listed}') from None


def _node(name: str) -> str:
    node = name.strip().lower()
    if not node:
        raise ConfigError(
            "can not obtain the node name, use the hostname-override flag if you want to set it to a "
            "specific value: empty hostname is invalid"
        )
    return node


def _kubelet_root(text: str) -> Path:
    if not text:
        raise ConfigError("cannot validate config: invalid kubeletRootDir: must not be empty")
    root = posixpath.normpath(text)
    root = f"/{root.lstrip('/')}" if root.startswith("/") else root
    if not root.startswith("/"):
        raise ConfigError(
            f'cannot validate config: invalid kubeletRootDir "{root}": must be an absolute path'
        )
    longest = posixpath.join(root, "plugins_registry", f"{DRIVER_NAME}-reg.sock")
    length, own = len(longest.encode()), len(root.encode())
    if length > MAX_PATH_LENGTH:
        raise ConfigError(
            f'kubelet registrar socket path "{longest}" is {length} bytes, over the {MAX_PATH_LENGTH}-byte '
            f"limit for a Unix socket path: kubeletRootDir has {MAX_PATH_LENGTH - length + own} bytes to "
            f"spend and is using {own}"
        )
    return Path(root)


# -- values


def _read_text(value: Any) -> str:
    if not isinstance(value, str | Path):
        raise InputError(f"must be a string, not {format_value(value)}; write it in quotes")
    if any(not letter.isprintable() for letter in str(value)):
        raise InputError(f"must be a string without control characters, not {format_value(value)}")
    return str(value)


def _read_path(value: Any) -> Path | None:
    return Path(text) if (text := _read_text(value)) else None


def _cpu_list(what: str) -> Callable[[Any], CpuSet]:
    def read(value: Any) -> CpuSet:
        if isinstance(value, CpuSet):
            return value
        if not isinstance(value, str):
            raise InputError(
                f'must be a list of CPUs in quotes such as "0-1,8", not {format_value(value)}; '
                "for a number of CPUs use reservedCPUCount or minSharedCPUs"
            )
        try:
            return CpuSet.parse(value)
        except InputError as error:
            raise InputError(f"failed to parse {what} CPUs: {error}") from None

    return read


def _read_count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 999_999:
        raise InputError(f"must be a number of CPUs, 0 or more, not {format_value(value)}")
    return value


def _read_min_shared(value: Any) -> int | None:
    if value == "auto":
        return None
    try:
        return _read_count(value)
    except InputError:
        raise InputError(f"must be auto or a number of CPUs, 0 or more, not {format_value(value)}") from None


_PUSHES: dict[str, bool | None] = {"auto": None, "always": True, "never": False}


def _read_push(value: Any) -> bool | None:
    if not isinstance(value, str) or value not in _PUSHES:
        raise InputError(f"must be auto, always or never, not {format_value(value)}")
    return _PUSHES[value]


Text: TypeAlias = Annotated[str, _read_text]
Count: TypeAlias = Annotated[int, _read_count]
MinShared: TypeAlias = Annotated[int | None, _read_min_shared]
_OptionalPath: TypeAlias = Annotated[Path, _read_path]

#: Every key with its attribute in CpuSettings and its type, in the order in which keys are listed.
KEYS: dict[str, tuple[str, Any]] = {
    "cpuDeviceMode": ("mode", Text),
    "groupBy": ("group_by", Text),
    "reservedCPUs": ("reserved", Annotated[CpuSet, _cpu_list("reserved")]),
    "reservedCPUCount": ("reserved", Count),
    "minSharedCPUs": ("min_shared", MinShared),
    "sharedCPUs": ("shared", Annotated[CpuSet, _cpu_list("shared")]),
    "hostnameOverride": ("node", Text),
    "kubeconfig": ("kubeconfig", Text),
    "sysfsOverlay": ("overlay", _OptionalPath),
    "publishNodeAllocatableResourceMapping": ("mapping", bool),
    "nodeAllocatableForm": ("mapping", MappingChoice),
    "overhead": ("overhead", CpuOverhead),
    "requestPolicy": ("policy", RequestPolicy),
    "assignment": ("assign", AssignOptions),
    "enforcement": ("pin.enforcement", PinEnforcement),
    "memoryNodes": ("pin.mems", bool),
    "liftCFSQuota": ("pin.lift_quota", bool),
    "exclusivePlusShared": ("pin.include_shared", bool),
    "shareAcrossPods": ("pin.across_pods", bool),
    "shareAcrossContainers": ("pin.across_containers", bool),
    "allowEmptySharedPool": ("pin.empty_pool", bool),
    "requestsApart": ("pin.per_request_cpus", bool),
    "updateRunning": ("pin.push", Annotated[bool | None, _read_push]),
    "failClosed": ("pin.fail_closed", bool),
    "reportCPUs": ("report_cpus", bool),
    "hostRoot": ("host_root", _OptionalPath),
    "cdiDir": ("cdi", _OptionalPath),
    "nriSocket": ("nri", _OptionalPath),
    "bindAddress": ("bind_address", Text),
    "certDir": ("cert_dir", _OptionalPath),
    "exposePCIeRoots": ("pcie_roots", bool),
    "kubeletRootDir": ("kubelet_root", Text),
}
#: Keys that are not valid in a file.
FLAGS_ONLY = ("bindAddress", "certDir", "exposePCIeRoots", "kubeletRootDir")
_NESTED = ("overhead", "requestPolicy", "assignment")


def _flag_of(key: str) -> str:
    """Return the flag of a key: liftCFSQuota -> lift-cfs-quota."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})", "-", key).lower()


#: Flags with the keys they override; keys with nested values have none.
FLAGS: dict[str, str] = {_flag_of(key): key for key in KEYS if key not in _NESTED}


def dump_settings(settings: CpuSettings) -> dict[str, Any]:
    """Return all effective settings by key."""
    found = {key: _dump(attrgetter(attribute)(settings)) for key, (attribute, _) in KEYS.items()}
    del found["publishNodeAllocatableResourceMapping"]
    del found["reservedCPUCount" if isinstance(settings.reserved, CpuSet) else "reservedCPUs"]
    found["sysfsOverlay"] = str(settings.overlay or "")
    found["certDir"] = str(settings.cert_dir or "")
    found["updateRunning"] = next(word for word, push in _PUSHES.items() if push is settings.pin.push)
    if settings.min_shared is None:
        found["minSharedCPUs"] = "auto"
    found["requestPolicy"].setdefault("default", "all")
    return found


def _dump(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        kind: Any = type(value)
        fields = {name: getattr(value, each.name) for name, each in config_fields(kind).items()}
        return {name: _dump(each) for name, each in fields.items() if each is not None}
    if isinstance(value, StrEnum):
        return value.value
    return value if isinstance(value, int | bool) else str(value)
