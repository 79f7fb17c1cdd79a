"""`Dashboard`: HTTP server of the dashboard.

Read-only. Every response of `/api/` is JSON, including errors (`{"error": "one line"}`), and internal errors
are not disclosed. Request checks are in `guard.py`, queries in `service.py`, formats in docs/dashboard.md.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from aiohttp import web

from plimsoll.api import codec
from plimsoll.api.gates import Gates
from plimsoll.client import Client
from plimsoll.client.http import is_loopback
from plimsoll.common.http_log import http_logger
from plimsoll.common.tasks import cancel_tasks
from plimsoll.errors import ApiError, ConfigError, DecodeError, InputError, PlimsollError
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from plimsoll.tools.dashboard import guard
from plimsoll.tools.dashboard.assets_index import Assets
from plimsoll.tools.dashboard.follower import Follower
from plimsoll.tools.dashboard.history.recorder import HistoryRecorder
from plimsoll.tools.dashboard.history.samples import series_json
from plimsoll.tools.dashboard.history.store import HistoryStore
from plimsoll.tools.dashboard.lists import read_history_query, read_list_query
from plimsoll.tools.dashboard.metrics import CONTENT_TYPE
from plimsoll.tools.dashboard.query_worker import QueryResult
from plimsoll.tools.dashboard.service import QUERY_TIMEOUT, DashboardService

_log = logging.getLogger("plimsoll.dashboard")
_http_log = http_logger("plimsoll.dashboard.http")
DEFAULT_PORT = 6480
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Dashboard:
    """Dashboard of one cluster: `start`, open `url`, `stop`.

    Given a cluster state it shows that; given a client it follows the cluster.
    """

    def __init__(
        self,
        shown: ClusterState | Client,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        origin: str = "",
        namespace: str = "",
        names: Iterable[str] = (),
        token: str = "",
        gates: Gates | None = None,
        query_timeout: float = QUERY_TIMEOUT,
        assume_mapping: bool = False,
        history: Path | None = None,
        page: bool = True,
    ) -> None:
        """`origin` is the address of the client's cluster, for display; `names` are additional host names.

        Port 0 selects a free port. If the client may not list all namespaces, `namespace` is shown. With a
        `token`, requests must present it. `gates` are the feature gates of the client's cluster. With
        `assume_mapping`, devices of that cluster that are node resources without a mapping get one. `history`
        is the file of the client's cluster; without it, history is kept in memory. Without `page`, only
        metrics, history and health are served.
        """
        self.url = ""
        self._host, self._port = host, port
        self._names = frozenset(name.lower() for name in (*names, host) if name)
        self._token = token
        self._follower: Follower | None = None
        self._page = page
        self._recorder: HistoryRecorder | None = None
        if isinstance(shown, ClusterState):
            self.service = DashboardService(shown, query_timeout=query_timeout)
        else:
            self.service = DashboardService(
                ClusterState(ClusterObjects(), gates, origin=origin, assume_mapping=assume_mapping),
                live=True,
                query_timeout=query_timeout,
            )
            self._follower = Follower(shown, self.service.on_change, namespace)
            self.service.read_errors = self._list_read_errors
            self._recorder = HistoryRecorder(HistoryStore(history), self.service.take_sample)
        self._assets = Assets.load()
        #: Part of entity tags, so that responses of an earlier run do not match.
        self._run = secrets.token_hex(4)
        self._tasks: list[asyncio.Task[None]] = []
        self._runner: web.AppRunner | None = None

    # -- running

    async def start(self) -> None:
        """Read the cluster and listen. Raise InputError or ConfigError on failure."""
        if self._follower is not None:
            await self._follower.start()
            self.service.cluster_state.objects.gaps += self._follower.gaps
            await self.service.catch_up()
        try:
            await self._listen()
        except BaseException:
            await self.stop()
            raise
        self._tasks = [
            asyncio.create_task(self.service.keep_up(), name="dashboard: changes"),
            asyncio.create_task(self.service.warm_up(), name="dashboard: warm up"),
        ]
        if self._recorder is not None:
            self._tasks.append(asyncio.create_task(self._recorder.run(), name="dashboard: history"))

    async def stop(self) -> None:
        """Stop the server and the follower."""
        await self.service.close()
        tasks, self._tasks = self._tasks, []
        await cancel_tasks(tasks)
        if self._runner is not None:
            runner, self._runner = self._runner, None
            await runner.cleanup()
        if self._follower is not None:
            await self._follower.stop()
        if self._recorder is not None:
            self._recorder.store.close()

    async def _listen(self) -> None:
        runner = web.AppRunner(
            self.application(), access_log=None, logger=_http_log, handle_signals=False, shutdown_timeout=1.0
        )
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port).start()
        except OSError as error:
            await runner.cleanup()
            where = f"{self._host}:{self._port}"
            raise ConfigError(f"--listen: cannot listen on {where}: {error.strerror or error}") from None
        self._runner = runner
        shown = "localhost" if self._host in ("0.0.0.0", "::") else self._host
        shown = f"[{shown}]" if ":" in shown else shown
        self.url = f"http://{shown}:{runner.addresses[0][1]}/"

    def _list_read_errors(self) -> list[str]:
        return self._follower.read_errors if self._follower is not None else []

    # -- routes

    def application(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded], client_max_size=guard.MOST_BODY)
        service, get = self.service, app.router.add_get
        get("/api/history", self._history)
        get("/metrics", self._metrics)
        for path in sorted(guard.OPEN_ROUTES):
            get(path, self._health)
        if not self._page:
            return app
        get("/", self._asset)
        get("/assets/{path:.+}", self._asset)
        get("/favicon.ico", self._asset)
        get("/api/overview", self._answer(lambda _: service.overview()))
        get("/api/nodes", self._answer(lambda _: service.nodes()))
        get("/api/nodes/{name}", self._answer(lambda r: service.node(r.match_info["name"])))
        get("/api/devices", self._answer(lambda r: service.devices(read_list_query(r.query))))
        get("/api/pools", self._answer(lambda r: service.pools(read_list_query(r.query))))
        get("/api/claims", self._answer(lambda r: service.claims(read_list_query(r.query))))
        get("/api/pods", self._answer(lambda r: service.pods(read_list_query(r.query))))
        get("/api/namespaces", self._answer(lambda r: service.namespaces(read_list_query(r.query))))
        get("/api/classes", self._answer(lambda _: service.classes()))
        get("/api/workloads", self._answer(lambda _: service.workloads()))
        get(
            "/api/workloads/{namespace}/{kind}/{name}",
            self._answer(lambda r: service.workload(**r.match_info)),
        )
        get("/api/audit", self._answer(lambda _: service.audit()))
        get(
            "/api/explain/pod/{namespace}/{name}", self._answer(lambda r: service.explain_pod(**r.match_info))
        )
        get(
            "/api/explain/claim/{namespace}/{name}",
            self._answer(lambda r: service.explain_claim(**r.match_info)),
        )
        app.router.add_post("/api/whatif", self._whatif)
        get("/api/events", self._events)
        return app

    def _answer(self, ask: Callable[[web.Request], Awaitable[QueryResult]]) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            return self._respond(request, await ask(request), "application/json")

        return answer

    def _respond(self, request: web.Request, answer: QueryResult, kind: str) -> web.Response:
        return _send(request, answer.body, answer.packed, f'"{self._run}-{answer.tag}"', kind)

    async def _whatif(self, request: web.Request) -> web.StreamResponse:
        if not self._token and not is_loopback(self._host):
            why = "simulations need a token here: start the dashboard with --token-file, or on 127.0.0.1"
            raise ApiError(403, "Forbidden", why)
        plan: Any = codec.decode_tree(await request.read())
        if not isinstance(plan, dict):
            raise ApiError(400, "BadRequest", "the request must be a JSON object")
        answer = await self.service.whatif(plan)
        return web.Response(body=answer.body, content_type="application/json")

    async def _history(self, request: web.Request) -> web.StreamResponse:
        since, node = read_history_query(request.query)
        tree: dict[str, Any] = {"recorded": self._recorder is not None, **series_json(())}
        if self._recorder is not None:
            tree |= await asyncio.to_thread(self._recorder.store.series, node, since=since)
        return web.Response(body=codec.encode(tree), content_type="application/json")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        return await self.service.events.serve(request, {**guard.HEADERS, "Cache-Control": "no-cache"})

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        return self._respond(request, await self.service.metrics(), CONTENT_TYPE)

    async def _health(self, _: web.Request) -> web.StreamResponse:
        return web.Response(text="ok")

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        asset = self._assets.find(request.match_info.get("path", "") or request.path.lstrip("/"))
        if asset is None:
            raise ApiError(404, "NotFound", f"{request.path[:200]} not found")
        return _send(request, asset.body, asset.packed, asset.tag, asset.kind)

    # -- authentication and errors

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await self._handle(request, handler)
        if not response.prepared:
            response.headers.update(guard.HEADERS)
        return response

    async def _handle(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if why := guard.refuse_host(request.headers.get("Host", ""), self._names):
            return _refuse(403, why)
        if self._token and not _is_open(request):
            answer = self._authenticate(request)
            if answer is not None:
                return answer
        if request.method == "POST" and (why := guard.refuse_post(request.headers)):
            return _refuse(403 if "Content-Type" not in why else 415, why)
        try:
            return await handler(request)
        except web.HTTPNotFound:
            return _refuse(404, f"{request.path[:200]} not found")
        except web.HTTPMethodNotAllowed as error:
            allowed = ", ".join(sorted(error.allowed_methods))
            return _refuse(405, f"{request.method[:20]} is not allowed here; allowed: {allowed}")
        except web.HTTPRequestEntityTooLarge:
            return _refuse(413, f"the request is larger than {guard.MOST_BODY // 1024} KiB")
        except web.HTTPException as error:
            return _refuse(error.status, error.reason)
        except ApiError as error:
            return _refuse(error.code if 400 <= error.code < 600 else 503, error.message)
        except web.RequestPayloadError:
            return _refuse(400, "the body of the request cannot be decoded")
        except (DecodeError, InputError, PlimsollError) as error:
            return _refuse(400, str(error))
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as error:
            _log.error("%s %s: %s", request.method, request.path, error, exc_info=error)
            return _refuse(500, "internal error; see the log of the dashboard")

    def _authenticate(self, request: web.Request) -> web.StreamResponse | None:
        """Return None if the request has the token. A token in the URL is exchanged for a cookie."""
        given = request.query.get("token", "")
        if request.path == "/" and given and guard.has_token(self._token, "", given):
            found = web.Response(status=303, headers={"Location": "/"})
            found.set_cookie(guard.COOKIE, self._token, httponly=True, samesite="Strict")
            return found
        cookie = request.cookies.get(guard.COOKIE, "")
        if guard.has_token(self._token, request.headers.get("Authorization", ""), cookie):
            return None
        return _refuse(401, "a token is required: open /?token=TOKEN, or send it as a bearer token")


def _is_open(request: web.Request) -> bool:
    """Return whether a request needs no token: decided by the matched route, not by the path."""
    resource = request.match_info.route.resource
    return resource is not None and resource.canonical in guard.OPEN_ROUTES


def _send(request: web.Request, body: bytes, packed: bytes | None, tag: str, kind: str) -> web.Response:
    """Return a body, compressed if the client accepts it, or that the client has the current one."""
    headers = {"Content-Type": kind, "ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if tag in request.headers.get("If-None-Match", ""):
        return web.Response(status=304, headers=headers)
    if packed is not None and "gzip" in request.headers.get("Accept-Encoding", "").lower():
        headers["Content-Encoding"] = "gzip"
        return web.Response(body=packed, headers=headers)
    return web.Response(body=body, headers=headers)


def _refuse(status: int, why: str) -> web.Response:
    line = " ".join(why.split())[:2000].encode(errors="replace").decode()
    return web.Response(status=status, body=codec.encode({"error": line}), content_type="application/json")
