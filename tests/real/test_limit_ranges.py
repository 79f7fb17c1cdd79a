"""LimitRanges next to a real kube-apiserver: random limit ranges and pods, the same answers."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from plimsoll.client import ClientConfig
from tests.cluster.kube_apiserver import TOKEN, run_apiserver
from tests.real.programs import ASSETS, missing
from tests.unit.apiserver.build import ApiHarness, run
from tests.waiting import until

_MISSING = missing("kube-apiserver", "etcd")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)

Send = Callable[[str, str, Any], Awaitable[tuple[int, Any]]]
Tree = dict[str, Any]
AMOUNTS = {"cpu": ("100m", "250m", "0.5", "1", "2"), "memory": ("64Mi", "100M", "1Gi", "2Gi")}
SEED, COUNT = 1, 60


def random_amounts(choose: random.Random) -> Tree:
    return {name: choose.choice(texts) for name, texts in AMOUNTS.items() if choose.random() < 0.5}


def random_item(choose: random.Random, kind: str) -> Tree:
    fields = ["min", "max", *(["default", "defaultRequest"] if kind == "Container" else [])]
    item: Tree = {field: random_amounts(choose) for field in fields if choose.random() < 0.5}
    if choose.random() < 0.3:
        item["maxLimitRequestRatio"] = {choose.choice(tuple(AMOUNTS)): choose.choice(("1", "2", "1500m"))}
    return {"type": kind, **item}


def random_container(choose: random.Random, name: str) -> Tree:
    requests, limits = random_amounts(choose), random_amounts(choose)
    for resource in set(requests) & set(limits):
        if choose.random() < 0.9:  # a request above its limit is invalid
            requests[resource] = limits[resource]
    return {"name": name, "image": "i", "resources": {"requests": requests, "limits": limits}}


def random_case(choose: random.Random) -> tuple[Tree, Tree]:
    """Return the spec of a limit range, and of a pod."""
    kinds = [kind for kind in ("Container", "Pod") if choose.random() < 0.7] or ["Container"]
    spec: Tree = {"containers": [random_container(choose, f"c{n}") for n in range(choose.choice((1, 2)))]}
    starts = [random_container(choose, f"i{n}") for n in range(choose.choice((0, 0, 1, 2)))]
    for container in starts:
        if choose.random() < 0.5:
            container["restartPolicy"] = "Always"
    if starts:
        spec["initContainers"] = starts
    return {"limits": [random_item(choose, kind) for kind in kinds]}, spec


async def answers(send: Send, prefix: str) -> list[Any]:
    choose = random.Random(SEED)
    cases = [random_case(choose) for _ in range(COUNT)]
    created = []
    for number, (limits, _) in enumerate(cases):
        name = f"{prefix}{number}"
        assert (await send("POST", "/api/v1/namespaces", {"metadata": {"name": name}}))[0] == 201
        tree = {"metadata": {"name": "limits"}, "spec": limits}
        created.append((await send("POST", f"/api/v1/namespaces/{name}/limitranges", tree))[0])
    probe = f"{prefix}-last"
    await send("POST", "/api/v1/namespaces", {"metadata": {"name": probe}})
    tree = {"metadata": {"name": "limits"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1m"}}]}}
    await send("POST", f"/api/v1/namespaces/{probe}/limitranges", tree)
    plain = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}

    async def is_enforced() -> bool:
        return (await send("POST", f"/api/v1/namespaces/{probe}/pods?dryRun=All", plain))[0] == 403

    await until(is_enforced)
    results = []
    for number, ((_, spec), code) in enumerate(zip(cases, created, strict=True)):
        path = f"/api/v1/namespaces/{prefix}{number}/pods"
        results.append((code, brief(*await send("POST", path, {"metadata": {"name": "p"}, "spec": spec}))))
    return results


def brief(code: int, body: Tree) -> Any:
    """Return what must be equal of an answer; upstream's order of messages is that of a Go map."""
    if code == 403:
        text = body["message"].partition(" is forbidden: ")[2].strip("[]")
        return code, sorted(re.split(r", (?=m[ai][xn]imum |cpu max|memory max)", text))
    if code != 201:
        return code
    containers = [*body["spec"].get("initContainers", ()), *body["spec"]["containers"]]
    note = (body["metadata"].get("annotations") or {}).get("kubernetes.io/limit-ranger")
    given = [container["resources"].items() for container in containers]
    return code, [{name: amounts for name, amounts in one if amounts} for one in given], note


def real_answers(config: ClientConfig, prefix: str) -> list[Any]:
    async def play() -> list[Any]:
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as session:

            async def send(method: str, path: str, body: Any) -> tuple[int, Any]:
                async with session.request(method, config.server + path, json=body, ssl=False) as response:
                    return response.status, await response.json()

            return await answers(send, prefix)

    return asyncio.run(play())


def our_answers(prefix: str) -> list[Any]:
    async def play(harness: ApiHarness) -> list[Any]:
        async def send(method: str, path: str, body: Any) -> tuple[int, Any]:
            path, _, query = path.partition("?")
            pairs: Any = [tuple(query.split("="))] if query else []
            return await harness.request(method, path, body, query=pairs)

        return await answers(send, prefix)

    return run(play)


def test_limit_ranges_decide_as_upstream(tmp_path: Path) -> None:
    with run_apiserver(Path(ASSETS), tmp_path) as config:
        wanted = real_answers(config, "limits")
    found = our_answers("limits")
    assert [pair for pair in zip(wanted, found, strict=True) if pair[0] != pair[1]] == []
