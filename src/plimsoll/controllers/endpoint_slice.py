"""EndpointSlice controller: the addresses of the pods that a Service selects.

As in kube-controller-manager: pods that are not ready are listed as such; pods that have ended are not. Pods
whose named ports differ are in different slices, and a slice has at most 100 endpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from plimsoll.api.core import Node, Pod
from plimsoll.client.endpoints import ENDPOINT_SLICES, NODES, PODS, SERVICES
from plimsoll.client.informer import CallbackHandler, Informer
from plimsoll.controllers.actions import (
    EMPTY_PLAN,
    Action,
    ActionPlan,
    CreateAction,
    DeleteAction,
    PatchAction,
)
from plimsoll.controllers.context import ControllerContext
from plimsoll.controllers.object_views import EndpointSliceView, ServicePortView, ServiceView
from plimsoll.controllers.pod_utils import ObjectName, is_finished, object_name
from plimsoll.controllers.shared_informers import ObjectIndex
from plimsoll.controllers.work_queue import WorkQueue
from plimsoll.controllers.workloads.ownership import controller_reference
from plimsoll.controllers.workloads.pod_states import is_ready
from plimsoll.controllers.workloads.templates import hash_tree, prune

SERVICE_NAME = "kubernetes.io/service-name"
MANAGED_BY = "endpointslice.kubernetes.io/managed-by"
MANAGER = "endpointslice-controller.k8s.io"
_HEADLESS = "service.kubernetes.io/headless"
_ZONE = "topology.kubernetes.io/zone"
#: Endpoints in one slice.
MOST_ENDPOINTS = 100


def plan_slices(
    service: ServiceView,
    pods: Iterable[Pod],
    slices: Sequence[EndpointSliceView],
    zones: Mapping[str, str],
) -> ActionPlan:
    """Plan the slices of a Service from the pods that it selects; `zones`: node -> zone."""
    wanted = _build_slices(service, pods, zones)
    actions: list[Action] = []
    known = {each.metadata.name: each for each in slices}
    for name, tree in wanted.items():
        old = known.pop(name, None)
        if old is None:
            actions.append(CreateAction(ENDPOINT_SLICES, tree, service.metadata.namespace))
            continue
        same = prune([list(old.endpoints), list(old.ports)]) == prune([tree["endpoints"], tree["ports"]])
        if not same or tree["metadata"]["labels"] != old.metadata.labels:
            metadata = old.metadata
            labels = {**dict.fromkeys(metadata.labels), **tree["metadata"]["labels"]}
            change = {"uid": metadata.uid, "resourceVersion": metadata.resource_version, "labels": labels}
            patch = {"metadata": change, "endpoints": tree["endpoints"], "ports": tree["ports"]}
            actions.append(PatchAction(ENDPOINT_SLICES, name, patch, metadata.namespace))
    actions += [
        DeleteAction(ENDPOINT_SLICES, name, each.metadata.namespace, uid=each.metadata.uid)
        for name, each in known.items()
    ]
    return ActionPlan(tuple(actions))


def _build_slices(
    service: ServiceView, pods: Iterable[Pod], zones: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Build the slices by name; without endpoints there is one empty slice for each address family."""
    families = service.spec.ip_families or ("IPv4",)
    groups: dict[tuple[str, str], tuple[list[dict[str, Any]], list[Pod]]] = {}
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        family = "IPv6" if ":" in pod.status.pod_ip else "IPv4"
        if not pod.status.pod_ip or is_finished(pod) or family not in families:
            continue
        ports = _resolve_ports(service, pod)
        groups.setdefault((family, hash_tree(ports)), (ports, []))[1].append(pod)
    for family in families:
        if not any(group[0] == family for group in groups):
            groups[family, ""] = ([], [])
    found: dict[str, dict[str, Any]] = {}
    for (family, key), (ports, members) in groups.items():
        for start in range(0, len(members) or 1, MOST_ENDPOINTS):
            name = f"{service.metadata.name[:240]}-{hash_tree([family, key, start])}"
            chunk = members[start : start + MOST_ENDPOINTS]
            found[name] = _build_slice(service, name, family, ports, chunk, zones)
    return found


def _build_slice(
    service: ServiceView,
    name: str,
    family: str,
    ports: list[dict[str, Any]],
    pods: Sequence[Pod],
    zones: Mapping[str, str],
) -> dict[str, Any]:
    labels = {**service.metadata.labels, SERVICE_NAME: service.metadata.name, MANAGED_BY: MANAGER}
    if service.spec.cluster_ip == "None":
        labels[_HEADLESS] = ""
    return {
        "apiVersion": ENDPOINT_SLICES.api_version,
        "kind": ENDPOINT_SLICES.kind,
        "metadata": {
            "name": name,
            "labels": labels,
            "ownerReferences": [controller_reference(service.metadata, SERVICES)],
        },
        "addressType": family,
        "endpoints": [_build_endpoint(service, pod, zones) for pod in pods],
        "ports": ports,
    }


