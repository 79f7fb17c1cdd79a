"""Charges of CPU claims to their node, with the embedded server and scheduler, in both forms and modes."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.api.forms import Form
from plimsoll.drivers.cpu.devices import compute_layout, make_devices
from plimsoll.drivers.cpu.settings import CpuSettings, DeviceMode, GroupBy
from plimsoll.up.local_cluster import LocalCluster
from tests.build import NODE
from tests.manifests import NODE_STATUS, node, pod
from tests.unit.drivers.cpu.devices.publish import slices_of
from tests.unit.drivers.cpu.machines import make_machine

MACHINE = make_machine(cores=4, threads=2)  # the eight CPUs of the node


def request(cpus: str, settings: CpuSettings) -> dict[str, Any]:
    asked: dict[str, Any] = {"deviceClassName": "dra.cpu"}
    if settings.mode is DeviceMode.INDIVIDUAL:
        asked["count"] = int(cpus)
    else:
        asked["capacity"] = {"requests": {"dra.cpu/cpu": cpus}}
    return {"name": "cpus", "exactly": asked}


@pytest.mark.parametrize(
    ("form", "settings"),
    [
        (Form.V1_36, CpuSettings(NODE)),
        (Form.V1_37, CpuSettings(NODE, mode=DeviceMode.INDIVIDUAL)),
        (Form.V1_37, CpuSettings(NODE, group_by=GroupBy.MACHINE)),
    ],
    ids=["numa", "individual", "machine"],
)
def test_a_claim_of_n_cpus_charges_n(form: Form, settings: CpuSettings) -> None:
    devices = make_devices(MACHINE, compute_layout(MACHINE, settings), settings, form)
    with LocalCluster(scheduler=True) as cluster:
        cluster.apply({**node(NODE), "status": NODE_STATUS})
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "dra.cpu"}}
        selector = {"cel": {"expression": 'device.driver == "dra.cpu"'}}
        cluster.apply({**kind, "spec": {"selectors": [selector]}})
        for tree in slices_of(devices, settings):
            cluster.apply(tree)
        for name, cpus in (("three", "3"), ("four", "4"), ("two", "2")):
            claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
            cluster.apply({**claim, "spec": {"devices": {"requests": [request(cpus, settings)]}}})
            body = pod(name, resourceClaims=[{"name": "c", "resourceClaimName": name}])
            body["spec"]["containers"][0]["resources"] = {"claims": [{"name": "c"}]}
            cluster.apply(body)
            if name == "two":
                break
            bound = cluster.wait_for("pods", name, condition=lambda tree: bool(tree["spec"].get("nodeName")))
            (charged,) = bound["status"]["nodeAllocatableResourceClaimStatuses"]
            assert charged["resourceClaimName"] == name
            assert charged["resources"] == {"cpu": cpus}
        # Seven of eight are taken: two more fit neither the device nor the node.
        waiting = cluster.wait_for(
            "pods", "two", condition=lambda tree: bool(tree["status"].get("conditions"))
        )
        assert "nodeName" not in waiting["spec"]
