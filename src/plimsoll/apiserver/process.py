"""API server process: store, authentication, API, HTTP and controllers, wired together.

`start_server` returns a `RunningServer` that accepts requests already; everything in it runs on the event
loop of the caller. `serve` is the process behind `plimsoll server`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import socket
import ssl
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plimsoll.api.gates import Gates
from plimsoll.apiserver.api import Api
from plimsoll.apiserver.auth.certificates import (
    CertificateAuthority,
    create_ssl_context,
    read_client_ca,
    utc_now,
)
from plimsoll.apiserver.auth.kubeconfig import write_kubeconfig
from plimsoll.apiserver.auth.secret_files import read_file, write_private
from plimsoll.apiserver.auth.signing_key import SigningKey
from plimsoll.apiserver.auth.token_file import StaticTokens, load_or_create_admin_token
from plimsoll.apiserver.auth.users import ADMIN, CONTROLLERS, KUBELET_CLIENT, User
from plimsoll.apiserver.context import ApiContext
from plimsoll.apiserver.event_expiry import run_event_expiry
from plimsoll.apiserver.flowcontrol.bootstrap import ensure_bootstrap_objects, run_bootstrap
from plimsoll.apiserver.flowcontrol.flow_schema_status import run_flow_schema_status
from plimsoll.apiserver.handlers.service_addresses import API_SERVICE_IP, SERVICE_CIDR
from plimsoll.apiserver.heap import reuse_buffers
from plimsoll.apiserver.http import HttpServer
from plimsoll.apiserver.in_process import connect_in_process
from plimsoll.apiserver.kubelet.client import KubeletClient, make_kubelet_tls
from plimsoll.apiserver.limits import ServerLimits
from plimsoll.apiserver.storage import Store
from plimsoll.apiserver.storage.log import Durability
from plimsoll.apiserver.workers.pool import WorkerLimits, WorkerPool
from plimsoll.client import Client
from plimsoll.common.gc_pause import without_collection
from plimsoll.common.tasks import cancel_tasks, log_failure, stop_on_signals
from plimsoll.controllers.bootstrap import bootstrap, publish_api_server
from plimsoll.errors import ApiError, ConfigError

if TYPE_CHECKING:
    from plimsoll.controllers.manager import ControllerManager

_log = logging.getLogger("plimsoll.server")

_MAX_OPEN_FILES = 65536
#: Threshold of the youngest garbage-collector generation.
_GC_THRESHOLD = 20_000
STORE_FILE = "store.db"
ACCOUNT_KEY = "service-accounts.key"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """Settings of the API server. Without a data directory nothing outlives the process."""

    data: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    client_ca: Path | None = None
    token_file: Path | None = None
    kubelet_ca: Path | None = None  #: CA of kubelets' serving certificates; None: they are not verified
    kubelet_own_ca: bool = False  #: verify them with the server's own CA
    kubelet_certificate: Path | None = None  #: client certificate for kubelets; None: of the server's own CA
    kubelet_key: Path | None = None
    gates: Gates = field(default_factory=Gates.default)
    durability: Durability = "full"
    controllers: bool = True
    #: Names of the controllers to run, as for `choose_controllers`.
    controller_names: tuple[str, ...] = ("*",)
    #: Directory for provisioned volumes, as in `ControllerSettings`.
    volumes_dir: Path | None = None
    start_empty: bool = False
    #: Called with the opened store, before the first request and the controllers.
    initialize: Callable[[ApiContext], None] = lambda context: None
    limits: ServerLimits = field(default_factory=ServerLimits)
    now: Callable[[], datetime] = utc_now
    workers: WorkerLimits = field(default_factory=WorkerLimits)


class RunningServer:
    """Running API server; `stop` shuts it down."""

    def __init__(
        self,
        api: Api,
        http: HttpServer,
        store: Store,
        workers: WorkerPool,
        ca: bytes,
        token: str,
        authority: CertificateAuthority,
    ) -> None:
        self.api = api
        self.authority = authority  #: issues certificates of the cluster
        self.store = store
        self.workers = workers
        self.http = http
        self._ca = ca
        self.token = token  #: the administrator's bearer token
        self._tasks: list[asyncio.Task[None]] = []
        self._cleanups: list[Callable[[], None]] = []

    @property
    def url(self) -> str:
        return self.http.url

    @property
    def port(self) -> int:
        return self.http.port

    def client(self, user: User = ADMIN) -> Client:
        """Return a client in this process, without a network."""
        return connect_in_process(self.api.handle, user)

    def write_kubeconfig(self, path: Path) -> None:
        """Write a kubeconfig with the administrator's credentials."""
        write_kubeconfig(path, self.url, authority=self._ca, token=self.token)

    def run_in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a coroutine for as long as the server runs; a failure is logged at once."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(partial(log_failure, _log))
        self._tasks.append(task)

    async def stop(self) -> None:
        """Stop the controllers, end the watches and make the last writes durable."""
        await cancel_tasks(self._tasks)
        await self.http.stop()
        if self.api.pod_streams.kubelets is not None:
            await self.api.pod_streams.kubelets.close()
        await self.workers.close()
        await self.store.close()
        for cleanup in self._cleanups:
            cleanup()


