"""Feature gates, with their dependencies and aliases (docs/spec/api.md, "Dropping of gated fields").

The gates of Kubernetes 1.36 are all enabled by default, including alpha gates, because the KEPs describe the
system with them; only StorageCapacityScoring, which changes nothing but scores, is not. The gates that 1.37
added have its defaults. Plimsoll's own gates, which choose between the KEPs' text and upstream's behavior,
have defaults of their own. Each gate can be switched, and inconsistent sets are rejected.

DIFF: upstream defaults alpha gates to off and locks some gates on; here every gate of 1.36 but that one is
on and can be disabled (test_every_upstream_gate_is_on_and_switchable).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from plimsoll.errors import GateError


@dataclass(frozen=True, slots=True)
class Gate:
    """One feature gate: its purpose, its default in Kubernetes, and the gates it requires."""

    name: str
    about: str
    upstream_default: bool | None  #: None: a gate of Plimsoll's own
    needs: tuple[str, ...] = ()
    default: bool = True
    since: str = "1.36"  #: release whose default `upstream_default` is


_DRA = ("DynamicResourceAllocation",)
_CHARGES = (*_DRA, "DRANodeAllocatableResources")

GATES: tuple[Gate, ...] = (
    Gate("DynamicResourceAllocation", "resource claims in pods", True),
    Gate("DRANodeAllocatableResources", "devices charge node resources; the unified ledger", False, _DRA),
    Gate(
        "DRANodeAllocatableResourcesQoS",
        "claims count in QoS classes, CPU weights and memory protection",
        None,
        _CHARGES,
        default=False,
    ),
    Gate(
        "DRANodeAllocatableResourcesQuota",
        "quotas count what claims charge",
        None,
        _CHARGES,
        default=False,
    ),
    Gate("DRAConsumableCapacity", "devices shared by many claims, capacity requests", True, _DRA),
    Gate("DRAPartitionableDevices", "shared counters, per-device node selection", True, _DRA),
    Gate("DRAPrioritizedList", "firstAvailable requests", True, _DRA),
    Gate("DRADeviceTaints", "taints on devices, tolerations in requests", True, _DRA),
    Gate("DRADeviceTaintRules", "taints by DeviceTaintRule", False, (*_DRA, "DRADeviceTaints")),
    Gate("DRAAdminAccess", "admin access requests", True, _DRA),
    Gate("DRAResourceClaimDeviceStatus", "status.devices of claims", True, _DRA),
    Gate(
        "DRADeviceBindingConditions",
        "devices that must be ready before binding",
        True,
        (*_DRA, "DRAResourceClaimDeviceStatus"),
    ),
    Gate(
        "DRAResourceClaimGranularStatusAuthorization",
        "permissions for single parts of a claim's status",
        True,
        (*_DRA, "DRAResourceClaimDeviceStatus"),
    ),
    Gate("DRAListTypeAttributes", "attributes that are lists", False, _DRA),
    Gate("DRAResourcePoolStatus", "ResourcePoolStatusRequest", False, _DRA),
    Gate(
        "DRADeviceCompatibilityGroups",
        "partitions that can be used together",
        False,
        (*_DRA, "DRAPartitionableDevices"),
        default=False,
        since="1.37",
    ),
    Gate(
        "DRADerivedAttributes",
        "attributes computed by claims, for constraints",
        False,
        _DRA,
        default=False,
        since="1.37",
    ),
    Gate(
        "DRAFractionalCapacityRange",
        "request policies with fractional ranges",
        True,
        (*_DRA, "DRAConsumableCapacity"),
        default=False,
        since="1.37",
    ),
    Gate(
        "DRAOptionalNodeOperations",
        "devices that nodes need not prepare",
        False,
        _DRA,
        default=False,
        since="1.37",
    ),
    Gate(
        "DRAPartitionableDevicesType",
        "names of partition types in slices",
        False,
        (*_DRA, "DRAPartitionableDevices", "DRAResourcePoolStatus"),
        default=False,
        since="1.37",
    ),
    Gate("DRAExtendedResource", "extended resources served by devices", True, _DRA),
    Gate("GenericWorkload", "Workload and PodGroup; spec.schedulingGroup of pods", False),
    Gate("GangScheduling", "PodGroups scheduled all or nothing", False, ("GenericWorkload",)),
    Gate(
        "TopologyAwareWorkloadScheduling",
        "PodGroups within one topology domain",
        False,
        ("GenericWorkload",),
    ),
    Gate(
        "WorkloadAwarePreemption",
        "priority and disruption mode of PodGroups; preemption for a whole gang",
        False,
        ("GangScheduling",),
    ),
    Gate(
        "DRAWorkloadResourceClaims",
        "claims shared by the pods of a PodGroup",
        False,
        (*_DRA, "GenericWorkload"),
    ),
    Gate("StorageCapacityScoring", "scores nodes by the size of volumes", False, default=False),
    Gate("PodLevelResources", "spec.resources of pods", True),
    Gate("InPlacePodVerticalScaling", "resize of running pods", True),
    Gate(
        "InPlacePodLevelResourcesVerticalScaling",
        "resize of spec.resources",
        True,
        ("PodLevelResources", "InPlacePodVerticalScaling"),
    ),
    Gate("KubeletPodResourcesGet", "Get in the PodResources API", True),
    Gate("KubeletPodResourcesDynamicResources", "claims in the PodResources API", True, _DRA),
    Gate(
        "SharedClaimCharges",
        "pods share claims under AddPerClaim; the node is charged once",
        None,
        (*_DRA, "DRANodeAllocatableResources"),
        default=False,
    ),
)

#: Names under which a gate was known in earlier drafts.
ALIASES: Mapping[str, str] = {"DRANativeResources": "DRANodeAllocatableResources"}

#: Gates of objects' fields: the first minor release that has them, and the one that enables them by default.
_RELEASES: Mapping[str, tuple[int, int | None]] = {
    "DynamicResourceAllocation": (26, 34),
    "DRANodeAllocatableResources": (36, None),
    "DRAConsumableCapacity": (34, 36),
    "DRAPartitionableDevices": (33, 36),
    "DRAPrioritizedList": (33, 34),
    "DRADeviceTaints": (33, 36),
    "DRADeviceTaintRules": (33, None),
    "DRAAdminAccess": (32, 34),
    "DRAResourceClaimDeviceStatus": (32, 33),
    "DRADeviceBindingConditions": (34, 36),
    "DRAListTypeAttributes": (36, None),
    "DRAResourcePoolStatus": (36, None),
    "DRAExtendedResource": (34, 36),
    "GenericWorkload": (35, None),
    "GangScheduling": (35, None),
    "TopologyAwareWorkloadScheduling": (36, None),
    "WorkloadAwarePreemption": (36, None),
    "DRAWorkloadResourceClaims": (36, None),
    "PodLevelResources": (32, 34),
    **{gate.name: (37, 37 if gate.upstream_default else None) for gate in GATES if gate.since == "1.37"},
}

_BY_NAME = {gate.name: gate for gate in GATES}
_NAMES = frozenset(_BY_NAME)
_DEFAULT_ON = frozenset(gate.name for gate in GATES if gate.default)


@dataclass(frozen=True, slots=True)
class Gates:
    """A consistent set of enabled gates."""

    on: frozenset[str] = _DEFAULT_ON

    @staticmethod
    def default() -> Gates:
        return _DEFAULT

    @staticmethod
    def upstream() -> Gates:
        """Return the defaults of Kubernetes 1.36."""
        return Gates(frozenset(gate.name for gate in GATES if gate.upstream_default and gate.since == "1.36"))

    @staticmethod
    def of_release(minor: int, *, available: bool = False) -> Gates:
        """Return the gates of fields that Kubernetes 1.`minor` enables by default, or those it has."""
        releases = ((name, since if available else default) for name, (since, default) in _RELEASES.items())
        return Gates(frozenset(name for name, first in releases if first is not None and first <= minor))

    def without_newer(self) -> Gates:
        """Return these gates as far as Kubernetes 1.36 has them."""
        return Gates(self.on - {gate.name for gate in GATES if gate.since != "1.36"})

    @staticmethod
    def of(switches: Mapping[str, bool], start: Gates | None = None) -> Gates:
        """Return the default gates (or `start`) with these settings applied.

        Disabling a gate disables the gates that require it, unless one of those was explicitly enabled: that
        is a GateError, as is an unknown name or an alias that contradicts its gate.
        """
        asked: dict[str, bool] = {}
        for given, value in switches.items():
            name = ALIASES.get(given, given)
            if name not in _NAMES:
                raise GateError(f"unknown feature gate {given!r}; known gates: {', '.join(sorted(_NAMES))}")
            if asked.setdefault(name, value) != value:
                raise GateError(f"feature gate {name} is both enabled and disabled (also called {given})")
        on = set((start or _DEFAULT).on)
        on |= {name for name, value in asked.items() if value}
        on -= {name for name, value in asked.items() if not value}
        while broken := [g for g in GATES if g.name in on and not on.issuperset(g.needs)]:
            for gate in broken:
                missing = next(name for name in gate.needs if name not in on)
                if asked.get(gate.name):
                    raise GateError(f"feature gate {gate.name} requires {missing}; enable {missing} too")
                on.discard(gate.name)
        return Gates(frozenset(on))

    @staticmethod
    def parse(text: str, start: Gates | None = None) -> Gates:
        """Parse `Name=true,Other=false`, the command-line form of Kubernetes components."""
        switches: dict[str, bool] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            name, equals, value = part.partition("=")
            if not equals or value.strip().lower() not in ("true", "false"):
                raise GateError(f"{part!r} is not a feature gate setting; write Name=true or Name=false")
            switches[name.strip()] = value.strip().lower() == "true"
        return Gates.of(switches, start)

    def enabled(self, name: str) -> bool:
        name = ALIASES.get(name, name)
        if name not in _NAMES:
            raise GateError(f"unknown feature gate {name!r}")
        return name in self.on

    def __iter__(self) -> Iterator[tuple[Gate, bool]]:
        return ((gate, gate.name in self.on) for gate in GATES)


_DEFAULT = Gates()
