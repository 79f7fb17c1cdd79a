"""Eviction manager: reports node pressure and evicts one pod after another.

The kubelet's rules, as functions of measurements and time: `evaluate_thresholds` determines which thresholds
are met for how long, which conditions the node shows (for at least the transition period), and which
resources are starved; `select_pod` selects the pod to evict, with upstream's message. `EvictionManager` is
the loop around them.

A condition has hysteresis twice over: a met threshold remains met until its minimum reclaim is free too, and
the condition is shown for the transition period after that. The order of eviction is
`ledger.eviction.rank_pods`, where claim charges count as requested; critical pods are never evicted.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from plimsoll.api.core import Pod, Taint
from plimsoll.api.forms import Form
from plimsoll.api.meta import Condition
from plimsoll.api.quantity import ZERO, Format, Quantity
from plimsoll.api.tolerations import is_tolerated
from plimsoll.ledger.fit import PodAdmitResult
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.ledger.qos import BEST_EFFORT, pod_qos
from plimsoll.ledger.requests import has_pod_level_resources
from plimsoll.node.cgroup_plans.oom import is_critical_pod
from plimsoll.node.eviction.ranking import PodResourceUsage, rank_pods
from plimsoll.node.eviction.thresholds import CONDITIONS, MEMORY_PRESSURE, Threshold, sort_by_urgency

EVICTED = "Evicted"
HARD_GRACE_SECONDS = 1.0  #: grace period of a pod evicted for a hard threshold (seconds)
_MEMORY_TAINT = Taint(key="node.kubernetes.io/memory-pressure", effect="NoSchedule")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SignalObservation:
    """Available amount and capacity of an eviction signal."""

    available: int
    capacity: int


@dataclass(frozen=True, slots=True)
class PodStats:
    """Resource usage of a pod (memory, pids, ephemeral-storage, inodes), and its containers' memory."""

    used: Mapping[str, int] = field(default_factory=dict)
    containers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeStats:
    """Measurements of a node by signal, and of its pods by UID. Missing entries were not measured."""

    signals: Mapping[str, SignalObservation] = field(default_factory=dict)
    pods: Mapping[str, PodStats] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ThresholdState:
    """State carried from one evaluation to the next."""

    met: tuple[Threshold, ...] = ()  #: thresholds that were met, grace period included
    since: Mapping[Threshold, float] = field(default_factory=dict)  #: time at which each was first met
    shown: Mapping[str, float] = field(
        default_factory=dict
    )  #: time at which each condition was last observed


