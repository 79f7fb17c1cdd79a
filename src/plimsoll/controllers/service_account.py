"""Service accounts: every active namespace has the account `default`.

As in kube-controller-manager: the account is created with the namespace, and again when it is deleted.
"""

from __future__ import annotations

from plimsoll.api.meta import Object
from plimsoll.client.endpoints import NAMESPACES, SERVICE_ACCOUNTS
from plimsoll.client.informer import CallbackHandler
from plimsoll.controllers.actions import EMPTY_PLAN, ActionPlan, CreateAction
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.object_views import NamespaceView
from plimsoll.controllers.work_queue import WorkQueue

ACCOUNT = "default"


def plan_service_account(namespace: NamespaceView, has_account: bool) -> ActionPlan:
    """Plan for a namespace: create its default account."""
    metadata = namespace.metadata
    if has_account or metadata.deletion_timestamp is not None or namespace.status.phase == "Terminating":
        return EMPTY_PLAN
    tree = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    return ActionPlan((CreateAction(SERVICE_ACCOUNTS, tree, metadata.name),))


class ServiceAccountController:
    """Controller around `plan_service_account`."""

    name = "serviceaccount-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[str] = WorkQueue(context.clock)
        self._namespaces = context.informers.get(NAMESPACES)
        self._accounts = context.informers.get(SERVICE_ACCOUNTS)
        self._namespaces.add_handler(CallbackHandler(self._on_namespace))
        self._accounts.add_handler(CallbackHandler(self._on_account))

    def _on_namespace(self, old: NamespaceView | None, new: NamespaceView | None) -> None:
        if new is not None:
            self.queue.add(new.metadata.name)

    def _on_account(self, old: Object | None, new: Object | None) -> None:
        if new is None and old is not None and old.metadata.name == ACCOUNT:
            self.queue.add(old.metadata.namespace)

    async def reconcile(self, key: str) -> ActionPlan:
        namespace: NamespaceView | None = self._namespaces.get("", key)
        if namespace is None:
            return EMPTY_PLAN
        plan = plan_service_account(namespace, self._accounts.get(key, ACCOUNT) is not None)
        await self._context.executor.execute(plan.actions)
        return plan
