"""Every route, on a generated cluster and on observed ones."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from plimsoll.tools.cluster_state import Source, read_cluster_state
from plimsoll.tools.top.claims import claim_rows
from plimsoll.tools.top.classes import class_rows
from plimsoll.tools.top.nodes import node_rows
from tests.dumps import USECASES, usecase_dump
from tests.unit.tools.dashboard.pages import WANTED, DashboardClient, Tree, small, visit


def test_the_overview() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        found = await visitor.get("/api/overview")
        assert found["counts"] == {
            "nodes": 3,
            "nodesReady": 3,
            "nodesPast": 0,
            "nodesPastUncounted": 0,
            "pods": 15,
            "pending": 3,
            "claims": 7,
            "classes": 2,
            "devices": 9,
            "devicesFree": 3,
            "devicesPartly": 3,  # CPUs of which claims have some
            "devicesTaken": 3,
        }
        assert found["live"] is False
        assert found["profile"] == "default"
        assert found["gaps"] == found["troubles"] == []
        assert found["resources"] == ["cpu", "memory", "ephemeral-storage"]
        cpu = found["totals"]["cpu"]
        assert cpu["line"] == 3 * 64_000
        assert cpu["line"] - cpu["requests"] - cpu["claims"] - cpu["overhead"] == cpu["free"]
        assert cpu["text"]["line"] == "192"
        assert cpu["claims"] == 12_000
        later = await visitor.until("/api/overview", lambda tree: tree["findings"])
        assert later["findings"].keys() == {"error", "warning", "info"}

    visit(small(), scenario)


def test_nodes_are_explained_column_by_column() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        found = await visitor.get("/api/nodes")
        assert found["names"] == ["node-0000", "node-0001", "node-0002"]
        assert found["ready"] == [True] * 3
        assert found["unschedulable"] == [False] * 3
        assert found["pods"] == [4] * 3
        for place, node_row in enumerate(node_rows(small())):
            for row in node_row.rows:
                column = found["columns"][row.resource]
                assert {name: values[place] for name, values in column.items()} == {
                    "line": row.line,
                    "requests": row.requests,
                    "claims": row.claims,
                    "overhead": row.overhead,
                    "uncounted": row.uncounted,
                }
        assert found["devices"] == {
            "cpu.example.com": {"all": [1] * 3, "free": [0] * 3, "partly": [1] * 3, "taken": [0] * 3},
            "gpu.example.com": {"all": [2] * 3, "free": [1] * 3, "partly": [0] * 3, "taken": [1] * 3},
        }

    visit(small(), scenario)


def test_one_node() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        found = await visitor.get("/api/nodes/node-0001")
        assert found["name"] == "node-0001"
        assert found["labels"]["topology.kubernetes.io/zone"] == "zone-1"
        assert found["taints"] == []
        assert [each["type"] for each in found["conditions"]] == ["Ready"]
        (cpu,) = [row for row in found["rows"] if row["resource"] == "cpu"]
        held = sum(each["amount"] for each in found["holders"] if each["resource"] == "cpu")
        assert held == cpu["requests"] + cpu["claims"] + cpu["overhead"]
        assert {each["device"] for each in found["devices"]} == {"cpus", "gpu-0", "gpu-1"}
        assert len(found["pods"]) == 4
        claims = {each["name"]: each for each in found["claims"]}
        assert claims["gpu-0001-2"]["devices"] == ["gpu.example.com/node-0001/gpu-0"]
        assert claims["gpu-0001-2"]["pods"] == ["gpu-0001-2"]
        assert found["topology"] is None

    visit(small(), scenario)


def test_lists_are_returned_page_by_page() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        whole = await visitor.get("/api/devices")
        assert whole["total"] == len(whole["items"]) == 9
        page = await visitor.get("/api/devices?offset=4&limit=2")
        assert page["total"] == 9
        assert page["items"] == whole["items"][4:6]
        assert (await visitor.get("/api/devices?offset=100"))["items"] == []
        free = await visitor.get("/api/devices?state=free")
        assert {each["state"] for each in free["items"]} == {"free"}
        found = await visitor.get("/api/devices?q=NODE-0002")
        assert found["total"] == 3
        assert {each["node"] for each in found["items"]} == {"node-0002"}
        assert (await visitor.get("/api/devices?node=node-0000"))["total"] == 3
        assert (await visitor.get("/api/pools"))["total"] == 6
        pools = await visitor.get("/api/pools?q=GPU.&offset=1&limit=1")
        assert (pools["total"], [each["pool"] for each in pools["items"]]) == (3, ["node-0001"])
        assert (await visitor.get("/api/pools?node=node-0002"))["total"] == 2
        assert (await visitor.get("/api/pools?state=incomplete"))["total"] == 0
        assert (await visitor.get("/api/namespaces?q=or"))["total"] == 1
        assert (await visitor.get("/api/namespaces?q=nope"))["items"] == []
        assert (await visitor.get("/api/claims?q=gpu-0001"))["total"] == 1
        assert (await visitor.get("/api/claims?limit=2"))["total"] == 7
        rows = [row.as_json() for row in claim_rows(small())]
        assert (await visitor.get("/api/claims"))["items"] == rows
        assert (await visitor.get("/api/claims?offset=3&limit=2"))["items"] == rows[3:5]
        assert (await visitor.get("/api/claims?state=pending"))["total"] == 1
        assert (await visitor.get("/api/claims?namespace=other"))["total"] == 0
        assert [each["namespace"] for each in (await visitor.get("/api/namespaces"))["items"]] == ["work"]
        bound = await visitor.get("/api/pods?state=running&limit=5")
        assert (bound["total"], len(bound["items"])) == (12, 5)
        assert (await visitor.get("/api/pods?node=node-0002"))["total"] == 4

    visit(small(), scenario)


def test_pending_pods_have_a_reason() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        found = await visitor.get("/api/pods?state=pending")
        assert found["total"] == 3
        assert [each["node"] for each in found["items"]] == [None] * 3
        whys = [each["why"] for each in found["items"]]
        assert "Insufficient cpu" in whys[0]
        assert all(whys)
        explanation = await visitor.get("/api/explain/pod/work/waiting-0000")
        assert explanation["subject"].endswith("work/waiting-0000")
        assert explanation["groups"]
        claim = await visitor.get("/api/explain/claim/work/waiting-0001")
        assert claim["subject"].endswith("work/waiting-0001")

    visit(small(), scenario)


def test_what_if() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        question = {"add": WANTED, "remove": ["Pod/work/plain-0000-0"], "as": ["plimsoll", "kube-1.36"]}
        status, text = await visitor.ask("/api/whatif", "POST", json=question)
        assert status == 200, text
        found = json.loads(text)
        assert {"before", "after", "pods", "nodes", "as"} <= found.keys()
        (new,) = [each for each in found["pods"] if each["pod"] == "work/new"]
        assert new["after"]["node"].startswith("node-")
        assert "kube-1.36" in found["as"]
        # Nothing has become of it.
        assert (await visitor.get("/api/overview"))["counts"]["pods"] == 15

    visit(small(), scenario)


def test_a_what_if_with_everything() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        question = {
            "add": WANTED,
            "replicas": 2,
            "addNodes": 1,
            "like": "node-0000",
            "cordon": ["node-0001"],
            "drain": ["node-0002"],
            "taints": ["node-0000 a=b:NoSchedule"],
            "taintDevices": ["driver=gpu.example.com:bad=yes:NoSchedule"],
            "policy": "Max",
            "preempt": False,
            "exhaustive": True,
        }
        status, text = await visitor.ask("/api/whatif", "POST", json=question)
        assert status == 200, text
        found = json.loads(text)
        assert found["changes"] == [
            "accounting policy Max",
            "1 more node like node-0000",
            "node-0000 tainted a=b:NoSchedule",
            "devices tainted driver=gpu.example.com:bad=yes:NoSchedule",
            "node-0001 cordoned",
            "node-0002 drained",
        ]
        (new,) = [each for each in found["pods"] if each["pod"] == "work/new-0"]
        assert new["after"]["charges"]["cpu"] == "1"
        assert new["after"]["node"] == "node-0000-copy-1"
        assert found["exhaustive"]["pods"] >= 2
        assert found["after"]["nodes"] == 4

    visit(small(), scenario)


def test_the_audit() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        assert {"findings", "summary", "revision"} <= (await visitor.get("/api/audit")).keys()

    visit(small(), scenario)


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/nodes/nope", 404, "node nope not found"),
        ("/api/explain/pod/work/nope", 404, "pod nope not found"),
        ("/api/explain/claim/nowhere/nope", 404, "ResourceClaim nope not found"),
        ("/api/devices?node=nope", 400, "node nope not found"),
        ("/api/devices?limit=x", 400, "limit: 'x' is not an integer"),
        ("/api/devices?offset=-1", 400, "offset: '-1' is not an integer"),
        ("/api/pods?state=odd", 400, "state: 'odd' must be pending or running"),
        ("/api/nope", 404, "/api/nope not found"),
        ("/nope", 404, "/nope not found"),
        ("/assets/nope.js", 404, " not found"),
        ("/assets/../server.py", 404, " not found"),
        ("/assets/%2e%2e/server.py", 404, " not found"),
        ("/assets/..%2f..%2f..%2fetc/passwd", 404, " not found"),
    ],
)
def test_a_missing_object_is_reported_in_one_line(path: str, status: int, words: str) -> None:
    async def scenario(visitor: DashboardClient) -> None:
        found, text = await visitor.ask(path)
        assert found == status, text
        error = json.loads(text)["error"]
        assert words in error
        assert "\n" not in error
        assert "Traceback" not in error

    visit(small(), scenario)


QUESTIONS: list[tuple[Any, str]] = [
    ([], "the request must be a JSON object"),
    ({"add": 3}, "add: must be a string"),
    ({"remove": "Pod/a/b"}, "remove: must be a list of at most 1000 strings"),
    ({"remove": [3]}, "remove[0]: must be a string, not 3"),
    ({"odd": 3}, "odd: unknown field"),
    ({"as": ["kube-9.9"]}, "kube-9.9"),
    ({"add": "a: [b"}, "manifest"),
    ({"add": "-"}, ""),
    ({"add": "/etc/passwd"}, ""),
    ({"remove": ["Pod/work/nope"]}, "nope"),
    ({"addNodes": 10**9}, "addNodes: must be a whole number from 0 to 1000"),
    ({"replicas": 10**9, "add": WANTED}, "replicas: must be from 1 to 5000"),
    ({"replicas": 3000, "add": WANTED + "---" + WANTED.replace("new", "newer")}, "more than 5000 pods"),
    ({"remove": ["Pod/a/b"] * 1001}, "remove: must be a list of at most 1000 strings"),
    ({"exhaustive": 1}, "exhaustive: must be true or false, not 1"),
    ({"taintDevices": ["gpu"]}, "'gpu': invalid device taint"),
    ({"drain": ["nope"]}, "nope"),
    ({"addNodes": True}, "addNodes: must be a whole number"),
    ({"replicas": -1, "add": WANTED}, "replicas"),
    ({"taints": ["node-0000"]}, "taints"),
    ({"policy": "Odd"}, "Odd"),
]


@pytest.mark.parametrize(("question", "words"), QUESTIONS, ids=lambda each: json.dumps(each)[:40])
def test_invalid_queries_are_one_line_errors(question: object, words: str) -> None:
    async def scenario(visitor: DashboardClient) -> None:
        status, text = await visitor.ask("/api/whatif", "POST", json=question)
        assert status == 400, text
        error = json.loads(text)["error"]
        assert words in error
        assert "\n" not in error

    visit(small(), scenario)


def test_responses_are_cached_and_compressed() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        async with visitor.session.get(visitor.at("/api/nodes")) as response:
            tag = response.headers["ETag"]
        async with visitor.session.get(visitor.at("/api/nodes"), headers={"If-None-Match": tag}) as response:
            assert response.status == 304
            assert await response.read() == b""
        plain = await visitor.get("/api/devices", headers={"Accept-Encoding": "identity"})
        headers = {"Accept-Encoding": "gzip"}
        async with visitor.session.get(visitor.at("/api/devices"), headers=headers) as response:
            assert response.headers["Content-Encoding"] == "gzip"
            assert json.loads(await response.read()) == plain  # aiohttp has unpacked it
        board = visitor.dashboard.service
        first = await board.nodes()
        assert await board.nodes() is first
        assert first.packed is None or gzip.decompress(first.packed) == first.body

    visit(small(), scenario)


def test_classes_are_those_of_top() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        found = await visitor.get("/api/classes")
        assert found["classes"] == [row.as_json() for row in class_rows(small())]
        assert [(row["name"], row["free"]) for row in found["classes"]] == [("cpu", 0), ("gpu", 3)]

    visit(small(), scenario)


def test_metrics_have_the_same_numbers() -> None:
    async def scenario(visitor: DashboardClient) -> None:
        status, text = await visitor.ask("/metrics")
        assert status == 200
        lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        (node_row,) = node_rows(small(), names=["node-0001"])
        cpu = node_row.row("cpu")
        for name, amount in (("allocatable", cpu.line), ("claims", cpu.claims), ("free", cpu.free)):
            shown = lines[f'plimsoll_node_{name}{{node="node-0001",resource="cpu"}}']
            assert float(shown) * 1000 == pytest.approx(amount)
        assert lines['plimsoll_pool_devices{driver="gpu.example.com",pool="node-0002"}'] == "2"
        assert lines['plimsoll_pool_devices_taken{driver="gpu.example.com",pool="node-0002"}'] == "1"
        assert lines['plimsoll_pool_devices_free{driver="gpu.example.com",pool="node-0002"}'] == "1"
        assert lines['plimsoll_pool_devices_taken{driver="cpu.example.com",pool="node-0002"}'] == "0"
        assert lines['plimsoll_pods{state="pending"}'] == "3"
        # As documented: a cluster of 5,000 nodes with one pool each has 70,000 series.
        nodes, pools, classes, others = 3, 6, 2, 6
        assert len(lines) == nodes * (2 * 5 + 1) + 3 * pools + 2 * classes + others
        assert lines['plimsoll_class_free{device_class="gpu"}'] == "3"
        assert lines['plimsoll_class_free_on_one_node{device_class="gpu"}'] == "1"
        assert lines['plimsoll_claims{state="allocated,reserved"}'] == "6"
        assert lines['plimsoll_claims{state="pending"}'] == "1"

    visit(small(), scenario)


@pytest.mark.parametrize("name", USECASES or ["uc1"])
def test_every_route_works_for_observed_clusters(name: str) -> None:
    cluster_state = read_cluster_state(Source((str(usecase_dump(name)),)))

    async def scenario(visitor: DashboardClient) -> None:
        overview = await visitor.get("/api/overview")
        nodes = await visitor.get("/api/nodes")
        assert overview["counts"]["nodes"] == len(nodes["names"])
        for node in nodes["names"]:
            assert (await visitor.get(f"/api/nodes/{node}"))["name"] == node
        for path in ("devices", "pools", "claims", "classes", "namespaces", "audit", "pods"):
            assert "revision" in await visitor.get(f"/api/{path}")
        for pod in (await visitor.get("/api/pods"))["items"]:
            tree: Tree = await visitor.get(f"/api/explain/pod/{pod['namespace']}/{pod['name']}")
            assert tree["subject"]
        for claim in (await visitor.get("/api/claims"))["items"]:
            assert await visitor.get(f"/api/explain/claim/{claim['namespace']}/{claim['name']}")
        await visitor.get("/api/pods?state=pending")
        assert (await visitor.ask("/metrics"))[0] == 200

    visit(cluster_state, scenario)
