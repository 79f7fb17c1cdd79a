"""Usage that kubelets report (`/stats/summary`), read when it is asked for and kept for seconds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from plimsoll.api import codec
from plimsoll.apiserver.kubelet.client import KubeletClient
from plimsoll.apiserver.kubelet.location import kubelet_of
from plimsoll.common.json_tree import branch, items, text
from plimsoll.errors import ApiError, DecodeError

_log = logging.getLogger("plimsoll.server")

_KEPT_SECONDS = 5.0
_READ_SECONDS = 10.0
_MAX_BYTES = 64 << 20
#: Kubelets that are asked at the same time.
_CONCURRENCY = 32
#: Unit of memory in the API.
_KIBIBYTE = 1024

Amounts = dict[str, str]


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """Usage of a node, and of the containers of its pods by UID, as quantities."""

    node: Amounts
    pods: Mapping[str, Mapping[str, Amounts]] = field(default_factory=dict)


class KubeletSummaries:
    """Reader of summaries. A kubelet is asked once for all requests of some seconds."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, asyncio.Task[NodeUsage | None]]] = {}
        self._limit = asyncio.Semaphore(_CONCURRENCY)

    async def read(self, kubelets: KubeletClient, node: Mapping[str, Any]) -> NodeUsage | None:
        """Return the usage of a node; None if its kubelet cannot be asked."""
        loop = asyncio.get_running_loop()
        name, now = text(branch(node, "metadata"), "name"), loop.time()
        for other in [other for other, (until, _) in self._known.items() if until <= now]:
            del self._known[other]
        known = self._known.get(name)
        if known is None:
            task = loop.create_task(self._read(kubelets, node), name=f"summary of {name}")
            known = self._known[name] = (now + _KEPT_SECONDS, task)
        return await asyncio.shield(known[1])

    async def _read(self, kubelets: KubeletClient, node: Mapping[str, Any]) -> NodeUsage | None:
        try:
            location = kubelet_of(node, "/stats/summary", [("only_cpu_and_memory", "true")])
            async with self._limit, asyncio.timeout(_READ_SECONDS):
                body = bytearray()
                chunks = await kubelets.read(location)
                async for chunk in chunks:
                    body += chunk
                    if len(body) > _MAX_BYTES:
                        await chunks.aclose()
                        return None
            tree = codec.decode_tree(bytes(body))
        except (ApiError, DecodeError, TimeoutError) as error:
            _log.info("no usage of node %s: %s", text(branch(node, "metadata"), "name"), error)
            return None
        return parse_summary(tree)


def parse_summary(tree: Mapping[str, Any]) -> NodeUsage | None:
    """Return the usage in a Summary of the kubelet's stats API; containers without figures are left out."""
    node = _amounts(branch(tree, "node"))
    if node is None:
        return None
    pods = {}
    for pod in items(tree, "pods"):
        found = {text(each, "name"): _amounts(each) for each in items(pod, "containers")}
        pods[text(branch(pod, "podRef"), "uid")] = {
            name: amounts for name, amounts in found.items() if amounts is not None
        }
    return NodeUsage(node, pods)


def _amounts(stats: Mapping[str, Any]) -> Amounts | None:
    cpu = branch(stats, "cpu").get("usageNanoCores")
    memory = branch(stats, "memory").get("workingSetBytes")
    if not isinstance(cpu, int) or not isinstance(memory, int):
        return None
    return {"cpu": f"{cpu}n" if cpu else "0", "memory": f"{memory // _KIBIBYTE}Ki"}