@dataclass(frozen=True, slots=True)
class PressureObservation:
    """Result of an evaluation: the conditions to report, and the thresholds to act on."""

    state: ThresholdState
    conditions: tuple[str, ...] = ()
    starved: tuple[Threshold, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEviction:
    """Eviction of a pod: phase Failed, reason Evicted, with this message, condition and grace period."""

    resource: str
    signal: str
    message: str
    grace: float
    condition: Condition | None  #: condition of the pod, if there is one
    annotations: Mapping[str, str] = field(default_factory=dict)  #: annotations of the event
    phase: str = "Failed"
    reason: str = EVICTED


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictionSettings:
    """Settings of the eviction manager; times are seconds."""

    thresholds: tuple[Threshold, ...] = ()
    transition: float = (
        300.0  #: pressure transition period: time a condition is shown after it was last observed
    )
    max_grace: float = 0.0  #: maximum grace period for soft thresholds
    interval: float = 10.0
    termination_timeout: float = 30.0  #: time to wait for an evicted pod to terminate before the next
    count_claims: bool = True
    pod_level: bool = True


# -- decisions


def evaluate_thresholds(
    state: ThresholdState, stats: NodeStats, settings: EvictionSettings, now: float
) -> PressureObservation:
    """Evaluate the thresholds against new measurements."""
    met = [t for t in settings.thresholds if _is_met(t, stats, reclaim=False)]
    # A threshold that was met remains met until its minimum reclaim is free too.
    met += [t for t in state.met if t not in met and _is_met(t, stats, reclaim=True)]
    since = {threshold: state.since.get(threshold, now) for threshold in met}
    shown = {**state.shown, **{threshold.condition: now for threshold in met}}
    conditions = tuple(c for c in CONDITIONS if c in shown and now - shown[c] < settings.transition)
    starved = tuple(t for t in sort_by_urgency(met) if now - since[t] >= t.grace)
    # Without a transition period a condition is shown only while it is observed.
    if settings.transition <= 0:
        conditions = tuple(c for c in CONDITIONS if any(t.condition == c for t in met))
    return PressureObservation(ThresholdState(starved, since, shown), conditions, starved)


def _is_met(threshold: Threshold, stats: NodeStats, *, reclaim: bool) -> bool:
    measure = stats.signals.get(threshold.signal)
    if measure is None:
        return False
    wanted = threshold.amount_to_reclaim(measure.capacity) if reclaim else threshold.amount(measure.capacity)
    return wanted > Quantity.of(measure.available)


def select_pod(
    starved: Sequence[Threshold], stats: NodeStats, pods: Iterable[Pod], settings: EvictionSettings
) -> tuple[Pod, PodEviction] | None:
    """Select the pod to evict for the most urgent threshold; None if no pod may be evicted."""
    if not starved:
        return None
    threshold = starved[0]
    resource = threshold.resource
    candidates = [pod for pod in pods if not is_critical_pod(pod)]
    usages = [PodResourceUsage(pod, _used(pod, resource, stats)) for pod in candidates]
    order = rank_pods(usages, resource, count_claims=settings.count_claims)
    if not order:
        return None
    pod = order[0].pod
    message, annotations = eviction_message(resource, pod, starved, stats, pod_level=settings.pod_level)
    grace = HARD_GRACE_SECONDS
    if not threshold.is_hard:
        own = pod.spec.termination_grace_period_seconds
        grace = settings.max_grace if own is None else min(settings.max_grace, float(own))
    condition = Condition(
        type="DisruptionTarget",
        status="True",
        reason="TerminationByKubelet",
        message=message,
        observed_generation=pod.metadata.generation,
    )
    return pod, PodEviction(
        resource=resource,
        signal=threshold.signal,
        message=message,
        grace=grace,
        condition=condition,
        annotations=annotations,
    )


def _used(pod: Pod, resource: str, stats: NodeStats) -> Quantity | None:
    measure = stats.pods.get(pod_key(pod))
    used = None if measure is None else measure.used.get(resource)
    return None if used is None else Quantity.of(used, Format.BINARY_SI)


def eviction_message(
    resource: str, pod: Pod, starved: Iterable[Threshold], stats: NodeStats, *, pod_level: bool = True
) -> tuple[str, dict[str, str]]:
    """Format the eviction message for the pod's status, and the annotations of its event."""
    message = f"The node was low on resource: {resource}. "
    for threshold in starved:
        measure = stats.signals.get(threshold.signal)
        if threshold.resource == resource and measure is not None:
            available = Quantity.of(measure.available, Format.BINARY_SI)
            message += f"Threshold quantity: {threshold.amount(measure.capacity)}, available: {available}. "
            break
    measured = stats.pods.get(pod_key(pod))
    if measured is None:
        return message, {}
    annotations: dict[str, str] = {}
    if resource == "memory":
        if pod_level and has_pod_level_resources(pod) and "memory" in measured.used:
            assert pod.spec.resources is not None
            request = pod.spec.resources.requests.get("memory")
            if request is not None:
                used = Quantity.of(measured.used["memory"], Format.BINARY_SI)
                message += _format_consumption("Pod", pod.metadata.name, used, request, resource)
                annotations |= {"offending_pod": pod.metadata.name, "offending_pod_usage": str(used)}
        message += _format_offending_containers(pod, measured, annotations)
    else:
        annotations |= {"offending_containers": "", "offending_containers_usage": ""}
    annotations["starved_resource"] = resource
    return message, annotations


def _format_offending_containers(pod: Pod, measured: PodStats, annotations: dict[str, str]) -> str:
    """Format the usage of the containers above their request; adds to `annotations`."""
    text, names, usages = "", [], []
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container.name not in measured.containers:
            continue
        used = Quantity.of(measured.containers[container.name], Format.BINARY_SI)
        request = container.resources.requests.get("memory", ZERO)
        if used > request:
            text += _format_consumption("Container", container.name, used, request, "memory")
            names.append(container.name)
            usages.append(str(used))
    annotations["offending_containers"] = ",".join(names)
    annotations["offending_containers_usage"] = ",".join(usages)
    return text


def _format_consumption(what: str, name: str, used: Quantity, request: Quantity, resource: str) -> str:
    return f"{what} {name} was using {used}, request is {request}, has larger consumption of {resource}. "


def admit_under_pressure(
    conditions: Sequence[str], pod: Pod, *, form: Form = Form.V1_36, claims_in_qos: bool = False
) -> PodAdmitResult:
    """Check whether a node with these pressure conditions admits another pod.

    Critical pods are always admitted; others only if memory is the only pressure, and BestEffort pods only if
    they tolerate it.
    """
    if not conditions or is_critical_pod(pod):
        return PodAdmitResult(True)
    qos = pod_qos(pod, form, claims=claims_in_qos)
    tolerates = qos != BEST_EFFORT or is_tolerated(pod.spec.tolerations, _MEMORY_TAINT)
    if tolerates and tuple(conditions) == (MEMORY_PRESSURE,):
        return PodAdmitResult(True)
    return PodAdmitResult(False, EVICTED, f"The node had condition: [{' '.join(conditions)}]. ")


# -- loop


class EvictionManager:
    """Eviction manager of a node: measures periodically and evicts at most one pod at a time.

    `read` may return an awaitable, so that files are read in threads (`usage.measure_node`). `evict` returns
    when the termination was requested; the manager then waits, for a limited time, until `pods` no longer
    lists the pod.
    """

    def __init__(
        self,
        read: Callable[[], NodeStats | Awaitable[NodeStats]],
        pods: Callable[[], Sequence[Pod]],
        evict: Callable[[Pod, PodEviction], Awaitable[None]],
        set_condition: Callable[[str, bool], None],
        *,
        settings: EvictionSettings,
        clock: Callable[[], float],
        reclaiming: Callable[[str], None] | None = None,
    ) -> None:
        self._read = read
        self._pods = pods
        self.evict = evict
        self._set_condition = set_condition
        self._settings = settings
        self._clock = clock
        self._reclaiming = reclaiming
        self._seen = ThresholdState()
        self._conditions: tuple[str, ...] = ()
        self.evictions: dict[str, int] = {}  #: number of evictions by signal

    @property
    def conditions(self) -> tuple[str, ...]:
        """Current pressure conditions, for `admit_under_pressure`."""
        return self._conditions

    async def run(self) -> None:
        """Run until canceled."""
        while True:
            evicted = None
            try:
                evicted = await self.step()
            except Exception:
                # Whatever the error, a node that stopped watching for pressure would be worse.
                _log.exception("evaluating node pressure failed; retrying")
            if evicted is None:
                await asyncio.sleep(self._settings.interval)
            else:
                await self._wait_for(evicted)

    async def step(self) -> Pod | None:
        """Evaluate once and evict at most one pod, which is returned."""
        try:
            stats = await self._read_stats()
        except OSError as error:
            _log.warning("cannot measure resource usage: %s", error)
            return None
        observed = evaluate_thresholds(self._seen, stats, self._settings, self._clock())
        self._seen = observed.state
        self._conditions = observed.conditions
        for condition in CONDITIONS:
            self._set_condition(condition, condition in observed.conditions)
        if not observed.starved:
            return None
        if self._reclaiming is not None:
            self._reclaiming(f"Attempting to reclaim {observed.starved[0].resource}")
        chosen = select_pod(observed.starved, stats, self._pods(), self._settings)
        if chosen is None:
            _log.warning("the node is low on %s, and no pod can be evicted", observed.starved[0].resource)
            return None
        pod, eviction = chosen
        _log.info("evicting pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, eviction.message)
        await self.evict(pod, eviction)
        self.evictions[eviction.signal] = self.evictions.get(eviction.signal, 0) + 1
        return pod

    async def _read_stats(self) -> NodeStats:
        stats = self._read()
        return await stats if isinstance(stats, Awaitable) else stats

    async def _wait_for(self, evicted: Pod) -> None:
        """Wait until a pod is gone; what it frees is not visible before."""
        waited = 0.0
        while waited < self._settings.termination_timeout:
            if all(pod_key(pod) != pod_key(evicted) for pod in self._pods()):
                return
            pause = min(0.25, self._settings.interval)
            await asyncio.sleep(pause)
            waited += pause
