"""The quota controller: keeps the status of ResourceQuotas up to date.

Owns the loop around `plans/quotas.py`. A quota is worked out anew when it changes, when something it counts
comes, changes in a way that counts, or goes, and every few minutes, because pods stop counting with time.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import Any

from plimsoll.api.quota import CountedPod, ResourceQuota
from plimsoll.client.endpoints import (
    DEVICE_CLASSES,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    SERVICES,
    Endpoint,
)
from plimsoll.controllers.actions import NOTHING, Plan
from plimsoll.controllers.caches import Index, Listener
from plimsoll.controllers.common import Context
from plimsoll.controllers.garbage_collector import collected
from plimsoll.controllers.plans.pods import Ref, ref
from plimsoll.controllers.plans.quotas import Contents, plan_quota
from plimsoll.controllers.queue import WorkQueue
from plimsoll.ledger.quota_scopes import is_terminating
from plimsoll.ledger.quota_usage import MEASURED, ExtendedNames, pod_usage

#: How long changes are gathered before a quota is worked out: at least so many seconds, and so many times as
#: long as it took the last time.
_PAUSE, _SHARE = 0.1, 10


class QuotaController:
    """See the module."""

    name = "resourcequota-controller"

    def __init__(self, context: Context) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[Ref] = WorkQueue(context.clock)
        caches = context.caches
        self._quotas = caches.of(RESOURCE_QUOTAS)
        self._classes = caches.of(DEVICE_CLASSES) if context.serves(DEVICE_CLASSES) else None
        self._inside: dict[str, Index[Any, str]] = {}
        self._extended: ExtendedNames | None = None
        self._pause = _PAUSE
        self._changed: dict[Ref, float] = {}  # when each quota was last seen to change
        for endpoint in collected(context.served):
            if endpoint.namespaced:
                index = self._inside[_key(endpoint)] = Index(_namespace)
                informer = caches.of(endpoint)
                informer.add_handler(index)
                informer.add_handler(Listener(partial(self._hear_content, _key(endpoint) in MEASURED)))
        self._quotas.add_handler(Listener(self._hear_quota))
        if self._classes is not None:
            self._classes.add_handler(Listener(self._hear_class))

    def _hear_quota(self, old: ResourceQuota | None, new: ResourceQuota | None) -> None:
        if new is None:
            assert old is not None
            self._changed.pop(ref(old.metadata), None)
            return
        self._changed[ref(new.metadata)] = self._context.clock.now()
        if old is None or old.spec != new.spec or new.status.used is None:
            self.queue.add(ref(new.metadata))

    def _hear_content(self, measured: bool, old: Any, new: Any) -> None:
        if old is not None and new is not None and not measured:
            return
        index = self._inside.get(_key(RESOURCE_QUOTAS))
        quotas = [] if index is None else index.find((new or old).metadata.namespace)
        if quotas and not self._counts_alike(old, new):
            for quota in quotas:
                self.queue.add_after(ref(quota.metadata), self._pause)

    def _counts_alike(self, old: Any, new: Any) -> bool:
        """Whether a change makes no difference: most changes of pods do not."""
        if not isinstance(old, CountedPod) or not isinstance(new, CountedPod):
            return False
        if is_terminating(old) != is_terminating(new):
            return False
        if old.status.extended_resource_claim_status != new.status.extended_resource_claim_status:
            return False
        now = datetime.fromtimestamp(self._context.clock.now(), UTC)
        return pod_usage(old, now) == pod_usage(new, now)

    def _hear_class(self, old: Any, new: Any) -> None:
        self._extended = None
        for quota in self._quotas.items():
            self.queue.add(ref(quota.metadata))

    async def reconcile(self, key: Ref) -> Plan:
        quota: ResourceQuota | None = self._quotas.get(key.namespace, key.name)
        if quota is None:
            return NOTHING
        now = self._context.clock.now()
        quiet = now - self._changed.get(key, now)
        plan = plan_quota(quota, self._look_into(key.namespace), now, quiet=quiet)
        self._pause = max(_PAUSE, _SHARE * (self._context.clock.now() - now))
        await self._context.performer.perform(plan.actions)
        return Plan(again=self._context.settings.quota_period if plan.again is None else plan.again)

    def _look_into(self, namespace: str) -> Contents:
        if self._extended is None:
            self._extended = ExtendedNames.of(self._classes.items() if self._classes is not None else ())

        def find(endpoint: Endpoint) -> list[Any]:
            index = self._inside.get(_key(endpoint))
            return index.find(namespace) if index is not None else []

        return Contents(
            pods=find(PODS),
            claims=find(RESOURCE_CLAIMS),
            volume_claims=find(PERSISTENT_VOLUME_CLAIMS),
            services=find(SERVICES),
            counts={kind: len(index.find(namespace)) for kind, index in self._inside.items()},
            extended=self._extended,
        )


def _key(endpoint: Endpoint) -> str:
    return f"{endpoint.plural}.{endpoint.group}" if endpoint.group else endpoint.plural


def _namespace(item: Any) -> list[str]:
    return [item.metadata.namespace]
