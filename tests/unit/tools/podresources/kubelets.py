"""Fake kubelet that responds as scripted, in its own threads."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from plimsoll.protocols.messages import podresources_v1 as v1

Answer = Callable[[Any, Any], Any]
SERVICE = "v1.PodResourcesLister"
MESSAGES: dict[str, Any] = {
    "List": v1.ListPodResourcesRequest,
    "Get": v1.GetPodResourcesRequest,
    "GetAllocatableResources": v1.AllocatableResourcesRequest,
}


@contextmanager
def kubelet(**answers: Answer) -> Iterator[Path]:
    """Run a kubelet with these methods and return its socket."""
    directory = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
    handlers: dict[str, Any] = {
        name: grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=MESSAGES[name].FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        for name, answer in answers.items()
    }
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, handlers)])
        path = directory / "kubelet.sock"
        server.add_insecure_port(f"unix:{path}")
        server.start()
        try:
            yield path
        finally:
            server.stop(None).wait()
            shutil.rmtree(directory)


def always(message: Any) -> Answer:
    return lambda request, context: message


def refuse(code: grpc.StatusCode, text: str) -> Answer:
    return lambda request, context: context.abort(code, text)


def limited(times: int, message: Any) -> Answer:
    """Return a method that refuses some calls, then answers."""
    left = times

    def answer(request: Any, context: Any) -> Any:
        nonlocal left
        left -= 1
        if left >= 0:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        return message

    return answer


def device(
    name: str, *cdi: str, driver: str = "gpu.example.com", share: str | None = None
) -> v1.ClaimResource:
    return v1.ClaimResource(
        driver_name=driver,
        pool_name="worker",
        device_name=name,
        share_id=share,
        cdi_devices=[v1.CDIDevice(name=one) for one in cdi],
    )


def claim(name: str, *devices: v1.ClaimResource) -> v1.DynamicResource:
    return v1.DynamicResource(claim_name=name, claim_namespace="ml", claim_resources=devices)


def memory(size: int, *nodes: int, type: str = "memory") -> v1.ContainerMemory:
    topology = v1.TopologyInfo(nodes=[v1.NUMANode(ID=node) for node in nodes])
    return v1.ContainerMemory(memory_type=type, size=size, topology=topology)


TRAIN = v1.PodResources(
    name="train",
    namespace="ml",
    containers=[
        v1.ContainerResources(
            name="app",
            cpu_ids=[2, 3, 4, 8],
            memory=[memory(2**30, 0), memory(2**30, 1), memory(2**21, type="hugepages-2Mi")],
            dynamic_resources=[
                claim(
                    "gpus", device("gpu-0", "x/gpu=0", "x/common=all", share="s1"), device("gpu-1", "x/gpu=1")
                ),
                claim("late"),
            ],
        ),
        v1.ContainerResources(
            name="log",
            devices=[v1.ContainerDevices(resource_name="example.com/nic", device_ids=["n1", "n0"])],
        ),
    ],
)
PLAIN = v1.PodResources(
    name="plain",
    namespace="default",
    containers=[v1.ContainerResources(name="c")],
    cpu_ids=[5],
    memory=[memory(4096)],
)
LISTED = v1.ListPodResourcesResponse(pod_resources=[TRAIN, PLAIN])
ALLOCATABLE = v1.AllocatableResourcesResponse(
    cpu_ids=range(2, 10),
    memory=[memory(2**33, 0), memory(2**33, 1)],
    devices=[v1.ContainerDevices(resource_name="example.com/nic", device_ids=["n0", "n1", "n2"])],
)
