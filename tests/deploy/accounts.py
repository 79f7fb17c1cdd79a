"""Service accounts of the manifests, on our server and a real one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from plimsoll.client import Client, ClientConfig, Material
from plimsoll.client.discovery import discover
from plimsoll.client.endpoints import PODS, SERVICE_ACCOUNTS
from tests.cluster.embedded import run_embedded
from tests.cluster.kube_apiserver import run_apiserver
from tests.deploy.render import RELEASE, objects
from tests.waiting import DEADLINE

ASSETS = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nowhere")
NAMESPACE = RELEASE["Namespace"]
SERVERS = ("embedded", "kube-apiserver")


@contextmanager
def run_server(kind: str, directory: Path) -> Iterator[ClientConfig]:
    """Run a server of one of the two kinds; skip if it is not available."""
    if kind == "embedded":
        with run_embedded(directory) as config:
            yield config
        return
    if not all((ASSETS / name).is_file() for name in ("etcd", "kube-apiserver")):
        pytest.skip("KUBEBUILDER_ASSETS names no directory with etcd and kube-apiserver")
    with run_apiserver(ASSETS, directory) as config:
        yield config


async def install(admin: Client, part: str) -> None:
    """Create the objects of a component unchanged; the dashboard is off by default."""
    served = {(each.endpoint.group, each.endpoint.kind): each.endpoint for each in await discover(admin)}
    for tree in objects({"dashboard": {"enabled": True}}, part):
        group, _, version = str(tree["apiVersion"]).rpartition("/")
        endpoint = served[group, tree["kind"]].at(version)
        place = str(tree["metadata"].get("namespace", ""))
        await admin.create(endpoint, tree, place, field_validation="Strict")


async def account(admin: Client, config: ClientConfig, name: str, *, pod: str = "") -> ClientConfig:
    """Return a client configuration of a service account, with a token bound to a pod."""
    spec: dict[str, Any] = {"audiences": [], "expirationSeconds": 3600}
    if pod:
        uid = (await admin.get(PODS, pod, NAMESPACE))["metadata"]["uid"]
        spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    answer = await admin.post(SERVICE_ACCOUNTS, name, "token", request, NAMESPACE)
    token = Material(str(answer["status"]["token"]).encode())
    return replace(config, token=token, certificate=None, key=None)


async def read_metrics(admin: Client, config: ClientConfig, address: str) -> dict[str, int]:
    """Return the status codes of scrapes without a token, and by users with and without the right."""
    user = {"kind": "ServiceAccount", "name": "prometheus", "namespace": NAMESPACE}
    rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    rbac = "rbac.authorization.k8s.io"
    served = {
        each.endpoint.kind: each.endpoint for each in await discover(admin) if each.endpoint.group == rbac
    }
    for name in ("prometheus", "stranger"):
        await admin.create(SERVICE_ACCOUNTS, {"metadata": {"name": name}}, NAMESPACE)
    reader = {"metadata": {"name": "metrics-reader"}}
    await admin.create(served["ClusterRole"], {**reader, "rules": [rule]})
    role = {"apiGroup": rbac, "kind": "ClusterRole", "name": "metrics-reader"}
    await admin.create(served["ClusterRoleBinding"], {**reader, "roleRef": role, "subjects": [user]})
    codes = {}
    async with aiohttp.ClientSession(f"https://{address}") as session:
        for name in ("", "stranger", "prometheus"):
            headers = {}
            if name:
                token = (await account(admin, config, name)).token
                assert token is not None
                assert token.data is not None
                headers = {"Authorization": f"Bearer {token.data.decode()}"}
            async with session.get("/metrics", headers=headers, ssl=False) as answer:
                codes[name] = answer.status
        async with session.get("/readyz", ssl=False) as answer:
            codes["readyz"] = answer.status
    return codes


async def end(stop: Callable[[], None], task: asyncio.Task[None]) -> None:
    stop()
    await asyncio.wait((task,), timeout=DEADLINE)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
