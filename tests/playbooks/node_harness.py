"""A node with everything around it: an API server, a whole agent, a driver, and a machine that outlives both.

Owns `NodeHarness`, the verbs of conversations. What must never happen is noted the moment it does (`wrongs`):
a driver asked again for what is ready on record, a claim released under a running container, a container made
before its claims are on record, a device prepared for two claims. What must be so once nothing moves any more
is in `quiet`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from plimsoll.apiserver.auth.users import node_user
from plimsoll.apiserver.in_process import InProcessTransport
from plimsoll.apiserver.process import RunningServer, ServerSettings, start_server
from plimsoll.client import Client
from plimsoll.client.endpoints import EVENTS, PODS, RESOURCE_CLAIMS
from plimsoll.errors import ApiError
from plimsoll.node.agent import Agent
from plimsoll.node.claim_info import ClaimInfo, ClaimRef
from plimsoll.node.containers import ContainerInfo, ContainerPhase, Runtime
from plimsoll.node.eviction.manager import NodeStats
from plimsoll.node.layout import Layout
from plimsoll.node.machine.file import parse_machine
from plimsoll.node.plugins import PluginTiming
from plimsoll.node.pods.backoff import PodTiming
from plimsoll.node.process.assembly import make_agent
from plimsoll.node.process.run import NodeProcess
from plimsoll.node.process.settings import Intervals, NodeSettings
from plimsoll.node.status.reporter import HeartbeatTiming
from tests.leaks import leaked_tasks
from tests.playbooks.api_connection import ApiConnection
from tests.playbooks.driver import Driver
from tests.playbooks.machine import Machine
from tests.waiting import DEADLINE, until

T = TypeVar("T")
Tree = dict[str, Any]
NODE = "n1"
#: Short enough for tests, long enough for a busy machine.
INTERVALS = Intervals(
    plugins=PluginTiming(
        scan=0.02, retry=0.05, longest_retry=0.2, health_retry=0.05, gone=0.3, call=5.0, dial=2.0
    ),
    pods=PodTiming(
        crash_first=0.1,
        crash_max=0.2,
        retry_first=0.05,
        retry_max=0.1,
        grace_min=0.05,
        grace_removed=0.2,
        reading=2.0,
    ),
    status_first=0.02,
    status_max=0.1,
    watch_first=0.05,
    watch_max=0.1,
    housekeeping=60.0,  # at the start, and then not again: nothing but leftovers may need it
    slices=0.3,
    slices_retry=0.05,
    pressure=0.05,
    preemption=5.0,
)
MACHINE = parse_machine({"capacity": {"cpu": 4, "memory": "8Gi", "pods": 20}})
QUICK = HeartbeatTiming(renew=0.5, check=0.5, first=0.02, most=0.1)


@dataclass
class _AgentRun:
    """One agent from start to end."""

    process: NodeProcess
    line: ApiConnection
    task: asyncio.Task[None]

    @property
    def agent(self) -> Agent:
        agent = self.process.agent()
        assert isinstance(agent, Agent)
        return agent


class NodeHarness:
    """Node with an API server, an agent and a driver; `running` creates one."""

    def __init__(self, root: Path, server: RunningServer, **settings: Any) -> None:
        self.layout = Layout(root)
        self.server = server
        self.admin = server.client()
        self.driver = Driver(self.layout)
        self.settings = NodeSettings(
            **{
                "name": NODE,
                "root": root,
                "runtime": "none",
                "machine": MACHINE,
                "cdi": (self.layout.cdi,),
                "timing": QUICK,
                "intervals": INTERVALS,
                "pod_resources": None,
                "cgroup_root": f"plimsoll-{root.name}-x",  # a name may end with "_", which is no name
                **settings,
            }
        )
        #: What must never happen, and did.
        self.wrongs: list[str] = []
        self.machine = None if self.settings.runtime == "process" else Machine(self.layout.cdi, self._created)
        #: Claims by name, as they were made last, and what they were allocated from.
        self.claims: dict[str, Tree] = {}
        #: A call to a driver waits here: "before" it is made, or "after" it was answered.
        self.hold = ""
        self.held_up = asyncio.Event()
        self.available: Callable[[], NodeStats] | None = None
        #: Damage was done on purpose: something may be in quarantine.
        self.damaged = False
        self.away = False
        self.dead = False
        self._agent_run: _AgentRun | None = None
        self._agent: Agent | None = None

    # -- the agent

    @property
    def agent(self) -> Agent:
        assert self._agent_run is not None, "the agent is not running"
        return self._agent_run.agent

    @property
    def up(self) -> bool:
        return self._agent_run is not None

    @property
    def runtime(self) -> Runtime:
        return self.machine if self.machine is not None else self._newest().components.runtime

    def _newest(self) -> Agent:
        """Return the agent that was created last: it may be stopping."""
        assert self._agent is not None, "there was no agent yet"
        return self._agent

    async def begin_agent(self) -> None:
        """Start an agent without waiting until it is ready."""
        assert self._agent_run is None
        line = ApiConnection(InProcessTransport(self.server.api.handle, node_user(NODE)))
        if self.away:
            line.cut()
        process = NodeProcess(Client(line, attempts=1), self.settings, make=self._make)
        task = asyncio.create_task(process.run(), name="agent")
        self._agent_run = _AgentRun(process, line, task)
        await self.until(lambda: process.agents or task.done(), "an agent")

    async def start_agent(self) -> None:
        await self.begin_agent()
        await self.ready()

    async def ready(self) -> None:
        assert self._agent_run is not None
        agent_run = self._agent_run
        ready = asyncio.create_task(agent_run.process.ready(DEADLINE))
        await asyncio.wait((agent_run.task, ready), return_when=asyncio.FIRST_COMPLETED)
        if agent_run.task.done():
            ready.cancel()
            self._agent_run = None
            agent_run.task.result()
        await ready

    async def stop_agent(self) -> None:
        """Stop the agent gracefully."""
        agent_run, self._agent_run = self._agent_run, None
        assert agent_run is not None
        agent_run.process.stop()
        await asyncio.wait_for(agent_run.task, DEADLINE)

    async def kill_agent(self) -> None:
        """Stop the agent as kill -9 does: from now on nothing it does reaches the disk or the API."""
        agent_run, self._agent_run = self._agent_run, None
        assert agent_run is not None
        agent_run.line.cut()
        records = {
            path: path.read_bytes() if path.exists() else None
            for path in (self.layout.claims, self.layout.admitted)
        }
        # It takes a while until the last of its tasks has ended: until then they get nothing done.
        self.dead = True
        if self.machine is not None:
            self.machine.frozen = True
        agent_run.task.cancel()
        await asyncio.wait((agent_run.task,), timeout=DEADLINE)
        assert agent_run.task.done(), "the agent did not end"
        self.hold, self.dead = "", False
        if self.machine is not None:
            self.machine.frozen = False
        for path, data in records.items():
            if data is not None:
                path.write_bytes(data)
            else:
                path.unlink(missing_ok=True)

    def _make(self, client: Client, settings: NodeSettings, name: str, machine: Any, metrics: Any) -> Agent:
        agent = make_agent(
            client, settings, name, machine, metrics, runtime=self.machine, available=self.available
        )
        self._agent = agent
        plugins, claim_cache = agent.components.plugins, agent.components.claim_cache
        assert plugins is not None

        def doorway(call: str, inner: Callable[..., Awaitable[T]]) -> Callable[..., Awaitable[T]]:
            async def through(driver: str, claims: Sequence[ClaimRef]) -> T:
                await self._held("")
                known = {claim.ref.uid: claim for claim in claim_cache.claims()}
                for ref in claims:
                    self._judge_call(call, driver, ref, known.get(ref.uid))
                await self._held("before")
                answer = await inner(driver, claims)
                await self._held("after")
                return answer

            return through

        setattr(plugins, "prepare", doorway("prepare", plugins.prepare))  # noqa: B010 - a method
        setattr(plugins, "unprepare", doorway("unprepare", plugins.unprepare))  # noqa: B010
        return agent

    async def _held(self, point: str) -> None:
        if point and self.hold == point:
            self.held_up.set()
        while (point and self.hold == point) or self.dead:
            await asyncio.sleep(0.01)

    # -- safety checks

    def _judge_call(self, call: str, driver: str, ref: ClaimRef, known: ClaimInfo | None) -> None:
        if known is None or ref.uid not in self.recorded():
            self.wrongs.append(f"{call} of {ref.name}, which is not on record")
            return
        if call == "prepare" and driver in known.drivers and driver not in known.pending:
            self.wrongs.append(f"{ref.name} was prepared again without need")
        others = self.driver.holders(ref.name) - {ref.uid}
        if call == "prepare" and driver == self.driver.name and others:
            self.wrongs.append(f"{ref.name} is prepared while its device is held for {others}")
        if call == "unprepare":
            for pod in known.pods:
                if any(state.phase is ContainerPhase.RUNNING for state in self.runtime.containers(pod)):
                    self.wrongs.append(f"{ref.name} is released while a container of its pod {pod} runs")

    def _created(self, state: ContainerInfo) -> None:
        """Check that the claims of a new container are ready according to the checkpoint."""
        disk = self.recorded()
        for claim in self._newest().components.claim_cache.claims_of_pod(state.pod):
            entry = disk.get(claim.ref.uid)
            if entry is None or not entry.get("ready"):
                self.wrongs.append(f"container {state.name} has claim {claim.ref.name}, which is not ready")

    def recorded(self) -> dict[str, Tree]:
        """Return the claims in the checkpoint by UID."""
        return {each["uid"]: each for each in _body(self.layout.claims).get("claims", ())}

    def admitted(self) -> list[str]:
        """Return the UIDs of the admitted pods in the checkpoint."""
        return [each["uid"] for each in _body(self.layout.admitted).get("pods", ())]

    # -- the API

    def cut(self) -> None:
        self.away = True
        if self._agent_run is not None:
            self._agent_run.line.cut()

    def restore(self) -> None:
        self.away = False
        if self._agent_run is not None:
            self._agent_run.line.restore()

    async def make_claim(self, name: str, driver: str = "") -> Tree:
        """Create an allocated claim."""
        tree = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}},
        }
        await self.admin.create(RESOURCE_CLAIMS, tree, "default")
        result = {
            "request": "r",
            "driver": driver or self.driver.name,
            "pool": "pool",
            "device": self.driver.device_of(name),
            **({"shareID": self.driver.share_id} if self.driver.share_id else {}),
        }
        status = {"allocation": {"devices": {"results": [result]}}}
        self.claims[name] = await self._patch_claim(name, status)
        return self.claims[name]

    async def remake_claim(self, name: str) -> None:
        """Replace a claim by another one of the same name."""
        await self.admin.patch(
            RESOURCE_CLAIMS,
            name,
            {"status": {"reservedFor": None, "allocation": None}},
            "default",
            subresource="status",
        )
        await self.admin.delete(RESOURCE_CLAIMS, name, "default")
        await self.make_claim(name)

    async def _patch_claim(self, name: str, status: Tree) -> Tree:
        return await self.admin.patch(
            RESOURCE_CLAIMS, name, {"status": status}, "default", subresource="status"
        )

    async def pod(
        self,
        name: str,
        *claims: str,
        cpu: str = "",
        annotations: Mapping[str, str] | None = None,
        status: Tree | None = None,
        containers: Sequence[Tree] = (),
        namespace: str = "default",
        **spec: Any,
    ) -> Tree:
        """Create a pod as a scheduler leaves it: with allocated and reserved claims, and bound."""
        container: Tree = {"name": "c", "image": "x", "resources": {}}
        if cpu:
            container["resources"]["requests"] = {"cpu": cpu}
        if claims:
            container["resources"]["claims"] = [{"name": claim} for claim in claims]
        tree = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "annotations": dict(annotations or {})},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": False,  # no controller publishes the certificate here
                "containers": list(containers) or [container],
                "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
                **spec,
            },
        }
        for claim in claims:
            if claim not in self.claims:
                await self.make_claim(claim)
        made = await self.admin.create(PODS, tree, namespace)
        for claim in claims:
            await self.reserve(claim, name)
        if status:
            await self.admin.patch(PODS, name, {"status": status}, namespace, subresource="status")
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace},
            "target": target,
        }
        await self.admin.post(PODS, name, "binding", binding, namespace)
        return made

    async def reserve(self, claim: str, pod: str) -> None:
        user = {"resource": "pods", "name": pod, "uid": await self.uid(pod)}
        now = await self.admin.get(RESOURCE_CLAIMS, claim, "default")
        users = [*now["status"].get("reservedFor", ()), user]
        self.claims[claim] = await self._patch_claim(claim, {"reservedFor": users})

    async def get(self, name: str, namespace: str = "default") -> Tree | None:
        try:
            return await self.admin.get(PODS, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    async def uid(self, name: str) -> str:
        tree = await self.get(name)
        assert tree is not None, f"there is no pod {name}"
        return str(tree["metadata"]["uid"])

    async def delete(self, name: str, *, force: bool = False, namespace: str = "default") -> None:
        await self.admin.delete(PODS, name, namespace, grace=0 if force else None)

    async def pods(self) -> list[Tree]:
        listing = await self.admin.list(PODS)
        return [json.loads(item) for item in listing.items]

    async def events(self, name: str) -> list[tuple[str, str]]:
        """Return reason and message of a pod's events."""
        listing = await self.admin.list(EVENTS, "default")
        trees = [json.loads(item) for item in listing.items]
        return [
            (tree["reason"], tree.get("note", tree.get("message", "")))
            for tree in trees
            if (tree.get("regarding") or tree.get("involvedObject") or {}).get("name") == name
        ]

    # -- containers

    async def crash(self, name: str, code: int = 1) -> None:
        uid = await self.uid(name)
        if self.machine is not None:
            await self.machine.crash(uid, code)
            return
        ids = {
            state.id: state.pid
            for state in self.runtime.containers(uid)
            if state.phase is ContainerPhase.RUNNING
        }
        for pid in ids.values():
            if not code:  # a process that has just started would die of the signal
                await self.until(lambda pid=pid: catches(pid, signal.SIGUSR1))  # type: ignore[misc]
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL if code else signal.SIGUSR1)
        if self.up:
            await self.until(
                lambda: (
                    not any(
                        state.id in ids and state.phase is ContainerPhase.RUNNING
                        for state in self.runtime.containers(uid)
                    )
                ),
                "the end of a process",
            )

    def starts(self, uid: str) -> int:
        """Return the number of starts of a pod's container."""
        if self.machine is not None:
            return self.machine.starts.get(uid, 0)
        return 1 + max((state.attempt for state in self.runtime.containers(uid)), default=-1)

    # -- waiting

    async def until(self, look: Callable[[], T], what: str = "", seconds: float = DEADLINE) -> T:
        return await until(look, seconds=seconds, context=lambda: f"{what}; {self.wrongs}")

    async def sees(
        self, name: str, fine: Callable[[Tree | None], Any], what: str = "", namespace: str = "default"
    ) -> Tree | None:
        """Wait until the pod in the API is accepted and return it."""
        not_written = (KeyError, IndexError, TypeError)
        return await until(
            lambda: self.get(name, namespace), fine, ignore=not_written, context=f"{name} is not {what}"
        )

    async def runs(self, name: str, namespace: str = "default") -> Tree:
        found = await self.sees(name, is_running, "running", namespace)
        assert found is not None
        return found

    async def ended(self, name: str, phase: str = "Failed", namespace: str = "default") -> Tree:
        found = await self.sees(name, lambda t: t and t["status"]["phase"] == phase, phase, namespace)
        assert found is not None
        return found

    async def gone(self, name: str, namespace: str = "default") -> None:
        await self.sees(name, lambda tree: tree is None, "gone", namespace)


