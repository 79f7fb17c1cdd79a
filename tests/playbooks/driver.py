"""Scriptable driver on real sockets that tracks its prepared claims and writes CDI files for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from plimsoll.node.layout import Layout
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import dra_v1, health_v1, registration

NAME = "gpu.example.com"
_VERSIONS = ("v1.DRAPlugin", "v1.DRAResourceHealth")


class Driver:
    """Driver across any number of restarts: its prepared claims are on disk."""

    def __init__(self, layout: Layout, name: str = NAME) -> None:
        self.name = name
        self._dra = layout.plugins / name / "dra.sock"
        self._registration = layout.registry / f"{name}-reg.sock"
        self._cdi = layout.cdi
        self._servers: list[rpc.RpcServer] = []
        self._streams: list[asyncio.Queue[Any]] = []
        #: Names of the claims it was asked for, in order: ("prepare" or "unprepare", name, UID).
        self.calls: list[tuple[str, str, str]] = []
        #: What it holds: UID -> name.
        self.held: dict[str, str] = {}
        self.refuses: set[str] = set()
        #: The devices of claims by name, where it is not their own.
        self.devices: dict[str, str] = {}
        #: Claims whose next call ends the process: before it has done anything, or after it.
        self.crashes: dict[str, str] = {}
        self._dying: asyncio.Task[None] | None = None
        #: Called when it is asked to release something.
        self.on_release: Callable[[], None] = lambda: None
        self.share_id: str | None = None
        self.health: list[dict[str, Any]] = []
        #: Nothing is answered while this is not set.
        self.gate = asyncio.Event()
        self.gate.set()

    @property
    def up(self) -> bool:
        return bool(self._servers)

    @property
    def dead(self) -> bool:
        """Return whether the driver does not run and has no sockets."""
        return not self._servers and (self._dying is None or self._dying.done())

    def device_of(self, claim: str) -> str:
        return self.devices.get(claim, f"dev-{claim}")

    def holders(self, claim: str) -> set[str]:
        """Return the UIDs of the claims that hold the device of a claim."""
        device = self.device_of(claim)
        return {uid for uid, name in self.held.items() if self.device_of(name) == device}

    def count(self, call: str, claim: str) -> int:
        return sum((call, claim) == each[:2] for each in self.calls)

    # -- lifecycle

    async def come(self) -> None:
        assert not self._servers
        for directory in (self._dra.parent, self._registration.parent, self._cdi):
            directory.mkdir(parents=True, exist_ok=True)
        claims: Any = {
            "NodePrepareResources": self._answer("prepare"),
            "NodeUnprepareResources": self._answer("unprepare"),
        }
        handlers = [
            rpc.handle(dra_v1.DESCRIPTOR, "DRAPlugin", claims),
            rpc.handle(health_v1.DESCRIPTOR, "DRAResourceHealth", {"NodeWatchResources": self._watch}),
        ]
        self._servers.append(await rpc.serve(self._dra, handlers))
        methods: Any = {"GetInfo": self._info, "NotifyRegistrationStatus": self._notify}
        handler = rpc.handle(registration.DESCRIPTOR, "Registration", methods)
        self._servers.append(await rpc.serve(self._registration, [handler]))

    async def go(self) -> None:
        """Shut down gracefully: first remove the socket, then respond to calls in progress."""
        self._registration.unlink(missing_ok=True)
        await self._end(grace=5.0)

    async def die(self) -> None:
        """Stop as kill -9 does: connections break."""
        await self._end(grace=None)

    async def _end(self, grace: float | None) -> None:
        servers, self._servers = self._servers, []
        for queue in self._streams:
            queue.put_nowait(None)
        for server in reversed(servers):
            await server.stop(grace)

    # -- registration

    async def _info(self, request: Any, context: Any) -> Any:
        return registration.PluginInfo(
            type="DRAPlugin", name=self.name, endpoint=str(self._dra), supported_versions=_VERSIONS
        )

    async def _notify(self, request: Any, context: Any) -> Any:
        assert request.plugin_registered, request.error
        return registration.RegistrationStatusResponse()

    # -- claims

    def _answer(self, call: str) -> Callable[[Any, Any], Awaitable[Any]]:
        async def answer(request: Any, context: Any) -> Any:
            self.calls += [(call, claim.name, claim.uid) for claim in request.claims]
            if call == "unprepare":
                self.on_release()
            await self._crash(request, "before")
            await self.gate.wait()
            found = self._prepare(request) if call == "prepare" else self._unprepare(request)
            await self._crash(request, "after")
            return found

        return answer

    async def _crash(self, request: Any, when: str) -> None:
        for claim in request.claims:
            if self.crashes.get(claim.name) == when:
                del self.crashes[claim.name]
                # Not from inside the call, which the end of the server would wait for.
                self._dying = asyncio.create_task(self.die())
                await asyncio.sleep(60)

    def _prepare(self, request: Any) -> Any:
        answer = dra_v1.NodePrepareResourcesResponse()
        for claim in request.claims:
            entry = answer.claims[claim.uid]
            if claim.name in self.refuses:
                entry.error = f"no device for {claim.name}"
                continue
            self.held[claim.uid] = claim.name
            device = entry.devices.add(
                pool_name="pool", device_name=self.device_of(claim.name), request_names=["r"]
            )
            if self.share_id is not None:
                device.share_id = self.share_id
            device.cdi_device_ids.append(f"{self.name}/claim={claim.uid}")
            spec = {
                "cdiVersion": "0.5.0",
                "kind": f"{self.name}/claim",
                "devices": [{"name": claim.uid, "containerEdits": {"env": [f"CLAIM={claim.name}"]}}],
            }
            path = self._file(claim.uid)
            path.with_name(f".{path.name}").write_text(json.dumps(spec))
            path.with_name(f".{path.name}").rename(path)
        return answer

    def _unprepare(self, request: Any) -> Any:
        answer = dra_v1.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            if claim.name in self.refuses:
                answer.claims[claim.uid].error = f"{claim.name} stays"
                continue
            self.held.pop(claim.uid, None)
            self._file(claim.uid).unlink(missing_ok=True)
            answer.claims[claim.uid].SetInParent()
        return answer

    def _file(self, uid: str) -> Path:
        return self._cdi / f"{self.name}-{uid}.json"

    def files(self) -> set[str]:
        """Return the UIDs of the claims with a CDI file."""
        found = self._cdi.glob(f"{self.name}-*.json")
        return {path.name.removeprefix(f"{self.name}-").removesuffix(".json") for path in found}

    # -- health

    def publish_health(self, *devices: dict[str, Any]) -> None:
        self.health = list(devices)
        for queue in self._streams:
            queue.put_nowait(self.health)

    async def _watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        queue: asyncio.Queue[Any] = asyncio.Queue()
        self._streams.append(queue)
        queue.put_nowait(self.health)
        try:
            while (devices := await queue.get()) is not None:
                yield health_v1.NodeWatchResourcesResponse(
                    devices=[health_v1.DeviceHealth(**device) for device in devices]
                )
        finally:
            self._streams.remove(queue)
