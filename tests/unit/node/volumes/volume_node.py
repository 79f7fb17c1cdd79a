"""Volume manager of a node, and pods with one volume."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.client.endpoints import Endpoint
from plimsoll.errors import ApiError
from plimsoll.node.layout import Layout
from plimsoll.node.pods.downward_fields import DownwardNodeInfo
from plimsoll.node.volumes.manager import VolumeManager


class Objects:
    """API server with ConfigMaps and Secrets by name."""

    def __init__(self, **objects: dict[str, Any]) -> None:
        self.objects = objects
        self.tokens = 0

    async def get(self, endpoint: Endpoint, name: str, namespace: str = "") -> dict[str, Any]:
        if name not in self.objects:
            raise ApiError(404, "NotFound", f"{name} not found")
        return self.objects[name]

    async def post(
        self, endpoint: Endpoint, name: str, subresource: str, tree: Mapping[str, Any], namespace: str = ""
    ) -> dict[str, Any]:
        assert (name, subresource, tree["spec"]["boundObjectRef"]["uid"]) == ("sa", "token", "u1")
        self.tokens += 1
        return {"status": {"token": f"token-{self.tokens}", "expirationTimestamp": "1970-01-01T00:16:40Z"}}


def a_pod(volume: dict[str, Any], **mount: Any) -> Pod:
    tree = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u1", "labels": {"k": "v"}},
        "spec": {
            "serviceAccountName": "sa",
            "volumes": [{"name": "v", **volume}],
            "containers": [
                {
                    "name": "c",
                    "resources": {"limits": {"memory": "1Mi"}},
                    "volumeMounts": [{"name": "v", "mountPath": "/x", **mount}],
                }
            ],
        },
    }
    return codec.convert(tree, Pod)


class Node:
    """Manager under test, with a clock that is set."""

    def __init__(self, directory: Path, **objects: dict[str, Any]) -> None:
        self.now = 0.0
        self.api = Objects(**objects)
        facts = DownwardNodeInfo("node", ("10.0.0.1",))
        self.manager = VolumeManager(Layout(directory), self.api, lambda: facts, clock=lambda: self.now)

    def set_up(self, pod: Pod) -> str:
        return asyncio.run(self.manager.set_up(pod))

    def source(self, pod: Pod) -> Path:
        return Path(self.manager.mounts(pod, pod.spec.containers[0], {"A": "b"})[0].source)
