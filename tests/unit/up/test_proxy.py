"""`proxy` of pods, Services and nodes, with a process that serves HTTP."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import aiohttp
import pytest
import yaml

from plimsoll.errors import ApiError
from plimsoll.node.process.settings import NodeSettings
from plimsoll.up.local_cluster import LocalCluster
from tests.waiting import DEADLINE, until, wait_until

#: Answers every request with its method, path, body and some of its headers.
PROGRAM = """
import http.server, json, os, sys

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        names = {name.lower() for name in self.headers}
        tree = {"method": self.command, "path": self.path, "body": body, "bare": "authorization" not in names}
        data = json.dumps(tree).encode()
        self.send_response(418 if "teapot" in self.path else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Custom", "kept")
        self.send_header("Set-Cookie", "a=1; Path=/")
        self.send_header("Set-Cookie", "b=2")
        self.send_header("cache-control", "max-age=5")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = answer

    def log_message(self, *arguments):
        pass

server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(sys.argv[1] + ".new", "w") as file:
    print(server.server_address[1], file=file)
os.rename(sys.argv[1] + ".new", sys.argv[1])
server.serve_forever()
"""


def test_requests_are_passed_on(tmp_path: Path) -> None:
    node = NodeSettings(name="real", runtime="process", cgroups="plan")
    with LocalCluster(nodes=node, scheduler=True) as cluster:
        file = tmp_path / "port"
        container = {"name": "c", "image": "i", "command": [sys.executable, "-c", PROGRAM, str(file)]}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "labels": {"app": "web"}},
            "spec": {
                "containers": [container],
                "terminationGracePeriodSeconds": 0,
                "automountServiceAccountToken": False,
            },
        }
        cluster.apply(pod)
        port = int(wait_until(lambda: file.exists() and file.read_text()))
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "front"},
            "spec": {"selector": {"app": "web"}, "ports": [{"port": 80, "targetPort": port}]},
        }
        cluster.apply(service)
        asyncio.run(_use(cluster, port))


async def _use(cluster: LocalCluster, port: int) -> None:
    pods, services = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/services"
    async with cluster.connect() as client:
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
            body = b"" if method == "GET" else b"text"
            reply = await client.call(
                method, f"{pods}/web:{port}/proxy/a/b", query=[("q", "1")], body=body or None
            )
            expected = {"method": method, "path": "/a/b?q=1", "body": body.decode(), "bare": True}
            assert json.loads(reply.body) == expected
            assert reply.headers["x-custom"] == "kept"
        user = yaml.safe_load(cluster.kubeconfig.read_text())["users"][0]["user"]
        headers = {"Authorization": f"Bearer {user['token']}"}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.get(f"{cluster.url}{pods}/web:{port}/proxy/", ssl=False) as response,
        ):
            assert response.headers.getall("Set-Cookie") == ["a=1; Path=/", "b=2"]
            assert response.headers.getall("Cache-Control") == ["max-age=5"]
            assert response.headers.getall("Content-Type") == ["application/json"]
        with pytest.raises(ApiError) as refused:
            await client.call("GET", f"{pods}/web:{port}/proxy/teapot", accept="text/plain")
        assert refused.value.code == 418
        with pytest.raises(ApiError, match="listens on port 1") as refused:
            await client.call("GET", f"{pods}/web:1/proxy/", timeout=DEADLINE)
        assert refused.value.code == 503

        async def ask_service() -> bytes:
            return (await client.call("GET", f"{services}/front:80/proxy/x")).body

        # Its endpoints are written by a controller.
        assert json.loads(await until(ask_service, ignore=(ApiError,)))["path"] == "/x"
        reply = await client.call("GET", "/api/v1/nodes/real/proxy/pods")
        assert [each["metadata"]["name"] for each in json.loads(reply.body)["items"]] == ["web"]
        reply = await client.call("GET", "/api/v1/nodes/real/proxy/metrics", accept="text/plain")
        found = {
            line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in reply.body.decode().splitlines()
        }
        assert found['kubelet_node_name{node="real"}'] == found["kubelet_running_pods"] == "1.0"
        assert 'plimsoll_ledger_headroom{node="real",resource="cpu"}' in found
