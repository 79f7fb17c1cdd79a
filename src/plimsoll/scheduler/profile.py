"""Scheduler profile: score weights and search limits, from a file or from code.

The defaults are those of kube-scheduler's default profile; a file lists only what differs. An invalid file
raises a `DecodeError` that names the field and the fix.

    schedulerName: plimsoll
    weights: {NodeResourcesFit: 1, TaintToleration: 3, DeviceWaste: 2}
    strategy: MostAllocated
    resources: {cpu: 1, memory: 1, example.com/gpu: 5}
    balanced: [cpu, memory]
    searchSteps: 200000
    explore: 8
    devicePreference: least-waste
    deviceOrder: joint
    scoring: whole-numbers

`kube_config` makes profiles from a KubeSchedulerConfiguration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias, cast

from msgspec import Meta

from plimsoll.allocator import Preference, SearchLimits
from plimsoll.api.codec import convert_strictly
from plimsoll.api.config import NOT_IN_FILE, check_fields, convert_config
from plimsoll.api.core import NodeAffinity, Pod, TopologySpreadConstraint
from plimsoll.api.quantity import INT32_MAX
from plimsoll.errors import DecodeError
from plimsoll.ledger.units import CPU, MEMORY, is_accounted
from plimsoll.scheduler.plugin_args import (
    ShapePoint,
    check_added_affinity,
    check_default_constraints,
    check_ignored,
    check_shape,
)

RANK = "DevicePreference"  #: score of the alternatives chosen from prioritized lists
WASTE = "DeviceWaste"  #: score that prefers small devices
#: Names of kube-scheduler's plugins for our scorers.
ALIASES: Mapping[str, str] = MappingProxyType({"DynamicResources": RANK})
#: Default weights of all scorers.
WEIGHTS: Mapping[str, int] = MappingProxyType(
    {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
        "VolumeBinding": 1,
        RANK: 2,
        WASTE: 0,
    }
)
Weight: TypeAlias = Annotated[int, Meta(ge=0, le=INT32_MAX)]
ResourceWeight: TypeAlias = Annotated[int, Meta(ge=0, le=1000)]
Percentage: TypeAlias = Annotated[int, Meta(ge=0, le=100)]
RESOURCES_MAX = 16
#: Default time limits for the binding conditions of devices, and for volumes to be bound.
BINDING_TIMEOUT_MS = 600_000
VOLUME_TIMEOUT_MS = 600_000
#: Rules that a profile can disable. Not those whose absence would bind pods without their devices, or as if a
#: required field were not set.
OPTIONAL_FILTERS = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeDeclaredFeatures",
)
#: Number of nodes from which kube-scheduler evaluates only a sample of them.
SAMPLED_FROM = 100
#: Lowest percentage of nodes that are scored if it depends on the number of nodes.
_LEAST_PERCENTAGE = 5
_RESOURCES: Mapping[str, int] = MappingProxyType({CPU: 1, MEMORY: 1})


class Strategy(Enum):
    """Scoring strategy of `NodeResourcesFit`: prefer nodes with the most or the least free capacity, or
    score utilization by a function.
    """

    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"


class DeviceOrder(Enum):
    """Order of device allocation and ledger check: joint, or devices first.

    DIFF: kube-scheduler chooses devices first and checks only that choice against the ledger, so that it
    rejects nodes where other devices would fit, and preemption does not help against a shortage of devices.
    `devices-first` does the same, for predictions; the default is joint allocation
    (test_devices_first_refuses_what_joint_allocation_finds).

    DIFF: an error on one node ends kube-scheduler's attempt; with joint allocation only that node is
    rejected, unless a CEL selector failed (`SelectorErrors`; test_an_error_on_one_node_ends_the_attempt).
    """

    JOINT = "joint"
    FIRST = "devices-first"


class SelectorErrors(Enum):
    """Result for a pod if a CEL selector of its claims fails on a device: the pod stays pending, as the KEP
    and kube-scheduler have it, or only that node is rejected.
    """

    PENDING = "pending"
    SKIP_NODE = "skip-node"


class MixedAdvertisers(Enum):
    """Result for pods on a node whose hardware is advertised by a device plugin and by a DRA driver: units
    that may be held in one way are not given out in the other, or both are counted independently.
    """

    REFUSE = "Refuse"
    ALLOW = "Allow"


class Scoring(Enum):
    """Score arithmetic: integers, or the floating-point formulas of kube-scheduler 1.36.

    DIFF: kube-scheduler's NodeResourcesFit ignores pod-level requests when it scores nodes; here they count.
    `as-kube-scheduler` ignores them as well, for predictions (test_pod_level_requests_are_scored).
    """

    WHOLE = "whole-numbers"
    STOCK = "as-kube-scheduler"


def _read_affinity(value: Any) -> NodeAffinity | None:
    return None if value is None else convert_strictly(value, NodeAffinity)


def _read_constraint(value: Any) -> TopologySpreadConstraint:
    return convert_strictly(value, TopologySpreadConstraint)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerProfile:
    """Profile of a scheduler; the defaults are those of kube-scheduler's default profile."""

    name: str = field(default="plimsoll", metadata={"name": "schedulerName"})  #: `schedulerName` of pods
    weights: Mapping[str, Weight] = field(default_factory=dict)  #: overrides of `WEIGHTS`; 0: disabled
    strategy: Strategy = Strategy.LEAST_ALLOCATED
    resources: Mapping[str, ResourceWeight] = field(default_factory=lambda: _RESOURCES)  #: of the strategy
    shape: tuple[ShapePoint, ...] = ()  #: function of RequestedToCapacityRatio
    balanced: tuple[str, ...] = (CPU, MEMORY)  #: resources of balanced allocation
    #: maximum number of steps of one device search
    search_steps: Annotated[int, Meta(ge=1, le=1_000_000_000)] = SearchLimits().steps
    #: number of nodes to search if alternatives or waste matter
    explore: Annotated[int, Meta(ge=1, le=10_000)] = 5
    device_preference: Preference = Preference.FIRST
    device_order: DeviceOrder = DeviceOrder.JOINT
    scoring: Scoring = Scoring.WHOLE
    selector_errors: SelectorErrors = SelectorErrors.PENDING
    mixed_advertisers: MixedAdvertisers = MixedAdvertisers.REFUSE
    disabled_filters: tuple[str, ...] = ()  #: rules that are not evaluated, of `OPTIONAL_FILTERS`
    #: Percentage of the nodes that are scored, once found feasible; 0: fewer, the larger the cluster.
    percentage_of_nodes_to_score: Percentage = 100
    # -- NodeResourcesFit, NodeAffinity, InterPodAffinity
    ignored_resources: tuple[str, ...] = ()  #: extended resources that are not checked
    ignored_resource_groups: tuple[str, ...] = ()
    added_affinity: Annotated[NodeAffinity | None, _read_affinity] = None  #: in addition to that of each pod
    hard_pod_affinity_weight: Percentage = 1  #: score of required affinity of existing pods
    ignore_preferred_terms: bool = field(
        default=False, metadata={"name": "ignorePreferredTermsOfExistingPods"}
    )
    #: Spread constraints of pods without any; None for those of Kubernetes.
    default_constraints: tuple[Annotated[TopologySpreadConstraint, _read_constraint], ...] | None = None
    # -- preemption
    preemption: bool = True
    #: Whether preemption frees devices; kube-scheduler's does not, so that tools predict it without.
    device_preemption: bool = field(default=True, metadata=NOT_IN_FILE)
    min_candidate_nodes_percentage: Percentage = 10
    min_candidate_nodes_absolute: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 100
    #: Time limit for the binding conditions of devices.
    binding_timeout_ms: Annotated[int, Meta(ge=1000, le=2**53)] = BINDING_TIMEOUT_MS
    # -- VolumeBinding
    volume_timeout_ms: Annotated[int, Meta(ge=0, le=2**53)] = VOLUME_TIMEOUT_MS  #: for volumes to be bound
    #: Function from the utilization of volumes to a score (gate StorageCapacityScoring).
    volume_shape: tuple[ShapePoint, ...] = (ShapePoint(score=10), ShapePoint(utilization=100))
    #: Equal for profiles with which the same nodes are feasible, for keys of caches.
    filter_key: str = field(default="", init=False, compare=False, metadata=NOT_IN_FILE)

    def __post_init__(self) -> None:
        check_fields(
            self,
            "weights",
            "resources",
            "searchSteps",
            "explore",
            "percentageOfNodesToScore",
            "hardPodAffinityWeight",
            "minCandidateNodesPercentage",
            "minCandidateNodesAbsolute",
            "bindingTimeoutMs",
            "volumeTimeoutMs",
        )
        weights = {**WEIGHTS, **_resolve_weights(self.weights)}
        object.__setattr__(self, "weights", MappingProxyType(weights))
        for where, names in (("resources", tuple(self.resources)), ("balanced", self.balanced)):
            _check_names(where, names)
        if not any(self.resources.values()):
            raise DecodeError("give at least one resource a weight above 0", "resources")
        object.__setattr__(self, "resources", MappingProxyType(dict(self.resources)))
        if not self.name:
            raise DecodeError("must not be empty; leave it out for plimsoll", "schedulerName")
        self._check_plugins()
        object.__setattr__(self, "filter_key", self._make_filter_key())

    def _make_filter_key(self) -> str:
        own = (
            self.disabled_filters,
            self.ignored_resources,
            self.ignored_resource_groups,
            self.added_affinity and self.added_affinity.required,
            self.default_constraints,
            self.selector_errors is SelectorErrors.SKIP_NODE,
            self.mixed_advertisers is MixedAdvertisers.ALLOW,
            not self.device_preemption,
        )
        return repr(own) if any(own) else ""

    def _check_plugins(self) -> None:
        """Check the arguments of plugins, with kube-scheduler's rules."""
        for index, name in enumerate(self.disabled_filters):
            if name not in OPTIONAL_FILTERS:
                raise DecodeError(
                    f"{name!r} cannot be disabled; use {', '.join(OPTIONAL_FILTERS)}",
                    f"disabledFilters[{index}]",
                )
        if self.strategy is Strategy.REQUESTED_TO_CAPACITY_RATIO:
            check_shape(self.shape, "shape")
        elif self.shape:
            raise DecodeError(
                f"must be empty unless the strategy is {Strategy.REQUESTED_TO_CAPACITY_RATIO.value}", "shape"
            )
        check_shape(self.volume_shape, "volumeShape")
        check_ignored(self.ignored_resources, self.ignored_resource_groups)
        if self.added_affinity is not None:
            check_added_affinity(self.added_affinity, "addedAffinity")
        check_default_constraints(self.default_constraints or (), "defaultConstraints")
        if not self.min_candidate_nodes_percentage and not self.min_candidate_nodes_absolute:
            raise DecodeError(
                "cannot be zero at the same time as minCandidateNodesAbsolute", "minCandidateNodesPercentage"
            )

    @staticmethod
    def default() -> SchedulerProfile:
        return _DEFAULT

    def for_pod(self, pod: Pod) -> SchedulerProfile:
        """Return the profile of a pod: this one (see `ProfileSet`)."""
        return self

    @property
    def frees_devices(self) -> bool:
        """Return whether evicting pods counts as freeing their devices."""
        return self.device_preemption and self.device_order is DeviceOrder.JOINT

    @property
    def rank_weight(self) -> int:
        """Weight of the rank of alternatives chosen from prioritized lists."""
        return self.weights[RANK]

    @property
    def waste_weight(self) -> int:
        """Weight of device waste."""
        return self.weights[WASTE]

    def nodes_to_score(self, nodes: int) -> int:
        """Return the number of feasible nodes after which no more nodes are scored."""
        if nodes < SAMPLED_FROM:
            return nodes
        percentage = self.percentage_of_nodes_to_score or max(50 - nodes // 125, _LEAST_PERCENTAGE)
        return max(nodes * percentage // 100, SAMPLED_FROM)

    def searches_all_nodes(self, nodes: int) -> bool:
        """Return whether devices are searched on every node before scoring, as kube-scheduler does.

        Only below 100 nodes: above, kube-scheduler samples nodes, which cannot be predicted.
        """
        return self.device_order is DeviceOrder.FIRST and nodes < SAMPLED_FROM

    @staticmethod
    def read(tree: Any) -> SchedulerProfile:
        """Read a profile from parsed YAML or JSON; None (an empty file) is the default profile."""
        return _DEFAULT if tree is None else cast(SchedulerProfile, convert_config(tree, SchedulerProfile))


@dataclass(frozen=True, slots=True)
class ProfileSet:
    """Profiles of one scheduler, of which a pod selects one by its scheduler name."""

    profiles: tuple[SchedulerProfile, ...]

    def for_pod(self, pod: Pod) -> SchedulerProfile:
        """Return the profile with the pod's scheduler name, or else the first one."""
        name = pod.spec.scheduler_name
        return next((each for each in self.profiles if each.name == name), self.profiles[0])


def _check_names(where: str, names: tuple[str, ...]) -> None:
    if len(names) > RESOURCES_MAX:
        raise DecodeError(f"name at most {RESOURCES_MAX} resources, not {len(names)}", where)
    for name in names:
        if not is_accounted(name):
            raise DecodeError(
                f"{name!r} is not a node resource: "
                "use cpu, memory, ephemeral-storage, hugepages-SIZE or a name such as example.com/gpu",
                where,
            )
    if len({*names}) < len(names):
        raise DecodeError(f"name each resource once, not {', '.join(names)}", where)


def _resolve_weights(given: Mapping[str, int]) -> dict[str, int]:
    """Return the weights with aliases resolved."""
    found: dict[str, int] = {}
    for name, weight in given.items():
        proper = ALIASES.get(name, name)
        if proper not in WEIGHTS:
            raise DecodeError(f"unknown scorer; valid scorers: {', '.join(WEIGHTS)}", f"weights.{name}")
        if proper in found:
            raise DecodeError(f"is also given as {proper}; keep one of them", f"weights.{name}")
        found[proper] = weight
    return found


_DEFAULT = SchedulerProfile()
