"""CDI specification: fields, the version each of them requires, and validation.

See docs/spec/node-protocols.md, "CDI". Unknown fields are rejected when a file is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta, field

from plimsoll.protocols.cdi.names import check_device, check_env, check_kind

#: Supported versions, oldest first.
VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")

HOOKS = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
_NODE_TYPES = ("", "b", "c", "u", "p")

_U32 = Annotated[int, Meta(ge=0, le=2**32 - 1)]
_I64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Struct that rejects unknown fields and omits empty ones."""


class DeviceNode(_Part, frozen=True, kw_only=True):
    path: str
    host_path: str = field(default="", name="hostPath")
    type: str = ""
    major: _I64 = 0
    minor: _I64 = 0
    file_mode: _U32 | None = field(default=None, name="fileMode")
    permissions: str = ""
    uid: _U32 | None = None
    gid: _U32 | None = None


class Mount(_Part, frozen=True, kw_only=True):
    host_path: str = field(name="hostPath")
    container_path: str = field(name="containerPath")
    options: tuple[str, ...] = ()
    type: str = ""


class Hook(_Part, frozen=True, kw_only=True):
    hook_name: str = field(name="hookName")
    path: str
    args: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    timeout: _I64 | None = None


class IntelRdt(_Part, frozen=True, kw_only=True):
    clos_id: str = field(default="", name="closID")
    l3_cache_schema: str = field(default="", name="l3CacheSchema")
    mem_bw_schema: str = field(default="", name="memBwSchema")
    schemata: tuple[str, ...] = ()
    enable_monitoring: bool = field(default=False, name="enableMonitoring")


class NetDevice(_Part, frozen=True, kw_only=True):
    host_interface_name: str = field(name="hostInterfaceName")
    name: str