async def start_server(settings: ServerSettings) -> RunningServer:
    """Open the store, listen, and start the controllers; ConfigError, StoreError or OSError on failure."""
    directory, cleanup = _data_dir(settings.data)
    with without_collection():  # the stored objects contain no cycles
        store = Store.open(
            directory / STORE_FILE if settings.data is not None else None,
            durability=settings.durability,
            start_empty=settings.start_empty,
        )
    try:
        server = await _assemble(settings, directory, store)
    except BaseException:
        await store.close()
        cleanup()
        raise
    server._cleanups.append(cleanup)
    return server


async def _assemble(settings: ServerSettings, directory: Path, store: Store) -> RunningServer:
    token = load_or_create_admin_token(directory)
    context = ApiContext.for_store(
        store,
        tokens=StaticTokens(settings.token_file, admin=token),
        key=SigningKey.load_or_create(directory / ACCOUNT_KEY),
        gates=settings.gates,
        now=settings.now,
    )
    workers = WorkerPool(settings.workers, settings.gates)
    api = Api(context, workers=workers)
    authority = CertificateAuthority.load_or_create(directory, settings.now)
    tls, ca = _make_tls(settings, authority)
    api.pod_streams.kubelets = KubeletClient(_kubelet_tls(settings, authority, directory))
    http = HttpServer(api, limits=settings.limits, host=settings.host, port=settings.port, tls=tls)
    server = RunningServer(api, http, store, workers, ca, token, authority)
    settings.initialize(context)
    await bootstrap(server.client(ADMIN))
    await ensure_bootstrap_objects(server.client(ADMIN))
    await http.start()
    await _publish(server.client(ADMIN), _advertised_address(settings.host), http.port)
    server.run_in_background(context.authorizer.warm_up(), "node authorizer graph")
    server.run_in_background(run_event_expiry(context), "event expiry")
    flows = http.flow_controller
    server.run_in_background(flows.run_adjustment(), "seats of priority levels")
    server.run_in_background(run_bootstrap(server.client(ADMIN)), "priority and fairness objects")
    server.run_in_background(
        run_flow_schema_status(server.client(ADMIN), flows, settings.now), "status of FlowSchemas"
    )
    if settings.controllers:
        server.run_in_background(_make_controllers(server, settings, ca).run(), "controllers")
    return server


def _make_controllers(server: RunningServer, settings: ServerSettings, ca: bytes) -> ControllerManager:
    with without_collection():
        from plimsoll.controllers.context import ControllerSettings  # noqa: PLC0415 - a server may run none
        from plimsoll.controllers.manager import ControllerManager  # noqa: PLC0415

    return ControllerManager(
        server.client(CONTROLLERS),
        only=settings.controller_names,
        settings=ControllerSettings(
            gates=settings.gates, root_ca=ca.decode(), volumes_dir=settings.volumes_dir
        ),
    )


