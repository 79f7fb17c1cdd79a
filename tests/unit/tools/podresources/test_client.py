"""PodResources client."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.quantity import format_bytes
from plimsoll.errors import InputError
from plimsoll.protocols.messages import podresources_v1 as v1
from plimsoll.tools.colors import printable
from plimsoll.tools.podresources.client import PodNotFound, PodResourcesClient
from plimsoll.tools.podresources.text import (
    allocatable_lines,
    pod_lines,
    span,
    tree_of,
)

from .kubelets import ALLOCATABLE, LISTED, PLAIN, TRAIN, always, kubelet, limited, refuse


async def _no_wait(_: float) -> None:
    return None


def ask(path: Path, method: str, *arguments: str, **settings: Any) -> Any:
    async def scenario() -> Any:
        async with PodResourcesClient(path, sleep=_no_wait, **settings) as client:
            return await getattr(client, method)(*arguments)

    return asyncio.run(scenario())


def test_responses_are_decoded() -> None:
    seen = []

    def get(request: v1.GetPodResourcesRequest, context: Any) -> v1.GetPodResourcesResponse:
        seen.append((request.pod_namespace, request.pod_name))
        return v1.GetPodResourcesResponse(pod_resources=TRAIN)

    with kubelet(List=always(LISTED), Get=get, GetAllocatableResources=always(ALLOCATABLE)) as path:
        assert ask(path, "list") == LISTED
        assert ask(path, "get", "ml", "train").pod_resources == TRAIN
        assert ask(path, "allocatable") == ALLOCATABLE
    assert seen == [("ml", "train")]


def test_rate_limited_calls_are_retried() -> None:
    with kubelet(List=limited(3, LISTED)) as path:
        assert ask(path, "list") == LISTED
    with (
        kubelet(List=limited(100, LISTED)) as path,
        pytest.raises(InputError, match=r"rejected by rate limit, 4 times in a row"),
    ):
        ask(path, "list", attempts=4)


def test_a_missing_pod_is_not_found() -> None:
    text = "pod p in namespace n not found"
    for code in (grpc.StatusCode.UNKNOWN, grpc.StatusCode.NOT_FOUND):
        with kubelet(Get=refuse(code, text)) as path:
            assert ask(path, "get", "n", "p") == PodNotFound(text)


@pytest.mark.parametrize(
    ("code", "text", "message"),
    [
        (grpc.StatusCode.UNIMPLEMENTED, "unknown method", "has no Get"),
        (grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled", "has no Get .*podresources list"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "too\nlarge", "Get failed: RESOURCE_EXHAUSTED: too large"),
        (grpc.StatusCode.UNKNOWN, "other", "Get failed: UNKNOWN: other"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "", "no response to Get within 10 s"),
        (grpc.StatusCode.UNAVAILABLE, "gone", "connection lost, or not a gRPC server: gone"),
    ],
)  # fmt: skip
def test_failures_are_reported_in_one_line(code: grpc.StatusCode, text: str, message: str) -> None:
    with kubelet(Get=refuse(code, text)) as path, pytest.raises(InputError, match=message) as caught:
        ask(path, "get", "n", "p")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_server_without_the_service() -> None:
    with kubelet() as path, pytest.raises(InputError, match="this server has no List"):
        ask(path, "list")


def test_a_call_times_out() -> None:
    with (
        kubelet(List=lambda request, context: context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "")) as path,
        pytest.raises(InputError, match=r"no response to List within 0\.5 s"),
    ):
        ask(path, "list", timeout=0.5)


def test_sockets_without_a_server(directory: Path) -> None:
    with pytest.raises(InputError, match="no such socket; check that a kubelet is running"):
        ask(directory / "none", "list")
    (directory / "file").write_text("")
    with pytest.raises(InputError, match="connection refused"):
        ask(directory / "file", "list")
    with pytest.raises(InputError, match="no such socket"):
        ask(directory / "file" / "s", "list")
    with pytest.raises(InputError, match="at most 107 bytes"):
        ask(directory / ("x" * 120), "list")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(directory / "d"))
        with pytest.raises(InputError, match="not a stream socket"):
            ask(directory / "d", "list")


def test_a_foreign_socket(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    def connect(self: Any, address: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("socket.socket.connect", connect)
    with pytest.raises(InputError, match="permission denied; only root may use a kubelet's socket"):
        ask(directory / "s", "list")


def test_a_socket_with_another_protocol(directory: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(directory / "s"))
        other.listen()
        with pytest.raises(InputError, match=r"no response to List within|connection lost"):
            ask(directory / "s", "list", timeout=0.3)


def test_a_table() -> None:
    assert list(pod_lines([TRAIN, PLAIN])) == [
        "NAMESPACE   POD     CONTAINER   CPUS    MEMORY                  CLAIMS      DEVICES",
        "default     plain   *           5       4Ki                     -           -",
        "default     plain   c           -       -                       -           -",
        "ml          train   app         2-4,8   2Gi,hugepages-2Mi=2Mi   gpus,late   "
        "gpu.example.com/worker/gpu-0,gpu.example.com/worker/gpu-1",
        "ml          train   log         -       -                       -           example.com/nic=n1,n0",
    ]


def test_a_wide_table() -> None:
    rows = [line.split() for line in pod_lines([TRAIN, PLAIN], wide=True)]
    assert [row[2:3] + row[5:] for row in rows] == [
        ["CONTAINER", "CLAIM", "DRIVER", "POOL", "DEVICE", "SHARE", "CDI"],
        ["*", "-", "-", "-", "-", "-", "-"],
        ["c", "-", "-", "-", "-", "-", "-"],
        ["app", "gpus", "gpu.example.com", "worker", "gpu-0", "s1", "x/gpu=0,x/common=all"],
        ["app", "gpus", "gpu.example.com", "worker", "gpu-1", "-", "x/gpu=1"],
        ["app", "late", "-", "-", "-", "-", "-"],
        ["log", "-", "example.com/nic", "-", "n1", "-", "-"],
        ["log", "-", "example.com/nic", "-", "n0", "-", "-"],
    ]


def test_allocatable_resources_as_a_table() -> None:
    assert [line.split() for line in allocatable_lines(ALLOCATABLE)] == [
        ["RESOURCE", "AMOUNT", "NUMA", "IDS"],
        ["cpu", "8", "-", "2-9"],
        ["memory", "8Gi", "0", "-"],
        ["memory", "8Gi", "1", "-"],
        ["example.com/nic", "3", "-", "n0,n1,n2"],
    ]


def test_trees_keep_numbers() -> None:
    tree = tree_of(LISTED)["podResources"][0]
    app = tree["containers"][0]
    assert app["cpuIds"] == [2, 3, 4, 8]
    assert app["memory"][1] == {"memoryType": "memory", "size": 2**30, "topology": {"nodes": [{"ID": 1}]}}
    assert app["dynamicResources"][0]["claimResources"][0] == {
        "cdiDevices": [{"name": "x/gpu=0"}, {"name": "x/common=all"}],
        "driverName": "gpu.example.com",
        "poolName": "worker",
        "deviceName": "gpu-0",
        "shareId": "s1",
    }


@given(st.sets(st.integers(0, 60)))
def test_spans_can_be_read_back(cpus: set[int]) -> None:
    text = span(cpus)
    found: set[int] = set()
    for part in text.split(",") if text != "-" else ():
        low, _, high = part.partition("-")
        found |= set(range(int(low), int(high or low) + 1))
    assert found == cpus
    assert text.count(",") == max(0, sum(cpu - 1 not in cpus for cpu in cpus) - 1)


@given(st.integers(0, 2**64 - 1))
def test_bytes_can_be_read_back(size: int) -> None:
    text = format_bytes(size)
    units = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
    assert (int(text[:-2]) * 1024 ** units[text[-2:]] if text[-2:] in units else int(text)) == size


def test_control_characters_are_escaped() -> None:
    assert printable("a\x1b[2Jb\r\n") == "a?[2Jb??"
    (_, row) = pod_lines([v1.PodResources(name="p\n\x1b", containers=[v1.ContainerResources(name="\t")])])
    assert row.split() == ["p??", "?", "-", "-", "-", "-"]
