"""What a node does when it runs short: it says so, and evicts one pod after another.

Owns the kubelet's rules, as functions of measured numbers and the time: `observe` says which thresholds are
met for how long, which conditions the node shows (they stay for the transition period), and what is starving;
`choose` says which pod has to go, with upstream's message. `PressureWatch` is the loop around them.

A condition has hysteresis twice over: a met threshold is not over before its minimum reclaim is free too, and
the condition is shown for the transition period after that. Who goes first is `ledger.eviction.rank`, where
what claims charge counts as requested; critical pods never go.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from plimsoll.api.core import Pod, Taint
from plimsoll.api.forms import Form
from plimsoll.api.meta import Condition
from plimsoll.api.quantity import ZERO, Format, Quantity
from plimsoll.api.tolerations import tolerated
from plimsoll.ledger.cgroups.oom import is_critical
from plimsoll.ledger.eviction import Usage, rank
from plimsoll.ledger.fit import Admission
from plimsoll.ledger.node import pod_key
from plimsoll.ledger.qos import BEST_EFFORT, pod_qos
from plimsoll.ledger.requests import pod_level_resources_set
from plimsoll.node.eviction.thresholds import CONDITIONS, MEMORY_PRESSURE, Threshold, most_urgent

EVICTED = "Evicted"
_AT_ONCE = 1.0  #: seconds a pod gets that is evicted for a hard threshold
_MEMORY_TAINT = Taint(key="node.kubernetes.io/memory-pressure", effect="NoSchedule")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Measure:
    """So much of a signal is available of so much in all."""

    available: int
    capacity: int


@dataclass(frozen=True, slots=True)
class PodMeasure:
    """What a pod uses, by resource (memory, pids, ephemeral-storage, inodes), and its containers' memory."""

    used: Mapping[str, int] = field(default_factory=dict)
    containers: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Available:
    """A look at a machine: measures by signal, and of pods by UID. What is missing was not measured."""

    signals: Mapping[str, Measure] = field(default_factory=dict)
    pods: Mapping[str, PodMeasure] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Seen:
    """What has to be remembered from one look to the next."""

    met: tuple[Threshold, ...] = ()  #: those that counted, grace period included
    since: Mapping[Threshold, float] = field(default_factory=dict)  #: when each began to be met
    shown: Mapping[str, float] = field(default_factory=dict)  #: when each condition was last the case


