"""NodeMetrics and PodMetrics, computed when they are read.

Nodes are measured by their kubelets, simulated ones by a model (`simulated_usage.py`). A node that cannot be
measured has no metrics, and neither have its pods: they are absent from lists, and reading one of them is
404, as with metrics-server. Pods have metrics while they run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.quantity import ZERO
from plimsoll.api.timestamps import format_datetime
from plimsoll.apiserver.handlers.options import parse_list_options
from plimsoll.apiserver.kubelet.client import KubeletClient
from plimsoll.apiserver.kubelet.location import is_simulated
from plimsoll.apiserver.request_info import RequestInfo
from plimsoll.apiserver.resource_metrics.simulated_usage import RESOURCES, simulated_usage
from plimsoll.apiserver.resource_metrics.summaries import Amounts, KubeletSummaries, NodeUsage
from plimsoll.apiserver.selectors import parse_field_selector, parse_label_selector
from plimsoll.apiserver.status import not_found
from plimsoll.apiserver.storage import ObjectKey, Store
from plimsoll.common.json_tree import branch, text

Tree = dict[str, Any]
#: Interval over which kubelets average CPU usage.
WINDOW = "10s"
_RUNNING = "Running"


class ResourceMetricsHandler:
    """Handler of `metrics.k8s.io`."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._summaries = KubeletSummaries()

    async def read(self, info: RequestInfo, query: Mapping[str, str], kubelets: KubeletClient | None) -> Tree:
        """Return the metrics of one object, or a list of them; ApiError 404 if there are none."""
        find = self._node_metrics if info.plural == "nodes" else self._pod_metrics
        found = await find(info, self._select(info, query), kubelets)
        head = {"kind": info.resource.kind, "apiVersion": info.api_version}
        if info.name:
            if not found:
                name = f"{info.namespace}/{info.name}" if info.namespace else info.name
                raise not_found(info.group, info.resource.singular, name)
            return {**head, **found[0]}
        listed = {"kind": info.resource.list_kind, "apiVersion": info.api_version, "metadata": {}}
        return {**listed, "items": [{**head, **item} for item in found]}

    def _select(self, info: RequestInfo, query: Mapping[str, str]) -> list[Tree]:
        """Return the nodes or pods that a request names."""
        if info.name:
            stored = self._store.get(ObjectKey(info.plural, info.namespace, info.name))
            return [codec.decode_tree(stored.raw)] if stored is not None else []
        options = parse_list_options(query)
        labels = parse_label_selector(options.label_selector)
        fields = parse_field_selector(options.field_selector, info.resource)
        selected = []
        for stored in self._store.list(info.plural, info.namespace or None).items:
            key = stored.key
            if not fields.matches({"metadata.name": key.name, "metadata.namespace": key.namespace}):
                continue
            tree = codec.decode_tree(stored.raw)
            if labels.matches(branch(tree, "metadata", "labels")):
                selected.append(tree)
        return selected

    async def _node_metrics(
        self, info: RequestInfo, nodes: Sequence[Tree], kubelets: KubeletClient | None
    ) -> list[Tree]:
        usages = await self._usages(nodes, kubelets)
        return [
            {**self._head(node), "usage": usage.node}
            for node, usage in zip(nodes, usages, strict=True)
            if usage is not None
        ]

    async def _pod_metrics(
        self, info: RequestInfo, pods: Sequence[Tree], kubelets: KubeletClient | None
    ) -> list[Tree]:
        running = [pod for pod in pods if text(branch(pod, "status"), "phase") == _RUNNING]
        names = dict.fromkeys(text(branch(pod, "spec"), "nodeName") for pod in running)
        stored = [self._store.get(ObjectKey("nodes", "", name)) for name in names]
        nodes = {each.key.name: codec.decode_tree(each.raw) for each in stored if each is not None}
        usages = dict(zip(nodes, await self._usages(tuple(nodes.values()), kubelets), strict=True))
        found = []
        for pod in running:
            usage = usages.get(text(branch(pod, "spec"), "nodeName"))
            containers = usage.pods.get(text(branch(pod, "metadata"), "uid")) if usage is not None else None
            if containers:
                entries = [{"name": name, "usage": amounts} for name, amounts in containers.items()]
                found.append({**self._head(pod), "containers": entries})
        return found

    def _head(self, tree: Tree) -> Tree:
        """Return what the metrics of a node or pod begin with: its names and labels, and the time."""
        meta, now = branch(tree, "metadata"), format_datetime(self._now())
        kept = {key: meta[key] for key in ("name", "namespace", "labels") if meta.get(key)}
        return {"metadata": {**kept, "creationTimestamp": now}, "timestamp": now, "window": WINDOW}

    async def _usages(
        self, nodes: Sequence[Tree], kubelets: KubeletClient | None
    ) -> Sequence[NodeUsage | None]:
        """Return the usage of nodes, in their order."""
        simulated = {text(branch(node, "metadata"), "name") for node in nodes if is_simulated(node)}
        models = self._simulate(simulated) if simulated else {}

        async def read(node: Tree) -> NodeUsage | None:
            name = text(branch(node, "metadata"), "name")
            if name in models:
                return models[name]
            return await self._summaries.read(kubelets, node) if kubelets is not None else None

        return await asyncio.gather(*(read(node) for node in nodes))

    def _simulate(self, nodes: set[str]) -> dict[str, NodeUsage]:
        """Return the usage of simulated nodes: that of their running pods."""
        pods: dict[str, dict[str, Mapping[str, Amounts]]] = {name: {} for name in nodes}
        totals = {name: dict.fromkeys(RESOURCES, ZERO) for name in nodes}
        for stored in self._store.list("pods").items:
            pod = codec.decode(stored.raw, Pod)
            node = pod.spec.node_name
            if node not in nodes or pod.status.phase != _RUNNING:
                continue
            usage = simulated_usage(pod)
            for amounts in usage.values():
                for name, amount in amounts.items():
                    totals[node][name] += amount
            pods[node][pod.metadata.uid] = {
                container: {name: str(amount) for name, amount in amounts.items()}
                for container, amounts in usage.items()
            }
        return {
            name: NodeUsage({key: str(amount) for key, amount in totals[name].items()}, pods[name])
            for name in nodes
        }
