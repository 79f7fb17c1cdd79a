"""The device taint controller: evicts pods whose devices are tainted, and tells of it in the rules.

Owns the loop around `plans/device_taints.py` and `plans/taint_rules.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.identity import DeviceId, PoolId
from plimsoll.api.resource import AllocationDevice, DeviceTaint, DeviceTaintRule, ResourceClaim, ResourceSlice
from plimsoll.client.endpoints import DEVICE_TAINT_RULES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.controllers.actions import NOTHING, Plan
from plimsoll.controllers.caches import Index, Listener
from plimsoll.controllers.common import Context
from plimsoll.controllers.plans.device_taints import (
    NO_EFFECT,
    NO_EXECUTE,
    Cause,
    Eviction,
    plan_eviction,
    pod_eviction,
    published_taints,
    report_cancelled,
    rule_taints,
    selects,
)
from plimsoll.controllers.plans.pods import claim_names, is_pod, ref
from plimsoll.controllers.plans.taint_rules import STATUS_PERIOD, Effects, plan_rule, wait_for_rule
from plimsoll.controllers.queue import WorkQueue
from plimsoll.errors import ApiError

_REMEMBERED = 500


class Key(NamedTuple):
    """A pod or a rule, this very one and no later one of its name."""

    kind: Literal["pod", "rule"]
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {'/'.join(filter(None, (self.namespace, self.name)))}"


class DeviceTaintController:
    """See the module."""

    name = "device-taint-eviction-controller"

    def __init__(self, context: Context) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        caches = context.caches
        self._pods = caches.of(PODS)
        self._claims = caches.of(RESOURCE_CLAIMS)
        self._slices = caches.of(RESOURCE_SLICES)
        self._rules = caches.of(DEVICE_TAINT_RULES) if context.serves(DEVICE_TAINT_RULES) else None
        self._pools: Index[ResourceSlice, PoolId] = Index(_pool_of)
        self._users: Index[ResourceClaim, PoolId] = Index(_pools_of)
        self._taints: dict[PoolId, dict[str, list[tuple[Cause, DeviceTaint, float]]]] = {}
        self._planned: dict[Key, Eviction] = {}
        self._evicted: dict[str, None] = {}
        self._counts: dict[str, int] = {}  # by rule UID, how many pods went
        self._slices.add_handler(self._pools)
        self._claims.add_handler(self._users)
        self._slices.add_handler(Listener(self._hear_slice))
        self._claims.add_handler(Listener(self._hear_claim))
        self._pods.add_handler(Listener(self._hear_pod))
        if self._rules is not None:
            self._rules.add_handler(Listener(self._hear_rule))

    # -- what wakes whom

    def _hear_slice(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        for pool in {pool for item in (old, new) if item is not None for pool in _pool_of(item)}:
            before = self._taints.get(pool, {})
            after = published_taints(self._pools.find(pool))
            if after:
                self._taints[pool] = after
            else:
                self._taints.pop(pool, None)
            if before != after:
                self._wake_users(self._users.find(pool))

    def _hear_claim(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        self._wake_users(item for item in (old, new) if item is not None)

    def _hear_pod(self, old: Pod | None, new: Pod | None) -> None:
        if new is None:
            assert old is not None
            self._planned.pop(_pod_key(old), None)
        elif new.spec.resource_claims and (
            old is None
            or old.spec.node_name != new.spec.node_name
            or old.status.resource_claim_statuses != new.status.resource_claim_statuses
        ):
            self.queue.add(_pod_key(new))

    def _hear_rule(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
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
                    self.queue.add(Key("pod", claim.metadata.namespace, consumer.name, consumer.uid))

    # -- work

    async def reconcile(self, key: Key) -> Plan:
        if key.kind == "rule":
            return await self._reconcile_rule(key)
        return await self._reconcile_pod(key)

    async def _reconcile_pod(self, key: Key) -> Plan:
        pod: Pod | None = self._pods.get(key.namespace, key.name)
        if pod is None or pod.metadata.uid != key.uid:
            self._planned.pop(key, None)
            return NOTHING
        if pod.metadata.deletion_timestamp is not None or key.uid in self._evicted:
            return NOTHING
        eviction = self._judge(pod, self._all_rules())
        if eviction is None:
            if self._planned.pop(key, None) is not None:
                await self._context.recorder.record(report_cancelled(pod))
            return NOTHING
        self._planned[key] = eviction
        wait = eviction.when - self._context.clock.now()
        if wait > 0:
            self._update_rules_later(eviction)
            return Plan(again=wait)
        if await self._evict(key):
            self._evicted[key.uid] = None
            while len(self._evicted) > _REMEMBERED:
                self._evicted.pop(next(iter(self._evicted)))
            for cause in eviction.causes:
                if cause.rule_uid:
                    self._counts[cause.rule_uid] = self._counts.get(cause.rule_uid, 0) + 1
        self._planned.pop(key, None)
        self._update_rules_later(eviction)
        return NOTHING

    async def _evict(self, key: Key) -> bool:
        """Whether the pod was there to be evicted."""
        try:
            raw = await self._context.client.get_raw(PODS, key.name, key.namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        pod = codec.decode(raw, Pod)
        if pod.metadata.uid != key.uid:
            return False
        await self._context.performer.perform(plan_eviction(pod, self._context.clock.now()).actions)
        return True

    def _update_rules_later(self, eviction: Eviction) -> None:
        """More of the same may come; and the caches must catch up first."""
        for cause in eviction.causes:
            if cause.rule_uid:
                self.queue.add_after(Key("rule", "", cause.rule, cause.rule_uid), STATUS_PERIOD)

    def _all_rules(self) -> list[DeviceTaintRule]:
        return self._rules.items() if self._rules is not None else []

    def _judge(self, pod: Pod, rules: list[DeviceTaintRule]) -> Eviction | None:
        namespace = pod.metadata.namespace
        claims = {
            name: claim
            for name in claim_names(pod)
            if (claim := self._claims.get(namespace, name)) is not None
        }

        def tainting(result: AllocationDevice) -> Iterator[tuple[Cause, DeviceTaint, float]]:
            yield from self._taints.get(DeviceId.of(result).pool_id, {}).get(result.device, ())
            yield from rule_taints(rules, result)

        return pod_eviction(pod, claims, tainting)

    async def _reconcile_rule(self, key: Key) -> Plan:
        rule: DeviceTaintRule | None = self._rules.get("", key.name) if self._rules is not None else None
        if rule is None or rule.metadata.uid != key.uid:
            return NOTHING
        now = self._context.clock.now()
        wait = wait_for_rule(rule, now)
        if wait > 0:
            return Plan(again=wait)
        plan = plan_rule(rule, self._count(rule), now)
        await self._context.performer.perform(plan.actions)
        return plan

    def _count(self, rule: DeviceTaintRule) -> Effects:
        effect = rule.spec.taint.effect
        evicted = self._counts.get(rule.metadata.uid, 0)
        if effect not in (NO_EXECUTE, NO_EFFECT):
            return Effects(evicted=evicted)
        rules = self._all_rules()
        if effect == NO_EFFECT:
            acting = codec.convert({**codec.to_tree(rule), "spec": _acting(rule)}, DeviceTaintRule)
            rules = [acting]
        pods = [pod for pod in self._pods.items() if self._goes_for(pod, rule.metadata.uid, rules)]
        devices = allocated = 0
        if effect == NO_EFFECT:
            devices = self._count_published(rule)
            allocated = self._count_allocated(rule)
        namespaces = {pod.metadata.namespace for pod in pods}
        return Effects(len(pods), len(namespaces), evicted, devices, allocated)

    def _goes_for(self, pod: Pod, uid: str, rules: list[DeviceTaintRule]) -> bool:
        if pod.metadata.deletion_timestamp is not None or not pod.spec.resource_claims:
            return False
        eviction = self._judge(pod, rules)
        return eviction is not None and any(cause.rule_uid == uid for cause in eviction.causes)

    def _count_published(self, rule: DeviceTaintRule) -> int:
        newest: dict[PoolId, int] = {}
        for item in self._slices.items():
            (pool,) = _pool_of(item)
            newest[pool] = max(newest.get(pool, item.spec.pool.generation), item.spec.pool.generation)
        return sum(
            selects(rule, DeviceId(*pool, device.name))
            for item in self._slices.items()
            for pool in _pool_of(item)
            if item.spec.pool.generation == newest[pool]
            for device in item.spec.devices or ()
        )

    def _count_allocated(self, rule: DeviceTaintRule) -> int:
        return sum(
            selects(rule, DeviceId.of(result))
            for claim in self._claims.items()
            if claim.status.allocation is not None
            for result in claim.status.allocation.devices.results
        )


def _acting(rule: DeviceTaintRule) -> dict[str, object]:
    """The spec of a rule as if its effect were NoExecute."""
    spec = codec.to_tree(rule.spec)
    return {**spec, "taint": {**spec.get("taint", {}), "effect": NO_EXECUTE}}


def _pod_key(pod: Pod) -> Key:
    return Key("pod", *ref(pod.metadata), pod.metadata.uid)


def _rule_key(rule: DeviceTaintRule) -> Key:
    return Key("rule", "", rule.metadata.name, rule.metadata.uid)


def _pool_of(item: ResourceSlice) -> list[PoolId]:
    return [PoolId(item.spec.driver, item.spec.pool.name)]


def _pools_of(claim: ResourceClaim) -> set[PoolId]:
    allocation = claim.status.allocation
    return {DeviceId.of(result).pool_id for result in allocation.devices.results} if allocation else set()
