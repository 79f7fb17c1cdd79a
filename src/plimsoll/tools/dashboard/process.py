"""Process of `plimsoll dashboard`: start, run until a signal, stop."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from plimsoll.api.gates import Gates
from plimsoll.client import Client, ClientConfig
from plimsoll.client.http import is_loopback
from plimsoll.common.addresses import read_address
from plimsoll.common.structured_log import set_up_logging
from plimsoll.common.tasks import run_until, stop_on_signals
from plimsoll.errors import ConfigError
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.dashboard.server import Dashboard


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardSettings:
    """Input, a cluster state or a cluster, and listen address."""

    listen: str = "127.0.0.1:6480"
    names: tuple[str, ...] = ()
    token_file: Path | None = None
    cluster_state: ClusterState | None = None
    cluster: ClientConfig | None = None
    gates: Gates = field(default_factory=Gates.default)  #: feature gates of the cluster's scheduler
    namespace: str = ""  #: namespace to show if listing all namespaces is forbidden
    assume_mapping: bool = False  #: of a cluster; a cluster state has its own setting
    history: Path | None = None  #: file of the history of a cluster; None: in memory
    page: bool = True  #: serve the page, not only metrics and history


async def serve_dashboard(
    settings: DashboardSettings,
    ready: Callable[[str], None],
    warn: Callable[[str], None],
    stopped: asyncio.Event | None = None,
) -> None:
    """Run until a signal or `stopped`; `ready` receives the URL once the server is listening."""
    set_up_logging(level=logging.WARNING)
    host, port = read_address(settings.listen, example="127.0.0.1:6480")
    token = read_token(settings.token_file)
    if not is_loopback(host) and not token:
        warn(
            f"warning: {settings.listen} is reachable from other machines, and the dashboard has no login: "
            "clients can read the names of all pods and claims (use --token-file to require a token, which "
            "simulations need)"
        )
    if stopped is None:
        stopped = asyncio.Event()
        stop_on_signals(stopped.set)
    async with AsyncExitStack() as stack:
        shown: ClusterState | Client
        origin = ""
        if settings.cluster_state is not None:
            shown = settings.cluster_state
        elif settings.cluster is not None:
            origin = settings.cluster.server
            shown = await stack.enter_async_context(Client.connect(settings.cluster))
        else:
            raise ConfigError("no input: pass a kubeconfig or files")
        dashboard = Dashboard(
            shown,
            host=host,
            port=port,
            origin=origin,
            namespace=settings.namespace,
            names=settings.names,
            token=token,
            gates=settings.gates,
            assume_mapping=settings.assume_mapping,
            history=settings.history,
            page=settings.page,
        )
        stack.push_async_callback(dashboard.stop)
        started, _ = await run_until(stopped.wait(), dashboard.start())
        if not started:
            return
        ready(dashboard.url)
        await dashboard.service.warm_up()
        with _rare_collections():
            await stopped.wait()


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Run the cyclic garbage collector rarely and exclude existing objects.

    A large cluster has millions of objects without cycles; scanning them would delay every request.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def read_token(path: Path | None) -> str:
    """Read the token from a file. Raise ConfigError if it cannot be read or is empty."""
    if path is None:
        return ""
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not valid UTF-8"
        raise ConfigError(f"--token-file: {path}: {why}") from None
    if not token:
        raise ConfigError(f"--token-file: {path}: file is empty")
    return token
