"""Fields of a KubeSchedulerConfiguration, with kube-scheduler's types and defaults."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from plimsoll.api.config import Config, format_value
from plimsoll.api.durations import parse_duration
from plimsoll.api.quantity import INT32_MAX, Number
from plimsoll.errors import DecodeError

GROUP = "kubescheduler.config.k8s.io"
API_VERSION = f"{GROUP}/v1"
KIND = "KubeSchedulerConfiguration"
Int32: TypeAlias = Annotated[int, Meta(ge=-INT32_MAX - 1, le=INT32_MAX)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


def read_duration_ms(value: Any) -> int:
    """Convert a duration such as 15s or 1m30s to milliseconds, rounded up; 0 for 0s."""
    nanos = parse_duration(value) if isinstance(value, str) else None
    if nanos is None:
        raise DecodeError(f"must be a duration such as 15s or 1m30s, not {format_value(value)}")
    return -(-nanos // 1_000_000)


def _read_float(value: Any) -> float:
    text = value.text if isinstance(value, Number) else value
    if isinstance(text, bool) or not isinstance(text, int | float | str):
        raise DecodeError(f"must be a number, not {format_value(value)}")
    try:
        return float(text)
    except ValueError:
        raise DecodeError(f"must be a number, not {format_value(value)}") from None


Milliseconds: TypeAlias = Annotated[int, read_duration_ms]


class LeaderElectionFields(Config, frozen=True, kw_only=True):
    """`leaderElection`; a duration of 0 is the default."""

    leader_elect: bool = True
    lease_duration: Milliseconds = 0
    renew_deadline: Milliseconds = 0
    retry_period: Milliseconds = 0
    resource_lock: str = ""
    resource_name: str = ""
    resource_namespace: str = ""


class ClientConnectionFields(Config, frozen=True, kw_only=True):
    """`clientConnection`."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = ""
    qps: Annotated[float, _read_float] = 0.0
    burst: Int32 = 0


class PluginField(Config, frozen=True, kw_only=True):
    """Plugin of a set; the weight is that of scores."""

    name: str
    weight: Int32 = 0


class PluginSetFields(Config, frozen=True, kw_only=True):
    """Plugins of one extension point that differ from the default ones."""

    enabled: tuple[PluginField, ...] = ()
    disabled: tuple[PluginField, ...] = ()


_NONE = PluginSetFields()


class PluginsFields(Config, frozen=True, kw_only=True):
    """`plugins` of a profile, by extension point."""

    pre_enqueue: PluginSetFields = _NONE
    queue_sort: PluginSetFields = _NONE
    pre_filter: PluginSetFields = _NONE
    filter: PluginSetFields = _NONE
    post_filter: PluginSetFields = _NONE
    pre_score: PluginSetFields = _NONE
    score: PluginSetFields = _NONE
    reserve: PluginSetFields = _NONE
    permit: PluginSetFields = _NONE
    pre_bind: PluginSetFields = _NONE
    bind: PluginSetFields = _NONE
    post_bind: PluginSetFields = _NONE
    multi_point: PluginSetFields = _NONE
    placement_generate: PluginSetFields = _NONE
    placement_score: PluginSetFields = _NONE


class PluginConfigFields(Config, frozen=True, kw_only=True):
    """Arguments of one plugin."""

    name: str
    args: Any = None


class ProfileFields(Config, frozen=True, kw_only=True):
    """One profile."""

    scheduler_name: str | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    plugins: PluginsFields = PluginsFields()
    plugin_config: tuple[PluginConfigFields, ...] = ()


class KubeSchedulerConfiguration(Config, frozen=True, kw_only=True):
    """The file."""

    kind: Literal["KubeSchedulerConfiguration"] = "KubeSchedulerConfiguration"
    api_version: str = API_VERSION
    parallelism: Int32 | None = None
    leader_election: LeaderElectionFields = LeaderElectionFields()
    client_connection: ClientConnectionFields = ClientConnectionFields()
    enable_profiling: bool | None = None
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: Int32 | None = None
    pod_initial_backoff_seconds: Int64 | None = None
    pod_max_backoff_seconds: Int64 | None = None
    profiles: tuple[ProfileFields, ...] = ()
    extenders: tuple[Any, ...] = ()
    delay_cache_until_active: bool | None = None


class _PluginArgs(Config, frozen=True, kw_only=True):
    """Arguments of a plugin; `apiVersion` and `kind` may be given."""

    api_version: str = API_VERSION
    kind: str = ""


class DefaultPreemptionArgs(_PluginArgs, frozen=True, kw_only=True):
    min_candidate_nodes_percentage: Int32 = 10
    min_candidate_nodes_absolute: Int32 = 100


class InterPodAffinityArgs(_PluginArgs, frozen=True, kw_only=True):
    hard_pod_affinity_weight: Int32 = 1
    ignore_preferred_terms_of_existing_pods: bool = False


class NodeAffinityArgs(_PluginArgs, frozen=True, kw_only=True):
    added_affinity: Any = None


class ResourceSpec(Config, frozen=True, kw_only=True):
    """Resource with its weight; 0 is the default, 1."""

    name: str
    weight: Int64 = 0


class ShapeFields(Config, frozen=True, kw_only=True):
    utilization: Int32 = 0
    score: Int32 = 0


class RatioFields(Config, frozen=True, kw_only=True):
    shape: tuple[ShapeFields, ...] = ()


class ScoringStrategy(Config, frozen=True, kw_only=True):
    type: str = ""
    resources: tuple[ResourceSpec, ...] = ()
    requested_to_capacity_ratio: RatioFields | None = None


class NodeResourcesFitArgs(_PluginArgs, frozen=True, kw_only=True):
    ignored_resources: tuple[str, ...] = ()
    ignored_resource_groups: tuple[str, ...] = ()
    scoring_strategy: ScoringStrategy = ScoringStrategy(type="LeastAllocated")


class NodeResourcesBalancedAllocationArgs(_PluginArgs, frozen=True, kw_only=True):
    resources: tuple[ResourceSpec, ...] = ()


class PodTopologySpreadArgs(_PluginArgs, frozen=True, kw_only=True):
    default_constraints: tuple[Any, ...] = ()
    defaulting_type: str = ""


class VolumeBindingArgs(_PluginArgs, frozen=True, kw_only=True):
    bind_timeout_seconds: Int64 = 600
    shape: tuple[ShapeFields, ...] = ()


class DynamicResourcesArgs(_PluginArgs, frozen=True, kw_only=True):
    filter_timeout: Milliseconds | None = None
    binding_timeout: Milliseconds | None = None


#: Arguments by plugin. Other plugins of kube-scheduler have none.
ARGUMENTS: dict[str, type[_PluginArgs]] = {
    "DefaultPreemption": DefaultPreemptionArgs,
    "InterPodAffinity": InterPodAffinityArgs,
    "NodeAffinity": NodeAffinityArgs,
    "NodeResourcesFit": NodeResourcesFitArgs,
    "NodeResourcesBalancedAllocation": NodeResourcesBalancedAllocationArgs,
    "PodTopologySpread": PodTopologySpreadArgs,
    "VolumeBinding": VolumeBindingArgs,
    "DynamicResources": DynamicResourcesArgs,
}
