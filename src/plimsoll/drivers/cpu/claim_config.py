"""Opaque configuration of a claim for its CPUs. Pure.

The parameters are `{apiVersion: v1alpha1, cpuConfig: {...}}` with the keys

    cpuset                                               explicit CPUs, for a device of the whole machine
    algorithm, sorting, groupSize, alignL3, fullCores,
    alignBySocket                                        options of the CPU allocator
    mix                                                  add the shared pool to the containers' cpuset

in the DeviceClass or in the claim. The claim overrides its class, and the class overrides the driver's
settings. The rules for `cpuset` are the Go driver's (docs/spec/cpu-driver.md, "Claim configuration"): it must
be in the claim, once for each request. Errors are returned as `ConfigFault`.

DIFF: without a cpuset the driver chooses the CPUs of a device of the whole machine itself
(test_machine_mode_without_a_cpuset_is_no_fault).

DIFF: a class may set options of the allocator; the Go driver refuses any configuration of a class
(test_the_claims_configuration_overrides_the_classs).

DIFF: unknown keys are refused (test_unknown_keys_are_refused_with_the_fix).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from plimsoll.api.config import config_fields, convert_config, format_value
from plimsoll.api.cpuset import CpuSet
from plimsoll.api.resource import DeviceAllocationConfiguration
from plimsoll.drivers.cpu.allocation import AssignOptions
from plimsoll.drivers.cpu.settings import DRIVER_NAME, CpuSettings, DeviceMode, GroupBy
from plimsoll.drivers.plugin.driver import applies_to
from plimsoll.errors import DecodeError, InputError

API_VERSION = "v1alpha1"
FROM_CLASS = "FromClass"
FROM_CLAIM = "FromClaim"

_KEYS = ("cpuset", "algorithm", "sorting", "groupSize", "alignL3", "fullCores", "alignBySocket", "mix")


class ConfigFaultKind(StrEnum):
    """Kind of configuration error."""

    MALFORMED = "Malformed"
    VERSION = "UnsupportedVersion"
    UNKNOWN_KEY = "UnknownKey"
    BAD_VALUE = "BadValue"
    CLASS_CPUSET = "CpusetOfClass"
    COUNT = "CpusetCount"
    EMPTY_CPUSET = "EmptyCpuset"
    BAD_CPUSET = "BadCpuset"


@dataclass(frozen=True, slots=True)
class ConfigFault:
    """Error in a claim's configuration. `value` is the value found, `count` the number of occurrences."""

    kind: ConfigFaultKind
    request: str
    key: str = ""
    value: str = ""
    count: int = 0
    reason: str = ""

    @property
    def text(self) -> str:
        match self.kind:
            case ConfigFaultKind.MALFORMED:
                return f"failed to unmarshal opaque config: {self.reason}"
            case ConfigFaultKind.VERSION:
                return f'unsupported opaque config apiVersion: "{self.value}"'
            case ConfigFaultKind.UNKNOWN_KEY:
                return f'opaque config: unknown field "{self.key}"; {self.reason}'
            case ConfigFaultKind.BAD_VALUE:
                return f"opaque config: cpuConfig.{self.key} {self.reason}"
            case ConfigFaultKind.CLASS_CPUSET:
                return (
                    "opaque config: configuration from DeviceClass is not supported by this driver, "
                    "custom cpusets must be defined per ResourceClaim request"
                )
            case ConfigFaultKind.COUNT:
                return (
                    f'opaque config: request "{self.request}" is targeted by {self.count} configurations, '
                    "must be targeted by exactly 1"
                )
            case ConfigFaultKind.EMPTY_CPUSET:
                return "opaque config: cpuConfig.cpuset is empty or missing"
            case ConfigFaultKind.BAD_CPUSET:
                return f'opaque config: failed to parse cpuset "{self.value}": {self.reason}'

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ClaimConfig:
    """Allocator options of one request.

    `cpuset`: exactly these CPUs. `include_shared` is None if neither claim nor class sets it.
    """

    options: AssignOptions
    cpuset: CpuSet | None = None
    include_shared: bool | None = None


