"""DRA driver that uses only the public protocols: gRPC and code generated from the `.proto` files.

It runs in a process of its own and imports nothing of ours; `--stubs` is where the generated code is. It
makes one device for every claim it is asked for, and writes what happens to it as lines of JSON:

    {"event": "prepare", "version": "v1", "claims": [{"namespace": .., "name": .., "uid": ..}], ..}

The events: start, info, registered, refused (with the error it received), prepare, unprepare, watch, stop.
How it behaves is read again before every call from the file `--behave`, if there is one: delay (seconds
before it answers), fail, omit and crash (names of claims: answered with an error, not answered for, the
process ends at once), stray (answers for one claim more), broken (devices with names that are none).
`--health` is a file with a list of devices ({pool, device, health, message, timeout}), sent again whenever it
changes. SIGTERM ends it in good order: first the registration socket goes, then calls under way end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc

HEALTH = {"Unknown": 0, "Healthy": 1, "Unhealthy": 2}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="A DRA driver for tests.")
    parser.add_argument("--stubs", required=True, help="directory with the generated code")
    parser.add_argument("--root", required=True, help="root directory of the kubelet or agent")
    parser.add_argument("--driver", default="peer.example.com")
    parser.add_argument("--instance", default="", help="for rolling updates: part of the sockets' names")
    parser.add_argument("--pool", default="pool")
    parser.add_argument("--versions", default="v1.DRAPlugin,v1beta1.DRAPlugin")
    parser.add_argument("--share-id", default="", help="for every device, in v1")
    parser.add_argument("--cdi", default="", help="directory for CDI files; without it there are none")
    parser.add_argument("--log", default="", help="file for the lines of JSON; standard output without it")
    parser.add_argument("--behave", default="")
    parser.add_argument("--health", default="")
    return parser.parse_args()


class Driver:
    """All services of the driver; gRPC calls them from several threads."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        root, suffix = Path(options.root), f"-{options.instance}" if options.instance else ""
        self.registration = root / "plugins_registry" / f"{options.driver}{suffix}-reg.sock"
        self.endpoint = root / "plugins" / options.driver / f"dra{suffix}.sock"
        self.versions = options.versions.split(",")
        self.prepared: set[str] = set()
        self.ended = threading.Event()
        self._lock = threading.Lock()
        self._log = os.open(options.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644) if options.log else 1

    def log(self, event: str, **more: Any) -> None:
        line = json.dumps({"event": event, "pid": os.getpid(), "time": time.time(), **more})
        os.write(self._log, line.encode() + b"\n")

    def behaviour(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(Path(self.options.behave).read_text())
        except (OSError, ValueError):
            return {}
        return found

    def call(self, event: str, version: str, request: Any) -> dict[str, Any]:
        """Run the common part of every call; return the configured behavior."""
        claims = [
            {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid} for claim in request.claims
        ]
        behaviour = self.behaviour()
        self.log(event, version=version, claims=claims, instance=self.options.instance)
        if any(claim.name in behaviour.get("crash", ()) for claim in request.claims):
            os._exit(9)
        time.sleep(behaviour.get("delay", 0))
        return behaviour

    def prepare(self, version: str, messages: ModuleType, request: Any) -> Any:
        behaviour = self.call("prepare", version, request)
        answer = messages.NodePrepareResourcesResponse()
        for claim in request.claims:
            if claim.name in behaviour.get("omit", ()):
                continue
            entry = answer.claims[claim.uid]
            if claim.name in behaviour.get("fail", ()):
                entry.error = f"no device for {claim.name}"
                continue
            device = entry.devices.add(pool_name=self.options.pool, device_name=self.device(claim.uid))
            if behaviour.get("broken"):
                device.device_name = "../../Not a Name\n"
            if self.options.share_id and version == "v1":
                device.share_id = self.options.share_id
            if self.options.cdi:
                device.cdi_device_ids.append(self.write_cdi(claim))
            with self._lock:
                self.prepared.add(claim.uid)
        if behaviour.get("stray"):
            answer.claims["00000000-0000-0000-0000-000000000000"].SetInParent()
        return answer

    def unprepare(self, version: str, messages: ModuleType, request: Any) -> Any:
        behaviour = self.call("unprepare", version, request)
        answer = messages.NodeUnprepareResourcesResponse()
        for claim in request.claims:
            if claim.name in behaviour.get("omit", ()):
                continue
            if claim.name in behaviour.get("fail", ()):
                answer.claims[claim.uid].error = f"{claim.name} stays"
                continue
            if self.options.cdi:
                self.cdi_file(claim.uid).unlink(missing_ok=True)
            with self._lock:
                self.prepared.discard(claim.uid)
            answer.claims[claim.uid].SetInParent()
        return answer

    @staticmethod
    def device(uid: str) -> str:
        return f"dev-{zlib.crc32(uid.encode())}"

    def cdi_file(self, uid: str) -> Path:
        return Path(self.options.cdi) / f"{self.options.driver}-claim_{uid}.json"

    def write_cdi(self, claim: Any) -> str:
        """Write the CDI file of a claim atomically; return the name of its device."""
        device = {
            "name": claim.uid,
            "containerEdits": {"env": [f"PEER_CLAIM={claim.name}", f"PEER_DEVICE={self.device(claim.uid)}"]},
        }
        spec = {"cdiVersion": "0.5.0", "kind": f"{self.options.driver}/claim", "devices": [device]}
        path = self.cdi_file(claim.uid)
        path.parent.mkdir(parents=True, exist_ok=True)
        hidden = path.with_name(f".{path.name}.{threading.get_ident()}")
        hidden.write_text(json.dumps(spec))
        hidden.rename(path)
        return f"{self.options.driver}/claim={claim.uid}"

    def info(self, messages: ModuleType) -> Any:
        self.log("info")
        return messages.PluginInfo(
            type="DRAPlugin",
            name=self.options.driver,
            endpoint=str(self.endpoint),
            supported_versions=self.versions,
        )

    def notified(self, messages: ModuleType, status: Any) -> Any:
        if status.plugin_registered:
            self.log("registered")
        else:
            self.log("refused", error=status.error)
        return messages.RegistrationStatusResponse()

    def watch(self, version: str, messages: ModuleType, context: Any) -> Any:
        """Yield the devices' health, now and whenever the file changes."""
        self.log("watch", version=version)
        before: bytes | None = None
        while context.is_active() and not self.ended.is_set():
            try:
                data = Path(self.options.health).read_bytes()
            except OSError:
                data = b"[]"
            if data != before:
                before = data
                answer = messages.NodeWatchResourcesResponse()
                for entry in json.loads(data):
                    answer.devices.add(
                        device={"pool_name": entry["pool"], "device_name": entry["device"]},
                        health=HEALTH[entry["health"]],
                        last_updated_time=int(time.time()),
                        health_check_timeout_seconds=entry.get("timeout", 0),
                        message=entry.get("message", ""),
                    )
                yield answer
            time.sleep(0.05)


def serve(path: Path, *add: Any) -> grpc.Server:
    """Serve on a socket; a leftover socket file is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    server = grpc.server(ThreadPoolExecutor(16))
    for function in add:
        function(server)
    server.add_insecure_port(f"unix:{path}")
    server.start()
    return server


def dra_service(driver: Driver, version: str, messages: ModuleType, services: ModuleType) -> Any:
    class Service(services.DRAPluginServicer):  # type: ignore[name-defined,misc]
        def NodePrepareResources(self, request: Any, context: Any) -> Any:
            return driver.prepare(version, messages, request)

        def NodeUnprepareResources(self, request: Any, context: Any) -> Any:
            return driver.unprepare(version, messages, request)

    return lambda server: services.add_DRAPluginServicer_to_server(Service(), server)


def health_service(driver: Driver, version: str, messages: ModuleType, services: ModuleType) -> Any:
    class Service(services.DRAResourceHealthServicer):  # type: ignore[name-defined,misc]
        def NodeWatchResources(self, request: Any, context: Any) -> Any:
            return driver.watch(version, messages, context)

    return lambda server: services.add_DRAResourceHealthServicer_to_server(Service(), server)


def registration_service(driver: Driver, messages: ModuleType, services: ModuleType) -> Any:
    class Service(services.RegistrationServicer):  # type: ignore[name-defined,misc]
        def GetInfo(self, request: Any, context: Any) -> Any:
            return driver.info(messages)

        def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:
            return driver.notified(messages, request)

    return lambda server: services.add_RegistrationServicer_to_server(Service(), server)


def main() -> None:
    options = arguments()
    sys.path.insert(0, options.stubs)
    driver = Driver(options)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: driver.ended.set())

    def generated(name: str) -> tuple[ModuleType, ModuleType]:
        return __import__(f"{name}_pb2"), __import__(f"{name}_pb2_grpc")

    services = []
    for version in ("v1", "v1beta1"):
        if f"{version}.DRAPlugin" in driver.versions:
            services.append(dra_service(driver, version, *generated(f"dra_{version}")))
    for version in ("v1", "v1alpha1"):
        if f"{version}.DRAResourceHealth" in driver.versions:
            services.append(health_service(driver, version, *generated(f"health_{version}")))
    claims = serve(driver.endpoint, *services)
    registration = serve(driver.registration, registration_service(driver, *generated("registration")))
    driver.log("start", modules=sorted({name.partition(".")[0] for name in sys.modules}))
    driver.ended.wait()
    driver.registration.unlink(missing_ok=True)
    registration.stop(1).wait()
    claims.stop(30).wait()
    driver.log("stop")


if __name__ == "__main__":
    main()
