"""KubeSchedulerConfiguration: defaults, settings, warnings and refusals, each with its field."""

from __future__ import annotations

import copy
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.config import convert_config
from plimsoll.common.yaml import load_documents
from plimsoll.errors import ConfigError, DecodeError
from plimsoll.scheduler.process.configuration import (
    ClientConnection,
    LeaderElection,
    SchedulerSettings,
    parse_settings,
    read_settings,
)
from plimsoll.scheduler.process.kube_config.fields import ARGUMENTS, PluginsFields
from plimsoll.scheduler.process.kube_config.plugins import POINTS, default_weight, expand_plugins
from plimsoll.scheduler.profile import SchedulerProfile, Scoring, Strategy
from plimsoll.scheduler.queue.backoff import QueueSettings
from tests.unit.scheduler.samples import SEEDS

PLUGINS, ARGS = "c: profiles[0].plugins.", "c: profiles[0].pluginConfig[0].args."
STRATEGY = "args.scoringStrategy."
HEAD = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
FULL = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 32
percentageOfNodesToScore: 70
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 30
leaderElection: {leaderElect: true, leaseDuration: 1m30s, renewDeadline: 1m, retryPeriod: 5s,
  resourceName: our}
clientConnection: {kubeconfig: /etc/k.conf, qps: 75.5, burst: 150, contentType: application/json}
profiles:
- schedulerName: default-scheduler
  plugins:
    multiPoint:
      disabled: [{name: ImageLocality}]
    score:
      disabled: [{name: NodeResourcesBalancedAllocation}]
      enabled: [{name: TaintToleration, weight: 7}, {name: NodeAffinity}]
    postFilter:
      disabled: [{name: DefaultPreemption}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      ignoredResources: [example.com/fpga]
      ignoredResourceGroups: [vendor.io]
      scoringStrategy:
        type: RequestedToCapacityRatio
        resources: [{name: cpu, weight: 3}, {name: memory}, {name: nvidia.com/gpu, weight: 5}]
        requestedToCapacityRatio:
          shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]
  - name: NodeResourcesBalancedAllocation
    args: {resources: [{name: cpu}, {name: nvidia.com/gpu, weight: 1}]}
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 60, ignorePreferredTermsOfExistingPods: true}
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [a]}]}]
  - name: PodTopologySpread
    args:
      defaultingType: List
      defaultConstraints: [{maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 20, minCandidateNodesAbsolute: 7}
  - name: DynamicResources
    args: {filterTimeout: 5s, bindingTimeout: 1m30s}
  - name: VolumeBinding
    args: {bindTimeoutSeconds: 600}
- schedulerName: packing
  percentageOfNodesToScore: 100
  plugins:
    filter: {disabled: [{name: NodeUnschedulable}]}
  pluginConfig:
  - name: NodeResourcesFit
    args: {scoringStrategy: {type: MostAllocated}}
"""


def parse(tree: Any) -> tuple[SchedulerSettings, list[str]]:
    warnings: list[str] = []
    return parse_settings(tree, "c", None, warnings.append), warnings


def refusal(tree: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(tree)
    return str(caught.value)


def with_profile(**fields: Any) -> dict[str, Any]:
    return {**HEAD, "profiles": [{"schedulerName": "s", **fields}]}


def with_args(name: str, **args: Any) -> dict[str, Any]:
    return with_profile(pluginConfig=[{"name": name, "args": args}])


# -- what is read


def test_an_empty_file_is_kube_schedulers_default_profile() -> None:
    found, warnings = parse(HEAD)
    assert not warnings
    assert found == SchedulerSettings(
        profiles=(
            SchedulerProfile(name="default-scheduler", percentage_of_nodes_to_score=0, scoring=Scoring.STOCK),
        ),
        election=LeaderElection(elect=True, name="kube-scheduler"),
        client=ClientConnection(qps=50.0, burst=100),
        listen="127.0.0.1:10259",
    )
    assert dict(found.profiles[0].weights) == dict(SchedulerProfile.default().weights)


def test_a_file_with_everything(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    warnings: list[str] = []
    path.write_text(FULL)
    found = read_settings(path, None, warnings.append)
    assert [line.split(": ", 1)[1] for line in warnings] == [
        "parallelism: has no effect: each rule is evaluated for all nodes at once"
    ]
    assert found.queue == QueueSettings(initial_backoff_ms=2000, max_backoff_ms=30_000)
    assert found.election == LeaderElection(elect=True, lease=90.0, renew=60.0, retry=5.0, name="our")
    assert found.client == ClientConnection(kubeconfig="/etc/k.conf", qps=75.5, burst=150)
    first, second = found.profiles
    assert (first.name, second.name) == ("default-scheduler", "packing")
    assert dict(first.weights) == {
        "TaintToleration": 7,
        "NodeAffinity": 1,  # a weight that is not given is 1, whatever the default
        "NodeResourcesFit": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "NodeResourcesBalancedAllocation": 0,
        "ImageLocality": 0,
        "VolumeBinding": 1,
        "DevicePreference": 2,
        "DeviceWaste": 0,
    }
    assert first.strategy is Strategy.REQUESTED_TO_CAPACITY_RATIO
    assert [(each.utilization, each.score) for each in first.shape] == [(0, 0), (100, 10)]
    assert dict(first.resources) == {"cpu": 3, "memory": 1, "nvidia.com/gpu": 5}
    assert first.balanced == ("cpu", "nvidia.com/gpu")
    assert (first.ignored_resources, first.ignored_resource_groups) == (("example.com/fpga",), ("vendor.io",))
    assert (first.hard_pod_affinity_weight, first.ignore_preferred_terms) == (60, True)
    assert first.added_affinity is not None
    assert [each.topology_key for each in first.default_constraints or ()] == ["zone"]
    assert (first.min_candidate_nodes_percentage, first.min_candidate_nodes_absolute) == (20, 7)
    assert (first.search_steps, first.binding_timeout_ms) == (SchedulerProfile().search_steps // 2, 90_000)
    assert (first.preemption, second.preemption) == (False, True)
    assert (first.percentage_of_nodes_to_score, second.percentage_of_nodes_to_score) == (70, 100)
    assert (second.strategy, second.disabled_filters) == (Strategy.MOST_ALLOCATED, ("NodeUnschedulable",))
    assert second.default_constraints is None


def test_our_own_file_stays() -> None:
    found, _ = parse({"kind": "SchedulerConfiguration", "profiles": [{"schedulerName": "x"}]})
    assert found.profiles == (SchedulerProfile(name="x"),)
    assert found.client == ClientConnection()


def test_a_filter_timeout_is_a_number_of_steps() -> None:
    steps = SchedulerProfile().search_steps
    cases = {"10s": steps, "20s": 2 * steps, "0s": 1_000_000_000, "1ns": steps // 10_000}
    for text, wanted in cases.items():
        found, _ = parse(with_args("DynamicResources", filterTimeout=text))
        assert found.profiles[0].search_steps == wanted


def test_gang_scheduling_follows_its_plugin_and_its_feature_gate() -> None:
    on, off = "GenericWorkload=true,GangScheduling=true", "GangScheduling=false"
    enabled, disabled = (
        multi(enabled=[{"name": "GangScheduling"}]),
        multi(disabled=[{"name": "GangScheduling"}]),
    )
    assert parse_settings(enabled, "c", on).gates.enabled("GangScheduling")
    assert not parse_settings(disabled, "c", on).gates.enabled("GangScheduling")
    assert not parse_settings(HEAD, "c", off).gates.enabled("GangScheduling")
    with pytest.raises(ConfigError, match="is not supported, or its feature gate is off"):
        parse_settings(enabled, "c", off)
    mixed = {**HEAD, "profiles": [{"schedulerName": "other"}, *disabled["profiles"]]}
    with pytest.raises(ConfigError, match="must be enabled in all profiles, or in none"):
        parse_settings(mixed, "c", on)


def test_negative_qps_is_no_limit() -> None:
    found, _ = parse({**HEAD, "clientConnection": {"qps": -1}})
    assert found.client.qps == 0


# -- plugins


def multi(**sets: Any) -> dict[str, Any]:
    return with_profile(plugins={"multiPoint": sets})


def test_every_plugin_can_be_replaced_by_the_ones_that_are_needed() -> None:
    needed = ["PrioritySort", "DefaultBinder", "SchedulingGates", "DynamicResources", "NodeName"]
    found, _ = parse(multi(disabled=[{"name": "*"}], enabled=[{"name": name} for name in needed]))
    profile = found.profiles[0]
    assert "NodeName" not in profile.disabled_filters
    assert "TaintToleration" in profile.disabled_filters
    assert {name: weight for name, weight in profile.weights.items() if weight} == {"DevicePreference": 1}
    assert not profile.preemption


def test_enabled_takes_precedence_over_disabled() -> None:
    both = {"disabled": [{"name": "NodeAffinity"}], "enabled": [{"name": "NodeAffinity", "weight": 9}]}
    found, _ = parse(multi(**both))
    assert found.profiles[0].weights["NodeAffinity"] == 9
    found, _ = parse(with_profile(plugins={"score": both}))
    assert found.profiles[0].weights["NodeAffinity"] == 9
    assert not found.profiles[0].disabled_filters


def merge_set(default: list[tuple[str, int]], own: dict[str, Any]) -> tuple[list[tuple[str, int]], set[str]]:
    """Merge plugin sets as kube-scheduler's mergePluginSet does."""
    disabled = {each["name"] for each in own.get("disabled", ())}
    custom = {each["name"]: each.get("weight", 0) for each in own.get("enabled", ())}
    enabled, replaced = [], set()
    if "*" not in disabled:
        for name, weight in default:
            if name in disabled:
                continue
            if name in custom:
                enabled.append((name, custom[name]))
                replaced.add(name)
            else:
                enabled.append((name, weight))
    enabled += [(name, weight) for name, weight in custom.items() if name not in replaced]
    return enabled, disabled


@given(seed=SEEDS)
def test_plugin_sets_are_merged_as_in_kube_scheduler(seed: int) -> None:
    random = Random(seed)
    names = list(POINTS)

    def draw(among: list[str]) -> dict[str, Any]:
        enabled = random.sample(among, random.randint(0, min(3, len(among))))
        disabled = random.sample([*names, "*"], random.randint(0, 3))
        return {
            "enabled": [{"name": each, "weight": random.choice([0, 1, 5])} for each in enabled],
            "disabled": [{"name": each} for each in disabled],
        }

    tree = {"multiPoint": draw(names)}
    for point in ("preFilter", "filter", "score", "postFilter", "queueSort"):
        if random.random() < 0.5:
            tree[point] = draw([name for name in names if point in POINTS[name]])
    found = expand_plugins(convert_config(copy.deepcopy(tree), PluginsFields))
    default = [(name, default_weight(name)) for name in names]
    everywhere, _ = merge_set(default, tree["multiPoint"])
    for point, plugins in found.items():
        own, disabled = merge_set([], tree.get(point, {}))
        wanted = dict(own)
        if "*" not in disabled:
            for name, weight in everywhere:
                if point in POINTS[name] and name not in disabled:
                    wanted.setdefault(name, weight)
        assert plugins == wanted, point


# -- what is refused


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (
            {**HEAD, "apiVersion": "kubescheduler.config.k8s.io/v1beta3"},
            "c: apiVersion: must be kubescheduler",
        ),
        (
            {"kind": "KubeSchedulerConfiguration"},
            "c: apiVersion: must be kubescheduler.config.k8s.io/v1, not None",
        ),
        ({"apiVersion": HEAD["apiVersion"]}, "c: kind: must be KubeSchedulerConfiguration, not None"),
        ({**HEAD, "algorithmSource": {}}, "c: algorithmSource: unknown field"),
        ({**HEAD, "parallelism": 0}, "c: parallelism: should be an integer value greater than zero"),
        (
            {**HEAD, "percentageOfNodesToScore": 101},
            "c: percentageOfNodesToScore: not in valid range [0-100], got 101",
        ),
        (
            {**HEAD, "podInitialBackoffSeconds": 0},
            "c: podInitialBackoffSeconds: must be greater than 0, got 0",
        ),
        (
            {**HEAD, "podInitialBackoffSeconds": 20},
            "c: podMaxBackoffSeconds: must be greater than or equal to PodInitialBackoffSeconds, got 10",
        ),
        (
            {**HEAD, "extenders": [{"urlPrefix": "http://x"}]},
            "c: extenders: scheduler extenders are not supported",
        ),
        (
            {**HEAD, "clientConnection": {"burst": -1}},
            "c: clientConnection.burst: must be non-negative, got -1",
        ),
        (
            {**HEAD, "clientConnection": {"qps": "many"}},
            "c: clientConnection.qps: must be a number, not 'many'",
        ),
        (
            {**HEAD, "clientConnection": {"contentType": "text/html"}},
            "c: clientConnection.contentType: must be application/json or ",
        ),
        (
            {**HEAD, "leaderElection": {"leaseDuration": "10s", "renewDeadline": "10s"}},
            "c: leaderElection.leaseDuration: must be greater than `RenewDeadline`",
        ),
        (
            {**HEAD, "leaderElection": {"leaseDuration": "soon"}},
            "c: leaderElection.leaseDuration: must be a duration",
        ),
        (
            {**HEAD, "leaderElection": {"resourceLock": "endpoints"}},
            'c: leaderElection.resourceLock: resourceLock value must be "leases"',
        ),
        (
            {**HEAD, "profiles": [{"schedulerName": "a"}, {}]},
            "c: profiles[1].schedulerName: must not be empty",
        ),
        (
            {**HEAD, "profiles": [{"schedulerName": "a"}, {"schedulerName": "a"}]},
            "c: profiles[1].schedulerName: duplicate value: profiles[0].schedulerName is 'a', too",
        ),
        (
            with_profile(percentageOfNodesToScore=-1),
            "c: profiles[0].percentageOfNodesToScore: not in valid range",
        ),
        (
            multi(enabled=[{"name": "Coscheduling"}]),
            PLUGINS + "multiPoint.enabled[0].name: plugin 'Coscheduling' is not built in",
        ),
        (
            multi(enabled=[{"name": "EBSLimits"}]),
            PLUGINS + "multiPoint.enabled[0].name: plugin 'EBSLimits' was removed",
        ),
        (
            multi(enabled=[{"name": "PodGroupPodsCount"}]),
            PLUGINS + "multiPoint.enabled[0].name: plugin 'PodGroupPodsCount' is not supported",
        ),
        (
            with_profile(plugins={"score": {"enabled": [{"name": "NodeName"}]}}),
            PLUGINS + "score.enabled[0].name: plugin 'NodeName' does not extend score",
        ),
        (
            with_profile(plugins={"score": {"enabled": [{"name": "NodeAffinity"}] * 2}}),
            PLUGINS + "score.enabled[1].name: plugin 'NodeAffinity' already registered",
        ),
        (
            multi(disabled=[{"name": "PrioritySort"}]),
            PLUGINS + "multiPoint.disabled[0].name: PrioritySort cannot be disabled: pods are",
        ),
        (
            multi(disabled=[{"name": "NodeName"}, {"name": "DynamicResources"}]),
            PLUGINS + "multiPoint.disabled[1].name: DynamicResources cannot be disabled: pods would",
        ),
        (
            with_profile(plugins={"filter": {"disabled": [{"name": "NodeResourcesFit"}]}}),
            PLUGINS + "filter.disabled[0].name: NodeResourcesFit is disabled here, but not completely; "
            "disable it for preFilter and filter, or for none of them",
        ),
        (
            with_profile(plugins={"preScore": {"disabled": [{"name": "*"}]}}),
            PLUGINS + "preScore.disabled[0].name: PodTopologySpread cannot score without preScore",
        ),
        (
            {
                **HEAD,
                "profiles": [
                    {"schedulerName": "a"},
                    {"schedulerName": "b", "plugins": {"queueSort": {"enabled": [{"name": "PrioritySort"}]}}},
                ],
            },
            "c: profiles[1].plugins.queueSort: must be the same for all profiles",
        ),
        (
            with_profile(pluginConfig=[{"name": "NodeAffinity"}, {"name": "NodeAffinity"}]),
            "c: profiles[0].pluginConfig[1]: duplicate value: 'NodeAffinity'",
        ),
        (
            with_profile(pluginConfig=[{"name": "Mine", "args": {}}]),
            "c: profiles[0].pluginConfig[0].name: plugin 'Mine' is not built in",
        ),
        (
            with_profile(pluginConfig=[{"name": "NodeName", "args": {"a": 1}}]),
            "c: profiles[0].pluginConfig[0].args: plugin 'NodeName' has no arguments",
        ),
        (
            with_args("NodeAffinity", kind="NodeResourcesFitArgs"),
            ARGS + "kind: must be NodeAffinityArgs, not 'NodeResourcesFitArgs'",
        ),
        (with_args("NodeAffinity", adddedAffinity={}), ARGS + "adddedAffinity: unknown"),
        (
            with_args("NodeAffinity", addedAffinity={"required": {}}),
            ARGS + "addedAffinity.required: unknown field",
        ),
        (
            with_args(
                "NodeAffinity",
                addedAffinity={
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]
                    }
                },
            ),
            ARGS + "addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[0].matchExpressions[0]: operator In needs at least one value",
        ),
        (
            with_args("InterPodAffinity", hardPodAffinityWeight=101),
            ARGS + "hardPodAffinityWeight: not in valid range [0, 100], got 101",
        ),
        (
            with_args("NodeResourcesFit", scoringStrategy={"type": "Fastest"}),
            ARGS + "scoringStrategy.type: must be one of LeastAllocated, MostAllocated, "
            "RequestedToCapacityRatio, not 'Fastest'",
        ),
        (
            with_args("NodeResourcesFit", scoringStrategy={"resources": [{"name": "cpu"}]}),
            STRATEGY + "type: must be one of",
        ),
        (
            with_args(
                "NodeResourcesFit",
                scoringStrategy={"type": "LeastAllocated", "resources": [{"name": "cpu", "weight": 101}]},
            ),
            STRATEGY + "resources[0].weight: resource weight of cpu not in valid range (0, 100], got 101",
        ),
        (
            with_args("NodeResourcesFit", scoringStrategy={"type": "RequestedToCapacityRatio"}),
            STRATEGY + "requestedToCapacityRatio: must be specified when type is RequestedToCapacityRatio",
        ),
        (
            with_args(
                "NodeResourcesFit",
                scoringStrategy={"type": "MostAllocated", "requestedToCapacityRatio": {"shape": []}},
            ),
            STRATEGY + "requestedToCapacityRatio: must be nil when type is not RequestedToCapacityRatio",
        ),
        (
            with_args(
                "NodeResourcesFit",
                scoringStrategy={
                    "type": "RequestedToCapacityRatio",
                    "requestedToCapacityRatio": {"shape": [{"utilization": 5, "score": 11}]},
                },
            ),
            STRATEGY + "requestedToCapacityRatio.shape[0].score: not in valid range [0, 10], got 11",
        ),
        (
            with_args("NodeResourcesFit", ignoredResourceGroups=["a/b"]),
            "args.ignoredResourceGroups[0]: 'a/b': resource group name can't contain '/'",
        ),
        (
            with_args("NodeResourcesBalancedAllocation", resources=[{"name": "cpu", "weight": 2}]),
            "args.resources[0].weight: must be 1, got 2",
        ),
        (
            with_args("NodeResourcesBalancedAllocation", resources=[{"name": "cpu"}, {"name": "cpu"}]),
            "args.resources[1].name: duplicate value: 'cpu'",
        ),
        (
            with_args("PodTopologySpread", defaultingType="Some"),
            "args.defaultingType: must be one of List, System",
        ),
        (
            with_args("PodTopologySpread", defaultConstraints=[{"maxSkew": 1}]),
            "args.defaultingType: must be List when .defaultConstraints are not empty",
        ),
        (
            with_args(
                "PodTopologySpread",
                defaultingType="List",
                defaultConstraints=[
                    {
                        "maxSkew": 1,
                        "topologyKey": "a",
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {},
                    }
                ],
            ),
            "args.defaultConstraints[0].labelSelector: constraint must not define a selector",
        ),
        (
            with_args("DefaultPreemption", minCandidateNodesPercentage=0, minCandidateNodesAbsolute=0),
            "args.minCandidateNodesPercentage: cannot be zero at the same time as minCandidateNodesAbsolute",
        ),
        (
            with_args("VolumeBinding", bindTimeoutSeconds=-1),
            "args.bindTimeoutSeconds: invalid BindTimeoutSeconds",
        ),
        (
            with_args("VolumeBinding", shape=[{"utilization": 0, "score": 0}]),
            "args.shape: unexpected field `shape`",
        ),
        (
            with_args("DynamicResources", bindingTimeout="500ms"),
            "args.bindingTimeout: must be at least 1 second",
        ),
        (with_args("DynamicResources", filterTimeout="-1s"), "args.filterTimeout: must be zero or positive"),
    ],
)
def test_the_field_and_the_fix_are_named(tree: Any, message: str) -> None:
    assert message in refusal(tree)


