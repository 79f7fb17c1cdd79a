"""Driver settings from a configuration file and from flags.

`read_settings` merges defaults, file and flags, in increasing priority. Keys, flags, rules and messages are
the Go driver's where it has them (docs/spec/cpu-driver.md, "Configuration"), so that its files can be used;
flags of the other keys are the same words with dashes. Unknown or misspelled keys, and keys that are only
valid as flags, are errors that name the fix.

DIFF: node resource mappings are published wherever the API server supports them, unless a file sets
`publishNodeAllocatableResourceMapping: false`; in the Go driver they are off
(test_mapping_is_automatic_and_a_file_that_reports_no_is_obeyed).
"""

from __future__ import annotations

import posixpath
import re
import socket
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from plimsoll.api.cpuset import CpuSet
from plimsoll.api.quantity import Number, Quantity
from plimsoll.common.config_file import ConfigSection, read_document
from plimsoll.drivers.cpu.allocation import Algorithm, AssignOptions, Sorting
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

API_VERSION = "v1alpha1"
#: Maximum length of a Unix socket path, in bytes.
SOCKET_PATH_MAX = 107

E = TypeVar("E", bound=StrEnum)
_DEFAULTS = CpuSettings(node="")

#: Keys that are not valid in a file, with their flags.
FLAGS_ONLY = {
    "bindAddress": "bind-address",
    "exposePCIeRoots": "expose-pcie-roots",
    "kubeletRootDir": "kubelet-root-dir",
}


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
    for key, value in _merge_keys(_read_flags(flags or {}), "flags").items():
        found[key] = value
    return _build(found, socket.gethostname() if hostname is None else hostname)


def _read_file(path: Path) -> dict[str, Any]:
    """Read the values of a file by key."""
    where = f"cannot apply {path}"
    tree = read_document(path, "configuration of the CPU driver")
    if not isinstance(tree, Mapping):
        raise ConfigError(f"{where}: must be a mapping of settings, not {_format_value(tree)}")
    keys = {str(key): value for key, value in tree.items()}
    version = keys.get("apiVersion", API_VERSION)
    if version != API_VERSION:
        shown = version if isinstance(version, str) else ""
        raise ConfigError(f'{where}: unsupported apiVersion "{shown}", want "{API_VERSION}"')
    keys.pop("apiVersion", None)
    problems = [problem for key in sorted(keys) if (problem := _suggest_spelling(key))]
    if problems:
        raise ConfigError(f"{where}: {'; '.join(problems)}")
    for key in sorted(FLAGS_ONLY):
        if key in keys:
            raise ConfigError(f"{where}: {_not_in_files(key, key)}")
    for key in sorted(keys):
        if key not in _READERS:
            there = ", ".join(name for name in _READERS if name not in FLAGS_ONLY)
            raise ConfigError(f'{where}: unknown field "{key}"; valid fields: {there}')
    return {
        key: _READERS[key](value, f"{where}: {key}", False)
        for key, value in keys.items()
        if value is not None
    }


def _suggest_spelling(key: str) -> str:
    """Return a message for a key that differs from a valid one only by case."""
    if key in _READERS or key == "apiVersion":
        return ""
    meant = next((name for name in ("apiVersion", *_READERS) if name.lower() == key.lower()), "")
    if not meant:
        return ""
    if meant in FLAGS_ONLY:
        return _not_in_files(key, meant)
    return f'field "{key}" is spelled differently from the schema; use "{meant}"'


def _not_in_files(key: str, meant: str) -> str:
    return f'field "{key}" is not configurable via the config file; use --{FLAGS_ONLY[meant]} instead'


