"""Random what-if operations on a small cluster."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from plimsoll.errors import InputError
from plimsoll.tools.whatif.whatif import WhatifOperations
from tests.build import DRIVER, charging_device, claim, device_class, exactly, node, pod, resource_slice

OWNER = {"ownerReferences": [{"kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": True}]}


TEMPLATE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "one", "namespace": "default"},
    "spec": {"spec": {"devices": {"requests": [exactly()]}}},
}


def cluster() -> list[Any]:
    """Return three nodes with two charging devices each, running and pending pods."""
    objects: list[Any] = [device_class()]
    for name in ("a", "b", "c"):
        objects.append(node(name, cpu="6"))
        offered = [charging_device(f"d{number}", cpu=str(number + 1)) for number in range(2)]
        objects.append(resource_slice(offered, name))
    objects.append(claim("shared", exactly()))
    objects += [pod(f"run-{n}", cpu="1", node=name, metadata=OWNER) for n, name in enumerate("abc")]
    objects.append(pod("low", cpu="2", node="a", priority=-5))
    objects.append(pod("wait", cpu="1", claims=["shared"]))
    return objects


def pod_tree(name: str, cpu: str, claims: int, priority: int) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "priority": priority,
        "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
    }
    if claims:
        spec["resourceClaims"] = [{"name": "r", "resourceClaimTemplateName": "one"}]
        spec["containers"][0]["resources"]["claims"] = [{"name": "r"}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


STEPS = st.one_of(
    st.tuples(st.just("add"), st.sampled_from("123"), st.integers(0, 1), st.sampled_from([0, 10])),
    st.tuples(st.just("schedule")),
    st.tuples(st.just("drain"), st.sampled_from("abc")),
    st.tuples(st.just("cordon"), st.sampled_from("abc")),
    st.tuples(st.just("taint"), st.sampled_from("abc"), st.sampled_from(["x=y:NoExecute", "x=y:NoSchedule"])),
    st.tuples(
        st.just("devices"), st.sampled_from(["d0", "d1"]), st.sampled_from(["NoExecute", "NoSchedule"])
    ),
    st.tuples(
        st.just("remove"), st.sampled_from(["Node/a", "Pod/low", "Pod/run-1", "Pod/wait", "ResourceSlice/b"])
    ),
    st.tuples(st.just("nodes"), st.sampled_from("abc")),
    st.tuples(st.just("policy"), st.sampled_from(["Max", "AddPerReference", "ConsumeFrom"])),
    st.tuples(st.just("branch")),
)


def do(moves: WhatifOperations, number: int, step: tuple[Any, ...]) -> None:
    what = step[0]
    try:
        if what == "add":
            moves.add(TEMPLATE, pod_tree(f"new-{number}", step[1], step[2], step[3]))
        elif what == "schedule":
            moves.schedule()
        elif what == "drain":
            moves.drain(step[1])
        elif what == "cordon":
            moves.cordon(step[1])
        elif what == "taint":
            moves.taint(step[1], step[2])
        elif what == "devices":
            moves.taint_devices(f"driver={DRIVER},device={step[1]}:broken=yes:{step[2]}")
        elif what == "remove":
            moves.remove(step[1])
        elif what == "nodes":
            moves.add_nodes(1, step[1])
        elif what == "policy":
            moves.replace_policy(step[1])
        else:
            with moves.branch() as inner:
                inner.drain("b")
                inner.schedule()
    except InputError:
        pass  # it is gone already
