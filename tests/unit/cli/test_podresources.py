"""`plimsoll podresources`: output and exit codes."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
import yaml

from plimsoll.cli.main import main
from plimsoll.protocols.messages import podresources_v1 as v1
from tests.unit.tools.podresources.kubelets import ALLOCATABLE, LISTED, TRAIN, always, kubelet, refuse
from tests.waiting import DEADLINE


@pytest.fixture(scope="module")
def socket() -> Iterator[Path]:
    def get(request: v1.GetPodResourcesRequest, context: grpc.ServicerContext) -> v1.GetPodResourcesResponse:
        if (request.pod_namespace, request.pod_name) != ("ml", "train"):
            text = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
            context.abort(grpc.StatusCode.UNKNOWN, text)
        return v1.GetPodResourcesResponse(pod_resources=TRAIN)

    with kubelet(List=always(LISTED), Get=get, GetAllocatableResources=always(ALLOCATABLE)) as path:
        yield path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit:
        main(["podresources", *map(str, arguments)])
    captured = capsys.readouterr()
    code = exit.value.code
    assert isinstance(code, int)
    return code, captured.out, captured.err


def test_lists(socket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "list", "--socket", socket)
    assert (code, err) == (0, "")
    assert [line.split()[1:3] for line in out.splitlines()] == [
        ["POD", "CONTAINER"],
        ["plain", "*"],
        ["plain", "c"],
        ["train", "app"],
        ["train", "log"],
    ]
    code, out, _ = run(capsys, "list", "--socket", socket, "-n", "ml", "-o", "wide")
    assert (code, len(out.splitlines())) == (0, 6)
    assert "x/gpu=0,x/common=all" in out
    code, out, err = run(capsys, "list", "--socket", socket, "-n", "empty")
    assert (code, out, err) == (0, "", "no pods found\n")


def test_json_and_yaml_have_the_same_content(socket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["list"], ["list", "-n", "empty"], ["get", "train", "-n", "ml"], ["allocatable"]):
        _, written, _ = run(capsys, *arguments, "--socket", socket, "-o", "json")
        _, other, _ = run(capsys, *arguments, "--socket", socket, "-o", "yaml")
        assert json.loads(written) == yaml.safe_load(other)
    _, written, _ = run(capsys, "get", "train", "-n", "ml", "--socket", socket, "-o", "json")
    assert json.loads(written)["podResources"]["containers"][0]["cpuIds"] == [2, 3, 4, 8]


def test_one_pod(socket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "get", "train", "-n", "ml", "--socket", socket)
    assert (code, len(out.splitlines())) == (0, 3)
    code, out, err = run(capsys, "get", "train", "--socket", socket)
    assert (code, out, err) == (1, "", "pod train in namespace default not found\n")


def test_allocatable(socket: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "allocatable", "--socket", socket)
    assert code == 0
    assert out.splitlines()[1].split() == ["cpu", "8", "-", "2-9"]


def test_errors_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "list", "--socket", "/nowhere/kubelet.sock")
    assert (code, out) == (2, "")
    assert err == (
        "plimsoll: /nowhere/kubelet.sock: no such socket;"
        " check that a kubelet is running, or pass its socket with --socket\n"
    )
    with kubelet(Get=refuse(grpc.StatusCode.UNKNOWN, "PodResources API Get method disabled")) as path:
        code, _, err = run(capsys, "get", "p", "--socket", path)
    assert (code, err.count("\n")) == (2, 1)
    assert "has no Get" in err
    code, _, err = run(capsys, "export", "--listen", "nowhere", "--socket", "/nowhere")
    assert (code, err.count("\n")) == (2, 1)
    assert "'nowhere' is not an address" in err


async def test_the_exporter_as_a_process(socket: Path) -> None:
    command = (
        "podresources",
        "export",
        "--listen",
        "127.0.0.1:0",
        "--node",
        "w",
        "--socket",
        str(socket),
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "plimsoll.cli.main", *command, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), DEADLINE)).decode()
        assert line.startswith("serving metrics at http://127.0.0.1:")
        url = line.split()[-1]
        text = await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=DEADLINE).read().decode())
        assert 'plimsoll_podresources_up{node="w"} 1.0' in text
        assert 'pod="train"' in text
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), DEADLINE) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
