"""START HERE: `schedule_one`, one scheduling attempt of one pod.

A pure function of a pod, a snapshot and a profile. It prepares the filters that apply to the pod, evaluates
each for all nodes at once, scores the remaining nodes, and searches devices within node headroom on the best
node first, until a node fits. The result is a `Placement` or a `FitError`. The snapshot is not changed: the
caller assumes the placement before it schedules the next pod.

The scheduler process, `explain` and `whatif` all run this pipeline. A `CycleObserver` receives its steps: the
nodes that each rule excluded, for explanations, or the duration of each plugin, for metrics.
"""

from __future__ import annotations

from plimsoll.api.core import Pod
from plimsoll.ledger.columns import Mask
from plimsoll.scheduler.devices import DynamicResourcesFilter, NewId
from plimsoll.scheduler.filter_result import FilterResult
from plimsoll.scheduler.filters import FILTERS
from plimsoll.scheduler.filters.filter import Filter
from plimsoll.scheduler.node_selection import NominationCheck, select_node
from plimsoll.scheduler.observer import CycleObserver
from plimsoll.scheduler.pod_claims import PRE_ENQUEUE_REASONS, STALE_CLAIM, read_pod_info
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import DeviceOrder, SchedulerProfile, SelectorErrors
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.scheduler.scores import score_nodes
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.unschedulable_cache import UnschedulableCache


def schedule_pod(
    pod: Pod,
    snapshot: Snapshot,
    settings: SchedulerProfile,
    new_id: NewId,
    nominations: NominationCheck | None = None,
    observer: CycleObserver | None = None,
    *,
    allowed: Mask | None = None,
) -> Placement | FitError | NodeReason:
    """Schedule a pod with the claims of the snapshot; return a reason if it must not be attempted yet."""
    pod_info = read_pod_info(pod, snapshot, settings)
    if isinstance(pod_info, NodeReason):
        return pod_info if pod_info.message in PRE_ENQUEUE_REASONS else reject_pod(pod, snapshot, pod_info)
    return schedule_one(pod_info, snapshot, settings, new_id, nominations, observer, allowed=allowed)


def reject_pod(pod: Pod, snapshot: Snapshot, reason: NodeReason) -> FitError:
    """Return the result for a pod that is rejected before any node is considered."""
    return FitError(PodInfo(pod, (), snapshot.options), len(snapshot), ((reason, 0),))


def schedule_one(
    pod_info: PodInfo,
    snapshot: Snapshot,
    settings: SchedulerProfile,
    new_id: NewId,
    nominations: NominationCheck | None = None,
    observer: CycleObserver | None = None,
    *,
    allowed: Mask | None = None,
) -> Placement | FitError:
    """Find the best node for a pod and devices for its claims, or return why no node fits.

    With `allowed`, only these rows are considered. Cached results are used neither then nor with an observer
    that needs all steps.
    """
    pod_info = pod_info.with_profile(settings)
    if observer is not None:
        observer.on_start()
    if pod_info.stale_claim is not None:
        return FitError(pod_info, len(snapshot), ((STALE_CLAIM, len(snapshot)),))
    cache = snapshot.index(UnschedulableCache)
    # With devices first, allocating a device may make another choice fit.
    is_cacheable = settings.device_order is DeviceOrder.JOINT and allowed is None
    uses_cache = is_cacheable and (observer is None or not observer.needs_all_steps)
    cached = cache.get(pod_info, snapshot) if uses_cache else None
    if cached is not None:
        return cached

    filter_result = run_filters(pod_info, snapshot, settings, new_id, observer)
    if isinstance(filter_result, NodeReason):
        return FitError(pod_info, len(snapshot), ((filter_result, 0),))
    if allowed is not None:
        filter_result.restrict(allowed)
    filter_result.filter_devices()
    if settings.selector_errors is SelectorErrors.PENDING and (error := filter_result.find_selector_error()):
        return FitError(pod_info, len(snapshot), ((error, 1),), is_error=True)
    if settings.searches_all_nodes(len(snapshot)) and (error := filter_result.search_all()):
        return FitError(pod_info, len(snapshot), ((error, 1),))
    while (sample := filter_result.sample(settings.nodes_to_score(len(snapshot)))) is not None:
        scores = score_nodes(pod_info, snapshot, settings, sample, observer)
        placement = select_node(filter_result, settings, scores, nominations, sample)
        if placement is not None:
            return placement
    fit_error = filter_result.fit_error()
    return (
        fit_error
        if filter_result.blocked_by_nomination or not is_cacheable
        else cache.put(pod_info, snapshot, fit_error)
    )


def run_filters(
    pod_info: PodInfo,
    snapshot: Snapshot,
    settings: SchedulerProfile,
    new_id: NewId,
    observer: CycleObserver | None = None,
) -> FilterResult | NodeReason:
    """Evaluate all filters but devices, or return the reason why no node can fit."""
    filters = build_filters(pod_info, snapshot, settings, new_id, observer)
    if isinstance(filters, NodeReason):
        return filters
    filter_result = FilterResult(pod_info, snapshot, observer)
    for rule in filters:
        filter_result.apply(rule)
    return filter_result


def build_filters(
    pod_info: PodInfo,
    snapshot: Snapshot,
    settings: SchedulerProfile,
    new_id: NewId,
    observer: CycleObserver | None = None,
) -> list[Filter] | NodeReason:
    """Return the filters that apply to a pod, devices last, or the reason why no node can fit."""
    filters: list[Filter] = []
    pod_info, disabled = pod_info.with_profile(settings), settings.disabled_filters
    for kind in FILTERS:
        if disabled and kind.rule.value in disabled:
            continue
        rule = kind.pre_filter(pod_info, snapshot)
        if observer is not None:
            observer.on_pre_filter(kind.rule, rule)
        if isinstance(rule, NodeReason):
            return rule
        if rule is not None:
            filters.append(rule)
    if pod_info.claims:
        devices = DynamicResourcesFilter(pod_info, snapshot, new_id, settings)
        filters.append(devices)
        if observer is not None:
            observer.on_pre_filter(devices.rule, devices)
    return filters