def is_running(tree: Tree | None) -> bool:
    """Return whether all containers of a pod run and are ready according to the API."""
    if tree is None:
        return False
    statuses = tree["status"]["containerStatuses"]
    return tree["status"]["phase"] == "Running" and all(each["ready"] for each in statuses)


def _body(path: Path) -> Tree:
    try:
        found: Tree = json.loads(path.read_text())["body"]
    except (OSError, ValueError, KeyError):
        return {}
    return found


@asynccontextmanager
async def running(*, agent: bool = True, driver: bool = True, **settings: Any) -> AsyncIterator[NodeHarness]:
    """Yield a harness; at the end, stop everything and check that nothing is left."""
    directory = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
    server = await start_server(ServerSettings(durability="normal", controllers=False))
    harness = NodeHarness(directory, server, **settings)
    try:
        if driver:
            await harness.driver.come()
        if agent:
            await harness.start_agent()
        yield harness
    finally:
        harness.driver.gate.set()
        if harness.up:
            if harness.machine is None:  # after a test that failed: no process may stay
                for sandbox in harness.runtime.sandboxes():
                    await harness.runtime.remove_sandbox(sandbox.uid)
            await harness.stop_agent()
        await harness.driver.die()
        await server.stop()
        shutil.rmtree(directory)
    left = leaked_tasks("plimsoll/node")
    assert not left, left


def catches(pid: int, number: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal; True if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return True
    (caught,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (number - 1) & 1)