def _read_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Read the values of flags by key."""
    found = {}
    for flag, value in flags.items():
        if value is None:
            continue
        key = FLAGS.get(flag)
        if key is None:
            raise ConfigError(f"--{flag}: unknown flag; valid flags: --{', --'.join(sorted(FLAGS))}")
        found[key] = _READERS[key](value, f"--{flag}", True)
    return found


def _merge_keys(keys: dict[str, Any], where: str) -> dict[str, Any]:
    """Merge alternative keys of one setting into one, so that a flag overrides either."""
    found = dict(keys)
    if "reservedCPUs" in found and "reservedCPUCount" in found:
        raise ConfigError(f"{where}: give reservedCPUs or reservedCPUCount, not both")
    for key in ("reservedCPUs", "reservedCPUCount"):
        if key in found:
            found["reserved"] = found.pop(key)
    publish = found.pop("publishNodeAllocatableResourceMapping", None)
    form = found.pop("nodeAllocatableForm", None)
    if publish is not None and form is not None and publish is (form is MappingChoice.OFF):
        shown = "true" if publish else "false"
        raise ConfigError(
            f"{where}: publishNodeAllocatableResourceMapping is {shown} and nodeAllocatableForm {form}: "
            "take out one of them"
        )
    if form is not None:
        found["mapping"] = form
    elif publish is not None:
        found["mapping"] = MappingChoice.AUTO if publish else MappingChoice.OFF
    return found


def _build(found: Mapping[str, Any], hostname: str) -> CpuSettings:
    """Build the settings and check combinations of values."""
    mode = _choose(DeviceMode, found.get("cpuDeviceMode", _DEFAULTS.mode), "cpuDeviceMode")
    group_by = _DEFAULTS.group_by
    if mode is DeviceMode.GROUPED:  # otherwise unused, and not checked by the Go driver
        group_by = _choose(GroupBy, found.get("groupBy", group_by), "groupBy")
    return CpuSettings(
        node=_node(found.get("hostnameOverride", "") or hostname),
        mode=mode,
        group_by=group_by,
        reserved=found.get("reserved", _DEFAULTS.reserved),
        min_shared=found.get("minSharedCPUs", _DEFAULTS.min_shared),
        shared=found.get("sharedCPUs", _DEFAULTS.shared),
        mapping=found.get("mapping", _DEFAULTS.mapping),
        overhead=found.get("overhead", _DEFAULTS.overhead),
        policy=found.get("requestPolicy", _DEFAULTS.policy),
        pcie_roots=found.get("exposePCIeRoots", _DEFAULTS.pcie_roots),
        assign=found.get("assignment", _DEFAULTS.assign),
        pin=PinSettings(
            enforcement=found.get("enforcement", _DEFAULTS.pin.enforcement),
            mems=found.get("memoryNodes", _DEFAULTS.pin.mems),
            lift_quota=found.get("liftCFSQuota", _DEFAULTS.pin.lift_quota),
            include_shared=found.get("exclusivePlusShared", _DEFAULTS.pin.include_shared),
            across_pods=found.get("shareAcrossPods", _DEFAULTS.pin.across_pods),
            per_request_cpus=found.get("requestsApart", _DEFAULTS.pin.per_request_cpus),
            push=found.get("updateRunning", _DEFAULTS.pin.push),
            fail_closed=found.get("failClosed", _DEFAULTS.pin.fail_closed),
        ),
        host_root=Path(found.get("hostRoot") or _DEFAULTS.host_root),
        overlay=Path(found["sysfsOverlay"]) if found.get("sysfsOverlay") else None,
        kubelet_root=_kubelet_root(found.get("kubeletRootDir", str(_DEFAULTS.kubelet_root))),
        cdi=Path(found.get("cdiDir") or _DEFAULTS.cdi),
        nri=Path(found.get("nriSocket") or _DEFAULTS.nri),
        kubeconfig=found.get("kubeconfig", _DEFAULTS.kubeconfig),
        bind_address=found.get("bindAddress", _DEFAULTS.bind_address),
        report_cpus=found.get("reportCPUs", _DEFAULTS.report_cpus),
    )


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
    if length > SOCKET_PATH_MAX:
        raise ConfigError(
            f'kubelet registrar socket path "{longest}" is {length} bytes, over the {SOCKET_PATH_MAX}-byte '
            f"limit for a Unix socket path: kubeletRootDir has {SOCKET_PATH_MAX - length + own} bytes to "
            f"spend and is using {own}"
        )
    return Path(root)


# -- single values: of a file as YAML reads them, of flags as texts, too

_Reader = Callable[[Any, str, bool], Any]


def _text(value: Any, where: str, _: bool) -> str:
    if not isinstance(value, str | Path):
        raise ConfigError(f"{where}: must be a string, not {_format_value(value)}; write it in quotes")
    if any(not letter.isprintable() for letter in str(value)):
        raise ConfigError(f"{where}: must be a string without control characters, not {_format_value(value)}")
    return str(value)


def _word(kind: type[E]) -> _Reader:
    def read(value: Any, where: str, _: bool) -> E:
        # YAML parses `off` as false and 1.36 as a number.
        text = "off" if value is False else value.text if isinstance(value, Number) else value
        if not isinstance(text, str) or text not in list(kind):
            raise ConfigError(f"{where}: must be one of {', '.join(kind)}, not {_format_value(value)}")
        return kind(text)

    return read


def _cpus(what: str) -> _Reader:
    def read(value: Any, where: str, _: bool) -> CpuSet:
        if isinstance(value, CpuSet):
            return value
        if not isinstance(value, str):
            raise ConfigError(
                f'{where}: must be a list of CPUs in quotes such as "0-1,8", not {_format_value(value)}; '
                "for a number of CPUs there are reservedCPUCount and minSharedCPUs"
            )
        try:
            return CpuSet.parse(value)
        except InputError as error:
            raise ConfigError(f"failed to parse {what} CPUs: {error}") from None

    return read


def _count(value: Any, where: str, flag: bool) -> int:
    if flag and isinstance(value, str) and re.fullmatch(r"[0-9]{1,6}", value, re.ASCII):
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= 999_999:
        raise ConfigError(f"{where}: must be a number of CPUs, 0 or more, not {_format_value(value)}")
    return value


_TRUE, _FALSE = ("1", "t", "T", "TRUE", "true", "True"), ("0", "f", "F", "FALSE", "false", "False")


def _flag(value: Any, where: str, flag: bool) -> bool:
    if flag and isinstance(value, str) and value in _TRUE + _FALSE:
        return value in _TRUE
    if not isinstance(value, bool):
        raise ConfigError(f"{where}: must be true or false, not {_format_value(value)}")
    return value


_PUSHES: dict[str, bool | None] = {"auto": None, "always": True, "never": False}


def _push(value: Any, where: str, _: bool) -> bool | None:
    if not isinstance(value, str) or value not in _PUSHES:
        raise ConfigError(f"{where}: must be auto, always or never, not {_format_value(value)}")
    return _PUSHES[value]


def _assignment(value: Any, where: str, _: bool) -> AssignOptions:
    part, default = ConfigSection(value, where), AssignOptions()
    options = AssignOptions(
        algorithm=Algorithm(part.text("algorithm", default.algorithm, choices=Algorithm)),
        sorting=Sorting(part.text("sorting", default.sorting, choices=Sorting)),
        group_size=part.number("groupSize", default.group_size, most=4096),
        align_l3=part.flag("alignL3", default.align_l3),
        full_cores=part.flag("fullCores", default.full_cores),
        quirks=part.flag("quirks", default.quirks),
    )
    part.end()
    return options


def _request_policy(value: Any, where: str, _: bool) -> RequestPolicy:
    part = ConfigSection(value, where)
    publish, default = part.flag("publish", True), part.take("default")
    part.end()
    if default == "all":
        default = None
    if default is not None and (not isinstance(default, int) or isinstance(default, bool) or default < 1):
        raise part.bad("default", f"must be all or a number of CPUs from 1 on, not {_format_value(default)}")
    return RequestPolicy(publish, default)


def _overhead(value: Any, where: str, _: bool) -> CpuOverhead:
    part = ConfigSection(value, where)
    amounts: list[Quantity | None] = []
    for key in ("perPod", "perContainer"):
        given = part.take(key)
        try:
            amount = None if given is None else Quantity.from_json(given)
        except InputError as error:
            raise part.bad(key, str(error)) from None
        if amount is not None and amount.sign() < 0:
            raise part.bad(key, f"must not be negative, not {amount}")
        amounts.append(amount)
    part.end()
    return CpuOverhead(*amounts)


#: Every key with its reader, in the order in which keys are listed.
_READERS: dict[str, _Reader] = {
    "cpuDeviceMode": _text,
    "groupBy": _text,
    "reservedCPUs": _cpus("reserved"),
    "reservedCPUCount": _count,
    "minSharedCPUs": _count,
    "sharedCPUs": _cpus("shared"),
    "hostnameOverride": _text,
    "kubeconfig": _text,
    "sysfsOverlay": _text,
    "publishNodeAllocatableResourceMapping": _flag,
    "nodeAllocatableForm": _word(MappingChoice),
    "overhead": _overhead,
    "requestPolicy": _request_policy,
    "assignment": _assignment,
    "enforcement": _word(PinEnforcement),
    "memoryNodes": _flag,
    "liftCFSQuota": _flag,
    "exclusivePlusShared": _flag,
    "shareAcrossPods": _flag,
    "requestsApart": _flag,
    "updateRunning": _push,
    "failClosed": _flag,
    "reportCPUs": _flag,
    "hostRoot": _text,
    "cdiDir": _text,
    "nriSocket": _text,
    "bindAddress": _text,
    "exposePCIeRoots": _flag,
    "kubeletRootDir": _text,
}

#: Flags with the keys they override; keys with nested values have none.
FLAGS: dict[str, str] = {
    "cpu-device-mode": "cpuDeviceMode",
    "group-by": "groupBy",
    "reserved-cpus": "reservedCPUs",
    "reserved-cpu-count": "reservedCPUCount",
    "min-shared-cpus": "minSharedCPUs",
    "shared-cpus": "sharedCPUs",
    "hostname-override": "hostnameOverride",
    "kubeconfig": "kubeconfig",
    "sysfs-overlay": "sysfsOverlay",
    "publish-node-allocatable-resource-mapping": "publishNodeAllocatableResourceMapping",
    "node-allocatable-form": "nodeAllocatableForm",
    "enforcement": "enforcement",
    "memory-nodes": "memoryNodes",
    "lift-cfs-quota": "liftCFSQuota",
    "exclusive-plus-shared": "exclusivePlusShared",
    "share-across-pods": "shareAcrossPods",
    "requests-apart": "requestsApart",
    "update-running": "updateRunning",
    "fail-closed": "failClosed",
    "report-cpus": "reportCPUs",
    "host-root": "hostRoot",
    "cdi-dir": "cdiDir",
    "nri-socket": "nriSocket",
    **{flag: key for key, flag in FLAGS_ONLY.items()},
}


def dump_settings(settings: CpuSettings) -> dict[str, Any]:
    """Return all effective settings by key."""
    reserved = settings.reserved
    by_list = isinstance(reserved, CpuSet)
    options, pin = settings.assign, settings.pin
    default = settings.policy.default
    return {
        "cpuDeviceMode": settings.mode.value,
        "groupBy": settings.group_by.value,
        "reservedCPUs" if by_list else "reservedCPUCount": str(reserved) if by_list else reserved,
        "minSharedCPUs": settings.min_shared,
        "sharedCPUs": str(settings.shared),
        "hostnameOverride": settings.node,
        "kubeconfig": settings.kubeconfig,
        "sysfsOverlay": str(settings.overlay or ""),
        "nodeAllocatableForm": settings.mapping.value,
        "overhead": {
            key: str(amount)
            for key, amount in (
                ("perPod", settings.overhead.per_pod),
                ("perContainer", settings.overhead.per_container),
            )
            if amount is not None
        },
        "requestPolicy": {
            "publish": settings.policy.publish,
            "default": "all" if default is None else default,
        },
        "assignment": {
            "algorithm": options.algorithm.value,
            "sorting": options.sorting.value,
            "groupSize": options.group_size,
            "alignL3": options.align_l3,
            "fullCores": options.full_cores,
            "quirks": options.quirks,
        },
        "enforcement": pin.enforcement.value,
        "memoryNodes": pin.mems,
        "liftCFSQuota": pin.lift_quota,
        "exclusivePlusShared": pin.include_shared,
        "shareAcrossPods": pin.across_pods,
        "requestsApart": pin.per_request_cpus,
        "updateRunning": next(word for word, push in _PUSHES.items() if push is pin.push),
        "failClosed": pin.fail_closed,
        "reportCPUs": settings.report_cpus,
        "hostRoot": str(settings.host_root),
        "cdiDir": str(settings.cdi),
        "nriSocket": str(settings.nri),
        "bindAddress": settings.bind_address,
        "exposePCIeRoots": settings.pcie_roots,
        "kubeletRootDir": str(settings.kubelet_root),
    }


def _format_value(value: object) -> str:
    text = repr(value.text if isinstance(value, Number) else value)
    return text if len(text) <= 60 else f"{text[:57]}..."
