"""Kubelet API as a component of an agent: its certificates, its address and its server."""

from __future__ import annotations

import asyncio
from pathlib import Path

from plimsoll.client.delegated_auth import ReviewClient
from plimsoll.common.addresses import read_address
from plimsoll.common.self_signed import ensure_self_signed
from plimsoll.common.serving_tls import make_tls
from plimsoll.errors import ConfigError
from plimsoll.node.cgroups.tree import Cgroups
from plimsoll.node.kubelet_api.auth import KubeletAuth
from plimsoll.node.kubelet_api.pod_lookup import LocalPods
from plimsoll.node.kubelet_api.server import ExposeMetrics, KubeletServer
from plimsoll.node.kubelet_api.settings import AUTO, PORT, KubeletApiSettings
from plimsoll.node.runtime.cri.runtime import CriRuntime
from plimsoll.node.runtime.process import ProcessRuntime
from plimsoll.node.stats.provider import StatsProvider


class KubeletApi:
    """Kubelet API of one node, from its settings."""

    def __init__(
        self,
        settings: KubeletApiSettings,
        node: str,
        address: str,
        directory: Path,
        client: ReviewClient,
        runtime: ProcessRuntime | CriRuntime,
        cgroups: Cgroups,
        metrics: ExposeMetrics,
    ) -> None:
        """Create the component; `directory` is where a self-signed certificate is kept."""
        self._settings = settings
        self._node = node
        self._address = address
        self._directory = directory
        self._client = client
        self._runtime = runtime
        self._cgroups = cgroups
        self._metrics = metrics
        self._server: KubeletServer | None = None

    async def start(self, pods: LocalPods) -> int:
        """Start serving the API; return the port. ConfigError if that fails."""
        settings = self._settings
        certificate, key = settings.certificate, settings.key
        if certificate is None or key is None:
            names = (self._node, self._address) if self._address else (self._node,)
            pair = await asyncio.to_thread(ensure_self_signed, self._directory, "kubelet", names)
            certificate, key = pair
        tls = make_tls(certificate, key, self._client_ca())
        automatic = settings.listen == AUTO
        host, port = (self._address, PORT) if automatic else read_address(settings.listen)
        stats = StatsProvider(self._node, pods, self._cgroups)
        auth = KubeletAuth(self._client, self._node)
        server = KubeletServer(pods, self._runtime, auth, stats, self._metrics)
        await server.start(host or "127.0.0.1", port, tls, any_port=automatic)
        self._server = server
        return server.port

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    def _client_ca(self) -> bytes:
        path = self._settings.client_ca
        if path is None:
            return self._settings.client_ca_data
        try:
            return path.read_bytes()
        except OSError as error:
            raise ConfigError(f"{path}: client CA cannot be read: {error.strerror}") from None