def _build_endpoint(service: ServiceView, pod: Pod, zones: Mapping[str, str]) -> dict[str, Any]:
    metadata = pod.metadata
    serving, terminating = is_ready(pod), metadata.deletion_timestamp is not None
    ready = service.spec.publish_not_ready_addresses or (serving and not terminating)
    endpoint: dict[str, Any] = {
        "addresses": [pod.status.pod_ip],
        "conditions": {"ready": ready, "serving": serving, "terminating": terminating},
        "targetRef": {
            "kind": "Pod",
            "namespace": metadata.namespace,
            "name": metadata.name,
            "uid": metadata.uid,
        },
    }
    if pod.spec.node_name:
        endpoint["nodeName"] = pod.spec.node_name
        if zone := zones.get(pod.spec.node_name):
            endpoint["zone"] = zone
    return endpoint


def _resolve_ports(service: ServiceView, pod: Pod) -> list[dict[str, Any]]:
    """Return the ports of a Service on a pod; named ports that the pod does not have are left out."""
    found = []
    for port in service.spec.ports:
        number = _resolve_port(port, pod)
        if number:
            entry: dict[str, Any] = {"name": port.name, "port": number, "protocol": port.protocol or "TCP"}
            if port.app_protocol:
                entry["appProtocol"] = port.app_protocol
            found.append(entry)
    return found


def _resolve_port(port: ServicePortView, pod: Pod) -> int:
    target = port.target_port or port.port
    if isinstance(target, int):
        return target
    for container in pod.spec.containers:
        for each in container.ports:
            if each.name == target and (each.protocol or "TCP") == (port.protocol or "TCP"):
                return each.container_port
    return 0


class EndpointSliceController:
    """Controller around `plan_slices`."""

    name = "endpointslice-controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self.workers = context.settings.workers
        self.queue: WorkQueue[ObjectName] = WorkQueue(context.clock)
        self._services: Informer[ServiceView] = context.informers.get(SERVICES)
        self._pods: Informer[Pod] = context.informers.get(PODS)
        self._nodes: Informer[Node] = context.informers.get(NODES)
        self._slices: Informer[EndpointSliceView] = context.informers.get(ENDPOINT_SLICES)
        self._slice_index: ObjectIndex[EndpointSliceView, ObjectName] = ObjectIndex(_service_of)
        self._pod_index: ObjectIndex[Pod, str] = ObjectIndex(lambda pod: (pod.metadata.namespace,))
        self._service_index: ObjectIndex[ServiceView, str] = ObjectIndex(
            lambda service: (service.metadata.namespace,)
        )
        self._slices.add_handler(self._slice_index)
        self._pods.add_handler(self._pod_index)
        self._services.add_handler(self._service_index)
        self._services.add_handler(CallbackHandler(self._on_service))
        self._pods.add_handler(CallbackHandler(self._on_pod))
        self._slices.add_handler(CallbackHandler(self._on_slice))

    def _on_service(self, old: ServiceView | None, new: ServiceView | None) -> None:
        service = new or old
        assert service is not None
        self.queue.add(object_name(service.metadata))

    def _on_pod(self, old: Pod | None, new: Pod | None) -> None:
        pod = new or old
        assert pod is not None
        for service in self._service_index.find(pod.metadata.namespace):
            if any(each is not None and _selects(service, each) for each in (old, new)):
                self.queue.add(object_name(service.metadata))

    def _on_slice(self, old: EndpointSliceView | None, new: EndpointSliceView | None) -> None:
        for each in (old, new):
            for key in _service_of(each) if each is not None else ():
                self.queue.add(key)

    async def reconcile(self, key: ObjectName) -> ActionPlan:
        service = self._services.get(*key)
        slices = self._slice_index.find(key)
        if service is None:
            return EMPTY_PLAN  # the garbage collector deletes the slices
        if not service.spec.selector or service.spec.type == "ExternalName":
            return EMPTY_PLAN  # its slices are managed by someone else
        if service.metadata.deletion_timestamp is not None:
            return EMPTY_PLAN
        pods = [pod for pod in self._pod_index.find(key.namespace) if _selects(service, pod)]
        zones = {
            node.metadata.name: zone
            for node in self._nodes.items()
            if (zone := node.metadata.labels.get(_ZONE))
        }
        plan = plan_slices(service, pods, slices, zones)
        await self._context.executor.execute(plan.actions)
        return plan


def _selects(service: ServiceView, pod: Pod) -> bool:
    selector = service.spec.selector
    return bool(selector) and selector.items() <= pod.metadata.labels.items()


def _service_of(each: EndpointSliceView) -> tuple[ObjectName, ...]:
    labels = each.metadata.labels
    if labels.get(MANAGED_BY) != MANAGER or not labels.get(SERVICE_NAME):
        return ()
    return (ObjectName(each.metadata.namespace, labels[SERVICE_NAME]),)
