"""`QuotaUsage`: usage of the ResourceQuotas of a cluster in memory, and the refusals of admission.

Usage begins with the status of each quota, as admission uses it, or is computed where a quota has none; every
object that is set or removed afterwards changes it. The rules are those of `apiserver/admission/quota`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.api.quota import CountedVolumeClaim, ResourceQuota, ResourceQuotaStatus
from plimsoll.api.resource import DeviceClass, ResourceClaim
from plimsoll.api.storage import PersistentVolumeClaim
from plimsoll.apiserver.admission.quota import charge_quotas
from plimsoll.controllers.quota.scopes import (
    filter_usage,
    matches_scopes,
    matching_resources,
    scope_requirements,
)
from plimsoll.controllers.quota.usage import (
    CLAIMS,
    PODS,
    VOLUME_CLAIMS,
    ExtendedResourceNames,
    QuotaContext,
    compute_usage,
)
from plimsoll.tools.cluster_state import ClusterState

_KINDS: Mapping[type[Any], str] = {Pod: PODS, ResourceClaim: CLAIMS, PersistentVolumeClaim: VOLUME_CLAIMS}
#: Time of the evaluation: no pod is overdue for deletion.
_NOW = datetime(2000, 1, 1, tzinfo=UTC)


class QuotaUsage:
    """Quotas by namespace, with their usage."""

    def __init__(self, cluster_state: ClusterState) -> None:
        self._cluster_state = cluster_state
        self._quotas: dict[str, list[ResourceQuota]] = {}
        objects = cluster_state.objects
        for quota in sorted(objects.all(ResourceQuota), key=lambda quota: quota.metadata.key):
            self._quotas.setdefault(quota.metadata.namespace, []).append(quota)
        for quotas in self._quotas.values():
            quotas[:] = map(self._measured, quotas)

    def _measured(self, quota: ResourceQuota) -> ResourceQuota:
        """Return a quota, one that has no status with the usage of the objects of its namespace."""
        hard = quota.spec.hard
        if quota.status.used is not None:
            return quota
        status = ResourceQuotaStatus(hard=hard, used=dict.fromkeys(hard, ZERO))
        quota = replace(quota, status=status)
        for kind in _KINDS:
            for thing in self._cluster_state.objects.all(kind):
                if thing.metadata.namespace == quota.metadata.namespace:
                    quota = self._changed(quota, thing, 1)
        return quota

    def change(self, old: Any, new: Any) -> None:
        """Account for an object that is added (`old` is None), replaced, or removed (`new` is None)."""
        thing = new if old is None else old
        namespace = thing.metadata.namespace
        if isinstance(thing, ResourceQuota):
            others = [
                each for each in self._quotas.get(namespace, ()) if each.metadata.key != thing.metadata.key
            ]
            self._quotas[namespace] = others if new is None else [*others, self._measured(new)]
        if type(thing) not in _KINDS or namespace not in self._quotas:
            return
        quotas = self._quotas[namespace]
        for number, quota in enumerate(quotas):
            for version, sign in ((old, -1), (new, 1)):
                if version is not None:
                    quota = self._changed(quota, version, sign)
            quotas[number] = quota

    def quotas_of(self, namespace: str) -> list[ResourceQuota]:
        """Return the quotas of a namespace with their usage now."""
        return self._quotas.get(namespace, [])

    def find_refusal(self, thing: Any) -> str:
        """Return why the API would refuse to create an object, "" if its quotas allow it."""
        kind = _KINDS.get(type(thing))
        return "" if kind is None else self.find_refusal_of(kind, thing.metadata.namespace, thing)

    def find_refusal_of(self, resource: str, namespace: str, thing: Any = None) -> str:
        """Return why an object of a kind such as `deployments.apps` would be refused."""
        trees = [codec.to_tree(quota) for quota in self.quotas_of(namespace)]
        if not trees:
            return ""
        tree = {} if thing is None else codec.to_tree(thing)
        return charge_quotas(trees, resource, tree, None, self._context(namespace)).refusal

    def _changed(self, quota: ResourceQuota, thing: Any, sign: int) -> ResourceQuota:
        used = dict(quota.status.used or {})
        for name, amount in self._usage(quota, thing):
            used[name] = used.get(name, ZERO) + amount if sign > 0 else used.get(name, ZERO) - amount
        return replace(quota, status=replace(quota.status, used=used))

    def _usage(self, quota: ResourceQuota, thing: Any) -> Iterator[tuple[str, Quantity]]:
        """Yield what an object counts for in a quota."""
        kind, context = _KINDS[type(thing)], self._context(thing.metadata.namespace)
        item = codec.convert(codec.to_tree(thing), CountedVolumeClaim) if kind == VOLUME_CLAIMS else thing
        names = matching_resources(kind, quota.status.hard or (), context)
        if names and matches_scopes(item, scope_requirements(quota.spec), context.gates):
            yield from filter_usage(compute_usage(kind, item, context), names).items()

    def _context(self, namespace: str) -> QuotaContext:
        objects = self._cluster_state.objects
        return QuotaContext(
            _NOW,
            gates=self._cluster_state.gates,
            extended=ExtendedResourceNames.of(objects.all(DeviceClass)),
            find_pod=lambda name: objects.find(Pod, namespace, name),
        )