def test_arguments_of_volume_binding() -> None:
    found, warnings = parse(with_args("VolumeBinding", bindTimeoutSeconds=5))
    assert not warnings
    assert found.profiles[0].volume_timeout_ms == 5000
    shape = [{"utilization": 0, "score": 0}, {"utilization": 50, "score": 10}]
    scored = parse_settings(with_args("VolumeBinding", shape=shape), "c", "StorageCapacityScoring=true")
    points = [(point.utilization, point.score) for point in scored.profiles[0].volume_shape]
    assert points == [(0, 0), (50, 10)]


def test_extenders_are_refused() -> None:
    message = refusal({**HEAD, "extenders": [{"urlPrefix": "http://x", "filterVerb": "filter"}]})
    assert message.startswith("c: extenders: scheduler extenders are not supported; remove them")
    assert parse({**HEAD, "extenders": []})[0].profiles


def test_what_has_no_effect_is_a_warning() -> None:
    _, warnings = parse(
        {
            **HEAD,
            "parallelism": 4,
            "enableProfiling": True,
            "delayCacheUntilActive": True,
            "clientConnection": {"contentType": "application/vnd.kubernetes.protobuf"},
            "profiles": [
                {
                    "schedulerName": "s",
                    "plugins": {"score": {"disabled": [{"name": "Mine"}]}},
                    "pluginConfig": [
                        {
                            "name": "NodeResourcesFit",
                            "args": {
                                "scoringStrategy": {
                                    "type": "LeastAllocated",
                                    "resources": [{"name": "cpu"}, {"name": "pods"}],
                                }
                            },
                        },
                    ],
                }
            ],
        }
    )
    assert [line.removeprefix("c: ").split(": ")[0] for line in warnings] == [
        "parallelism",
        "enableProfiling",
        "delayCacheUntilActive",
        "profiles[0].plugins.score.disabled[0].name",
        "profiles[0].pluginConfig[0].args.scoringStrategy.resources[1].name",
        "clientConnection.contentType",
    ]
    assert all("has no effect" in line for line in warnings)


