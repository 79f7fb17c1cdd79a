"""A node's presence in the API: its Node object, its Lease, its heartbeats.

Owns `NodeStatusReporter`. It creates the Node or adopts the one there is, renews the Lease every 10 s, and
writes the status when something has changed, and every 5 minutes in any case. Promises: an API server that is
away is waited for, with growing pauses; a Node that somebody deletes is registered again; nothing of what
others wrote into the Node is undone. Everything it may write as `system:node:NAME` passes NodeRestriction.

DIFF: a Node that was deleted is registered again; a kubelet does so only after it is restarted
(test_a_node_that_is_deleted_comes_back_with_its_lease).

DIFF: huge pages, memory and cpus that come or go change the Node within seconds; a kubelet reads them once
(test_a_machine_that_changes_is_noticed).
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
from plimsoll.errors import ApiError, InputError
from plimsoll.node.machine.changes import describe_changes
from plimsoll.node.machine.machine import Machine, Reservations, allocatable
from plimsoll.node.status.node_object import (
    CONDITIONS,
    LEASES_OF_NODES,
    READY,
    NodeFacts,
    Sign,
    addresses_of,
    event_of,
    has_changed,
    label_patch,
    new_lease,
    new_node,
    renewed_lease,
    status_patch,
    wanted_status,
)

_log = logging.getLogger("plimsoll.node")
_JITTER = 0.04


@dataclass(frozen=True, slots=True)
class HeartbeatTiming:
    """Seconds; the defaults are the kubelet's."""

    lease: int = 40  #: how long a renewal counts
    renew: float = 10.0
    check: float = 10.0  #: between two looks at whether the status has changed
    report: float = 300.0  #: the status is written at least so often
    first: float = 0.1  #: the first pause after a failure, which doubles
    most: float = 7.0


