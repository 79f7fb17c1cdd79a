"""Device taint eviction controller: watches taints of devices, evicts pods and updates DeviceTaintRules."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.api.kept import is_kept
from plimsoll.api.pod_claims import is_group, pod_group_of
from plimsoll.api.resource import (
    DeviceRequestAllocationResult,
    DeviceTaint,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from plimsoll.client.endpoints import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.client.informer import CallbackHandler
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.device_taint_eviction.plan import (
    NO_EFFECT,
    NO_EXECUTE,
    EvictionCause,
    PlannedEviction,
    cancellation_event,
    plan_eviction,
    pod_eviction,
    published_taints,
    rule_taints,
    selects_device,
)
from plimsoll.controllers.device_taint_eviction.rule_status import (
    STATUS_PERIOD,
    RuleEffects,
    next_status_update,
    plan_rule,
)
from plimsoll.controllers.pod_utils import claim_names, is_pod, object_name
from plimsoll.controllers.shared_informers import ObjectIndex
from plimsoll.controllers.work_queue import WorkQueue

_MAX_REMEMBERED = 500


class _WorkKey(NamedTuple):
    """Key of a pod or a rule, with its UID: never matches a later object of the same name."""

    kind: Literal["pod", "rule"]
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(filter(None, (self.namespace, self.name)))}"


class DeviceTaintEvictionController:
    """Controller around the plans of `plan.py` and `rule_status.py`."""

    name = "device-taint-eviction-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[_WorkKey] = WorkQueue(context.clock)
        informers = context.informers
        self._pods = informers.get(PODS)
        self._claims = informers.get(RESOURCE_CLAIMS)
        self._slices = informers.get(RESOURCE_SLICES)
        self._rules = informers.get(DEVICE_TAINT_RULES) if context.serves(DEVICE_TAINT_RULES) else None
        self._pools: ObjectIndex[ResourceSlice, PoolId] = ObjectIndex(_pool_of)
        self._users: ObjectIndex[ResourceClaim, PoolId] = ObjectIndex(_pools_of)
        self._grouped_pods: ObjectIndex[Pod, tuple[str, str]] = ObjectIndex(_group_of)
        self._taints: dict[PoolId, dict[str, list[tuple[EvictionCause, DeviceTaint, float]]]] = {}
        self._planned: dict[_WorkKey, PlannedEviction] = {}
        self._evicted: dict[str, None] = {}
        self._counts: dict[str, int] = {}  # rule UID -> number of evicted pods
        self._slices.add_handler(self._pools)
        self._claims.add_handler(self._users)
        self._slices.add_handler(CallbackHandler(self._on_slice))
        self._claims.add_handler(CallbackHandler(self._on_claim))
        self._pods.add_handler(self._grouped_pods)
        self._pods.add_handler(CallbackHandler(self._on_pod))
        if self._rules is not None:
            self._rules.add_handler(CallbackHandler(self._on_rule))

    # -- event handlers

    def _on_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        for pool in {pool for item in (old, new) if item is not None for pool in _pool_of(item)}:
            before = self._taints.get(pool, {})
            after = published_taints(self._pools.find(pool))
            if after:
                self._taints[pool] = after
            else:
                self._taints.pop(pool, None)
            if before != after:
                self._wake_users(self._users.find(pool))

    def _on_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        self._wake_users(item for item in (old, new) if item is not None)

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None
            self._planned.pop(_pod_key(old), None)
        elif new.spec.resource_claims and (
            old is None
            or old.spec.node_name != new.spec.node_name
            or old.status.resource_claim_statuses != new.status.resource_claim_statuses
            or is_kept(old.metadata) != is_kept(new.metadata)
        ):
            self.queue.add(_pod_key(new))

    def _on_rule(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        if new is None:
            assert old is not None
            self._counts.pop(old.metadata.uid, None)
        elif old is None or old.spec != new.spec:
            self.queue.add(_rule_key(new))
        else:
            return
        self._wake_users(self._claims.items())

    def _wake_users(self, claims: Iterable[ResourceClaim]) -> None:
        for claim in claims:
            for consumer in claim.status.reserved_for:
                if is_pod(consumer):
                    self.queue.add(_WorkKey("pod", claim.metadata.namespace, consumer.name, consumer.uid))
                elif is_group(consumer):
                    for pod in self._grouped_pods.find((claim.metadata.namespace, consumer.name)):
                        self.queue.add(_pod_key(pod))

    # -- reconcile

    async def reconcile(self, key: _WorkKey) -> ActionPlan:
        if key.kind == "rule":
            return await self._reconcile_rule(key)
        return await self._reconcile_pod(key)

    async def _reconcile_pod(self, key: _WorkKey) -> ActionPlan:
        pod: Pod | None = self._pods.get(key.namespace, key.name)
        if pod is None or pod.metadata.uid != key.uid:
            self._planned.pop(key, None)
            return EMPTY_PLAN
        if pod.metadata.deletion_timestamp is not None or key.uid in self._evicted:
            return EMPTY_PLAN
        eviction = None if is_kept(pod.metadata) else self._plan_eviction(pod, self._all_rules())
        if eviction is None:
            if self._planned.pop(key, None) is not None:
                await self._context.recorder.record(cancellation_event(pod))
            return EMPTY_PLAN
        self._planned[key] = eviction
        wait = eviction.when - self._context.clock.now()
        if wait > 0:
            self._update_rules_later(eviction)
            return ActionPlan(requeue_after=wait)
        if await self._evict(key):
            self._evicted[key.uid] = None
            while len(self._evicted) > _MAX_REMEMBERED:
                self._evicted.pop(next(iter(self._evicted)))
            for cause in eviction.causes:
                if cause.rule_uid:
                    self._counts[cause.rule_uid] = self._counts.get(cause.rule_uid, 0) + 1
        self._planned.pop(key, None)
        self._update_rules_later(eviction)
        return EMPTY_PLAN

    async def _evict(self, key: _WorkKey) -> bool:
        """Evict a pod; return whether it still existed."""
        raw = await self._context.find_raw(PODS, key.name, key.namespace)
        pod = None if raw is None else codec.decode(raw, Pod)
        if pod is None or pod.metadata.uid != key.uid:
            return False
        await self._context.executor.execute(plan_eviction(pod, self._context.clock.now()).actions)
        return True

    def _update_rules_later(self, eviction: PlannedEviction) -> None:
        """Schedule a status update of the rules involved; delayed to batch evictions and let caches catch
        up.
        """
        for cause in eviction.causes:
            if cause.rule_uid:
                self.queue.add_after(_WorkKey("rule", "", cause.rule, cause.rule_uid), STATUS_PERIOD)

    def _all_rules(self) -> list[DeviceTaintRule]:
        return self._rules.items() if self._rules is not None else []

    def _plan_eviction(self, pod: Pod, rules: list[DeviceTaintRule]) -> PlannedEviction | None:
        namespace = pod.metadata.namespace
        claims = {
            name: claim
            for name in claim_names(pod)
            if (claim := self._claims.get(namespace, name)) is not None
        }

        def tainting(
            result: DeviceRequestAllocationResult,
        ) -> Iterator[tuple[EvictionCause, DeviceTaint, float]]:
            yield from self._taints.get(DeviceId.of(result).pool_id, {}).get(result.device, ())
            yield from rule_taints(rules, result)

        return pod_eviction(pod, claims, tainting)

    async def _reconcile_rule(self, key: _WorkKey) -> ActionPlan:
        rule: DeviceTaintRule | None = self._rules.get("", key.name) if self._rules is not None else None
        if rule is None or rule.metadata.uid != key.uid:
            return EMPTY_PLAN
        now = self._context.clock.now()
        wait = next_status_update(rule, now)
        if wait > 0:
            return ActionPlan(requeue_after=wait)
        plan = plan_rule(rule, self._count(rule), now)
        await self._context.executor.execute(plan.actions)
        return plan

    def _count(self, rule: DeviceTaintRule) -> RuleEffects:
        effect = rule.spec.taint.effect
        evicted = self._counts.get(rule.metadata.uid, 0)
        if effect not in (NO_EXECUTE, NO_EFFECT):
            return RuleEffects(evicted=evicted)
        rules = self._all_rules()
        if effect == NO_EFFECT:
            acting = codec.convert({**codec.to_tree(rule), "spec": _with_no_execute(rule)}, DeviceTaintRule)
            rules = [acting]
        pods = [pod for pod in self._pods.items() if self._is_evicted_by(pod, rule.metadata.uid, rules)]
        devices = allocated = 0
        if effect == NO_EFFECT:
            devices = self._count_published(rule)
            allocated = self._count_allocated(rule)
        namespaces = {pod.metadata.namespace for pod in pods}
        return RuleEffects(len(pods), len(namespaces), evicted, devices, allocated)

    def _is_evicted_by(self, pod: Pod, uid: str, rules: list[DeviceTaintRule]) -> bool:
        if pod.metadata.deletion_timestamp is not None or not pod.spec.resource_claims:
            return False
        eviction = self._plan_eviction(pod, rules)
        return eviction is not None and any(cause.rule_uid == uid for cause in eviction.causes)

    def _count_published(self, rule: DeviceTaintRule) -> int:
        newest: dict[PoolId, int] = {}
        for item in self._slices.items():
            (pool,) = _pool_of(item)
            newest[pool] = max(newest.get(pool, item.spec.pool.generation), item.spec.pool.generation)
        return sum(
            selects_device(rule, DeviceId(*pool, device.name))
            for item in self._slices.items()
            for pool in _pool_of(item)
            if item.spec.pool.generation == newest[pool]
            for device in item.spec.devices or ()
        )

    def _count_allocated(self, rule: DeviceTaintRule) -> int:
        return sum(
            selects_device(rule, DeviceId.of(result))
            for claim in self._claims.items()
            if claim.status.allocation is not None
            for result in claim.status.allocation.devices.results
        )


def _with_no_execute(rule: DeviceTaintRule) -> dict[str, object]:
    """Return the spec of a rule with its effect replaced by NoExecute."""
    spec = codec.to_tree(rule.spec)
    return {**spec, "taint": {**spec.get("taint", {}), "effect": NO_EXECUTE}}


def _pod_key(pod: Pod) -> _WorkKey:
    return _WorkKey("pod", *object_name(pod.metadata), pod.metadata.uid)


def _rule_key(rule: DeviceTaintRule) -> _WorkKey:
    return _WorkKey("rule", "", rule.metadata.name, rule.metadata.uid)


def _group_of(pod: Pod) -> list[tuple[str, str]]:
    """Return namespace and name of a pod's PodGroup."""
    group = pod_group_of(pod)
    return [(pod.metadata.namespace, group)] if group else []


def _pool_of(item: ResourceSlice) -> list[PoolId]:
    return [PoolId(item.spec.driver, item.spec.pool.name)]


def _pools_of(claim: ResourceClaim) -> set[PoolId]:
    allocation = claim.status.allocation
    return {DeviceId.of(result).pool_id for result in allocation.devices.results} if allocation else set()
