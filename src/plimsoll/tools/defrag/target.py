"""`DefragTarget`: the pods that must fit: of manifests, a pending pod or group, or devices of a class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.api.resource import MAX_ALLOCATION_RESULTS, DeviceClass
from plimsoll.api.scheduling import PodGroup
from plimsoll.errors import InputError
from plimsoll.tools.columns import format_count
from plimsoll.tools.defrag.node_taints import infer_tolerations, parse_toleration
from plimsoll.tools.pod_groups import pending_members
from plimsoll.tools.whatif.manifests import Manifest
from plimsoll.tools.whatif.outcome import Name, full_name
from plimsoll.tools.whatif.whatif import WhatifOperations

#: Pod that requests devices of a class.
_NAME = "wanted-devices"


@dataclass(frozen=True, slots=True, kw_only=True)
class DefragTarget:
    """Pods that must fit; one of the fields is set."""

    add: tuple[Manifest, ...] = ()
    replicas: int | None = None
    pod: str = ""  #: pending pod, [NAMESPACE/]NAME
    group: str = ""  #: pending pod group, [NAMESPACE/]NAME
    device_class: str = ""
    count: int = 1  #: devices of the class, for one pod
    #: Tolerations of that pod, KEY[=VALUE][:EFFECT], in addition to those of other pods with such devices.
    tolerations: tuple[str, ...] = ()
    namespace: str = "default"

    def describe(self, pods: Sequence[Name]) -> str:
        """Describe what must fit; `pods` are the names of its pods."""
        if self.device_class:
            return f"a pod with {format_count(self.count, 'device')} of class {self.device_class}"
        if self.group:
            return f"pod group {self.group}"
        return f"pod {full_name(pods[0])}" if len(pods) == 1 else f"the {len(pods)} added pods"


def add_target(target: DefragTarget, operations: WhatifOperations) -> list[Name]:
    """Add the pods of a target to a cluster in memory unless they exist. Return their names."""
    state = operations.cluster_state
    if target.pod:
        pod = state.pod(target.pod, "" if "/" in target.pod else target.namespace)
        if pod.spec.node_name:
            raise InputError(f"pod {pod.metadata.full_name} is on node {pod.spec.node_name} already")
        return [pod.metadata.key]
    if target.group:
        namespace, _, name = target.group.rpartition("/")
        key = (namespace or target.namespace, name)
        if state.objects.find(PodGroup, *key) is None:
            raise InputError(f"PodGroup {'/'.join(key)} not found")
        members = [pod.metadata.key for pod in pending_members(state, key)]
        if not members:
            raise InputError(f"PodGroup {'/'.join(key)} has no pending pods")
        return members
    if target.device_class:
        return _add_devices(target, operations)
    added = operations.add(*target.add, namespace=target.namespace, replicas=target.replicas)
    names = [thing.metadata.key for thing in added if isinstance(thing, Pod)]
    names += [each.name for each in operations.refused if each.kind == "Pod"]
    if not names:
        raise InputError("no pods among the added objects")
    return names


def _add_devices(target: DefragTarget, operations: WhatifOperations) -> list[Name]:
    name, count = target.device_class, target.count
    state = operations.cluster_state
    found = state.objects.find(DeviceClass, "", name)
    if found is None:
        raise InputError(f"DeviceClass {name} not found")
    tolerations = (*infer_tolerations(state, found), *map(parse_toleration, target.tolerations))
    sizes = [min(MAX_ALLOCATION_RESULTS, count - first) for first in range(0, count, MAX_ALLOCATION_RESULTS)]
    claims = [f"{_NAME}-{number}" for number in range(len(sizes))]
    for claim, size in zip(claims, sizes, strict=True):
        exactly = {"deviceClassName": name, "allocationMode": "ExactCount", "count": size}
        operations.add(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": claim, "namespace": target.namespace},
                "spec": {"devices": {"requests": [{"name": "devices", "exactly": exactly}]}},
            }
        )
    container = {
        "name": "main",
        "image": "pause",
        "resources": {"claims": [{"name": each} for each in claims]},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": _NAME, "namespace": target.namespace},
        "spec": {
            "containers": [container],
            "tolerations": list(map(codec.to_tree, tolerations)),
            "resourceClaims": [{"name": each, "resourceClaimName": each} for each in claims],
        },
    }
    operations.add(pod)
    return [(target.namespace, _NAME)]