@dataclass(frozen=True, slots=True)
class Observed:
    """What a look comes to: the conditions to show, and the thresholds something is to be done about."""

    seen: Seen
    conditions: tuple[str, ...] = ()
    starving: tuple[Threshold, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """How a pod has to go: phase Failed, reason Evicted, this message, condition and grace period."""

    resource: str
    signal: str
    message: str
    grace: float
    condition: Condition
    annotations: Mapping[str, str] = field(default_factory=dict)  #: of the event
    phase: str = "Failed"
    reason: str = EVICTED


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureSettings:
    """How a node is set up; times are seconds."""

    thresholds: tuple[Threshold, ...] = ()
    transition: float = 300.0  #: for how long a condition is shown after it was last the case
    max_grace: float = 0.0  #: the most a pod gets that is evicted for a soft threshold
    interval: float = 10.0
    patience: float = 30.0  #: how long an evicted pod is waited for before the next may go
    count_claims: bool = True
    pod_level: bool = True


# -- decisions


def observe(seen: Seen, look: Available, settings: PressureSettings, now: float) -> Observed:
    """Go from one look at the machine to the next."""
    met = [t for t in settings.thresholds if _is_met(t, look, reclaim=False)]
    # What counted before is not over until what is to be reclaimed beyond it is free too.
    met += [t for t in seen.met if t not in met and _is_met(t, look, reclaim=True)]
    since = {threshold: seen.since.get(threshold, now) for threshold in met}
    shown = {**seen.shown, **{threshold.condition: now for threshold in met}}
    conditions = tuple(c for c in CONDITIONS if c in shown and now - shown[c] < settings.transition)
    starving = tuple(t for t in most_urgent(met) if now - since[t] >= t.grace)
    # With no transition period at all a condition is shown while it is the case.
    if settings.transition <= 0:
        conditions = tuple(c for c in CONDITIONS if any(t.condition == c for t in met))
    return Observed(Seen(starving, since, shown), conditions, starving)


def _is_met(threshold: Threshold, look: Available, *, reclaim: bool) -> bool:
    measure = look.signals.get(threshold.signal)
    if measure is None:
        return False
    wanted = threshold.amount_to_reclaim(measure.capacity) if reclaim else threshold.amount(measure.capacity)
    return wanted > Quantity.of(measure.available)


def choose(
    starving: Sequence[Threshold], look: Available, pods: Iterable[Pod], settings: PressureSettings
) -> tuple[Pod, Eviction] | None:
    """The pod that has to go for the most urgent threshold; None if there is none that may."""
    if not starving:
        return None
    threshold = starving[0]
    resource = threshold.resource
    candidates = [pod for pod in pods if not is_critical(pod)]
    usages = [Usage(pod, _used(pod, resource, look)) for pod in candidates]
    order = rank(usages, resource, count_claims=settings.count_claims)
    if not order:
        return None
    pod = order[0].pod
    message, annotations = eviction_message(resource, pod, starving, look, pod_level=settings.pod_level)
    grace = _AT_ONCE
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
    return pod, Eviction(
        resource=resource,
        signal=threshold.signal,
        message=message,
        grace=grace,
        condition=condition,
        annotations=annotations,
    )


def _used(pod: Pod, resource: str, look: Available) -> Quantity | None:
    measure = look.pods.get(pod_key(pod))
    used = None if measure is None else measure.used.get(resource)
    return None if used is None else Quantity.of(used, Format.BINARY_SI)


def eviction_message(
    resource: str, pod: Pod, starving: Iterable[Threshold], look: Available, *, pod_level: bool = True
) -> tuple[str, dict[str, str]]:
    """Why a pod was evicted, for its status; and the annotations of the event about it."""
    message = f"The node was low on resource: {resource}. "
    for threshold in starving:
        measure = look.signals.get(threshold.signal)
        if threshold.resource == resource and measure is not None:
            available = Quantity.of(measure.available, Format.BINARY_SI)
            message += f"Threshold quantity: {threshold.amount(measure.capacity)}, available: {available}. "
            break
    measured = look.pods.get(pod_key(pod))
    if measured is None:
        return message, {}
    annotations: dict[str, str] = {}
    if resource == "memory":
        if pod_level and pod_level_resources_set(pod) and "memory" in measured.used:
            assert pod.spec.resources is not None
            request = pod.spec.resources.requests.get("memory")
            if request is not None:
                used = Quantity.of(measured.used["memory"], Format.BINARY_SI)
                message += _consumes("Pod", pod.metadata.name, used, request, resource)
                annotations |= {"offending_pod": pod.metadata.name, "offending_pod_usage": str(used)}
        message += _blame_containers(pod, measured, annotations)
    else:
        annotations |= {"offending_containers": "", "offending_containers_usage": ""}
    annotations["starved_resource"] = resource
    return message, annotations


def _blame_containers(pod: Pod, measured: PodMeasure, annotations: dict[str, str]) -> str:
    """What the containers above their request use; adds to `annotations`."""
    text, names, usages = "", [], []
    for container in (*pod.spec.containers, *pod.spec.init_containers):
        if container.name not in measured.containers:
            continue
        used = Quantity.of(measured.containers[container.name], Format.BINARY_SI)
        request = container.resources.requests.get("memory", ZERO)
        if used > request:
            text += _consumes("Container", container.name, used, request, "memory")
            names.append(container.name)
            usages.append(str(used))
    annotations["offending_containers"] = ",".join(names)
    annotations["offending_containers_usage"] = ",".join(usages)
    return text


def _consumes(what: str, name: str, used: Quantity, request: Quantity, resource: str) -> str:
    return f"{what} {name} was using {used}, request is {request}, has larger consumption of {resource}. "


def admit_under(conditions: Sequence[str], pod: Pod, *, form: Form = Form.V1_36) -> Admission:
    """Whether a node with these conditions takes one more pod.

    Critical pods always; others only where memory is all that is short, and of those BestEffort pods only if
    they tolerate it.
    """
    if not conditions or is_critical(pod):
        return Admission(True)
    can_do = pod_qos(pod, form) != BEST_EFFORT or tolerated(pod.spec.tolerations, _MEMORY_TAINT)
    if can_do and tuple(conditions) == (MEMORY_PRESSURE,):
        return Admission(True)
    return Admission(False, EVICTED, f"The node had condition: [{' '.join(conditions)}]. ")


# -- the loop


class SetCondition(Protocol):
    def __call__(self, type: str, holds: bool, /) -> None: ...


class PressureWatch:
    """Looks at a machine every now and then and does what has to be done: one pod at a time.

    `read` may return something to wait for, so that files are read in threads (`measures.look`). `evict`
    returns when the pod was told to go; the watch then waits, but not for ever, until `pods` has it no more
    before the next one goes.
    """

    def __init__(
        self,
        read: Callable[[], Available | Awaitable[Available]],
        pods: Callable[[], Sequence[Pod]],
        evict: Callable[[Pod, Eviction], Awaitable[None]],
        set_condition: SetCondition,
        *,
        settings: PressureSettings,
        clock: Callable[[], float],
        reclaiming: Callable[[str], None] | None = None,
    ) -> None:
        self._read = read
        self._pods = pods
        self._evict = evict
        self._set_condition = set_condition
        self._settings = settings
        self._clock = clock
        self._reclaiming = reclaiming
        self._seen = Seen()
        self._conditions: tuple[str, ...] = ()
        self.evictions: dict[str, int] = {}  #: how many, by signal

    @property
    def conditions(self) -> tuple[str, ...]:
        """What is the case now; for `admit_under`."""
        return self._conditions

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            evicted = None
            try:
                evicted = await self.step()
            except Exception:
                # Whatever it is, a node that stopped watching would be worse.
                _log.exception("watching for pressure failed; it goes on")
            if evicted is None:
                await asyncio.sleep(self._settings.interval)
            else:
                await self._wait_for(evicted)

    async def step(self) -> Pod | None:
        """One look, and at most one eviction: of the pod that is returned."""
        try:
            look = await self._look()
        except OSError as error:
            _log.warning("the machine could not be measured: %s", error)
            return None
        observed = observe(self._seen, look, self._settings, self._clock())
        self._seen = observed.seen
        self._conditions = observed.conditions
        for condition in CONDITIONS:
            self._set_condition(condition, condition in observed.conditions)
        if not observed.starving:
            return None
        if self._reclaiming is not None:
            self._reclaiming(f"Attempting to reclaim {observed.starving[0].resource}")
        chosen = choose(observed.starving, look, self._pods(), self._settings)
        if chosen is None:
            _log.warning("the node is short of %s, and no pod may be evicted", observed.starving[0].resource)
            return None
        pod, eviction = chosen
        _log.info("evicting pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, eviction.message)
        await self._evict(pod, eviction)
        self.evictions[eviction.signal] = self.evictions.get(eviction.signal, 0) + 1
        return pod

    async def _look(self) -> Available:
        look = self._read()
        return await look if isinstance(look, Awaitable) else look

    async def _wait_for(self, evicted: Pod) -> None:
        """Wait until a pod is gone; what it frees is not seen before."""
        waited = 0.0
        while waited < self._settings.patience:
            if all(pod_key(pod) != pod_key(evicted) for pod in self._pods()):
                return
            pause = min(0.25, self._settings.interval)
            await asyncio.sleep(pause)
            waited += pause
