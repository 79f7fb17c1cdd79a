"""Node status reporter: keeps the Node object, its Lease and its heartbeats up to date.

Creates the Node or adopts an existing one, renews the Lease every 10 s, and writes the status when something
has changed, and at least every 5 minutes. Guarantees that an unreachable API server is retried with
exponential back-off; that a deleted Node is registered again; and that nothing others wrote into the Node is
reverted. Everything it writes as `system:node:NAME` passes NodeRestriction.

DIFF: a Node that was deleted is registered again; a kubelet does so only after it is restarted
(test_a_node_that_is_deleted_comes_back_with_its_lease).

DIFF: huge pages, memory and CPUs that are added or removed change the Node within seconds; a kubelet reads
them once (test_a_machine_that_changes_is_noticed).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Node, NodeAddress, Taint
from plimsoll.client.client import Client
from plimsoll.client.endpoints import LEASES, NODES
from plimsoll.common.json_tree import branch
from plimsoll.common.tasks import at_most
from plimsoll.errors import ApiError, InputError
from plimsoll.node.machine.changes import describe_changes
from plimsoll.node.machine.machine import Machine, Reservations, allocatable
from plimsoll.node.status.node_object import (
    CONDITIONS,
    NODE_LEASE_NAMESPACE,
    READY,
    ConditionState,
    NodeDescription,
    addresses_of,
    condition_event,
    desired_status,
    has_changed,
    label_patch,
    new_lease,
    new_node,
    renewed_lease,
    status_patch,
)

_log = logging.getLogger("plimsoll.node")
_JITTER = 0.04


@dataclass(frozen=True, slots=True)
class HeartbeatTiming:
    """Heartbeat intervals in seconds; the defaults are the kubelet's."""

    lease: int = 40  #: duration of the Lease
    renew: float = 10.0
    check: float = 10.0  #: between two checks whether the status has changed
    report: float = 300.0  #: maximum time between two status writes
    first: float = 0.1  #: first pause after a failure; doubles
    most: float = 7.0


