"""Defaulting and normalization of Service, EndpointSlice and NetworkPolicy.

`set_*_defaults` work on canonical trees in place; `normalize_service` reconciles dependent fields: clusterIP
and clusterIPs, IP families and their policy, and fields that the type of the service does not use.

Cluster IPs and node ports are allocated by `handlers/service_addresses.py`.
"""

from __future__ import annotations

from plimsoll.apiserver.registry.schema_view import View
from plimsoll.apiserver.validation.generic_kinds.kind_rules import default_if_empty, default_if_missing
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.write_context import WriteContext

HEADLESS = "None"
_INSIDE = ("ClusterIP", "NodePort", "LoadBalancer")
_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")
_FAMILIES = ("IPv4", "IPv6")
_HOSTNAME = "kubernetes.io/hostname"
_AFFINITY_SECONDS = 3 * 60 * 60


def set_service_defaults(tree: Tree) -> None:
    spec = tree["spec"]
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    config = subtree(spec, "sessionAffinityConfig", "clientIP")
    if spec["sessionAffinity"] == "ClientIP" and "timeoutSeconds" not in config:
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _AFFINITY_SECONDS}}
    for port in spec.get("ports", ()):
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port", 0)
    if is_externally_accessible(spec):
        default_if_empty(spec, externalTrafficPolicy="Cluster")
    if spec["type"] in _INSIDE:
        default_if_missing(spec, internalTrafficPolicy="Cluster")
    elif spec["type"] == "ExternalName":
        spec.pop("internalTrafficPolicy", None)
    if spec["type"] == "LoadBalancer":
        default_if_missing(spec, allocateLoadBalancerNodePorts=True)
        for ingress in subtree(tree, "status", "loadBalancer").get("ingress", ()):
            if ingress.get("ip"):
                default_if_missing(ingress, ipMode="VIP")


def is_externally_accessible(spec: Tree) -> bool:
    """Report whether a service can be reached from outside the cluster."""
    kind = spec.get("type")
    return kind in _WITH_NODE_PORTS or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def is_headless(spec: Tree) -> bool:
    return spec.get("clusterIP") == HEADLESS


# -- dependent fields


def normalize_service(write: WriteContext[View]) -> None:
    spec = write.tree["spec"]
    old = subtree(write.old_tree, "spec")
    if not write.is_create:
        _drop_type_dependent_fields(spec, old)
        if spec["type"] != "LoadBalancer":
            subtree(write.tree, "status").pop("loadBalancer", None)
            write.tree.setdefault("status", {})["loadBalancer"] = {}
        if _needs_cluster_ip(spec) and _needs_cluster_ip(old):
            _patch_allocated_values(spec, old)
        if spec["type"] in _WITH_NODE_PORTS and old.get("type") in _WITH_NODE_PORTS:
            _patch_node_ports(spec, old)
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if _needs_cluster_ip(spec):
        _normalize_families(spec, old)


def _needs_cluster_ip(spec: Tree) -> bool:
    return spec.get("type") in _INSIDE


def _drop_type_dependent_fields(spec: Tree, old: Tree) -> None:
    """Drop fields that the new type of a service does not use, unless they were changed too and must be
    rejected.
    """
    dropped: list[str] = []
    if _needs_cluster_ip(old) and not _needs_cluster_ip(spec):
        if spec.get("clusterIP") == old.get("clusterIP"):
            dropped += ["clusterIP", "clusterIPs"]
        dropped += ["ipFamilies", "ipFamilyPolicy"]
    if old.get("type") == "LoadBalancer" != spec["type"]:
        dropped += ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
    if _needs_health_check_node_port(old) and not _needs_health_check_node_port(spec):
        dropped.append("healthCheckNodePort")
    if is_externally_accessible(old) and not is_externally_accessible(spec):
        dropped.append("externalTrafficPolicy")
    for name in dropped:
        if spec.get(name) == old.get(name):
            spec.pop(name, None)
    if old.get("type") in _WITH_NODE_PORTS and spec["type"] not in _WITH_NODE_PORTS:
        before = {port.get("nodePort", 0) for port in old.get("ports", ())}
        if {port.get("nodePort", 0) for port in spec.get("ports", ())} <= before:
            for port in spec.get("ports", ()):
                port.pop("nodePort", None)


def _needs_health_check_node_port(spec: Tree) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _patch_allocated_values(spec: Tree, old: Tree) -> None:
    """Keep allocated values that an update omits."""
    if not spec.get("clusterIP") and old.get("clusterIP"):
        spec["clusterIP"] = old["clusterIP"]
    if not spec.get("clusterIPs") and spec.get("clusterIP") == old.get("clusterIP"):
        spec.pop("clusterIPs", None)
        if old.get("clusterIPs"):
            spec["clusterIPs"] = list(old["clusterIPs"])
    elif spec.get("clusterIP") != old.get("clusterIP") and spec.get("clusterIPs") == old.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


def _patch_node_ports(spec: Tree, old: Tree) -> None:
    """Keep the node ports of ports that an update repeats without them."""
    before = {(port.get("protocol"), port.get("port")): port.get("nodePort") for port in old.get("ports", ())}
    taken = {port.get("nodePort") for port in spec.get("ports", ())}
    for port in spec.get("ports", ()):
        known = before.get((port.get("protocol"), port.get("port")))
        if known and not port.get("nodePort") and known not in taken:
            port["nodePort"] = known
    if _needs_health_check_node_port(spec) and _needs_health_check_node_port(old):
        default_if_empty(spec, healthCheckNodePort=old.get("healthCheckNodePort", 0))


def _normalize_families(spec: Tree, old: Tree) -> None:
    """Default the IP families: IPv4 unless an IP or the request determines others; both for headless
    services without a selector.
    """
    anything = is_headless(spec) and not spec.get("selector")
    default_if_missing(spec, ipFamilyPolicy="RequireDualStack" if anything else "SingleStack")
    policy, families = spec["ipFamilyPolicy"], list(spec.get("ipFamilies", ()))
    if policy == "SingleStack" and families == old.get("ipFamilies"):
        families = families[:1]
    for index, address in enumerate(spec.get("clusterIPs", ())):
        if address != HEADLESS and index >= len(families):
            families.append(_FAMILIES[":" in address])
    if not families:
        families = [_FAMILIES[0]]
    if policy != "SingleStack" and len(families) == 1 and (anything or policy == "RequireDualStack"):
        families += [family for family in _FAMILIES if family not in families][:1]
    spec["ipFamilies"] = families


# -- endpoints


def normalize_endpoint_slice(write: WriteContext[View]) -> None:
    """Drop the deprecated topology; its node name is kept if it was stored before."""
    if not write.is_create and write.old_tree.get("endpoints") == write.tree.get("endpoints"):
        return
    known = {
        subtree(endpoint, "deprecatedTopology").get(_HOSTNAME)
        for endpoint in write.old_tree.get("endpoints", ())
    }
    for endpoint in write.tree.get("endpoints", ()):
        node = subtree(endpoint, "deprecatedTopology").get(_HOSTNAME)
        if node and node in known:
            default_if_missing(endpoint, nodeName=node)
        endpoint.pop("deprecatedTopology", None)


# -- policies


def set_network_policy_defaults(tree: Tree) -> None:
    spec = tree["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