async def _publish(client: Client, address: str, port: int) -> None:
    """Publish the Service of the API server. Nothing depends on it here, so a failure is only logged."""
    try:
        await publish_api_server(client, address, port, cidr=SERVICE_CIDR, service_ip=API_SERVICE_IP)
    except ApiError as error:
        _log.warning("cannot publish the service default/kubernetes: %s", error)


def _kubelet_tls(
    settings: ServerSettings, authority: CertificateAuthority, directory: Path
) -> ssl.SSLContext:
    """Create the TLS context for kubelets, with a client certificate that is issued at every start."""
    certificate, key = settings.kubelet_certificate, settings.kubelet_key
    if (certificate is None) != (key is None):
        raise ConfigError("--kubelet-client-certificate and --kubelet-client-key must be given together")
    if certificate is None or key is None:
        certificate, key = directory / "kubelet-client.crt", directory / "kubelet-client.key"
        pair = authority.issue_client(KUBELET_CLIENT)
        write_private(key, pair.key)
        write_private(certificate, pair.certificate)
    ca = authority.certificate if settings.kubelet_own_ca else b""
    if settings.kubelet_ca is not None:
        ca = read_file(settings.kubelet_ca, "the CA of kubelets")
    return make_kubelet_tls(certificate, key, ca)


def _make_tls(settings: ServerSettings, authority: CertificateAuthority) -> tuple[ssl.SSLContext, bytes]:
    """Create the TLS context of the server, and return it with the CA that clients should trust."""
    clients = [authority.certificate]
    if settings.client_ca is not None:
        clients.append(read_client_ca(settings.client_ca))
    if settings.certificate is None and settings.key is None:
        certificate, key = authority.ensure_server_pair(_names(settings))
        tls = create_ssl_context(certificate, key, client_authorities=clients, now=settings.now)
        return tls, authority.certificate
    if settings.certificate is None or settings.key is None:
        raise ConfigError("--tls-cert and --tls-key must be given together")
    tls = create_ssl_context(settings.certificate, settings.key, client_authorities=clients, now=settings.now)
    ca = settings.authority or settings.certificate  # a self-signed certificate is its own CA
    return tls, read_file(ca, "the CA of the certificate")


def _names(settings: ServerSettings) -> tuple[str, ...]:
    everywhere = settings.host in ("0.0.0.0", "::", "")
    return (*(() if everywhere else (settings.host,)), *settings.names)


def _advertised_address(host: str) -> str:
    """Return the address that clients reach; for a server on all addresses, that of the default route."""
    if host not in ("0.0.0.0", "::", ""):
        return host if host != "localhost" else "127.0.0.1"
    family = socket.AF_INET6 if host == "::" else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("2001:db8::1" if host == "::" else "192.0.2.1", 9))  # sends nothing
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _data_dir(data: Path | None) -> tuple[Path, Callable[[], None]]:
    if data is None:
        temporary = tempfile.TemporaryDirectory(prefix="plimsoll-")
        return Path(temporary.name), temporary.cleanup
    try:
        data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{data}: cannot create the data directory: {error.strerror}") from None
    return data, lambda: None


async def serve(settings: ServerSettings, ready: Callable[[RunningServer], None]) -> None:
    """Run until SIGINT or SIGTERM; `ready` is called once the server accepts requests."""
    stopped = asyncio.Event()
    stop_on_signals(stopped.set)
    _raise_open_file_limit()
    reuse_buffers()
    server = await start_server(settings)
    try:
        with _reduced_gc():
            ready(server)
            await stopped.wait()
    finally:
        await server.stop()


@contextmanager
def _reduced_gc() -> Iterator[None]:
    """Run the garbage collector rarely, and not over the objects loaded at the start.

    Requests leave next to no cyclic garbage; collecting after every few requests, Python's default, takes a
    sixth of the time.
    """
    before = gc.get_threshold()
    gc.collect(1)  # the rest is modules and stored objects: hardly any garbage, and slow to search
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _raise_open_file_limit() -> None:
    """Raise the limit on open files: every watch holds a connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MAX_OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
