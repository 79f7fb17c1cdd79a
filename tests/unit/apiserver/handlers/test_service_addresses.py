"""Allocation of cluster IPs and node ports."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest

from plimsoll.apiserver.handlers.service_addresses import NODE_PORTS, SERVICE_CIDR
from tests.coroutines import run_by
from tests.unit.apiserver.build import ApiHarness, run

PATH = "/api/v1/namespaces/default/services"
MERGE = "application/merge-patch+json"


def service(name: str, *ports: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"ports": list(ports) or [{"port": 80}], **spec}}


async def create(harness: ApiHarness, name: str, *ports: dict[str, Any], **spec: Any) -> tuple[int, Any]:
    return await harness.request("POST", PATH, service(name, *ports, **spec))


async def fields(harness: ApiHarness, name: str, *ports: dict[str, Any], **spec: Any) -> list[str]:
    code, status = await create(harness, name, *ports, **spec)
    return [cause["field"] for cause in status["details"]["causes"]] if code == 422 else []


@run_by(run)
async def test_every_service_gets_an_address_of_its_own(harness: ApiHarness) -> None:
    seen = set()
    for number, kind in enumerate(["ClusterIP", "NodePort", "LoadBalancer"] * 5):
        _, made = await create(harness, f"s{number}", type=kind)
        address = made["spec"]["clusterIP"]
        assert made["spec"]["clusterIPs"] == [address]
        assert ipaddress.ip_address(address) in ipaddress.ip_network(SERVICE_CIDR)
        seen.add(address)
    assert len(seen) == 15


@run_by(run)
async def test_headless_and_external_services_get_none(harness: ApiHarness) -> None:
    _, made = await create(harness, "a", clusterIP="None")
    assert made["spec"]["clusterIPs"] == ["None"]
    _, made = await create(harness, "b", type="ExternalName", externalName="a.b")
    assert "clusterIP" not in made["spec"]


@run_by(run)
async def test_given_addresses_must_be_free_and_in_range(harness: ApiHarness) -> None:
    assert (await create(harness, "a", clusterIP="10.96.0.10"))[0] == 201
    for taken in ("10.96.0.10", "10.97.0.1", "10.96.0.0", "10.96.255.255"):
        assert await fields(harness, "b", clusterIP=taken) == ["spec.clusterIPs[0]"]
    await harness.request("DELETE", f"{PATH}/a")
    assert (await create(harness, "b", clusterIP="10.96.0.10"))[0] == 201


@run_by(run)
async def test_an_update_keeps_address_and_ports(harness: ApiHarness) -> None:
    _, made = await create(harness, "a", {"port": 80}, type="NodePort")
    code, again = await harness.request("PUT", f"{PATH}/a", service("a", type="NodePort"))
    assert (code, again["spec"]) == (200, made["spec"])
    more = service("a", {"name": "x", "port": 80}, {"name": "y", "port": 81}, type="NodePort")
    _, again = await harness.request("PUT", f"{PATH}/a", more)
    first, second = (port["nodePort"] for port in again["spec"]["ports"])
    assert first == made["spec"]["ports"][0]["nodePort"]
    assert second in NODE_PORTS


@run_by(run)
async def test_a_service_changes_its_type(harness: ApiHarness) -> None:
    _, made = await create(harness, "a", type="ExternalName", externalName="a.b")
    patch = {"spec": {"type": "NodePort", "externalName": None}}
    _, made = await harness.request("PATCH", f"{PATH}/a", patch, content_type=MERGE)
    assert made["spec"]["clusterIP"]
    assert made["spec"]["ports"][0]["nodePort"] in NODE_PORTS
    patch = {"spec": {"type": "ClusterIP"}}
    _, later = await harness.request("PATCH", f"{PATH}/a", patch, content_type=MERGE)
    assert later["spec"]["clusterIP"] == made["spec"]["clusterIP"]
    assert "nodePort" not in later["spec"]["ports"][0]


@run_by(run)
async def test_node_ports(harness: ApiHarness) -> None:
    ports = [
        {"name": "a", "port": 53, "protocol": "UDP"},
        {"name": "b", "port": 53, "protocol": "TCP"},
        {"name": "c", "port": 80, "nodePort": 31000},
    ]
    _, made = await create(harness, "a", *ports, type="NodePort")
    udp, tcp, given = (port["nodePort"] for port in made["spec"]["ports"])
    assert (udp, given) == (tcp, 31000)  # one number for both protocols
    for taken in (31000, udp, 80):
        found = await fields(harness, "b", {"port": 1, "nodePort": taken}, type="NodePort")
        assert found == ["spec.ports[0].nodePort"]
    _, made = await create(harness, "c", type="LoadBalancer", allocateLoadBalancerNodePorts=False)
    assert "nodePort" not in made["spec"]["ports"][0]
    _, made = await create(harness, "d", type="LoadBalancer", externalTrafficPolicy="Local")
    assert made["spec"]["healthCheckNodePort"] in NODE_PORTS
    assert made["spec"]["healthCheckNodePort"] != made["spec"]["ports"][0]["nodePort"]


@run_by(run)
async def test_a_family_that_the_cluster_does_not_have(harness: ApiHarness) -> None:
    assert await fields(harness, "a", ipFamilies=["IPv6"]) == ["spec.ipFamilies[0]"]


@run_by(run)
async def test_addresses_follow_from_services_alone(harness: ApiHarness) -> None:
    networking = "/apis/networking.k8s.io/v1"
    parent = {"resource": "services", "namespace": "default", "name": "other"}
    address = {"metadata": {"name": "10.96.0.20"}, "spec": {"parentRef": parent}}
    assert (await harness.request("POST", f"{networking}/ipaddresses", address))[0] == 201
    range_ = {"metadata": {"name": "more"}, "spec": {"cidrs": ["10.200.0.0/24"]}}
    assert (await harness.request("POST", f"{networking}/servicecidrs", range_))[0] == 201
    assert (await create(harness, "a", clusterIP="10.96.0.20"))[0] == 201
    assert await fields(harness, "b", clusterIP="10.200.0.5") == ["spec.clusterIPs[0]"]
    _, listed = await harness.request("GET", f"{networking}/ipaddresses")
    assert len(listed["items"]) == 1


@pytest.mark.parametrize("dry", [True, False])
@run_by(run)
async def test_a_dry_run_reserves_nothing(harness: ApiHarness, *, dry: bool) -> None:
    query = [("dryRun", "All")] if dry else []
    made = service("a", clusterIP="10.96.0.30")
    assert (await harness.request("POST", PATH, made, query=query))[0] == 201
    code, _ = await create(harness, "b", clusterIP="10.96.0.30")
    assert code == (201 if dry else 422)