class Edits(_Part, frozen=True, kw_only=True):
    """Container edits."""

    env: tuple[str, ...] = ()
    device_nodes: tuple[DeviceNode, ...] = field(default=(), name="deviceNodes")
    net_devices: tuple[NetDevice, ...] = field(default=(), name="netDevices")
    hooks: tuple[Hook, ...] = ()
    mounts: tuple[Mount, ...] = ()
    intel_rdt: IntelRdt | None = field(default=None, name="intelRdt")
    additional_gids: tuple[_U32, ...] = field(default=(), name="additionalGids")

    def __bool__(self) -> bool:
        return self != _NOTHING

    def plus(self, other: Edits) -> Edits:
        """Return these edits followed by others."""
        return Edits(
            env=self.env + other.env,
            device_nodes=self.device_nodes + other.device_nodes,
            net_devices=self.net_devices + other.net_devices,
            hooks=self.hooks + other.hooks,
            mounts=self.mounts + other.mounts,
            intel_rdt=other.intel_rdt or self.intel_rdt,
            additional_gids=self.additional_gids + other.additional_gids,
        )

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment; the last entry of a name wins."""
        return {name: value for name, _, value in (entry.partition("=") for entry in self.env)}


_NOTHING = Edits()


class CdiSpecDevice(_Part, frozen=True, kw_only=True):
    name: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    edits: Edits = field(default=_NOTHING, name="containerEdits")


class CdiSpec(_Part, frozen=True, kw_only=True):
    """CDI file."""

    version: str = field(name="cdiVersion")
    kind: str
    annotations: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[CdiSpecDevice, ...] = ()
    edits: Edits = field(default=_NOTHING, name="containerEdits")


def needed_version(spec: CdiSpec) -> str:
    """Return the oldest version that has all fields in use."""
    return max((version for version, _ in _uses(spec)), key=VERSIONS.index, default=VERSIONS[0])


def check_spec(spec: CdiSpec) -> tuple[str, ...]:
    """Return all validation errors of a file, each with its field."""
    return tuple(_findings(spec))


def _uses(spec: CdiSpec) -> Iterator[tuple[str, str]]:
    """Yield (version, field) for everything newer than the first version."""
    if spec.annotations:
        yield "0.6.0", "annotations"
    if "." in spec.kind.partition("/")[2]:
        yield "0.6.0", "kind"
    for where, device in _devices(spec):
        if device.annotations:
            yield "0.6.0", f"{where}.annotations"
        if device.name[:1] in tuple("0123456789"):
            yield "0.5.0", f"{where}.name"
    for where, edits in _all_edits(spec):
        for index, node in enumerate(edits.device_nodes):
            if node.host_path:
                yield "0.5.0", f"{where}.deviceNodes[{index}].hostPath"
        for index, mount in enumerate(edits.mounts):
            if mount.type:
                yield "0.4.0", f"{where}.mounts[{index}].type"
        if edits.additional_gids:
            yield "0.7.0", f"{where}.additionalGids"
        if edits.intel_rdt is not None:
            yield "0.7.0", f"{where}.intelRdt"
            if edits.intel_rdt.schemata or edits.intel_rdt.enable_monitoring:
                yield "1.1.0", f"{where}.intelRdt"
        if edits.net_devices:
            yield "1.1.0", f"{where}.netDevices"


def _devices(spec: CdiSpec) -> Iterator[tuple[str, CdiSpecDevice]]:
    return ((f"devices[{index}]", device) for index, device in enumerate(spec.devices))


def _all_edits(spec: CdiSpec) -> Iterator[tuple[str, Edits]]:
    for where, device in _devices(spec):
        yield f"{where}.containerEdits", device.edits
    yield "containerEdits", spec.edits


def _findings(spec: CdiSpec) -> Iterator[str]:
    version = spec.version.removeprefix("v")
    if version not in VERSIONS:
        yield f"cdiVersion: invalid version {spec.version!r}: known are {', '.join(VERSIONS)}"
    else:
        for needed, where in _uses(spec):
            if VERSIONS.index(needed) > VERSIONS.index(version):
                yield f"cdiVersion: the spec version must be at least v{needed} for {where}"
    if problem := check_kind(spec.kind):
        yield f"kind: {problem}"
    if not spec.devices:
        yield "devices: invalid spec, no devices"
    seen: set[str] = set()
    for where, device in _devices(spec):
        if problem := check_device(device.name):
            yield f"{where}.name: {problem}"
        if device.name in seen:
            yield f"{where}.name: invalid spec, multiple device {device.name!r}"
        seen.add(device.name)
        if not device.edits:
            yield f"{where}.containerEdits: invalid device, empty device edits"
    for where, edits in _all_edits(spec):
        for problem in _edit_findings(edits):
            yield f"{where}.{problem}"


def _edit_findings(edits: Edits) -> Iterator[str]:
    for index, entry in enumerate(edits.env):
        if problem := check_env(entry):
            yield f"env[{index}]: {problem}"
    for index, node in enumerate(edits.device_nodes):
        where = f"deviceNodes[{index}]"
        if not node.path:
            yield f"{where}.path: invalid (empty) device path"
        if node.type not in _NODE_TYPES:
            yield f"{where}.type: device {node.path!r}: invalid type {node.type!r}"
        if node.permissions not in ("", "none") and node.permissions.strip("rwm"):
            yield f"{where}.permissions: device {node.path!r}: invalid permissions {node.permissions!r}"
    for index, mount in enumerate(edits.mounts):
        if not mount.host_path:
            yield f"mounts[{index}].hostPath: invalid mount, empty host path"
        if not mount.container_path:
            yield f"mounts[{index}].containerPath: invalid mount, empty container path"
    for index, hook in enumerate(edits.hooks):
        if hook.hook_name not in HOOKS:
            yield f"hooks[{index}].hookName: invalid hook name {hook.hook_name!r}"
        if not hook.path:
            yield f"hooks[{index}].path: invalid hook {hook.hook_name!r} with empty path"
        for entry in hook.env:
            if problem := check_env(entry):
                yield f"hooks[{index}].env: invalid hook {hook.hook_name!r}: {problem}"
    if edits.intel_rdt is not None:
        clos = edits.intel_rdt.clos_id
        if clos != "/" and (len(clos) >= 4096 or clos in (".", "..") or "/" in clos or "\n" in clos):
            yield "intelRdt.closID: invalid ClosID"
    yield from _net_findings(edits)


def _net_findings(edits: Edits) -> Iterator[str]:
    for name, texts in (
        ("hostInterfaceName", [device.host_interface_name for device in edits.net_devices]),
        ("name", [device.name for device in edits.net_devices]),
    ):
        for index, text in enumerate(texts):
            if not text:
                yield f"netDevices[{index}].{name}: invalid linux net device, it is empty"
            elif text in texts[:index]:
                yield f"netDevices[{index}].{name}: invalid linux net device, duplicate {text!r}"
