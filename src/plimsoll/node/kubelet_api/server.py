"""HTTPS server of the kubelet API on one node. START HERE.

   GET       /containerLogs/NAMESPACE/POD/CONTAINER     a container's log (logs.py)
   GET POST  /exec/NAMESPACE/POD[/UID]/CONTAINER        a command in a container (exec.py)
   GET POST  /attach/NAMESPACE/POD[/UID]/CONTAINER      a container's own input and output (attach.py)
   GET POST  /portForward/NAMESPACE/POD[/UID]           connections to a pod (port_forward.py)
   any       /podProxy/NAMESPACE/POD/SCHEME/PORT/PATH   requests to a pod, for the API server
   GET       /stats/summary, /metrics/resource          resource usage of node and pods (node/stats)
   GET       /metrics                                   metrics of the agent (process/metrics.py)
   GET       /healthz, /pods

Paths, parameters and messages are the kubelet's, so that Plimsoll's API server and kube-apiserver both reach
it. Every request is authenticated and authorized (auth.py). The number of open streams is limited, and each
of them holds small buffers only.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Protocol

from aiohttp import web

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.common.http_forward import HttpForwarder
from plimsoll.common.http_upgrade import accept_upgrade
from plimsoll.common.metrics import CONTENT_TYPE
from plimsoll.errors import ConfigError, InputError, RuntimeCallError
from plimsoll.node.containers import ContainerInfo, ContainerPhase
from plimsoll.node.kubelet_api.attach import attach
from plimsoll.node.kubelet_api.auth import KubeletAuth
from plimsoll.node.kubelet_api.channels import PROTOCOLS, V4
from plimsoll.node.kubelet_api.exec import execute
from plimsoll.node.kubelet_api.listeners import find_listener
from plimsoll.node.kubelet_api.log_format import parse_log_options
from plimsoll.node.kubelet_api.logs import read_log
from plimsoll.node.kubelet_api.pod_lookup import (
    HttpRefusal,
    LocalPods,
    find_log,
    find_pod,
    find_running,
)
from plimsoll.node.kubelet_api.port_forward import PROTOCOL, TUNNEL_PROTOCOL, PortForwarder
from plimsoll.node.kubelet_api.remote_command import (
    RemoteStreams,
    StreamOptions,
    Tree,
    failure_status,
    parse_stream_options,
)
from plimsoll.node.kubelet_api.spdy_streams import (
    PROTOCOL_HEADER,
    SPDY,
    SpdyStreams,
    is_spdy,
    offered_protocols,
)
from plimsoll.node.kubelet_api.streaming_proxy import (
    attach_url,
    exec_url,
    parse_ports,
    port_forward_url,
    proxy_stream,
)
from plimsoll.node.kubelet_api.websocket_streams import WebSocketStreams, WebSocketTunnel
from plimsoll.node.runtime.cri.runtime import CriRuntime
from plimsoll.node.runtime.process import ProcessRuntime
from plimsoll.node.runtime.shims import descendants

_log = logging.getLogger("plimsoll.node")

#: Logs that are read, commands, attachments and forwarders at the same time.
MAX_STREAMS = 256
#: A client that does not read for this long is disconnected (seconds).
_SLOW_SECONDS = 30.0
_SHUTDOWN_SECONDS = 1.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
RunSession = Callable[[StreamOptions, RemoteStreams], Awaitable[Tree]]


class StatsSource(Protocol):
    """Source of `/stats/summary` and `/metrics/resource`."""

    async def summary(self) -> Tree: ...

    async def resource_metrics(self) -> str: ...


#: Returns the page of `/metrics` in pieces.
ExposeMetrics = Callable[[], AsyncIterator[bytes]]


class KubeletServer:
    """Kubelet API of one agent."""

    def __init__(
        self,
        pods: LocalPods,
        runtime: ProcessRuntime | CriRuntime,
        auth: KubeletAuth,
        stats: StatsSource,
        metrics: ExposeMetrics,
    ) -> None:
        self._pods = pods
        self._metrics = metrics
        self._runtime = runtime
        self._auth = auth
        self._stats = stats
        self._open = 0
        self._forwarder = HttpForwarder()
        self._runner: web.AppRunner | None = None
        self.port = 0

    # -- lifecycle

    async def start(self, host: str, port: int, tls: ssl.SSLContext, *, any_port: bool = False) -> None:
        """Listen; if the port is taken, on a free one if `any_port`, else ConfigError."""
        app = web.Application(middlewares=[self._authorize])
        add = app.router.add_route
        add("GET", "/healthz", self._healthz)
        add("GET", "/pods", self._list_pods)
        add("GET", "/stats/summary", self._summary)
        add("GET", "/metrics", self._agent_metrics)
        add("GET", "/metrics/resource", self._resource_metrics)
        add("GET", "/containerLogs/{namespace}/{pod}/{container}", self._limited(self._logs))
        for method in ("GET", "POST"):
            for path, handler in (("exec", self._exec), ("attach", self._attach)):
                add(method, f"/{path}/{{namespace}}/{{pod}}/{{container}}", self._limited(handler))
                add(method, f"/{path}/{{namespace}}/{{pod}}/{{uid}}/{{container}}", self._limited(handler))
            add(method, "/portForward/{namespace}/{pod}", self._limited(self._port_forward))
            add(method, "/portForward/{namespace}/{pod}/{uid}", self._limited(self._port_forward))
        add("*", "/podProxy/{namespace}/{pod}/{scheme}/{port}/{path:.*}", self._limited(self._pod_proxy))
        runner = web.AppRunner(
            app,
            access_log=None,
            handle_signals=False,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            handler_cancellation=True,
        )
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, host, port, ssl_context=tls).start()
            except OSError:
                if not any_port:
                    raise
                await web.TCPSite(runner, host, 0, ssl_context=tls).start()
        except OSError as error:
            await runner.cleanup()
            text = f"kubelet API: cannot listen on {host}:{port}: {error.strerror or error}"
            raise ConfigError(f"{text}; choose another address with --kubelet-listen") from None
        self._runner = runner
        self.port = int(runner.addresses[0][1])

    async def stop(self) -> None:
        await self._forwarder.close()
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    # -- every request

    @web.middleware
    async def _authorize(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        certificate = None
        if request.transport is not None:
            certificate = request.transport.get_extra_info("peercert") or None
        refusal = await self._auth.check(
            request.method, request.path, certificate, request.headers.get("Authorization", "")
        )
        return _refuse(refusal) if refusal is not None else await handler(request)

    def _limited(self, handler: Handler) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            if self._open >= MAX_STREAMS:
                return _refuse(HttpRefusal(429, f"the node has {MAX_STREAMS} open streams, try again later"))
            self._open += 1
            try:
                return await handler(request)
            finally:
                self._open -= 1

        return handle

    def _find_pod(self, request: web.Request) -> Pod | HttpRefusal:
        info = request.match_info
        return find_pod(self._pods, info["namespace"], info["pod"], info.get("uid", ""))

    # -- logs and information

    async def _healthz(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async def _list_pods(self, request: web.Request) -> web.StreamResponse:
        items = [codec.to_tree(pod) for pod in self._pods.pods()]
        tree = {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": items}
        return web.Response(body=codec.encode(tree), content_type="application/json")

    async def _summary(self, request: web.Request) -> web.StreamResponse:
        return web.Response(body=codec.encode(await self._stats.summary()), content_type="application/json")

    async def _agent_metrics(self, request: web.Request) -> web.StreamResponse:
        body = b"".join([piece async for piece in self._metrics()])
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _resource_metrics(self, request: web.Request) -> web.StreamResponse:
        body = (await self._stats.resource_metrics()).encode()
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        try:
            options = parse_log_options(request.query, datetime.now(UTC))
        except InputError as error:
            return _refuse(HttpRefusal(422, f"Invalid request: {error}"))
        pod = self._find_pod(request)
        if isinstance(pod, HttpRefusal):
            return _refuse(pod)
        container = find_log(self._pods, pod, request.match_info["container"], previous=options.previous)
        if isinstance(container, HttpRefusal):
            return _refuse(container)
        uid, id = pod.metadata.uid, container.id

        def is_running() -> bool:
            return any(
                each.id == id and each.phase is ContainerPhase.RUNNING
                for each in self._pods.containers_of(uid)
            )

        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        chunks = read_log(container.log, options, is_running)
        try:
            try:
                first = await anext(chunks, b"") if not options.follow else b""
            except OSError as error:
                text = f"failed to open the log of container {container.name}: {error.strerror}"
                return _refuse(HttpRefusal(400, text))
            await response.prepare(request)
            if first:
                await self._write(request, response, first)
            async for chunk in chunks:
                await self._write(request, response, chunk)
            await response.write_eof()
        except (ConnectionError, TimeoutError, OSError):
            _log.debug("client disconnected: %s", request.path)
        finally:
            await chunks.aclose()
        return response

    async def _write(self, request: web.Request, response: web.StreamResponse, chunk: bytes) -> None:
        try:
            async with asyncio.timeout(_SLOW_SECONDS):
                await response.write(chunk)
        except TimeoutError:
            if request.transport is not None:
                request.transport.abort()
            raise

    # -- streams

    async def _exec(self, request: web.Request) -> web.StreamResponse:
        command = request.query.getall("command", [])
        if not command or not command[0]:
            return _refuse(HttpRefusal(400, "you must specify a command"))
        runtime = self._runtime
        if isinstance(runtime, CriRuntime):
            return await self._proxy(request, partial(exec_url, runtime, command=command))

        def start(id: str) -> RunSession:
            return lambda options, streams: execute(runtime, id, command, options, streams)

        return await self._stream(request, start)

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        runtime = self._runtime
        if isinstance(runtime, CriRuntime):
            return await self._proxy(request, partial(attach_url, runtime))

        def start(id: str) -> RunSession | HttpRefusal:
            directory = runtime.container_directory(id)
            if directory is None:
                return HttpRefusal(404, "the container is gone")
            return lambda options, streams: attach(directory, options, streams)

        return await self._stream(request, start)

    def _find_container(self, request: web.Request) -> ContainerInfo | HttpRefusal:
        pod = self._find_pod(request)
        if isinstance(pod, HttpRefusal):
            return pod
        return find_running(self._pods, pod, request.match_info["container"])

    async def _proxy(
        self, request: web.Request, find_url: Callable[..., Awaitable[str]]
    ) -> web.StreamResponse:
        """Pass the streams of a running container on to the runtime."""
        options = parse_stream_options(request.query)
        container = self._find_container(request)
        if isinstance(container, HttpRefusal):
            return _refuse(container)
        if options.problem:
            return _refuse(HttpRefusal(400, options.problem))
        try:
            url = await find_url(container.id, options=options)
        except RuntimeCallError as error:
            return _refuse(HttpRefusal(500, error.message))
        return await proxy_stream(request, url)

    async def _stream(
        self, request: web.Request, start: Callable[[str], RunSession | HttpRefusal]
    ) -> web.StreamResponse:
        options = parse_stream_options(request.query)
        container = self._find_container(request)
        if isinstance(container, HttpRefusal):
            return _refuse(container)
        session = start(container.id)
        if isinstance(session, HttpRefusal):
            return _refuse(session)
        if options.problem:
            return _refuse(HttpRefusal(400, options.problem))
        streams = await self._accept(request, options)
        if isinstance(streams, web.StreamResponse):
            return streams
        status = failure_status("the node agent is stopping")
        try:
            status = await session(options, streams)
        finally:
            with suppress(ConnectionError):
                await streams.finish(status)
        return streams.response

    async def _accept(
        self, request: web.Request, options: StreamOptions
    ) -> WebSocketStreams | SpdyStreams | web.StreamResponse:
        """Accept the upgrade that a request asks for, or return the refusal."""
        if is_spdy(request):
            offered = offered_protocols(request)
            if V4 not in offered:
                text = f"unable to upgrade: client supports {offered}, server accepts [{V4}]"
                return _refuse(HttpRefusal(403, text))
            streams = await SpdyStreams.accept(request, options)
            return streams if streams is not None else web.Response(status=400)
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return _refuse(HttpRefusal(400, "Upgrade request required"))
        offered = _subprotocols(request)
        if not set(offered) & set(PROTOCOLS):
            text = f"unable to upgrade: client supports {offered}, server accepts {list(PROTOCOLS)}"
            return _refuse(HttpRefusal(403, text))
        return await WebSocketStreams.accept(request, options)

    async def _port_forward(self, request: web.Request) -> web.StreamResponse:
        pod = self._find_pod(request)
        if isinstance(pod, HttpRefusal):
            return _refuse(pod)
        uid = pod.metadata.uid
        if isinstance(self._runtime, CriRuntime):
            try:
                ports = parse_ports(request.query.getall("port", []))
            except InputError as error:
                return _refuse(HttpRefusal(400, str(error)))
            try:
                url = await port_forward_url(self._runtime, uid, ports)
            except (RuntimeCallError, InputError) as error:
                return _refuse(HttpRefusal(500, str(error)))
            return await proxy_stream(request, url)

        forwarder = PortForwarder(
            f"{pod.metadata.namespace}/{pod.metadata.name}", lambda port: self._find_listener(uid, port)
        )
        if is_spdy(request):
            if PROTOCOL not in offered_protocols(request):
                return _refuse(HttpRefusal(403, f"unable to upgrade: server accepts [{PROTOCOL}]"))
            headers = {"Connection": "Upgrade", "Upgrade": SPDY, PROTOCOL_HEADER: PROTOCOL}
            response, connection = await accept_upgrade(request, headers)
            try:
                await forwarder.serve(connection)
            finally:
                connection.close()
            return response
        if request.headers.get("Upgrade", "").lower() != "websocket":
            return _refuse(HttpRefusal(400, "Upgrade request required"))
        if TUNNEL_PROTOCOL not in _subprotocols(request):
            return _refuse(HttpRefusal(403, f"unable to upgrade: server accepts [{TUNNEL_PROTOCOL}]"))
        response, tunnel = await WebSocketTunnel.accept(request, TUNNEL_PROTOCOL)
        try:
            await forwarder.serve(tunnel)
        finally:
            await tunnel.close()
        return response

    def _find_listener(self, uid: str, port: int) -> str:
        running = [c for c in self._pods.containers_of(uid) if c.phase is ContainerPhase.RUNNING]
        return find_listener(port, [pid for each in running for pid in descendants(each.pid)])

    async def _pod_proxy(self, request: web.Request) -> web.StreamResponse:
        """Pass a request on to a port on which a process of a pod listens."""
        pod, info = self._find_pod(request), request.match_info
        if isinstance(pod, HttpRefusal):
            return _refuse(pod)
        port, scheme = info["port"], info["scheme"]
        if not (port.isascii() and port.isdigit() and scheme in ("http", "https")):
            return _refuse(HttpRefusal(400, "invalid scheme or port"))
        address = await asyncio.to_thread(self._find_listener, pod.metadata.uid, int(port[:6]))
        if not address:
            return _refuse(HttpRefusal(503, f"no process of pod {info['pod']} listens on port {port}"))
        host = f"[{address}]" if ":" in address else address
        target = request.rel_url.raw_path_qs.split("/", 6)[6]
        try:
            response = await self._forwarder.forward(
                request.method,
                f"{scheme}://{host}:{port}/{target}",
                request.headers.items(),
                await request.read(),
            )
        except OSError as error:
            return _refuse(HttpRefusal(503, f"error trying to reach service: {error or 'timed out'}"))
        answer = web.StreamResponse(status=response.status, headers=response.headers)
        answer.content_length = response.length
        try:
            await answer.prepare(request)
            async for chunk in response.body:
                await asyncio.wait_for(answer.write(chunk), _SLOW_SECONDS)
            await answer.write_eof()
        except (ConnectionError, TimeoutError):
            _log.debug("pod %s: the client of a request has disconnected", pod.metadata.full_name)
        finally:
            await response.body.aclose()
        return answer


def _subprotocols(request: web.Request) -> list[str]:
    value = request.headers.get("Sec-WebSocket-Protocol", "")
    return [name.strip() for name in value.split(",") if name.strip()]


def _refuse(refusal: HttpRefusal) -> web.Response:
    return web.Response(status=refusal.code, text=refusal.message)
