"""`plimsoll charge`: placeholder pods for the pods that another scheduler places.

kube-scheduler allocates devices without charging their node for them where the server drops the fields. The
placeholder follows right after the binding, so that the next pod does not get the same CPUs or memory. If the
kubelet rejects it, the node is overcommitted by that pod: the pod has an event, and a metric counts it.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from plimsoll.api.core import Pod
from plimsoll.client import Client, ClientConfig
from plimsoll.common.structured_log import log_event
from plimsoll.common.tasks import run_until
from plimsoll.scheduler.process.configuration import LeaderElection, SchedulerSettings
from plimsoll.scheduler.process.run import LOG, SchedulerProcess, serve_scheduler
from plimsoll.scheduler.profile import SchedulerProfile

#: Name of the controller, of its Lease and of the reporter of its events; no pod has it as its scheduler.
NAME = "plimsoll-charge"
LISTEN = "127.0.0.1:10261"


class ChargeController(SchedulerProcess):
    """Keeper of the placeholders of all pods in some namespaces, or in all of them."""

    def __init__(self, client: Client, settings: SchedulerSettings, namespaces: Iterable[str] = ()) -> None:
        election = settings.election
        if election.name == LeaderElection().name:
            election = replace(election, name=NAME)
        settings = replace(settings, profiles=(SchedulerProfile(name=NAME),), election=election)
        super().__init__(client, settings, dedicated=True)
        self._namespaces = frozenset(namespaces)

    def is_responsible(self, pod: Pod) -> bool:
        return not self._namespaces or pod.metadata.namespace in self._namespaces

    async def _lead(self) -> None:
        log_event(LOG, "leading", identity=self.identity, namespaces=sorted(self._namespaces) or None)
        self.scheduling.set()
        await run_until(self._stop.wait(), self._keep_placeholders())


async def serve_charges(
    config: ClientConfig, settings: SchedulerSettings, namespaces: Iterable[str] = ()
) -> None:
    """Run `plimsoll charge` until a signal stops it or the lease is lost."""
    await serve_scheduler(config, settings, partial(ChargeController, namespaces=namespaces))
