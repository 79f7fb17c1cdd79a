"""Root CA publisher: the ConfigMap `kube-root-ca.crt` in every active namespace, to verify the API server.

As in kube-controller-manager: a ConfigMap that was changed or deleted is restored.
"""

from __future__ import annotations

from typing import Any

from plimsoll.client.endpoints import CONFIG_MAPS, NAMESPACES
from plimsoll.client.informer import CallbackHandler
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, CreateAction, PatchAction
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.object_views import ConfigMapView, NamespaceView
from plimsoll.controllers.work_queue import WorkQueue

NAME = "kube-root-ca.crt"
_DESCRIPTION = {
    "kubernetes.io/description": "Contains a CA bundle that can be used to verify the API server."
}


def plan_root_ca(namespace: NamespaceView, known: ConfigMapView | None, authority: str) -> ActionPlan:
    """Plan for a namespace: create or restore its ConfigMap."""
    metadata, data = namespace.metadata, {"ca.crt": authority}
    if not authority or metadata.deletion_timestamp is not None or namespace.status.phase == "Terminating":
        return EMPTY_PLAN
    if known is None:
        head: dict[str, Any] = {"name": NAME, "annotations": _DESCRIPTION}
        tree = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, "data": data}
        return ActionPlan((CreateAction(CONFIG_MAPS, tree, metadata.name),))
    if known.data.certificates == authority:
        return EMPTY_PLAN
    return ActionPlan((PatchAction(CONFIG_MAPS, NAME, {"data": data}, namespace=metadata.name),))


class RootCAPublisher:
    """Controller around `plan_root_ca`."""

    name = "root-ca-certificate-publisher-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[str] = WorkQueue(context.clock)
        self._namespaces = context.informers.get(NAMESPACES)
        self._maps = context.informers.get(CONFIG_MAPS)
        self._namespaces.add_handler(CallbackHandler(self._on_namespace))
        self._maps.add_handler(CallbackHandler(self._on_map))

    def _on_namespace(self, old: NamespaceView | None, new: NamespaceView | None) -> None:
        if new is not None:
            self.queue.add(new.metadata.name)

    def _on_map(self, old: ConfigMapView | None, new: ConfigMapView | None) -> None:
        for each in (old, new):
            if each is not None and each.metadata.name == NAME:
                self.queue.add(each.metadata.namespace)

    async def reconcile(self, key: str) -> ActionPlan:
        namespace: NamespaceView | None = self._namespaces.get("", key)
        if namespace is None:
            return EMPTY_PLAN
        plan = plan_root_ca(namespace, self._maps.get(key, NAME), self._context.settings.root_ca)
        await self._context.executor.execute(plan.actions)
        return plan
