"""PodResources client in another process, built from the public proto and gRPC only."""

from __future__ import annotations

import asyncio
import json
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from plimsoll.node.claim_info import PreparedDevice
from plimsoll.node.podresources import Allocatable, MemoryBlock, PodResourcesServer, RateLimit
from tests.directories import short_directory
from tests.waiting import DEADLINE

from .sources import DRIVER, FakeNode, make_claim, make_pod

AGENT = """
import json, sys
import grpc
import agent_v1_pb2 as v1, agent_v1_pb2_grpc as service

path = sys.argv[1]
with grpc.insecure_channel(f"unix:{path}") as channel:
    stub = service.PodResourcesListerStub(channel)
    pods = stub.List(v1.ListPodResourcesRequest(), timeout=120).pod_resources
    seen = []
    for pod in pods:
        got = stub.Get(v1.GetPodResourcesRequest(pod_name=pod.name, pod_namespace=pod.namespace), timeout=120)
        assert got.pod_resources == pod, (got, pod)
        for container in pod.containers:
            for claim in container.dynamic_resources:
                for device in claim.claim_resources:
                    seen.append([pod.name, container.name, list(container.cpu_ids), claim.claim_name,
                                 device.driver_name, device.pool_name, device.device_name, device.share_id,
                                 [cdi.name for cdi in device.cdi_devices]])
    allocatable = stub.GetAllocatableResources(v1.AllocatableResourcesRequest(), timeout=120)
    errors = []
    for name in ("missing", "done"):
        try:
            stub.Get(v1.GetPodResourcesRequest(pod_name=name, pod_namespace="default"), timeout=120)
        except grpc.RpcError as error:
            errors.append([error.code().name, error.details()])
    refused = 0
    for _ in range(30):
        try:
            stub.List(v1.ListPodResourcesRequest(), timeout=120)
        except grpc.RpcError as error:
            assert (error.code().name, error.details()) == ("RESOURCE_EXHAUSTED", "rejected by rate limit")
            refused += 1
ours = [name for name in sys.modules if name.split(".")[0] == "plimsoll"]
print(json.dumps({"pods": [p.name for p in pods], "seen": seen, "cpus": list(allocatable.cpu_ids),
                  "memory": [m.size for m in allocatable.memory], "errors": errors, "refused": refused,
                  "ours": ours}))
"""


async def _run(*command: str, directory: Path) -> str:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=directory, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), DEADLINE)
    assert process.returncode == 0, err.decode()
    return out.decode()


def test_a_client_built_from_the_public_proto() -> None:
    node = FakeNode(of_node=Allocatable((0, 1, 2), (MemoryBlock("memory", 2**33, (0,)),)))
    pod = node.add(make_pod("train", {"app": ["gpus"], "log": []}))
    node.add(make_pod("plain"))
    node.add(make_pod("done"))
    node.end("uid-done")
    node.cpus[pod.metadata.uid, "app"] = (1, 2)
    node.prepare(
        make_claim(
            "gpus",
            PreparedDevice("pool", "gpu-0", cdi=(f"{DRIVER}/gpu=0",), share_id="s"),
            PreparedDevice("pool", "gpu-1", cdi=(f"{DRIVER}/gpu=1",)),
        )
    )

    async def scenario() -> dict[str, Any]:
        with short_directory() as directory:
            proto = files("plimsoll.protocols.proto").joinpath("podresources_v1.proto").read_text()
            (directory / "agent_v1.proto").write_text(proto)
            (directory / "agent.py").write_text(AGENT)
            made = ("--python_out=.", "--grpc_python_out=.", "-I.", "agent_v1.proto")
            await _run(sys.executable, "-m", "grpc_tools.protoc", *made, directory=directory)
            # The bucket is never refilled: what is served does not depend on how fast the agent is.
            limit = RateLimit(per_second=0.0, burst=10)
            server = PodResourcesServer(directory / "pod-resources" / "kubelet.sock", node, limit=limit)
            await server.start()
            try:
                out = await _run(sys.executable, "agent.py", str(server.path), directory=directory)
            finally:
                await server.stop()
            report = json.loads(out)
            assert isinstance(report, dict)
            return report

    report = asyncio.run(scenario())
    row = ["train", "app", [1, 2], "gpus", DRIVER, "pool"]
    assert report == {
        "pods": ["train", "plain"],
        "seen": [
            [*row, "gpu-0", "s", [f"{DRIVER}/gpu=0"]],
            [*row, "gpu-1", "", [f"{DRIVER}/gpu=1"]],
        ],
        "cpus": [0, 1, 2],
        "memory": [2**33],
        "errors": [
            ["UNKNOWN", "pod missing in namespace default not found"],
            ["UNKNOWN", "pod done in namespace default not found"],
        ],
        "refused": 26,
        "ours": [],
    }
