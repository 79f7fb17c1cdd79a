"""ResourceQuota controller: keeps the status of quotas up to date.

A quota is recomputed when it changes, when an object it counts is added, deleted or changes its usage, and
periodically, because terminating pods stop counting with time. Usage per object is defined in
`quota/usage.py`, scopes in `quota/scopes.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.api.kinds import resource_key
from plimsoll.api.meta import Wire
from plimsoll.api.pod_claims import find_requesting_pod
from plimsoll.api.quantity import Quantity
from plimsoll.api.quota import CountedService, CountedVolumeClaim, ResourceQuota
from plimsoll.api.resource import ResourceClaim
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SERVICES,
    Endpoint,
)
from plimsoll.client.informer import CallbackHandler
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, PatchAction
from plimsoll.controllers.context import ControllerContext, deletable_endpoints
from plimsoll.controllers.pod_utils import ObjectName, object_name
from plimsoll.controllers.quota import usage as quota_usage
from plimsoll.controllers.quota.scopes import (
    filter_usage,
    is_terminating,
    matches_scopes,
    matching_resources,
    scope_requirements,
)
from plimsoll.controllers.quota.usage import (
    NONE,
    VIEW_TYPES,
    ExtendedResourceNames,
    QuotaContext,
    compute_usage,
    count_usage,
    pod_usage_with_claims,
)
from plimsoll.controllers.shared_informers import ObjectIndex
from plimsoll.controllers.work_queue import WorkQueue
from plimsoll.ledger.amounts import add_amounts
from plimsoll.ledger.charges import read_charges
from plimsoll.ledger.node_ledger import pod_key

#: Seconds for which a quota must be unchanged before its usage is lowered.
SETTLED_AFTER = 1.0


@dataclass(frozen=True, slots=True)
class NamespaceObjects:
    """Objects of a namespace, as counted by quotas."""

    pods: Sequence[Pod] = ()
    claims: Sequence[ResourceClaim] = ()
    volume_claims: Sequence[CountedVolumeClaim] = ()
    services: Sequence[CountedService] = ()
    counts: Mapping[str, int] = field(
        default_factory=dict
    )  #: `plural.group` -> number of objects, for every kind
    extended: ExtendedResourceNames = field(default_factory=ExtendedResourceNames)
    gates: Gates = field(default_factory=Gates.default)

    def measured(self) -> Iterator[tuple[str, Sequence[Wire]]]:
        """Yield the objects that count for more than their number, by kind."""
        yield quota_usage.PODS, self.pods
        yield quota_usage.CLAIMS, self.claims
        yield quota_usage.VOLUME_CLAIMS, self.volume_claims
        yield quota_usage.SERVICES, self.services

    def usage_context(self, now: float) -> QuotaContext:
        pods = {pod.metadata.name: pod for pod in self.pods}
        made: dict[str, list[ResourceClaim]] = {}
        for claim in self.claims:
            owner = find_requesting_pod(claim)
            if owner is not None:
                made.setdefault(owner.uid, []).append(claim)
        charged: dict[str, list[Pod]] = {}
        for pod in self.pods if self.gates.enabled("DRANodeAllocatableResourcesQuota") else ():
            for charge in read_charges(pod):
                charged.setdefault(charge.claim, []).append(pod)

        def find_consumers(pod: Pod, claim: str) -> Iterator[Pod]:
            """Yield the pods that are older: each pod counts what it adds to theirs."""
            return (other for other in charged.get(claim, ()) if _age(other) < _age(pod))

        return QuotaContext(
            datetime.fromtimestamp(now, UTC),
            gates=self.gates,
            find_consumers=find_consumers,
            extended=self.extended,
            find_pod=pods.get,
            find_claims=lambda uid: made.get(uid, ()),
        )


def plan_quota(
    quota: ResourceQuota, contents: NamespaceObjects, now: float, *, unchanged_for: float = SETTLED_AFTER
) -> ActionPlan:
    """Plan the update of a quota's status; `unchanged_for` is the number of seconds since it last changed.

    Admission charges a quota before the object exists: a quota that was just charged is not lowered, because
    the object may not be in the cache yet.
    """
    hard = quota.spec.hard
    before = quota.status.used or {}
    used = {name: amount for name, amount in before.items() if name in hard}
    used.update(measure(quota, contents, now))
    if quota.status.hard is not None and quota.status.used is not None:
        same = _as_strings(quota.status.hard) == _as_strings(hard) and quota.status.used == used
        if same:
            return EMPTY_PLAN
        if unchanged_for < SETTLED_AFTER and any(
            used[name] < before[name] for name in used if name in before
        ):
            return ActionPlan(requeue_after=SETTLED_AFTER - unchanged_for)
    patch = {
        "metadata": {"resourceVersion": quota.metadata.resource_version},
        "status": {
            "hard": _replacement(quota.status.hard, hard),
            "used": _replacement(quota.status.used, used),
        },
    }
    metadata = quota.metadata
    return ActionPlan(
        (
            PatchAction(
                RESOURCE_QUOTAS, metadata.name, patch, namespace=metadata.namespace, subresource="status"
            ),
        )
    )


def measure(quota: ResourceQuota, contents: NamespaceObjects, now: float) -> dict[str, Quantity]:
    """Sum the usage of those resources of a quota that can be measured."""
    hard, scopes = quota.spec.hard, scope_requirements(quota.spec)
    context = contents.usage_context(now)
    usage: dict[str, Quantity] = {}
    for resource, items in contents.measured():
        names = matching_resources(resource, hard, context)
        add_amounts(usage, dict.fromkeys(names, NONE))
        for item in items if names else ():
            if matches_scopes(item, scopes, context.gates):
                add_amounts(usage, filter_usage(compute_usage(resource, item, context), hard))
    for resource, number in contents.counts.items():
        if resource not in VIEW_TYPES:
            names = matching_resources(resource, hard, context)
            add_amounts(usage, dict.fromkeys(names, NONE))
            if names and not scopes:  # scopes do not apply to objects that are only counted
                add_amounts(usage, filter_usage(count_usage(resource, number), hard))
    return usage


# -- patches


def _as_strings(amounts: Mapping[str, Quantity]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


def _replacement(old: Mapping[str, Quantity] | None, new: Mapping[str, Quantity]) -> dict[str, Any]:
    """Build a merge patch that leaves exactly the new amounts."""
    return {**dict.fromkeys(old or (), None), **_as_strings(new)}


#: Delay before a quota is recomputed after changes: a minimum in seconds, and a multiple of the duration of
#: the last computation.
_MIN_BATCH_SECONDS, _BATCH_FACTOR = 0.1, 10


class ResourceQuotaController:
    """Controller of quotas; keys are namespace and name."""

    name = "resourcequota-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[ObjectName] = WorkQueue(context.clock)
        informers = context.informers
        self._quotas = informers.get(RESOURCE_QUOTAS)
        self._classes = informers.get(DEVICE_CLASSES) if context.serves(DEVICE_CLASSES) else None
        self._by_namespace: dict[str, ObjectIndex[Any, str]] = {}
        self._extended: ExtendedResourceNames | None = None
        self._batch_seconds = _MIN_BATCH_SECONDS
        self._changed_at: dict[ObjectName, float] = {}  # time of the last observed change of each quota
        for endpoint in deletable_endpoints(context.served):
            if endpoint.namespaced:
                index = self._by_namespace[_key(endpoint)] = ObjectIndex(_namespace)
                informer = informers.get(endpoint)
                informer.add_handler(index)
                informer.add_handler(CallbackHandler(partial(self._on_content, _key(endpoint) in VIEW_TYPES)))
        self._quotas.add_handler(CallbackHandler(self._on_quota))
        if self._classes is not None:
            self._classes.add_handler(CallbackHandler(self._on_class))

    def _on_quota(self, old: ResourceQuota | None, new: ResourceQuota | None) -> None:
        if new is None:
            assert old is not None
            self._changed_at.pop(object_name(old.metadata), None)
            return
        self._changed_at[object_name(new.metadata)] = self._context.clock.now()
        if old is None or old.spec != new.spec or new.status.used is None:
            self.queue.add(object_name(new.metadata))

    def _on_content(self, measured: bool, old: Any, new: Any) -> None:
        if old is not None and new is not None and not measured:
            return
        index = self._by_namespace.get(_key(RESOURCE_QUOTAS))
        quotas = [] if index is None else index.find((new or old).metadata.namespace)
        if quotas and not self._has_same_usage(old, new):
            for quota in quotas:
                self.queue.add_after(object_name(quota.metadata), self._batch_seconds)

    def _has_same_usage(self, old: Any, new: Any) -> bool:
        """Return whether a change does not affect usage, as most pod updates."""
        if not isinstance(old, Pod) or not isinstance(new, Pod):
            return False
        if is_terminating(old) != is_terminating(new):
            return False
        if old.status.extended_resource_claim_status != new.status.extended_resource_claim_status:
            return False
        if old.status.qos_class != new.status.qos_class:
            return False
        context = QuotaContext(
            datetime.fromtimestamp(self._context.clock.now(), UTC), self._context.settings.gates
        )
        return pod_usage_with_claims(old, context) == pod_usage_with_claims(new, context)

    def _on_class(self, old: Any, new: Any) -> None:
        self._extended = None
        for quota in self._quotas.items():
            self.queue.add(object_name(quota.metadata))

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        quota: ResourceQuota | None = self._quotas.get(key.namespace, key.name)
        if quota is None:
            return EMPTY_PLAN
        now = self._context.clock.now()
        unchanged_for = now - self._changed_at.get(key, now)
        plan = plan_quota(quota, self._namespace_objects(key.namespace), now, unchanged_for=unchanged_for)
        self._batch_seconds = max(_MIN_BATCH_SECONDS, _BATCH_FACTOR * (self._context.clock.now() - now))
        await self._context.executor.execute(plan.actions)
        return ActionPlan(
            requeue_after=self._context.settings.quota_period
            if plan.requeue_after is None
            else plan.requeue_after
        )

    def _namespace_objects(self, namespace: str) -> NamespaceObjects:
        if self._extended is None:
            self._extended = ExtendedResourceNames.of(
                self._classes.items() if self._classes is not None else ()
            )

        def find(endpoint: Endpoint) -> list[Any]:
            index = self._by_namespace.get(_key(endpoint))
            return index.find(namespace) if index is not None else []

        return NamespaceObjects(
            pods=find(PODS),
            claims=find(RESOURCE_CLAIMS),
            volume_claims=find(PERSISTENT_VOLUME_CLAIMS),
            services=find(SERVICES),
            counts={kind: len(index.find(namespace)) for kind, index in self._by_namespace.items()},
            extended=self._extended,
            gates=self._context.settings.gates,
        )


def _age(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod_key(pod)


def _key(endpoint: Endpoint) -> str:
    return resource_key(endpoint.group, endpoint.plural)


def _namespace(item: Any) -> list[str]:
    return [item.metadata.namespace]