def read_claim_config(
    configs: Iterable[DeviceAllocationConfiguration], request: str, settings: CpuSettings
) -> ClaimConfig | ConfigFault:
    """Read the configuration of one request (or subrequest, `a/b`) from those of an allocation."""
    mine = [config for config in configs if _applies_to(config, request)]
    # The class first, in any order, so that the claim overrides it.
    mine.sort(key=lambda config: config.source != FROM_CLASS)
    found = ClaimConfig(settings.assign)
    cpusets: list[CpuSet] = []
    for config in mine:
        part = _read(config.opaque.parameters if config.opaque else None, request)
        if isinstance(part, ConfigFault):
            return part
        fault, cpus = _read_cpuset(part, config.source, request, settings)
        if fault is not None:
            return fault
        if cpus is not None:
            cpusets.append(cpus)
        changed = _apply(part, found, request)
        if isinstance(changed, ConfigFault):
            return changed
        found = changed
    if len(cpusets) > 1:
        return ConfigFault(ConfigFaultKind.COUNT, request, count=len(cpusets))
    return replace(found, cpuset=cpusets[0] if cpusets else None)


def _applies_to(config: DeviceAllocationConfiguration, request: str) -> bool:
    """Report whether a configuration is for this driver and request, or for the parent of a subrequest."""
    if config.opaque is None or config.opaque.driver != DRIVER_NAME:
        return False
    return applies_to(config.requests, request)


def _read(parameters: Any, request: str) -> Mapping[str, Any] | ConfigFault:
    """Return the cpuConfig of the parameters after checking its keys."""
    if not isinstance(parameters, Mapping):
        return ConfigFault(
            ConfigFaultKind.MALFORMED, request, reason=f"must be an object, not {format_value(parameters)}"
        )
    version = parameters.get("apiVersion", "")
    if version != API_VERSION:
        return ConfigFault(ConfigFaultKind.VERSION, request, value=str(version)[:80])
    fault = _check_keys(parameters, ("apiVersion", "cpuConfig"), request)
    if fault is not None:
        return fault
    config = parameters.get("cpuConfig")
    if config is None:
        config = {}
    if not isinstance(config, Mapping):
        reason = f"cpuConfig must be an object, not {format_value(config)}"
        return ConfigFault(ConfigFaultKind.MALFORMED, request, reason=reason)
    return _check_keys(config, _KEYS, request) or config


def _check_keys(tree: Mapping[str, Any], known: Sequence[str], request: str) -> ConfigFault | None:
    for key in tree:
        if key in known:
            continue
        meant = next((name for name in known if name.lower() == str(key).lower()), None)
        reason = f'use "{meant}"' if meant else f"valid fields: {', '.join(known)}"
        return ConfigFault(ConfigFaultKind.UNKNOWN_KEY, request, key=str(key)[:80], reason=reason)
    return None


def _read_cpuset(
    part: Mapping[str, Any], source: str, request: str, settings: CpuSettings
) -> tuple[ConfigFault | None, CpuSet | None]:
    """Read the explicit cpuset of a device of the whole machine; other devices ignore it."""
    if settings.mode is not DeviceMode.GROUPED or settings.group_by is not GroupBy.MACHINE:
        return None, None
    value = part.get("cpuset")
    if value is None and any(part.get(key) is not None for key in _KEYS):
        return None, None
    if value is not None and not isinstance(value, str):
        reason = f"cpuConfig.cpuset must be a string, not {format_value(value)}"
        return ConfigFault(ConfigFaultKind.MALFORMED, request, reason=reason), None
    if source != FROM_CLAIM:
        return ConfigFault(ConfigFaultKind.CLASS_CPUSET, request), None
    if not value:
        return ConfigFault(ConfigFaultKind.EMPTY_CPUSET, request), None
    try:
        cpus = CpuSet.parse(value)
    except InputError as error:
        return ConfigFault(ConfigFaultKind.BAD_CPUSET, request, value=value[:80], reason=str(error)), None
    if not cpus:
        return ConfigFault(ConfigFaultKind.EMPTY_CPUSET, request), None
    return None, cpus


def _apply(part: Mapping[str, Any], found: ClaimConfig, request: str) -> ClaimConfig | ConfigFault:
    """Apply the settings of a configuration over those before it."""
    options, fields = found.options, config_fields(AssignOptions)
    for key, value in part.items():
        if value is None or key == "cpuset":
            continue
        try:
            if key == "mix":
                found = replace(found, include_shared=convert_config(value, bool))
            else:
                changed = {fields[key].name: convert_config(value, fields[key].type)}
                options = replace(options, **changed)
        except DecodeError as error:
            return ConfigFault(ConfigFaultKind.BAD_VALUE, request, key=key, reason=error.problem)
    return replace(found, options=options)
