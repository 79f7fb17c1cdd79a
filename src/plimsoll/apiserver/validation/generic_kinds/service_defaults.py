"""What is filled into services and the like where their authors said nothing.

`fill_*` work on canonical trees in place; `settle_service` puts in order what belongs together in a service:
one address and the list of them, families and their policy, and what a type of service has no use for.

DIFF: no addresses and no node ports are handed out; a service has those it was given
(test_services_get_no_addresses).
"""

from __future__ import annotations

from plimsoll.apiserver.validation.generic_kinds.kind_rules import fill_empty, fill_missing
from plimsoll.apiserver.validation.generic_kinds.service_view import EndpointSlice, Service
from plimsoll.apiserver.validation.int_or_string import expect_int_or_string
from plimsoll.apiserver.validation.object_trees import Tree, part
from plimsoll.apiserver.validation.write_context import Job

HEADLESS = "None"
_INSIDE = ("ClusterIP", "NodePort", "LoadBalancer")
_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")
_FAMILIES = ("IPv4", "IPv6")
_HOSTNAME = "kubernetes.io/hostname"
_AFFINITY_SECONDS = 3 * 60 * 60


def fill_service(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    fill_empty(spec, sessionAffinity="None", type="ClusterIP")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    config = part(spec, "sessionAffinityConfig", "clientIP")
    if spec["sessionAffinity"] == "ClientIP" and "timeoutSeconds" not in config:
        spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _AFFINITY_SECONDS}}
    for port in spec.get("ports", ()):
        fill_empty(port, protocol="TCP")
        expect_int_or_string(port, "targetPort")
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port", 0)
    if is_open(spec):
        fill_empty(spec, externalTrafficPolicy="Cluster")
    if spec["type"] in _INSIDE:
        fill_missing(spec, internalTrafficPolicy="Cluster")
    elif spec["type"] == "ExternalName":
        spec.pop("internalTrafficPolicy", None)
    if spec["type"] == "LoadBalancer":
        fill_missing(spec, allocateLoadBalancerNodePorts=True)
        for ingress in part(tree, "status", "loadBalancer").get("ingress", ()):
            if ingress.get("ip"):
                fill_missing(ingress, ipMode="VIP")


def is_open(spec: Tree) -> bool:
    """Whether a service can be reached from outside of the cluster."""
    kind = spec.get("type")
    return kind in _WITH_NODE_PORTS or (kind == "ClusterIP" and bool(spec.get("externalIPs")))


def is_headless(spec: Tree) -> bool:
    return spec.get("clusterIP") == HEADLESS


# -- what belongs together


def settle_service(job: Job[Service]) -> None:
    spec = job.tree["spec"]
    old = part(job.old_tree, "spec")
    if not job.creates:
        _forget(spec, old)
        if spec["type"] != "LoadBalancer":
            part(job.tree, "status").pop("loadBalancer", None)
            job.tree.setdefault("status", {})["loadBalancer"] = {}
        if _has_address(spec) and _has_address(old):
            _carry(spec, old)
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    if _has_address(spec):
        _settle_families(spec, old)


def _has_address(spec: Tree) -> bool:
    return spec.get("type") in _INSIDE


def _forget(spec: Tree, old: Tree) -> None:
    """Drop what the new type of a service has no use for, unless it was changed too and must be refused."""
    dropped: list[str] = []
    if _has_address(old) and not _has_address(spec):
        if spec.get("clusterIP") == old.get("clusterIP"):
            dropped += ["clusterIP", "clusterIPs"]
        dropped += ["ipFamilies", "ipFamilyPolicy"]
    if old.get("type") == "LoadBalancer" != spec["type"]:
        dropped += ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
    if _checks_health(old) and not _checks_health(spec):
        dropped.append("healthCheckNodePort")
    if is_open(old) and not is_open(spec):
        dropped.append("externalTrafficPolicy")
    for name in dropped:
        if spec.get(name) == old.get(name):
            spec.pop(name, None)
    if old.get("type") in _WITH_NODE_PORTS and spec["type"] not in _WITH_NODE_PORTS:
        before = {port.get("nodePort", 0) for port in old.get("ports", ())}
        if {port.get("nodePort", 0) for port in spec.get("ports", ())} <= before:
            for port in spec.get("ports", ()):
                port.pop("nodePort", None)


def _checks_health(spec: Tree) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def _carry(spec: Tree, old: Tree) -> None:
    """Who writes a service anew need not know the address it has."""
    if not spec.get("clusterIP") and old.get("clusterIP"):
        spec["clusterIP"] = old["clusterIP"]
    if not spec.get("clusterIPs") and spec.get("clusterIP") == old.get("clusterIP"):
        spec.pop("clusterIPs", None)
        if old.get("clusterIPs"):
            spec["clusterIPs"] = list(old["clusterIPs"])
    elif spec.get("clusterIP") != old.get("clusterIP") and spec.get("clusterIPs") == old.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


def _settle_families(spec: Tree, old: Tree) -> None:
    """IPv4 unless an address or the author says otherwise; both where anything may stand behind the name."""
    anything = is_headless(spec) and not spec.get("selector")
    fill_missing(spec, ipFamilyPolicy="RequireDualStack" if anything else "SingleStack")
    policy, families = spec["ipFamilyPolicy"], list(spec.get("ipFamilies", ()))
    if policy == "SingleStack" and families == old.get("ipFamilies"):
        families = families[:1]
    for place, address in enumerate(spec.get("clusterIPs", ())):
        if address != HEADLESS and place >= len(families):
            families.append(_FAMILIES[":" in address])
    if not families:
        families = [_FAMILIES[0]]
    if policy != "SingleStack" and len(families) == 1 and (anything or policy == "RequireDualStack"):
        families += [family for family in _FAMILIES if family not in families][:1]
    spec["ipFamilies"] = families


# -- endpoints


def fill_endpoints(tree: Tree) -> None:
    for subset in tree.get("subsets", ()):
        for port in subset.get("ports", ()):
            fill_empty(port, protocol="TCP")


def fill_endpoint_slice(tree: Tree) -> None:
    for port in tree.get("ports", ()):
        fill_missing(port, name="", protocol="TCP")
    for endpoint in tree.get("endpoints", ()):
        fill_missing(endpoint, conditions={})


def settle_endpoint_slice(job: Job[EndpointSlice]) -> None:
    """The topology of old clients is dropped; the node in it is kept where it was known before."""
    if not job.creates and job.old_tree.get("endpoints") == job.tree.get("endpoints"):
        return
    known = {
        part(endpoint, "deprecatedTopology").get(_HOSTNAME) for endpoint in job.old_tree.get("endpoints", ())
    }
    for endpoint in job.tree.get("endpoints", ()):
        node = part(endpoint, "deprecatedTopology").get(_HOSTNAME)
        if node and node in known:
            fill_missing(endpoint, nodeName=node)
        endpoint.pop("deprecatedTopology", None)


# -- policies


def fill_network_policy(tree: Tree) -> None:
    spec = tree.setdefault("spec", {})
    for name in ("ingress", "egress"):
        for rule in spec.get(name, ()):
            for port in rule.get("ports", ()):
                fill_missing(port, protocol="TCP")
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    fill_missing(spec, podSelector={})


def fill_ingress_class(tree: Tree) -> None:
    parameters = part(tree, "spec").get("parameters")
    if parameters is not None:
        fill_missing(parameters, scope="Cluster")
