"""Random clusters in which a pod may or may not fit, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from plimsoll.scheduler.cycle import schedule_one
from plimsoll.scheduler.pod_claims import read_pod_info
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason
from plimsoll.scheduler.result import FitError, Placement
from plimsoll.tools.cluster_state import ClusterState
from tests.build import (
    DRIVER,
    charging_device,
    claim,
    device,
    device_class,
    exactly,
    node,
    pod,
    resource_slice,
)
from tests.unit.tools.explain.symptoms import result

TAINTS = ("team=ml:NoSchedule", "dirty:NoExecute", "node.kubernetes.io/not-ready:NoSchedule")
MODELS = ("a", "b")
NODES = 3


@st.composite
def clusters(draw: st.DrawFn) -> list[Any]:
    """Up to three nodes with pods and devices, some allocated, and one pending pod `p`."""
    objects: list[Any] = [device_class(select=f'device.driver == "{DRIVER}"')]
    for number in range(draw(st.integers(1, NODES))):
        objects += draw(_node(f"n{number}"))
    return objects + draw(_wanting())


@st.composite
def _node(draw: st.DrawFn, name: str) -> list[Any]:
    made = node(
        name,
        cpu=str(draw(st.integers(1, 8))),
        pods=str(draw(st.integers(1, 6))),
        labels={"zone": draw(st.sampled_from("ab"))},
        taints=draw(st.lists(st.sampled_from(TAINTS), max_size=1)),
        unschedulable=draw(st.integers(0, 5)) == 0,
    )
    objects: list[Any] = [made]
    for number in range(draw(st.integers(0, 2))):
        ports = [80] if draw(st.integers(0, 3)) == 0 else []
        cpu = str(draw(st.integers(0, 4)))
        objects.append(pod(f"{name}-plain{number}", cpu=cpu, node=name, host_ports=ports))
    devices: list[Any] = []
    for number in range(draw(st.integers(0, 3))):
        model = draw(st.sampled_from(MODELS))
        taints = [{"key": "sick", "effect": "NoSchedule"}] if draw(st.integers(0, 4)) == 0 else []
        made_of = device(f"g{number}", model=model, taints=taints)
        if draw(st.booleans()):
            made_of |= {"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}
        devices.append(made_of)
        if draw(st.integers(0, 2)) == 0:
            held, user = f"{name}-c{number}", f"{name}-user{number}"
            taken = [result(f"g{number}", name)]
            objects.append(claim(held, exactly(), results=taken, node=name, reserved=[user]))
            objects.append(pod(user, cpu="1", node=name, claims=[held]))
    if devices:
        objects.append(resource_slice(devices, name))
    return objects


@st.composite
def _wanting(draw: st.DrawFn) -> list[Any]:
    fields: dict[str, Any] = {"cpu": str(draw(st.integers(0, 9)))}
    if draw(st.integers(0, 3)) == 0:
        fields["node_selector"] = {"zone": draw(st.sampled_from("abc"))}
    if draw(st.integers(0, 3)) == 0:
        fields["host_ports"] = [80]
    if draw(st.integers(0, 3)) == 0:
        fields["tolerations"] = [{"key": "team", "operator": "Exists"}]
    if not draw(st.booleans()):
        return [pod("p", **fields)]
    body: dict[str, Any] = {}
    if draw(st.booleans()):
        model = draw(st.sampled_from((*MODELS, "c")))
        body["select"] = f'device.attributes["{DRIVER}"].model == "{model}"'
    wanted = claim("c", exactly("r", draw(st.integers(1, 3)), **body))
    return [wanted, pod("p", claims=["c"], **fields)]


__all__ = ["charging_device", "clusters"]


def schedule(cluster_state: ClusterState, pod: Any) -> Placement | FitError | NodeReason:
    pod_info = read_pod_info(pod, cluster_state.snapshot)
    if isinstance(pod_info, NodeReason):
        return pod_info
    return schedule_one(pod_info, cluster_state.snapshot, SchedulerProfile.default(), lambda: "share")