class NodeStatusReporter:
    """Reporter of one node; `run` it until it is canceled."""

    def __init__(
        self,
        client: Client,
        name: str,
        machine: Machine,
        *,
        reservations: Reservations | None = None,
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Taint] = (),
        addresses: Sequence[NodeAddress] = (),
        runtime: str = "none://1",
        version: str = "",
        features: Sequence[str] = (),
        port: int = 0,
        timing: HeartbeatTiming | None = None,
        source: Callable[[], Machine] | None = None,
        changed: Callable[[Node], None] | None = None,
        emit_event: Callable[[str, str, str], None] | None = None,
        watched: bool = False,
        clock: Callable[[], float] = time.time,
        random_source: Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Create a reporter. `source` is polled for the current machine. `changed` is called with every
        change of the Node, `emit_event` with events (type, reason, message). `watched`: the owner calls
        `on_node_event` with watch events of the Node; otherwise it is read before it is written.
        """
        self.name = name
        self.reservations = reservations or Reservations()
        self.timing = timing or HeartbeatTiming()
        self.registered = asyncio.Event()
        #: Numbers of failures, Lease renewals, status writes and registrations.
        self.failures = self.renewals = self.reports = self.registrations = 0
        self._facts = NodeDescription(
            name=name,
            machine=machine,
            allocatable_amounts=allocatable(machine, self.reservations),
            labels=dict(labels or {}),
            taints=tuple(taints),
            addresses=tuple(addresses),
            runtime=runtime,
            version=version,
            features=tuple(features),
            port=port,
        )
        self._client = client
        self._source = source
        self._changed = changed
        self._emit_event = emit_event
        self._watched = watched
        self._clock = clock
        self._random = random_source or Random()
        self._sleep = sleep
        self._conditions = {type: ConditionState(type == READY) for type in CONDITIONS}
        self._known: dict[str, Any] | None = None
        self._lease: dict[str, Any] | None = None
        self._reported = 0.0
        self._wake = asyncio.Event()

    # -- properties

    @property
    def machine(self) -> Machine:
        return self._facts.machine

    @property
    def facts(self) -> NodeDescription:
        return self._facts

    @property
    def node(self) -> Node:
        """The Node as last seen; before it is registered, as it will be."""
        tree = self._known or new_node(self._facts, self._conditions, self._clock())
        return codec.convert(tree, Node)

    @property
    def uid(self) -> str:
        return str(_metadata(self._known).get("uid") or "")

    @property
    def address(self) -> str:
        """Address at which other machines reach this one."""
        found = {address.type: address.address for address in reversed(addresses_of(self._facts))}
        return found.get("InternalIP") or found.get("ExternalIP") or ""

    # -- state

    def set_condition(self, type: str, holds: bool, *, message: str = "") -> None:
        """Set a condition; a change is written at once."""
        condition_state = ConditionState(holds, message)
        before = self._conditions.get(type)
        if before == condition_state:
            return
        self._conditions[type] = condition_state
        if before is None or before.holds != holds:
            self._emit_condition_event(type, holds)
        self._wake.set()

    def _emit_condition_event(self, type: str, holds: bool) -> None:
        word = condition_event(type, holds)
        if word and self._known is not None:
            self._emit("Normal", word, f"Node {self.name} status is now: {word}")

    def _emit(self, type: str, reason: str, message: str) -> None:
        if self._emit_event is not None:
            self._emit_event(type, reason, message)

    def set_ready(self, problem: str = "") -> None:
        """Set Ready, or not ready with a message."""
        self.set_condition(READY, not problem, message=problem)

    def set_machine(self, machine: Machine) -> None:
        """Set the machine after a change."""
        if machine == self._facts.machine:
            return
        changes = describe_changes(self._facts.machine, machine)
        allocatable_amounts = allocatable(machine, self.reservations)
        self._facts = replace(self._facts, machine=machine, allocatable_amounts=allocatable_amounts)
        if not changes:
            return
        _log.info("%s: machine changed: %s", self.name, changes)
        self._on_facts_changed()

    def set_plugin_resources(self, resources: Mapping[str, tuple[int, int]]) -> None:
        """Set capacity and allocatable number of the extended resources of device plugins."""
        if resources != self._facts.plugin_resources:
            self._facts = replace(self._facts, plugin_resources=dict(resources))
            self._on_facts_changed()

    def _on_facts_changed(self) -> None:
        """Report the node, and let others use its new resources before the API has them."""
        self._wake.set()
        if self._changed is not None and self._known is not None:
            known = _status(self._known)
            status = {**known, **desired_status(self._facts, self._conditions, known, self._clock())}
            self._changed(codec.convert({**self._known, "status": status}, Node))

    def set_runtime(self, text: str) -> None:
        """Set the container runtime, as `name://version`."""
        self._facts = replace(self._facts, runtime=text)
        self._wake.set()

    def set_port(self, port: int) -> None:
        """Set the port of the kubelet API; 0: it is not served."""
        self._facts = replace(self._facts, port=port)
        self._wake.set()

    def on_node_event(self, tree: Mapping[str, Any] | None) -> None:
        """Handle a watch event of the Node; None: it was deleted."""
        if tree is None:
            if self._known is not None:
                _log.warning("%s: the Node object was deleted", self.name)
                self._forget()
            return
        known = self._known
        if known is None or _revision(tree) < _revision(known):
            return  # not registered yet, or older than the response to the own write
        self._set_known(dict(tree))
        if has_changed(desired_status(self._facts, self._conditions, _status(tree), 0.0), _status(tree)):
            self._wake.set()

    # -- lifecycle

    async def run(self) -> None:
        """Register, then send heartbeats until canceled."""
        await self._register_with_retry()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._renew_lease_loop(), name=f"lease of {self.name}")
            group.create_task(self._report_status_loop(), name=f"status of {self.name}")

    async def deregister(self) -> bool:
        """Delete the Node and its Lease, for which an agent needs extra permissions; return success."""
        done = True
        for endpoint, namespace in ((NODES, ""), (LEASES, NODE_LEASE_NAMESPACE)):
            try:
                await self._client.delete(endpoint, self.name, namespace)
            except ApiError as error:
                if error.code != 404:
                    _log.warning("%s: the %s was not deleted: %s", self.name, endpoint.kind, error)
                    done = False
        return done

    # -- registration

    async def _register_with_retry(self) -> None:
        pause = self.timing.first
        while True:
            try:
                await self.register()
                return
            except InputError as error:
                self.failures += 1
                _log.warning("%s: cannot register: %s", self.name, error)
            await self._sleep(pause * (1 + self._random.random()))
            pause = min(pause * 2, self.timing.most)

    async def register(self) -> None:
        """Create the Node, or adopt an existing one; then the Lease."""
        now = self._clock()
        try:
            node = await self._client.create(NODES, new_node(self._facts, self._conditions, now))
            _log.info("%s: registered", self.name)
        except ApiError as error:
            if error.code not in (403, 409):
                raise
            try:
                node = await self._client.get(NODES, self.name)
            except ApiError:
                raise error from None
            node = await self._adopt(node, now)
            _log.info("%s: adopted the existing Node object", self.name)
        self._reported = now
        self._set_known(node)
        self.registrations += 1
        for type, condition_state in self._conditions.items():
            self._emit_condition_event(type, condition_state.holds)
        with suppress(InputError):  # the next renewal retries
            await self._renew()
        self.registered.set()

    async def _adopt(self, node: dict[str, Any], now: float) -> dict[str, Any]:
        before = branch(_status(node), "nodeInfo").get("bootID")
        boot = self._facts.machine.boot_id
        if before and boot and before != boot:
            self._emit("Warning", "Rebooted", f"Node {self.name} has been rebooted, boot id: {boot}")
        labels = label_patch(self._facts, node)
        if labels is not None:
            node = await self._client.patch(NODES, self.name, labels)
        return await self._write_status(node, now)

    # -- heartbeats

    async def _renew_lease_loop(self) -> None:
        pause = self.timing.renew * (0.2 + 0.8 * self._random.random())
        failures = 0
        while True:
            await self._sleep(pause)
            pause = self.timing.renew * (1 + _JITTER * self._random.random())
            if not self.registered.is_set():
                continue
            try:
                async with asyncio.timeout(self.timing.renew):
                    await self._renew()
                failures = 0
            except (InputError, TimeoutError) as error:
                self.failures += 1
                failures += 1
                if failures in (1, 10, 100):
                    _log.warning("%s: the Lease was not renewed: %s", self.name, error or "timed out")
                pause = min(self.timing.first * 2 ** min(failures, 12), self.timing.most, pause)

    async def _renew(self) -> None:
        """Renew the Lease once; read it again if another client wrote or deleted it."""
        seconds, now = self.timing.lease, self._clock()
        for attempt in (1, 2, 3):
            try:
                if self._lease is None:
                    self._lease = await self._find_lease()
                if self._lease is None:
                    fresh = new_lease(self.name, self.uid, now, seconds)
                    self._lease = await self._client.create(LEASES, fresh, NODE_LEASE_NAMESPACE)
                else:
                    changed = renewed_lease(self._lease, self.name, self.uid, now, seconds)
                    self._lease = await self._client.update(LEASES, changed, NODE_LEASE_NAMESPACE)
                self.renewals += 1
                return
            except ApiError as error:
                self._lease = None
                if error.code not in (404, 409) or attempt == 3:
                    raise

    async def _find_lease(self) -> dict[str, Any] | None:
        try:
            return await self._client.get(LEASES, self.name, NODE_LEASE_NAMESPACE)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def _report_status_loop(self) -> None:
        failures = 0
        while True:
            if not failures:
                async with at_most(self.timing.check * (1 + _JITTER * self._random.random())):
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._refresh_machine()
                await self._report()
                failures = 0
            except InputError as error:
                self.failures += 1
                failures += 1
                _log.warning("%s: the status was not written: %s", self.name, error)
                await self._sleep(min(self.timing.first * 2 ** min(failures, 12), self.timing.most))

    async def _refresh_machine(self) -> None:
        if self._source is None:
            return
        try:
            machine = await asyncio.to_thread(self._source)
        except InputError as error:
            _log.warning("%s: keeping the last known machine: %s", self.name, error)
            return
        self.set_machine(machine)

    async def _report(self) -> None:
        """Write the status if it has changed or is due; register again if the Node was deleted."""
        now = self._clock()
        if self._known is None:
            await self.register()
            return
        try:
            node = self._known if self._watched else await self._client.get(NODES, self.name)
            if str(_metadata(node).get("uid")) != self.uid:
                # Another client deleted the Node and created a new one.
                self._lease = None
                self._set_known(node)
            due = now - self._reported >= self.timing.report
            changed = has_changed(
                desired_status(self._facts, self._conditions, _status(node), now), _status(node)
            )
            if due or changed:
                node = await self._write_status(node, now)
            self._set_known(node)
        except ApiError as error:
            if error.code != 404:
                raise
            self._forget()
            await self.register()

    async def _write_status(self, node: dict[str, Any], now: float) -> dict[str, Any]:
        known = _status(node)
        patch = status_patch(desired_status(self._facts, self._conditions, known, now), known)
        written = await self._client.patch(NODES, self.name, patch, subresource="status", type="strategic")
        self._reported = now
        self.reports += 1
        return written

    def _set_known(self, node: dict[str, Any]) -> None:
        before, self._known = self._known, node
        if self._changed is not None and (before is None or _revision(before) != _revision(node)):
            self._changed(codec.convert(node, Node))

    def _forget(self) -> None:
        self._known = self._lease = None
        self._wake.set()


def _metadata(tree: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return branch(tree, "metadata")


def _status(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    return branch(tree, "status")


def _revision(tree: Mapping[str, Any]) -> int:
    text = str(_metadata(tree).get("resourceVersion") or "")
    return int(text) if text.isascii() and text.isdigit() else 0
