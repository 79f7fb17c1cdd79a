"""gRPC on unix sockets."""

from __future__ import annotations

import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from plimsoll.errors import ConfigError
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import health_v1alpha1, registration
from tests.waiting import DEADLINE


async def _info(request: Any, context: Any) -> registration.PluginInfo:
    return registration.PluginInfo(type="DRAPlugin", name="d", endpoint="/e", supported_versions=["v1"])


async def _watch(request: Any, context: Any) -> AsyncIterator[health_v1alpha1.NodeWatchResourcesResponse]:
    for message in ("one", "two"):
        yield health_v1alpha1.NodeWatchResourcesResponse(devices=[{"message": message}])


HANDLERS = (
    rpc.handle(registration.DESCRIPTOR, "Registration", {"GetInfo": _info}),
    rpc.handle(health_v1alpha1.DESCRIPTOR, "DRAResourceHealth", {"NodeWatchResources": _watch}),
)
GET_INFO = rpc.find_method(registration.DESCRIPTOR, "Registration", "GetInfo")
NOTIFY = rpc.find_method(registration.DESCRIPTOR, "Registration", "NotifyRegistrationStatus")
WATCH = rpc.find_method(health_v1alpha1.DESCRIPTOR, "DRAResourceHealth", "NodeWatchResources")


async def test_calls_reach_the_service_and_its_streams(tmp_path: Path) -> None:
    path = tmp_path / "s"
    server = await rpc.serve(path, HANDLERS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    channel = rpc.dial(path)
    info = await rpc.call(channel, GET_INFO, registration.InfoRequest(), timeout=DEADLINE)
    assert (info.type, info.name, list(info.supported_versions)) == ("DRAPlugin", "d", ["v1"])
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await rpc.call(channel, NOTIFY, registration.RegistrationStatus(), timeout=DEADLINE)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    seen = [
        answer.devices[0].message
        async for answer in rpc.watch(channel, WATCH, health_v1alpha1.NodeWatchResourcesRequest())
    ]
    assert seen == ["one", "two"]
    await rpc.close(channel)
    await server.stop(None)


async def test_a_socket_left_behind_is_replaced_and_one_in_use_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s"
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    server = await rpc.serve(path, HANDLERS)
    with pytest.raises(ConfigError, match="another process serves on this socket"):
        await rpc.serve(path, HANDLERS)
    await server.stop(None)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="not a socket"):
        await rpc.serve(tmp_path / "file", HANDLERS)


def test_a_path_too_long_is_refused_with_its_length(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at most 107 bytes"):
        rpc.check_path(tmp_path / ("x" * 107))


async def test_a_temporary_socket_is_removed_by_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "s"
    first = await rpc.serve(path, HANDLERS, rename=True)
    assert [each.name for each in tmp_path.iterdir()] == ["s"]
    assert path.stat().st_mode & 0o777 == 0o600
    path.unlink()
    second = await rpc.serve(path, HANDLERS, rename=True)
    await first.stop(None)
    assert rpc.is_listening(path)  # the end of the first is not the end of the second
    await second.stop(None)
    assert path.exists()
    assert not rpc.is_listening(path)
    (tmp_path / "d" / "x").mkdir(parents=True)
    with pytest.raises(ConfigError, match="exists and is not a socket"):
        await rpc.serve(tmp_path / "d", HANDLERS, rename=True)
