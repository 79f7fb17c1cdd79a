"""Services and related kinds: defaults, kept values and validation."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.errors import DecodeError
from tests.unit.apiserver.validation.generic_objects import (
    LABELS,
    created,
    edit,
    field_errors,
    minimal,
    write,
)
from tests.unit.apiserver.validation.objects import GONE

_PORT = {"port": 80}


def test_a_service_gets_its_defaults() -> None:
    assert created("Service")["spec"] == {
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "selector": LABELS,
        "sessionAffinity": "None",
        "type": "ClusterIP",
        "internalTrafficPolicy": "Cluster",
        "ipFamilies": ["IPv4"],
        "ipFamilyPolicy": "SingleStack",
    }
    assert created("Service")["status"] == {"loadBalancer": {}}


@pytest.mark.parametrize(
    ("changes", "policy", "families"),
    [
        ({"spec.clusterIP": "None"}, "SingleStack", ["IPv4"]),
        ({"spec.clusterIP": "None", "spec.selector": GONE}, "RequireDualStack", ["IPv4", "IPv6"]),
        ({"spec.clusterIP": "10.0.0.9"}, "SingleStack", ["IPv4"]),
        ({"spec.clusterIP": "fd00::1"}, "SingleStack", ["IPv6"]),
        ({"spec.ipFamilies": ["IPv6"]}, "SingleStack", ["IPv6"]),
        ({"spec.ipFamilyPolicy": "PreferDualStack"}, "PreferDualStack", ["IPv4"]),
        ({"spec.ipFamilyPolicy": "RequireDualStack"}, "RequireDualStack", ["IPv4", "IPv6"]),
    ],
)
def test_families_follow_the_addresses(changes: dict[str, Any], policy: str, families: list[str]) -> None:
    changes = {k: v for k, v in changes.items() if v is not GONE} | (
        {"spec.selector": {}} if GONE in changes.values() else {}
    )
    spec = created("Service", changes)["spec"]
    assert (spec["ipFamilyPolicy"], spec["ipFamilies"]) == (policy, families)
    assert spec.get("clusterIPs") == ([spec["clusterIP"]] if "clusterIP" in spec else None)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"spec.sessionAffinity": "ClientIP"}, {"clientIP": {"timeoutSeconds": 10800}}),
        (
            {
                "spec.sessionAffinity": "ClientIP",
                "spec.sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}},
            },
            {"clientIP": {"timeoutSeconds": 5}},
        ),
        ({"spec.sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}, None),
    ],
)
def test_session_affinity(changes: dict[str, Any], expected: Any) -> None:
    assert created("Service", changes)["spec"].get("sessionAffinityConfig") == expected


def test_external_traffic() -> None:
    assert created("Service", {"spec.type": "NodePort"})["spec"]["externalTrafficPolicy"] == "Cluster"
    assert created("Service", {"spec.externalIPs": ["1.2.3.4"]})["spec"]["externalTrafficPolicy"] == "Cluster"
    balanced = created("Service", {"spec.type": "LoadBalancer"})
    assert balanced["spec"]["allocateLoadBalancerNodePorts"] is True
    ingress = edit(balanced, {"status.loadBalancer.ingress": [{"ip": "1.2.3.4"}, {"hostname": "h"}]})
    assert write(ingress, balanced, "status").tree["status"]["loadBalancer"]["ingress"] == [
        {"ip": "1.2.3.4", "ipMode": "VIP"},
        {"hostname": "h"},
    ]


def test_external_name_services_have_no_addresses() -> None:
    spec = created("Service", {"spec": {"type": "ExternalName", "externalName": "a.b."}})["spec"]
    assert not spec.keys() & {"ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"}


@pytest.mark.parametrize(
    ("changes", "errors"),
    [
        ({"spec.ports": []}, ["spec.ports Required"]),
        (
            {"spec.ports": [_PORT, {"port": 81}]},
            ["spec.ports[0].name Required", "spec.ports[1].name Required"],
        ),
        ({"spec.ports": [{"port": 0}]}, ["spec.ports[0].port Invalid", "spec.ports[0].targetPort Invalid"]),
        (
            {"spec.ports": [{**_PORT, "name": "a"}, {"port": 81, "name": "a"}]},
            ["spec.ports[1].name Duplicate"],
        ),
        ({"spec.ports": [{**_PORT, "name": "a"}, {**_PORT, "name": "b"}]}, ["spec.ports[1] Duplicate"]),
        ({"spec.ports": [{**_PORT, "protocol": "ICMP"}]}, ["spec.ports[0].protocol NotSupported"]),
        ({"spec.ports": [{**_PORT, "targetPort": "9"}]}, ["spec.ports[0].targetPort Invalid"]),
        ({"spec.ports": [{**_PORT, "nodePort": 30000}]}, ["spec.ports[0].nodePort Forbidden"]),
        (
            {
                "spec.type": "NodePort",
                "spec.ports": [
                    {"port": 1, "name": "a", "nodePort": 9},
                    {"port": 2, "name": "b", "nodePort": 9},
                ],
            },
            ["spec.ports[1].nodePort Duplicate"],
        ),
        ({"spec.type": "Foo"}, ["spec.type NotSupported"]),
        ({"spec": {"type": "ExternalName"}}, ["spec.externalName Required"]),
        (
            {"spec": {"type": "ExternalName", "externalName": "a", "clusterIP": "None"}},
            ["spec.clusterIPs Forbidden"],
        ),
        ({"spec.type": "NodePort", "spec.clusterIP": "None"}, ["spec.clusterIPs[0] Invalid"]),
        ({"spec.clusterIP": "x"}, ["spec.clusterIPs[0] Invalid"]),
        ({"spec.clusterIPs": ["10.0.0.1"]}, ["spec.clusterIPs Invalid"]),
        ({"spec.clusterIP": "10.0.0.1", "spec.clusterIPs": ["10.0.0.2"]}, ["spec.clusterIPs Invalid"]),
        ({"spec.clusterIP": "10.0.0.1", "spec.ipFamilies": ["IPv6"]}, ["spec.clusterIPs[0] Invalid"]),
        ({"spec.ipFamilies": ["IPv5"]}, ["spec.ipFamilies[0] NotSupported"]),
        ({"spec.ipFamilies": ["IPv4", "IPv6"]}, ["spec.ipFamilyPolicy Invalid"]),
        ({"spec.ipFamilyPolicy": "Foo"}, ["spec.ipFamilyPolicy NotSupported"]),
        ({"spec.sessionAffinity": "Foo"}, ["spec.sessionAffinity NotSupported"]),
        ({"spec.selector": {"?": "1"}}, ["spec.selector Invalid"]),
        ({"spec.externalTrafficPolicy": "Local"}, ["spec.externalTrafficPolicy Invalid"]),
        ({"spec.internalTrafficPolicy": "X"}, ["spec.internalTrafficPolicy NotSupported"]),
        ({"spec.allocateLoadBalancerNodePorts": True}, ["spec.allocateLoadBalancerNodePorts Forbidden"]),
    ],
)
def test_invalid_services(changes: dict[str, Any], errors: list[str]) -> None:
    assert field_errors(minimal("Service", changes)) == errors


def test_a_target_is_a_number_or_a_name() -> None:
    with pytest.raises(DecodeError):
        write(minimal("Service", {"spec.ports": [{"port": 80, "targetPort": True}]}))


# -- updates


def test_an_address_stays() -> None:
    old = created("Service", {"spec.clusterIP": "10.0.0.1"})
    bare = minimal("Service")
    assert write(bare, old).tree["spec"] == old["spec"]
    assert field_errors(edit(old, {"spec.clusterIP": "10.0.0.2"}), old) == ["spec.clusterIPs[0] Invalid"]
    headless = created("Service", {"spec.clusterIP": "None"})
    assert field_errors(edit(headless, {"spec.clusterIP": "10.0.0.2"}), headless) == [
        "spec.clusterIPs[0] Invalid"
    ]


def test_a_first_address_can_be_given_later() -> None:
    after = write(minimal("Service", {"spec.clusterIP": "10.0.0.1"}), created("Service"))
    assert (after.errors, after.tree["spec"]["clusterIPs"]) == ((), ["10.0.0.1"])


def test_type_dependent_fields_are_dropped_with_the_old_type() -> None:
    old = created(
        "Service",
        {
            "spec.type": "LoadBalancer",
            "spec.clusterIP": "10.0.0.1",
            "spec.ports": [{"port": 80, "nodePort": 30000}],
            "spec.externalTrafficPolicy": "Local",
            "spec.healthCheckNodePort": 30001,
        },
    )
    old["status"] = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4", "ipMode": "VIP"}]}}
    inside = write(edit(old, {"spec.type": "ClusterIP"}), old)
    assert inside.errors == ()
    assert inside.tree["status"] == {"loadBalancer": {}}
    assert inside.tree["spec"]["clusterIP"] == "10.0.0.1"
    gone = {"externalTrafficPolicy", "healthCheckNodePort", "allocateLoadBalancerNodePorts"}
    assert not inside.tree["spec"].keys() & gone
    assert "nodePort" not in inside.tree["spec"]["ports"][0]
    outside = write(edit(old, {"spec.type": "ExternalName", "spec.externalName": "a.b"}), old)
    assert outside.errors == ()
    gone = {"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"}
    assert not outside.tree["spec"].keys() & gone
    changed = edit(old, {"spec.type": "ClusterIP", "spec.externalTrafficPolicy": "Cluster"})
    assert field_errors(changed, old) == ["spec.externalTrafficPolicy Invalid"]


# -- the kinds around them


def test_ports_of_endpoints() -> None:
    assert created("Endpoints")["subsets"][0]["ports"] == [{"port": 80, "protocol": "TCP"}]
    made_slice = created("EndpointSlice")
    assert made_slice["ports"] == [{"port": 80, "name": "", "protocol": "TCP"}]
    assert made_slice["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {}}]


def test_old_topology_becomes_the_name_of_the_node() -> None:
    topology = {"kubernetes.io/hostname": "n1"}
    old = edit(created("EndpointSlice"), {"endpoints.0.deprecatedTopology": topology})
    assert write(old, old).tree["endpoints"] == old["endpoints"]
    after = write(edit(old, {"endpoints.0.addresses": ["10.0.0.2"]}), old).tree["endpoints"][0]
    assert (after["nodeName"], "deprecatedTopology" in after) == ("n1", False)
    fresh = created("EndpointSlice", {"endpoints.0.deprecatedTopology": topology})["endpoints"][0]
    assert not fresh.keys() & {"nodeName", "deprecatedTopology"}


@pytest.mark.parametrize(
    ("spec", "types"),
    [
        ({}, ["Ingress"]),
        ({"egress": [{}]}, ["Ingress", "Egress"]),
        ({"egress": [{}], "policyTypes": ["Egress"]}, ["Egress"]),
    ],
)
def test_policies_of_the_network(spec: Any, types: list[str]) -> None:
    assert created("NetworkPolicy", {"spec": spec})["spec"]["policyTypes"] == types
    assert created("NetworkPolicy")["spec"]["ingress"][0]["ports"] == [{"port": 80, "protocol": "TCP"}]


def test_classes_of_ingresses() -> None:
    assert created("IngressClass")["spec"]["parameters"]["scope"] == "Cluster"