class NodeStatusReporter:
    """One node in the API; `run` it until it is to go."""

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
        tell: Callable[[str, str, str], None] | None = None,
        fed: bool = False,
        clock: Callable[[], float] = time.time,
        dice: Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`source` is asked every few seconds what the machine is like now. `changed` hears of every change
        of the Node, `tell` of events (type, reason, message). `fed` says that somebody calls `heard` with
        what a watch says of the Node; else it is read before it is written."""
        self.name = name
        self.reservations = reservations or Reservations()
        self.timing = timing or HeartbeatTiming()
        self.registered = asyncio.Event()
        #: How often writing the Lease or the status failed, and how often each was written.
        self.failures = self.renewals = self.reports = self.registrations = 0
        self._facts = NodeFacts(
            name=name,
            machine=machine,
            line=allocatable(machine, self.reservations),
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
        self._tell = tell
        self._fed = fed
        self._clock = clock
        self._dice = dice or Random()
        self._sleep = sleep
        self._signs = {type: Sign(type == READY) for type in CONDITIONS}
        self._known: dict[str, Any] | None = None
        self._lease: dict[str, Any] | None = None
        self._reported = 0.0
        self._renewed = 0.0
        self._stir = asyncio.Event()

    # -- looking

    @property
    def machine(self) -> Machine:
        return self._facts.machine

    @property
    def facts(self) -> NodeFacts:
        return self._facts

    @property
    def node(self) -> Node:
        """The Node as last seen; before it is registered, as it will be."""
        tree = self._known or new_node(self._facts, self._signs, self._clock())
        return codec.convert(tree, Node)

    @property
    def uid(self) -> str:
        return str(_metadata(self._known).get("uid") or "")

    @property
    def address(self) -> str:
        """The address at which the machine is reached from others."""
        found = {address.type: address.address for address in reversed(addresses_of(self._facts))}
        return found.get("InternalIP") or found.get("ExternalIP") or ""

    @property
    def renewed_at(self) -> float:
        """When the Lease was last renewed."""
        return self._renewed

    # -- what is the case

    def set_condition(self, type: str, holds: bool, *, reason: str = "", message: str = "") -> None:
        """Say what is the case; it is written at once if that is news."""
        sign = Sign(holds, reason, message)
        before = self._signs.get(type)
        if before == sign:
            return
        self._signs[type] = sign
        if before is None or before.holds != holds:
            self._say_condition(type, holds)
        self._stir.set()

    def _say_condition(self, type: str, holds: bool) -> None:
        word = event_of(type, holds)
        if word and self._known is not None:
            self._say("Normal", word, f"Node {self.name} status is now: {word}")

    def _say(self, type: str, reason: str, message: str) -> None:
        if self._tell is not None:
            self._tell(type, reason, message)

    def set_ready(self, problem: str = "") -> None:
        """Ready, or not and why."""
        self.set_condition(READY, not problem, message=problem)

    def set_machine(self, machine: Machine) -> None:
        """The machine has changed."""
        if machine == self._facts.machine:
            return
        changes = describe_changes(self._facts.machine, machine)
        line = allocatable(machine, self.reservations)
        self._facts = replace(self._facts, machine=machine, line=line)
        if not changes:
            return
        _log.info("%s: the machine has changed: %s", self.name, changes)
        self._stir.set()
        if self._changed is not None and self._known is not None:
            status = {**_status(self._known), **wanted_status(self._facts, self._signs, {}, self._clock())}
            self._changed(codec.convert({**self._known, "status": status}, Node))

    def set_features(self, features: Sequence[str]) -> None:
        """What the node declares that it can do."""
        self._facts = replace(self._facts, features=tuple(features))
        self._stir.set()

    def set_runtime(self, text: str) -> None:
        """What runs containers, as `name://version`."""
        self._facts = replace(self._facts, runtime=text)
        self._stir.set()

    def heard(self, tree: Mapping[str, Any] | None) -> None:
        """What a watch says of the Node; None: it is gone."""
        if tree is None:
            if self._known is not None:
                _log.warning("%s: the Node was deleted", self.name)
                self._forget()
            return
        known = self._known
        if known is None or _revision(tree) < _revision(known):
            return  # not registered yet, or older than the answer to our own write
        self._learn(dict(tree))
        if has_changed(wanted_status(self._facts, self._signs, _status(tree), 0.0), _status(tree)):
            self._stir.set()

    # -- the story

    async def run(self) -> None:
        """Register, then keep up the heartbeats, until cancelled."""
        await self._register_patiently()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_lease(), name=f"lease of {self.name}")
            group.create_task(self._keep_status(), name=f"status of {self.name}")

    async def leave(self) -> bool:
        """Take the Node and its Lease away; whether that was allowed. Agents' own rights do not suffice."""
        done = True
        for endpoint, namespace in ((NODES, ""), (LEASES, LEASES_OF_NODES)):
            try:
                await self._client.delete(endpoint, self.name, namespace)
            except ApiError as error:
                if error.code != 404:
                    _log.warning("%s: the %s stays: %s", self.name, endpoint.kind, error)
                    done = False
        return done

    # -- registering

    async def _register_patiently(self) -> None:
        pause = self.timing.first
        while True:
            try:
                await self._register()
                return
            except InputError as error:
                self.failures += 1
                _log.warning("%s: cannot register: %s", self.name, error)
            await self._sleep(pause * (1 + self._dice.random()))
            pause = min(pause * 2, self.timing.most)

    async def _register(self) -> None:
        """Create the Node, or take over the one there is; its Lease follows."""
        now = self._clock()
        try:
            node = await self._client.create(NODES, new_node(self._facts, self._signs, now))
            _log.info("%s: registered", self.name)
        except ApiError as error:
            if error.code not in (403, 409):
                raise
            try:
                node = await self._client.get(NODES, self.name)
            except ApiError:
                raise error from None
            node = await self._adopt(node, now)
            _log.info("%s: took over its Node", self.name)
        self._reported = now
        self._learn(node)
        self.registrations += 1
        for type, sign in self._signs.items():
            self._say_condition(type, sign.holds)
        with suppress(InputError):  # the next renewal will do
            await self._renew()
        self.registered.set()

    async def _adopt(self, node: dict[str, Any], now: float) -> dict[str, Any]:
        before = _mapping(_status(node).get("nodeInfo")).get("bootID")
        boot = self._facts.machine.boot_id
        if before and boot and before != boot:
            self._say("Warning", "Rebooted", f"Node {self.name} has been rebooted, boot id: {boot}")
        labels = label_patch(self._facts, node)
        if labels is not None:
            node = await self._client.patch(NODES, self.name, labels)
        return await self._write_status(node, now)

    # -- heartbeats

    async def _keep_lease(self) -> None:
        pause = self.timing.renew * (0.2 + 0.8 * self._dice.random())
        failures = 0
        while True:
            await self._sleep(pause)
            pause = self.timing.renew * (1 + _JITTER * self._dice.random())
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
                    _log.warning("%s: the Lease was not renewed: %s", self.name, error or "no answer in time")
                pause = min(self.timing.first * 2 ** min(failures, 12), self.timing.most, pause)

    async def _renew(self) -> None:
        """Renew the Lease once; it is looked up again if somebody else wrote it or it is gone."""
        seconds, now = self.timing.lease, self._clock()
        for attempt in (1, 2, 3):
            try:
                if self._lease is None:
                    self._lease = await self._find_lease()
                if self._lease is None:
                    fresh = new_lease(self.name, self.uid, now, seconds)
                    self._lease = await self._client.create(LEASES, fresh, LEASES_OF_NODES)
                else:
                    changed = renewed_lease(self._lease, self.name, self.uid, now, seconds)
                    self._lease = await self._client.update(LEASES, changed, LEASES_OF_NODES)
                self._renewed = now
                self.renewals += 1
                return
            except ApiError as error:
                self._lease = None
                if error.code not in (404, 409) or attempt == 3:
                    raise

    async def _find_lease(self) -> dict[str, Any] | None:
        try:
            return await self._client.get(LEASES, self.name, LEASES_OF_NODES)
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    async def _keep_status(self) -> None:
        failures = 0
        while True:
            if not failures:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.timing.check * (1 + _JITTER * self._dice.random())):
                        await self._stir.wait()
            self._stir.clear()
            try:
                await self._look_at_machine()
                await self._report()
                failures = 0
            except InputError as error:
                self.failures += 1
                failures += 1
                _log.warning("%s: the status was not written: %s", self.name, error)
                await self._sleep(min(self.timing.first * 2 ** min(failures, 12), self.timing.most))

    async def _look_at_machine(self) -> None:
        if self._source is None:
            return
        try:
            machine = await asyncio.to_thread(self._source)
        except InputError as error:
            _log.warning("%s: the machine stays as it was: %s", self.name, error)
            return
        self.set_machine(machine)

    async def _report(self) -> None:
        """Write the status if it has changed or is due; register again if the Node is gone."""
        now = self._clock()
        if self._known is None:
            await self._register()
            return
        try:
            node = self._known if self._fed else await self._client.get(NODES, self.name)
            if str(_metadata(node).get("uid")) != self.uid:
                # Somebody deleted the Node and made another.
                self._lease = None
                self._learn(node)
            due = now - self._reported >= self.timing.report
            changed = has_changed(wanted_status(self._facts, self._signs, _status(node), now), _status(node))
            if due or changed:
                node = await self._write_status(node, now)
            self._learn(node)
        except ApiError as error:
            if error.code != 404:
                raise
            self._forget()
            await self._register()

    async def _write_status(self, node: dict[str, Any], now: float) -> dict[str, Any]:
        known = _status(node)
        patch = status_patch(wanted_status(self._facts, self._signs, known, now), known)
        written = await self._client.patch(NODES, self.name, patch, subresource="status", type="strategic")
        self._reported = now
        self.reports += 1
        return written

    def _learn(self, node: dict[str, Any]) -> None:
        before, self._known = self._known, node
        if self._changed is not None and (before is None or _revision(before) != _revision(node)):
            self._changed(codec.convert(node, Node))

    def _forget(self) -> None:
        self._known = self._lease = None
        self._stir.set()


def _metadata(tree: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return _mapping((tree or {}).get("metadata"))


def _status(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(tree.get("status"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _revision(tree: Mapping[str, Any]) -> int:
    text = str(_metadata(tree).get("resourceVersion") or "")
    return int(text) if text.isascii() and text.isdigit() else 0