def test_a_disabled_feature_gate_forbids_its_argument() -> None:
    tree = with_args("DynamicResources", bindingTimeout="5s")
    with pytest.raises(ConfigError, match="feature gate is disabled"):
        parse_settings(tree, "c", "DRADeviceBindingConditions=false")


# -- anything else


TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 200) | st.sampled_from(["5s", "*", "cpu", ""]),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from(
        ["name", "enabled", "disabled", "weight", "args", "type", "resources", "shape", "score", "x"]
    ), inside, max_size=3),
    max_leaves=8,
)  # fmt: skip
_FULL: dict[str, Any] = next(tree for _, tree in load_documents(FULL))


@given(st.randoms(use_true_random=False), TREES)
def test_any_file_is_settings_or_an_error_with_its_field(random: Random, value: Any) -> None:
    """Replace one value of a complete file by something else."""
    tree = copy.deepcopy(_FULL)
    at: Any = tree
    while True:
        key = random.choice(list(at) if isinstance(at, dict) else list(range(len(at))))
        inside = at[key]
        if not isinstance(inside, dict | list) or not inside or random.random() < 0.2:
            at[key] = value
            break
        at = inside
    with suppress(ConfigError):
        found, _ = parse(tree)
        assert found.profiles


def test_every_plugin_with_arguments_has_them_by_default() -> None:
    for name, kind in ARGUMENTS.items():
        assert name in POINTS
        with suppress(DecodeError):
            convert_config({}, kind)
