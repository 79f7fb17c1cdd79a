"""CRI server for tests: keeps the state of sandboxes and containers as containerd does, without processes.

Names are reserved by attempt, a stopped sandbox stops its containers, a container cannot be created in one,
and removal is idempotent. A container runs until it is stopped or a test ends it.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from plimsoll.protocols import rpc
from plimsoll.protocols.messages import cri


@dataclass
class Box:
    config: Any
    status: Any
    handler: str = ""


@dataclass
class Made:
    config: Any
    status: Any
    sandbox: str
    cpus: str = ""


@dataclass
class CriServer:
    """Runtime `containerd` on a socket; fields are what a test looks at or changes."""

    path: Path
    images: dict[str, Any] = field(default_factory=dict)
    registry: dict[str, Any] = field(default_factory=dict)  #: images that can be pulled
    boxes: dict[str, Box] = field(default_factory=dict)
    containers: dict[str, Made] = field(default_factory=dict)
    calls: list[tuple[str, Any]] = field(default_factory=list)
    failures: dict[str, tuple[rpc.StatusCode, str]] = field(default_factory=dict)
    unimplemented: set[str] = field(default_factory=set)
    conditions: dict[str, bool] = field(default_factory=lambda: {"RuntimeReady": True, "NetworkReady": True})
    driver: str = "CGROUPFS"
    execute: Callable[[Any], Any] = lambda request: cri.ExecSyncResponse()
    written: dict[str, int] = field(default_factory=dict)  #: bytes that containers have written
    layers: str = ""  #: mount point of the disk that they are on
    cpus: str = ""  #: CPUs that an NRI plugin gives to new containers

    def __post_init__(self) -> None:
        self._server: rpc.RpcServer | None = None
        self._streams: set[asyncio.Queue[Any]] = set()

    async def start(self) -> CriServer:
        handlers = []
        for service in ("RuntimeService", "ImageService"):
            names = cri.DESCRIPTOR.services_by_name[service].methods_by_name
            methods: dict[str, Any] = {
                name: self._unary(name) for name in names if hasattr(self, f"on_{name}")
            }
            if service == "RuntimeService" and "GetContainerEvents" not in self.unimplemented:
                methods["GetContainerEvents"] = self._events
            handlers.append(rpc.handle(cri.DESCRIPTOR, service, methods))
        self._server = await rpc.serve(self.path, handlers)
        return self

    async def stop(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def requests(self, method: str) -> list[Any]:
        return [request for name, request in self.calls if name == method]

    def _unary(self, name: str) -> Any:
        async def call(request: Any, context: Any) -> Any:
            self.calls.append((name, request))
            if name in self.unimplemented:
                await context.abort(rpc.StatusCode.UNIMPLEMENTED, f"unknown method {name}")
            if name in self.failures:
                await context.abort(*self.failures[name])
            try:
                return getattr(self, f"on_{name}")(request)
            except KeyError as error:
                await context.abort(rpc.StatusCode.NOT_FOUND, f"{error}: not found")
            except ValueError as error:
                await context.abort(rpc.StatusCode.UNKNOWN, str(error))

        return call

    async def _events(self, request: Any, context: Any) -> AsyncIterator[Any]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self._streams.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._streams.discard(queue)

    def _emit(self, id: str) -> None:
        for queue in self._streams:
            queue.put_nowait(cri.ContainerEventResponse(container_id=id))

    # -- runtime

    def on_Version(self, request: Any) -> Any:
        return cri.VersionResponse(
            version="0.1.0", runtime_name="containerd", runtime_version="v2.3.4", runtime_api_version="v1"
        )

    def on_Status(self, request: Any) -> Any:
        conditions = [cri.RuntimeCondition(type=k, status=v) for k, v in self.conditions.items()]
        return cri.StatusResponse(status=cri.RuntimeStatus(conditions=conditions))

    def on_RuntimeConfig(self, request: Any) -> Any:
        return cri.RuntimeConfigResponse(linux=cri.LinuxRuntimeConfiguration(cgroup_driver=self.driver))

    # -- sandboxes

    def on_RunPodSandbox(self, request: Any) -> Any:
        config = request.config
        if any(box.config.metadata == config.metadata for box in self.boxes.values()):
            raise ValueError(f"failed to reserve sandbox name {config.metadata.name}: name is reserved")
        id = secrets.token_hex(32)
        status = cri.PodSandboxStatus(
            id=id,
            metadata=config.metadata,
            state=cri.SANDBOX_READY,
            created_at=time.time_ns(),
            labels=dict(config.labels),
            annotations=dict(config.annotations),
        )
        options = config.linux.security_context.namespace_options
        status.linux.namespaces.options.CopyFrom(options)
        if options.network == cri.POD:
            status.network.ip = f"10.88.0.{len(self.boxes) + 2}"
        self.boxes[id] = Box(config, status, request.runtime_handler)
        self._emit(id)
        return cri.RunPodSandboxResponse(pod_sandbox_id=id)

    def on_StopPodSandbox(self, request: Any) -> Any:
        self.stop_box(request.pod_sandbox_id)
        return cri.StopPodSandboxResponse()

    def stop_box(self, id: str) -> None:
        for each, made in self.containers.items():
            if made.sandbox == id:
                self.end(each, 137)
        if id in self.boxes:
            self.boxes[id].status.state = cri.SANDBOX_NOTREADY
        self._emit(id)

    def on_RemovePodSandbox(self, request: Any) -> Any:
        self.stop_box(request.pod_sandbox_id)
        self.boxes.pop(request.pod_sandbox_id, None)
        for id in [id for id, made in self.containers.items() if made.sandbox == request.pod_sandbox_id]:
            del self.containers[id]
        return cri.RemovePodSandboxResponse()

    def on_PodSandboxStatus(self, request: Any) -> Any:
        return cri.PodSandboxStatusResponse(status=self.boxes[request.pod_sandbox_id].status)

    def on_ListPodSandbox(self, request: Any) -> Any:
        wanted = dict(request.filter.label_selector).items()
        items = [
            cri.PodSandbox(id=id, metadata=box.status.metadata, state=box.status.state)
            for id, box in self.boxes.items()
            if wanted <= dict(box.config.labels).items()
        ]
        return cri.ListPodSandboxResponse(items=items)

    def on_UpdatePodSandboxResources(self, request: Any) -> Any:
        self.boxes[request.pod_sandbox_id].config.linux.resources.CopyFrom(request.resources)
        return cri.UpdatePodSandboxResourcesResponse()

    # -- containers

    def on_CreateContainer(self, request: Any) -> Any:
        box, config = self.boxes[request.pod_sandbox_id], request.config
        if box.status.state != cri.SANDBOX_READY:
            raise ValueError("sandbox container is not running")
        if any(
            made.config.metadata == config.metadata and made.sandbox == request.pod_sandbox_id
            for made in self.containers.values()
        ):
            raise ValueError(f"failed to reserve container name {config.metadata.name}: name is reserved")
        if config.image.image not in {image.id for image in self.images.values()}:
            raise ValueError(f"failed to resolve image {config.image.image!r}")
        id = secrets.token_hex(32)
        status = cri.ContainerStatus(
            id=id,
            metadata=config.metadata,
            state=cri.CONTAINER_CREATED,
            created_at=time.time_ns(),
            image=config.image,
            image_ref=f"docker.io/library/x@{config.image.image}",
            labels=dict(config.labels),
            annotations=dict(config.annotations),
            mounts=config.mounts,
            log_path=f"{box.config.log_directory}/{config.log_path}",
        )
        status.resources.linux.CopyFrom(config.linux.resources)
        self.containers[id] = Made(config, status, request.pod_sandbox_id, self.cpus)
        self._emit(id)
        return cri.CreateContainerResponse(container_id=id)

    def on_StartContainer(self, request: Any) -> Any:
        made = self.containers[request.container_id]
        if made.status.state != cri.CONTAINER_CREATED:
            raise ValueError(f"container is in {made.status.state} state")
        made.status.state, made.status.started_at = cri.CONTAINER_RUNNING, time.time_ns()
        self._emit(request.container_id)
        return cri.StartContainerResponse()

    def on_StopContainer(self, request: Any) -> Any:
        if request.container_id in self.containers:
            self.end(request.container_id, 143 if request.timeout else 137)
        return cri.StopContainerResponse()

    def end(self, id: str, code: int) -> None:
        """End a running container."""
        status = self.containers[id].status
        if status.state in (cri.CONTAINER_RUNNING, cri.CONTAINER_UNKNOWN):
            status.state, status.finished_at = cri.CONTAINER_EXITED, time.time_ns()
            status.exit_code, status.reason = code, "Error" if code else "Completed"
            self._emit(id)

    def on_RemoveContainer(self, request: Any) -> Any:
        self.containers.pop(request.container_id, None)
        return cri.RemoveContainerResponse()

    def on_ListContainers(self, request: Any) -> Any:
        wanted = dict(request.filter.label_selector).items()
        found = [
            cri.Container(id=id, pod_sandbox_id=made.sandbox, state=made.status.state)
            for id, made in self.containers.items()
            if wanted <= dict(made.config.labels).items()
        ]
        return cri.ListContainersResponse(containers=found)

    def on_ContainerStatus(self, request: Any) -> Any:
        made = self.containers[request.container_id]
        response = cri.ContainerStatusResponse(status=made.status)
        if request.verbose:
            spec = {"linux": {"resources": {"cpu": {"cpus": made.cpus}}}}
            response.info["info"] = json.dumps({"pid": 4242, "runtimeSpec": spec})
        return response

    def on_ContainerStats(self, request: Any) -> Any:
        layer = cri.FilesystemUsage(
            fs_id=cri.FilesystemIdentifier(mountpoint=self.layers),
            used_bytes=cri.UInt64Value(value=self.written[request.container_id]),
        )
        return cri.ContainerStatsResponse(stats=cri.ContainerStats(writable_layer=layer))

    def on_UpdateContainerResources(self, request: Any) -> Any:
        self.containers[request.container_id].status.resources.linux.CopyFrom(request.linux)
        return cri.UpdateContainerResourcesResponse()

    def on_ReopenContainerLog(self, request: Any) -> Any:
        Path(self.containers[request.container_id].status.log_path).touch()
        return cri.ReopenContainerLogResponse()

    def on_ExecSync(self, request: Any) -> Any:
        return self.execute(request)

    # -- images

    def on_ImageStatus(self, request: Any) -> Any:
        return cri.ImageStatusResponse(image=self.images.get(request.image.image))

    def on_PullImage(self, request: Any) -> Any:
        name = request.image.image
        if name not in self.registry:
            raise ValueError(f"failed to resolve reference {name!r}: not found")
        self.images[name] = self.registry[name]
        return cri.PullImageResponse(image_ref=self.images[name].id)

    def add_image(
        self, name: str, *, uid: int | None = None, username: str = "", pulled: bool = True
    ) -> None:
        image = cri.Image(id=f"sha256:{name.encode().hex()}", size=123, username=username)
        if uid is not None:
            image.uid.value = uid
        (self.images if pulled else self.registry)[name] = image
