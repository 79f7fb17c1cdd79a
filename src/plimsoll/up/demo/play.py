"""Demo runner: creates the demo objects in a running cluster and checks the result.

`play_demo` uses the API like any client. It runs once per data directory; an interrupted run starts over. On
a terminal it pauses so that the output can be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from plimsoll.api import codec
from plimsoll.api.quantity import ZERO
from plimsoll.api.resource import ResourceSlice
from plimsoll.client import Client
from plimsoll.client.endpoints import NAMESPACES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.drivers.cpu.settings import DRIVER_NAME
from plimsoll.errors import ApiError, InputError
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.cluster_state.live import read_live
from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.tools.top.nodes import ResourceRow, node_rows
from plimsoll.up.demo import story
from plimsoll.up.demo.story import DATABASE, WEB, DemoPodState
from plimsoll.up.demo.two_ledgers import simulate_separate_ledgers
from plimsoll.up.demo_objects import (
    NAMESPACE,
    NODE,
    demo_objects,
    neighbor_objects,
    pinned_objects,
    story_objects,
)
from plimsoll.up.manifests.apply import Applier

if TYPE_CHECKING:
    from plimsoll.up.console import Console
    from plimsoll.up.up import Up

DEMO_ANNOTATION = "plimsoll.dev/demo"
_MANAGER = "plimsoll-demo"
_SECONDS = 20.0
_POLL_SECONDS = 0.03
_PAUSE_SECONDS = 1.5


async def play_demo(cluster: Up, console: Console) -> bool:
    """Run the demo, unless it has run in this data directory before; return whether it succeeded."""
    assert cluster.server is not None, "the cluster is not running"
    page = cluster.dashboard.url if cluster.dashboard is not None else ""
    pause = _PAUSE_SECONDS if console.live and not cluster.settings.once else 0.0
    return await Play(cluster.server.client(), console, page=page, pause=pause).run()


class Play:
    """One run of the demo."""

    def __init__(
        self,
        client: Client,
        console: Console,
        *,
        page: str = "",
        pause: float = 0.0,
        seconds: float = _SECONDS,
    ) -> None:
        """Create a run.

        `page` is the URL of the dashboard, `pause` the time to read each step, `seconds` the timeout of each
        wait.
        """
        self._client = client
        self._console = console
        self._applier = Applier(client, _MANAGER)
        self._page = page
        self._pause = pause
        self._seconds = seconds
        self._succeeded = True

    async def run(self) -> bool:
        self._console.line()
        if await self._has_run():
            self._print(
                story.describe_rerun(
                    self._paint, NODE, await self._pod_states(DATABASE, WEB), await self._row()
                )
            )
            return self._succeeded
        try:
            await self._clear()
            await self._wait_for_neighbors()
            await self._show_problem()
            await self._show_one_ledger()
            await self._release()
            await self._return()
        except InputError as problem:  # the following steps depend on it
            self._check(False, str(problem))
        if self._succeeded:
            await self._client.patch(
                NAMESPACES, NAMESPACE, {"metadata": {"annotations": {DEMO_ANNOTATION: "done"}}}
            )
        return self._succeeded

    # -- steps

    async def _show_problem(self) -> None:
        ledgers = simulate_separate_ledgers([*demo_objects(), *story_objects()], NODE)
        self._print(story.describe_problem(self._paint, NODE, ledgers))
        await self._pause_for_reader()
        self._print(story.describe_two_ledgers(self._paint, NODE, ledgers))
        self._check(ledgers.overcommitted > 0, "separate ledgers would not have overcommitted the node")
        await self._pause_for_reader()

    async def _show_one_ledger(self) -> None:
        await self._create(DATABASE)
        await self._wait_until_bound(DATABASE)
        await self._create(WEB)
        await self._wait_until_pending(WEB)
        stands = await self._pod_states(DATABASE, WEB)
        self._print(story.describe_one_ledger(self._paint, NODE, stands, await self._row()))
        await self._pause_for_reader()

    async def _release(self) -> None:
        await self._remove(DATABASE)
        await self._wait_until_bound(WEB)
        self._print(story.describe_release(self._paint, NODE, await self._pod_states(WEB), await self._row()))
        await self._pause_for_reader()

    async def _return(self) -> None:
        await self._create(DATABASE)
        await self._wait_until_pending(DATABASE)
        stands = await self._pod_states(WEB, DATABASE)
        self._print(story.describe_return(self._paint, NODE, stands, await self._row(), self._page))

    # -- preparation

    async def _has_run(self) -> bool:
        namespace = await self._client.get(NAMESPACES, NAMESPACE)
        return bool((namespace["metadata"].get("annotations") or {}).get(DEMO_ANNOTATION))

    async def _clear(self) -> None:
        """Delete the objects of an interrupted run."""
        for pod in (DATABASE, WEB):
            await self._remove(pod)

    async def _wait_for_neighbors(self) -> None:
        """Wait for the other pods of the demo, which make the cluster look used."""
        wanted: Iterable[ParsedObject] = neighbor_objects()
        if await self._own_cpus() >= 2:  # a single CPU would leave none for the other pods
            wanted = [*wanted, *pinned_objects()]
        for found in wanted:
            await self._applier.apply(found.tree, NAMESPACE)
        for found in wanted:
            if found.kind == "Pod":
                try:
                    await self._wait_until_bound(found.name)
                except InputError as problem:
                    self._check(False, str(problem))

    async def _own_cpus(self) -> int:
        """Return the number of CPUs that this machine's driver publishes."""
        milli = 0
        for raw in (await self._client.list(RESOURCE_SLICES)).items:
            piece = codec.decode(raw, ResourceSlice)
            if piece.spec.driver == DRIVER_NAME:
                for device in piece.spec.devices or ():
                    capacity = device.capacity.get(f"{DRIVER_NAME}/cpu")
                    milli += ((capacity.value if capacity is not None else None) or ZERO).milli()
        return milli // 1000

    # -- pods

    async def _create(self, pod: str) -> None:
        for found in _objects_of(pod):
            await self._applier.apply(found.tree, NAMESPACE)

    async def _remove(self, pod: str) -> None:
        for found in reversed(_objects_of(pod)):
            endpoint = PODS if found.kind == "Pod" else RESOURCE_CLAIMS
            with suppress(ApiError):
                await self._client.delete(endpoint, found.name, NAMESPACE)

            async def gone(endpoint: Any = endpoint, name: str = found.name) -> bool:
                try:
                    await self._client.get(endpoint, name, NAMESPACE)
                except ApiError as error:
                    return error.code == 404
                return False

            await self._wait_for(gone, f"{found.kind} {found.name} is not deleted")

    async def _wait_until_bound(self, pod: str) -> None:
        async def bound() -> bool:
            return bool((await self._pod_state(pod)).node)

        await self._wait_for(bound, f"pod {pod} is not scheduled")

    async def _wait_until_pending(self, pod: str) -> None:
        async def waiting() -> bool:
            state = await self._pod_state(pod)
            return state.is_pending and bool(state.why)

        await self._wait_for(waiting, f"pod {pod} is not pending")

    async def _pod_states(self, *pods: str) -> list[DemoPodState]:
        return [await self._pod_state(pod) for pod in pods]

    async def _pod_state(self, pod: str) -> DemoPodState:
        try:
            tree = await self._client.get(PODS, pod, NAMESPACE)
        except ApiError as error:
            return DemoPodState(pod, why=str(error), gone=error.code == 404)
        return demo_pod_state(tree)

    async def _row(self) -> ResourceRow:
        cluster_state = ClusterState(await read_live(self._client))
        (node,) = node_rows(cluster_state, names=[NODE])
        return node.row("cpu")

    # -- output and waiting

    @property
    def _paint(self) -> Any:
        return self._console.paint

    def _print(self, lines: Iterator[str]) -> None:
        for line in lines:
            self._console.line(line)

    def _check(self, holds: bool, problem: str) -> None:
        if not holds:
            self._succeeded = False
            self._console.line(f"  {self._paint.red('failed')}: {problem}; see plimsoll explain")

    async def _pause_for_reader(self) -> None:
        await asyncio.sleep(self._pause)

    async def _wait_for(self, condition: Callable[[], Awaitable[bool]], problem: str) -> None:
        """Wait for a condition; raises InputError with the problem if it takes too long."""
        try:
            async with asyncio.timeout(self._seconds):
                while not await condition():
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            raise InputError(f"{problem} after {self._seconds:g} s") from None


def demo_pod_state(tree: dict[str, Any]) -> DemoPodState:
    """Return the state of a pod; a pending pod has the scheduler's message without the preemption part."""
    name = tree["metadata"]["name"]
    if tree.get("spec", {}).get("nodeName"):
        return DemoPodState(name, tree["spec"]["nodeName"])
    for condition in tree.get("status", {}).get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return DemoPodState(name, why=str(condition.get("message") or "").split(". ")[0].rstrip("."))
    return DemoPodState(name)


def _objects_of(pod: str) -> list[ParsedObject]:
    """Return a pod of the demo after its claim, if it has one."""
    return [found for found in story_objects() if found.name in (pod, f"{pod}-cpus")]
