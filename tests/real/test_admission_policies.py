"""Admission policies next to a real kube-apiserver: the same policies and requests, the same answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from plimsoll.apiserver.auth.users import ALL_AUTHENTICATED, MASTERS, User
from plimsoll.client import ClientConfig
from tests.cluster.kube_apiserver import TOKEN, run_apiserver
from tests.real.policy_cases import (
    BINDINGS,
    CASES,
    INVALID,
    MUTATING,
    MUTATING_BINDINGS,
    PARAM_OBJECTS,
    POLICIES,
    PolicyCase,
    random_cases,
)
from tests.real.programs import ASSETS, missing
from tests.unit.apiserver.build import ApiHarness, run
from tests.waiting import until

_MISSING = missing("kube-apiserver", "etcd")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)

GROUP = "/apis/admissionregistration.k8s.io/v1/"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
SEED = 20260701
#: The user of the real server's token.
USER = User("admin", "1", (MASTERS, ALL_AUTHENTICATED))
Send = Callable[[str, str, Any], Awaitable[tuple[int, Any]]]


async def answers(send: Send, cases: Sequence[PolicyCase], prefix: str) -> list[Any]:
    """Create all policies, wait until they are enforced, and return the answers to the requests."""
    names = [f"{prefix}{number}" for number in range(len(cases))]
    for tree in PARAM_OBJECTS:
        await send("POST", CONFIG_MAPS, tree)
    created = []
    for name, case in zip(names, cases, strict=True):
        policies, bindings = (MUTATING, MUTATING_BINDINGS) if case.mutating else (POLICIES, BINDINGS)
        code, body = await send("POST", GROUP + policies, case.policy(name))
        created.append((code, body) if code == 201 else (code, brief(body)))
        if code == 201:
            code, body = await send("POST", GROUP + bindings, case.bound(name))
            assert code == 201, (name, body)
    last = PolicyCase({"validations": [{"expression": "false", "message": "the last one"}]})
    changing = PolicyCase(
        {
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {"expression": "Object{data: {'x': 'y'}}"},
                }
            ]
        },
        mutating=True,
    )
    for policies, bindings, case, name in (
        (POLICIES, BINDINGS, last, f"{prefix}-last"),
        (MUTATING, MUTATING_BINDINGS, changing, f"{prefix}-mlast"),
    ):
        assert (await send("POST", GROUP + policies, case.policy(name)))[0] == 201
        assert (await send("POST", GROUP + bindings, case.bound(name)))[0] == 201

    async def is_enforced() -> bool:
        denied = await send("POST", CONFIG_MAPS + "?dryRun=All", last.object(f"{prefix}-last"))
        changed = await send("POST", CONFIG_MAPS + "?dryRun=All", changing.object(f"{prefix}-mlast"))
        return denied[0] == 422 and changed[1].get("data", {}).get("x") == "y"

    await until(is_enforced)
    results = []
    for name, case, (code, body) in zip(names, cases, created, strict=True):
        if code != 201:
            results.append((code, body))
            continue
        code, body = await send("POST", CONFIG_MAPS, case.object(name))
        results.append((code, brief(body)))
    return results


def brief(body: Any) -> Any:
    """Return what must be equal of an answer."""
    if body.get("kind") == "Status":
        details = body.get("details") or {}
        causes = [cause.get("message") for cause in details.get("causes") or ()]
        return body["message"], body.get("reason"), causes
    metadata = body["metadata"]
    return body.get("data"), metadata.get("labels"), metadata.get("ownerReferences")


def real_answers(config: ClientConfig, cases: Sequence[PolicyCase], prefix: str) -> list[Any]:
    async def play() -> list[Any]:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with aiohttp.ClientSession(headers=headers) as session:

            async def send(method: str, path: str, body: Any) -> tuple[int, Any]:
                async with session.request(method, config.server + path, json=body, ssl=False) as response:
                    return response.status, await response.json()

            return await answers(send, cases, prefix)

    return asyncio.run(play())


def our_answers(cases: Sequence[PolicyCase], prefix: str) -> list[Any]:
    async def play(harness: ApiHarness) -> list[Any]:
        async def send(method: str, path: str, body: Any) -> tuple[int, Any]:
            path, _, query = path.partition("?")
            pairs = [tuple(query.split("="))] if query else []
            return await harness.request(method, path, body, query=pairs, user=USER)  # type: ignore[arg-type]

        return await answers(send, cases, prefix)

    return run(play)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with run_apiserver(Path(ASSETS), tmp_path_factory.mktemp("apiserver")) as config:
        yield config


@pytest.mark.parametrize(
    ("prefix", "cases"), [("known", CASES), ("random", random_cases(SEED, 200))], ids=["known", "random"]
)
def test_policies_decide_as_upstream(server: ClientConfig, prefix: str, cases: list[PolicyCase]) -> None:
    wanted, found = real_answers(server, cases, prefix), our_answers(cases, prefix)
    different = [
        (case.spec, theirs, ours)
        for case, theirs, ours in zip(cases, wanted, found, strict=True)
        if theirs != ours
    ]
    assert different == []


def test_policies_that_do_not_compile_are_rejected_as_upstream(server: ClientConfig) -> None:
    wanted, found = real_answers(server, INVALID, "invalid"), our_answers(INVALID, "invalid")
    assert [code for code, _ in found] == [code for code, _ in wanted]
    different = [
        (ours[1][2], theirs[1][2]) for ours, theirs in zip(found, wanted, strict=True) if ours != theirs
    ]
    assert different == []
