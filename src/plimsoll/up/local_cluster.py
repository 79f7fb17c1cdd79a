"""In-process cluster for tests and scripts.

`LocalCluster` runs the API server in a thread with its own event loop, optionally with a scheduler, nodes and
drivers, and provides a kubeconfig file and clients. The API is available when `start` returns, `stop` removes
everything, and any number of clusters can run at the same time. The pytest fixtures of `pytest_plugin` use
this class.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import textwrap
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from plimsoll.api import codec
from plimsoll.api.gates import Gates
from plimsoll.apiserver.auth.users import SCHEDULER
from plimsoll.apiserver.process import RunningServer, ServerSettings, start_server
from plimsoll.client import Client, ClientConfig, Endpoint
from plimsoll.client.blocking import BlockingClient, Kind, Tree
from plimsoll.client.endpoints import NAMESPACES
from plimsoll.client.kubeconfig import find_config
from plimsoll.common.tasks import cancel_tasks
from plimsoll.errors import ApiError, InputError
from plimsoll.scheduler.process.configuration import DEFAULT_NAME, NAME, SchedulerSettings
from plimsoll.scheduler.process.run import SchedulerProcess
from plimsoll.tools.cluster_state.manifests import parse_objects, read_objects
from plimsoll.up.manifests.apply import Applier, namespace_of

if TYPE_CHECKING:
    from plimsoll.drivers.plugin import Driver
    from plimsoll.node.process.agents import AgentLike
    from plimsoll.scheduler.profile import SchedulerProfile
    from plimsoll.tools.cluster_state import ClusterState
    from plimsoll.tools.whatif import Whatif
    from plimsoll.up.local_drivers import Drivers, LocalDrivers
    from plimsoll.up.local_nodes import LocalNodes, Nodes

R = TypeVar("R")
#: Objects to apply: YAML or JSON text, a file or directory, or an object as a tree.
Manifest = str | Path | Mapping[str, Any]
_MANAGER = "plimsoll-test"
_READY_SECONDS = 30.0


class LocalCluster:
    """Running cluster with clients for tests; a context manager."""

    def __init__(
        self,
        *,
        data: Path | None = None,
        controllers: bool = True,
        scheduler: bool | SchedulerSettings = False,
        nodes: Nodes = 0,
        drivers: Drivers = (),
        feature_gates: str = "",
        port: int = 0,
    ) -> None:
        """Create a cluster. `feature_gates` is NAME=BOOL,...

        Without a data directory all data is kept in memory. With `scheduler`, pods with the schedulerName
        default-scheduler or plimsoll are scheduled, unless its settings specify other names. With
        `nodes`, pods run on nodes: a number (node-0, node-1, ...), names, or settings. By default nothing is
        executed (runtime `none`), a node has 8 CPUs and 32Gi, and its sockets are below `node_root`; more
        than a hundred nodes have no sockets and files. Nodes are ready when `start` returns. With `drivers`,
        all nodes have devices: from a device file (a path, YAML, or `gpus`, `nics`, `accelerators`) or from a
        `Driver` instance or factory. They are published when `start` returns.
        """
        self.settings = ServerSettings(
            data=data,
            controllers=controllers,
            gates=Gates.parse(feature_gates),
            port=port,
            durability="normal",
        )
        self._scheduler_settings = _scheduler(scheduler, self.settings.gates)
        self._nodes = _nodes(nodes, self.settings.gates)
        self._drivers = _drivers(drivers, self._nodes)
        self._scheduler: SchedulerProcess | None = None
        self._scheduling: asyncio.Task[None] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._server: RunningServer | None = None
        self._client: BlockingClient | None = None
        self._applier: Applier | None = None

    # -- start and stop

    def start(self) -> LocalCluster:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="plimsoll-cluster", daemon=True)
        self._thread.start()
        try:
            self._directory = tempfile.TemporaryDirectory(prefix="plimsoll-cluster-")
            volumes = (self.settings.data or Path(self._directory.name)) / "volumes"
            self._server = self.run(start_server(replace(self.settings, volumes_dir=volumes)))
            self._server.write_kubeconfig(self.kubeconfig)
            self._client = BlockingClient(self._server.client(), self.loop, self.find)
            if self._nodes is not None:
                self.run(self._nodes.start(self._server, Path(self._directory.name)))
            if self._drivers is not None:
                self.run(self._drivers.start(self._server, self._all_nodes().list_node_paths()))
            if self._scheduler_settings is not None:
                self.run(self._start_scheduler(self._scheduler_settings))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop the cluster; data in memory is lost."""
        if self.loop is None or self._thread is None:
            return
        if self._scheduling is not None:
            self.run(self._stop_scheduler(self._scheduling))
        if self._nodes is not None:
            self.run(self._nodes.stop())
        if self._drivers is not None:  # after the nodes, which may have claims to release
            self.run(self._drivers.stop())
        if self._server is not None:
            self.run(self._server.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        if self._directory is not None:
            self._directory.cleanup()
        self.loop = self._thread = self._server = self._directory = self._client = None
        self._scheduler = self._scheduling = self._applier = None

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # -- access

    @property
    def server(self) -> RunningServer:
        """The API server, on the event loop of the cluster."""
        assert self._server is not None, "the cluster is not running"
        return self._server

    def run(self, work: Coroutine[Any, Any, R]) -> R:
        """Run a coroutine on the event loop of the cluster and return its result."""
        assert self.loop is not None, "the cluster is not running"
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig file of the administrator, for kubectl and other clients."""
        assert self._directory is not None, "the cluster is not running"
        return Path(self._directory.name) / "kubeconfig"

    @property
    def config(self) -> ClientConfig:
        return find_config(self.kubeconfig, environ={})

    @property
    def client(self) -> BlockingClient:
        """Synchronous client."""
        assert self._client is not None, "the cluster is not running"
        return self._client

    @property
    def scheduler(self) -> SchedulerProcess:
        """Scheduler, to inspect its snapshot and queue (on its event loop: see `ask`)."""
        assert self._scheduler is not None, "the cluster runs without a scheduler"
        return self._scheduler

    def ask(self, question: Callable[[SchedulerProcess], R]) -> R:
        """Call a function on the scheduler's event loop, between two of its steps."""

        async def answer() -> R:
            return question(self.scheduler)

        return self.run(answer())

    # -- tools

    def cluster_state(self) -> ClusterState:
        """Return the current cluster state, for `explain_pod`, `audit`, `node_rows` and the other tools."""
        from plimsoll.tools.cluster_state import ClusterState  # noqa: PLC0415 - clusters start faster without
        from plimsoll.tools.cluster_state.live import read_live  # noqa: PLC0415

        objects = self.run(read_live(self.server.client()))
        return ClusterState(objects, self.settings.gates, origin=self.config.server)

    def whatif(self, *, settings: SchedulerProfile | None = None) -> Whatif:
        """Return a copy of the cluster in memory: `with cluster.whatif() as w:`; nothing is written back."""
        from plimsoll.tools.whatif import Whatif  # noqa: PLC0415

        return Whatif(self.cluster_state(), settings=settings)

    def restart_scheduler(self) -> None:
        """Stop the scheduler and start a new one, which starts from the API objects alone."""
        assert self._scheduling is not None, "the cluster runs without a scheduler"
        assert self._scheduler_settings is not None
        self.run(self._stop_scheduler(self._scheduling))
        self.run(self._start_scheduler(self._scheduler_settings))

    # -- nodes

    def agent(self, name: str = "") -> AgentLike:
        """Return the agent of a node, or the only one; it runs on another event loop (see `ask_node`)."""
        return self._all_nodes().agent(name)

    def ask_node(self, name: str, question: Callable[[AgentLike], R]) -> R:
        """Call a function on the event loop of a node's agent, between two of its steps."""

        async def answer() -> R:
            return question(self.agent(name))

        return self.run(answer())

    def node_root(self, name: str) -> Path:
        """Return the directory of a node, with the sockets for drivers and monitoring agents."""
        return self._all_nodes().root(name)

    def stop_node(self, name: str) -> None:
        """Stop the agent of a node, and those simulated with it; the Node object stays."""
        self.run(self._all_nodes().end(name))

    def start_node(self, name: str) -> None:
        """Start the agent of a node that was stopped; it is ready when this returns."""
        self.run(self._all_nodes().begin(name))

    def restart_node(self, name: str) -> None:
        """Restart the agent of a node, which resumes from its files and the API."""
        self.stop_node(name)
        self.start_node(name)

    # -- drivers

    def driver(self, name: str = "", node: str = "") -> Driver:
        """Return a driver on a node, or the only one (it runs on the cluster's event loop)."""
        return self._all_drivers().driver(name, node)

    def control_drivers(self, orders: str | Mapping[str, Any]) -> None:
        """Apply the content of a control file to the simulated drivers; see docs/drivers.md."""

        async def apply_control() -> None:
            self._all_drivers().apply_control(textwrap.dedent(orders) if isinstance(orders, str) else orders)

        self.run(apply_control())

    def connect(self) -> Client:
        """Return an HTTP client for the caller's event loop: `async with cluster.connect() as client`."""
        return Client.connect(self.config)

    # -- objects

    def apply(self, *manifests: Manifest, namespace: str = "default") -> list[Tree]:
        """Create or change objects (server-side apply, status included); return them as stored."""
        return [self.run(self._applies().apply(tree, namespace)) for tree in _read(manifests)]

    def delete(self, *manifests: Manifest, namespace: str = "default") -> None:
        """Delete objects; missing ones are ignored."""
        for tree in reversed(list(_read(manifests))):
            try:
                self.client.delete(
                    self._endpoint_of(tree), str(tree["metadata"]["name"]), namespace_of(tree, namespace)
                )
            except ApiError as error:
                if error.code != 404:
                    raise

    def wait_for(
        self,
        kind: Kind,
        name: str,
        namespace: str = "default",
        condition: Callable[[Tree], bool] | None = None,
        *,
        gone: bool = False,
        timeout: float = 30.0,
    ) -> Tree:
        """Wait until an object exists, satisfies a condition, or is `gone`; return its last state."""
        endpoint = self.find(kind) if isinstance(kind, str) else kind
        return self.run(self._await_state(endpoint, name, namespace, condition, gone, timeout))

    def new_namespace(self, prefix: str = "test") -> str:
        """Create a namespace that no other test uses, for clusters that several tests share."""
        name = f"{prefix}-{secrets.token_hex(4)}"
        self.client.create(NAMESPACES, {"metadata": {"name": name}})
        return name

    def find(self, word: str) -> Endpoint:
        """Return the kind for a name: `pods`, `Pod`, `resourceclaims.resource.k8s.io`."""
        return self.run(self._applies().find(word))

    # -- helpers

    def _endpoint_of(self, tree: Mapping[str, Any]) -> Endpoint:
        return self.run(self._applies().endpoint_of(tree))

    def _applies(self) -> Applier:
        if self._applier is None:
            self._applier = Applier(self.server.client(), _MANAGER)
        return self._applier

    async def _await_state(
        self,
        endpoint: Endpoint,
        name: str,
        namespace: str,
        condition: Callable[[Tree], bool] | None,
        gone: bool,
        timeout: float,
    ) -> Tree:
        last: Tree = {}
        client = self.server.client()
        place = namespace if endpoint.namespaced else None
        fields = f"metadata.name={name}"

        def is_done(there: bool) -> bool:
            if gone or not there:
                return gone and not there
            try:
                return condition is None or condition(last)
            except (KeyError, IndexError):
                return False  # the field is not set yet

        try:
            async with asyncio.timeout(timeout):
                while True:
                    listing = await client.list(endpoint, place, fields=fields)
                    last = codec.decode_tree(listing.items[0]) if listing.items else last
                    if is_done(bool(listing.items)):
                        return last
                    since = listing.revision
                    with suppress(ApiError):  # the watch ended: read again
                        async with aclosing(
                            client.watch(endpoint, place, since=since, fields=fields)
                        ) as events:
                            async for event in events:
                                if event.type == "BOOKMARK":
                                    continue
                                last = codec.decode_tree(event.raw)
                                if is_done(event.type != "DELETED"):
                                    return last
        except TimeoutError:
            missing = "does not satisfy the condition" if condition is not None else "does not exist"
            problem = "still exists" if gone else missing
            state = f"last seen: {last}" if last else "it never existed"
            raise AssertionError(
                f"{endpoint.kind} {namespace}/{name} {problem} after {timeout:g} s; {state}"
            ) from None

    async def _start_scheduler(self, settings: SchedulerSettings) -> None:
        self._scheduler = SchedulerProcess(self.server.client(SCHEDULER), settings)
        self._scheduling = asyncio.create_task(self._scheduler.run(), name="scheduler")
        ready = asyncio.create_task(self._scheduler.ready(_READY_SECONDS))
        await asyncio.wait((self._scheduling, ready), return_when=asyncio.FIRST_COMPLETED)
        if self._scheduling.done():
            ready.cancel()
            self._scheduling.result()
        await ready

    async def _stop_scheduler(self, task: asyncio.Task[None]) -> None:
        self.scheduler.stop()
        await asyncio.wait((task,), timeout=_READY_SECONDS)
        await cancel_tasks((task,))

    def _all_nodes(self) -> LocalNodes:
        assert self._nodes is not None, "the cluster runs without nodes"
        return self._nodes

    def _all_drivers(self) -> LocalDrivers:
        assert self._drivers is not None, "the cluster runs without drivers"
        return self._drivers


def _nodes(wanted: Nodes, gates: Gates) -> LocalNodes | None:
    if not wanted:
        return None
    from plimsoll.up.local_nodes import LocalNodes  # noqa: PLC0415 - clusters without nodes start faster

    return LocalNodes(wanted, gates)


def _drivers(wanted: Drivers, nodes: LocalNodes | None) -> LocalDrivers | None:
    if not wanted:
        return None
    from plimsoll.up.local_drivers import LocalDrivers  # noqa: PLC0415 - as above

    if nodes is None:
        raise InputError("drivers: devices need nodes; set nodes=")
    return LocalDrivers(wanted)


def _scheduler(wanted: bool | SchedulerSettings, gates: Gates) -> SchedulerSettings | None:
    if isinstance(wanted, bool):
        return SchedulerSettings(gates=gates).named((DEFAULT_NAME, NAME)) if wanted else None
    return wanted


def _read(manifests: tuple[Manifest, ...]) -> Iterator[Tree]:
    for manifest in manifests:
        if isinstance(manifest, Mapping):
            yield dict(manifest)
            continue
        if isinstance(manifest, Path):
            found = read_objects([manifest])
        else:
            found = parse_objects(textwrap.dedent(manifest), "manifest")
        yield from (each.tree for each in found)
