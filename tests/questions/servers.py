"""Small HTTP servers on this machine, well-behaved or not, and kubeconfigs for them.

Owns `Server`: a thread that answers each path by a rule, or not at all. What it serves by default is the
plainest API a reader needs (`tests/unit/tools/cluster_state/fake_api_server.py`), minus what it is to refuse.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import yaml

from plimsoll.client.transport import Reply, Request
from tests.unit.tools.cluster_state.fake_api_server import FakeApiServer

Tree = dict[str, Any]
Rule = Callable[[str], Reply | None]


class Server:
    """HTTP server for a `with` block; `rule` answers first, and where it returns None the fake API."""

    def __init__(self, trees: list[Tree], rule: Rule = lambda path: None, tls: ssl.SSLContext | None = None):
        self.api_server = FakeApiServer(trees)
        self.paths: list[str] = []
        self._rule = rule
        self._over = threading.Event()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            self._http.socket = tls.wrap_socket(
                self._http.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)

    def hang(self) -> Reply:
        """Wait until the server stops."""
        self._over.wait()
        raise ConnectionAbortedError

    def kubeconfig(self, path: Path, **cluster: Any) -> Path:
        return write_kubeconfig(path, f"{self._scheme}://127.0.0.1:{self.port}", **cluster)

    def answer(self, target: str) -> Reply:
        split = urlsplit(target)
        self.paths.append(split.path)
        ruled = self._rule(split.path)
        if ruled is not None:
            return ruled
        return asyncio.run(self.api_server.send(Request("GET", split.path, tuple(parse_qsl(split.query)))))

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else a body waits for the acknowledgment of its headers

            def do_GET(self) -> None:
                try:
                    reply = server.answer(self.path)
                    self.send_response(reply.status)
                    headers = {"content-type": "application/json", **reply.headers}
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("content-length", str(len(reply.body)))
                    self.end_headers()
                    self.wfile.write(reply.body)
                except OSError:
                    self.close_connection = True

            def handle(self) -> None:
                try:
                    super().handle()
                except OSError:  # the client rejects the certificate or has disconnected
                    self.close_connection = True

            def log_message(self, format: str, *args: Any) -> None:
                """Discard the log."""

        return Handler


def refusal(code: int, reason: str, message: str) -> Reply:
    """Return an API status that refuses a request."""
    tree = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return Reply(code, {}, json.dumps({**tree, "message": message}).encode())


def write_kubeconfig(path: Path, server: str, **cluster: Any) -> Path:
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "me", "user": {"token": "secret-token"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
    }
    path.write_text(yaml.safe_dump(tree))
    return path
