"""Default topology spread constraints, for pods that have none.

Their selector is that of the pod's Services and of its controller (ReplicationController, ReplicaSet or
StatefulSet), all of which must match. A pod that nothing selects is not spread.
"""

from __future__ import annotations

from typing import Any

from plimsoll.api.core import Pod, TopologySpreadConstraint
from plimsoll.api.label_selection import (
    IN,
    MATCH_EVERYTHING,
    CompiledLabelRequirement,
    CompiledLabelSelector,
    SelectorProblem,
    compile_label_selector,
)
from plimsoll.api.meta import OwnerReference
from plimsoll.api.workloads import (
    SELECTING_KINDS,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.snapshot.index import SnapshotIndex
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.scheduler.topology.constraints import (
    SCHEDULE_ANYWAY,
    SpreadConstraint,
    read_constraint,
    read_constraints,
)

#: Constraints of kube-scheduler's default profile (`defaultingType: System`).
SYSTEM_CONSTRAINTS = (
    TopologySpreadConstraint(
        max_skew=3, topology_key="kubernetes.io/hostname", when_unsatisfiable=SCHEDULE_ANYWAY
    ),
    TopologySpreadConstraint(
        max_skew=5, topology_key="topology.kubernetes.io/zone", when_unsatisfiable=SCHEDULE_ANYWAY
    ),
)
_CONTROLLERS: dict[tuple[str, str], type[Any]] = {
    ("v1", "ReplicationController"): ReplicationController,
    ("apps/v1", "ReplicaSet"): ReplicaSet,
    ("apps/v1", "StatefulSet"): StatefulSet,
}
#: Maximum number of cached selectors in a namespace.
_MAX_SELECTORS = 1024


class DefaultSelectors(SnapshotIndex):
    """Selectors of pods by namespace, labels and controller."""

    kinds = (*SELECTING_KINDS,)

    def __init__(self) -> None:
        self._services: dict[str, dict[str, Service]] = {}
        self._cached: dict[str, dict[object, CompiledLabelSelector]] = {}

    def object_changed(self, old: Any, new: Any) -> None:
        changed = new if new is not None else old
        if type(changed) not in SELECTING_KINDS or (old and new and old.spec == new.spec):
            return
        namespace, name = changed.metadata.key
        self._cached.pop(namespace, None)
        if isinstance(changed, Service):
            services = self._services.setdefault(namespace, {})
            services.pop(name, None)
            if new is not None:
                services[name] = new
            elif not services:
                del self._services[namespace]

    def selector_of(self, pod: Pod, snapshot: Snapshot) -> CompiledLabelSelector:
        """Return the selector of a pod; one without requirements if nothing selects the pod."""
        owner = _controller(pod)
        if owner is None and pod.metadata.namespace not in self._services:
            return MATCH_EVERYTHING
        known = self._cached.setdefault(pod.metadata.namespace, {})
        key = frozenset(pod.metadata.labels.items()), owner
        found = known.get(key)
        if found is None:
            if len(known) >= _MAX_SELECTORS:
                known.clear()
            found = known[key] = self._find(pod, owner, snapshot)
        return found

    def _find(self, pod: Pod, owner: OwnerReference | None, snapshot: Snapshot) -> CompiledLabelSelector:
        namespace, labels = pod.metadata.namespace, pod.metadata.labels
        merged: dict[str, str] = {}
        for service in self._services.get(namespace, {}).values():
            selector = service.spec.selector
            if selector and all(labels.get(key) == value for key, value in selector.items()):
                merged |= selector
        kind = None if owner is None else _CONTROLLERS.get((owner.api_version, owner.kind))
        controller = None if kind is None or owner is None else snapshot.find(kind, namespace, owner.name)
        more: tuple[CompiledLabelRequirement, ...] = ()
        if isinstance(controller, ReplicationController):
            merged |= controller.spec.selector
        elif controller is not None:
            compiled = compile_label_selector(controller.spec.selector)
            if not isinstance(compiled, SelectorProblem):
                more = compiled.requirements
        own = (CompiledLabelRequirement(key, IN, (value,)) for key, value in merged.items())
        return MATCH_EVERYTHING.narrowed((*own, *more))


def _controller(pod: Pod) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def is_system_defaulted(pod: Pod, profile: SchedulerProfile) -> bool:
    """Return whether the constraints of a pod are the default ones of Kubernetes."""
    return not pod.spec.topology_spread_constraints and profile.default_constraints is None


def spread_constraints(
    pod_info: PodInfo, snapshot: Snapshot, when: str
) -> tuple[SpreadConstraint, ...] | SelectorProblem:
    """Return the constraints of one kind: those of the pod, or else the default ones."""
    if pod_info.pod.spec.topology_spread_constraints:
        return read_constraints(pod_info.pod, when)
    return default_constraints(pod_info, snapshot, when)


def default_constraints(pod_info: PodInfo, snapshot: Snapshot, when: str) -> tuple[SpreadConstraint, ...]:
    """Return the default constraints of one kind for a pod that has none of its own."""
    given = pod_info.profile.default_constraints
    if given is None and when != SCHEDULE_ANYWAY:
        return ()
    wanted = [
        each for each in (SYSTEM_CONSTRAINTS if given is None else given) if each.when_unsatisfiable == when
    ]
    if not wanted:
        return ()
    selector = snapshot.index(DefaultSelectors).selector_of(pod_info.pod, snapshot)
    if not selector.requirements:
        return ()
    return tuple(read_constraint(pod_info.pod, each, selector) for each in wanted)
