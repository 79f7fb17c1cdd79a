"""Defaulting of pods.

Works in place on canonical trees. Also normalizes legacy input: a negative grace period, a single pod IP
instead of the list, the deprecated serviceAccount alias.
"""

from __future__ import annotations

from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.images import default_pull_policy
from plimsoll.apiserver.validation.pod.volume_defaults import set_volume_defaults
from plimsoll.apiserver.validation.quantities import round_resource_list
from plimsoll.apiserver.validation.resource_names import is_huge_page_resource
from plimsoll.apiserver.validation.write_context import decode_view
from plimsoll.errors import DecodeError
from plimsoll.ledger.requests import (
    aggregate_container_limits,
    aggregate_container_requests,
    is_pod_level_resource,
)

GROUPS = ("initContainers", "containers", "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_PROBE_DEFAULTS = (
    ("timeoutSeconds", 1),
    ("periodSeconds", 10),
    ("successThreshold", 1),
    ("failureThreshold", 3),
)

#: Legacy annotations for init containers.
_OLD_ANNOTATIONS = tuple(
    f"pod.{stage}.kubernetes.io/init-container{what}"
    for stage in ("alpha", "beta")
    for what in ("s", "-statuses")
)


def set_pod_defaults(tree: Tree, gates: Gates) -> None:
    spec, status = tree.setdefault("spec", {}), subtree(tree, "status")
    for group in ("containers", "initContainers"):
        for container in spec.get(group, ()):
            _copy_limits(container)
            if spec.get("hostNetwork"):
                set_host_ports(container)
    if "resources" in spec and gates.enabled("PodLevelResources"):
        _set_pod_level_defaults(tree, spec["resources"])
    spec.setdefault("enableServiceLinks", True)
    set_template_defaults(tree)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    _set_status_defaults(status)


def set_template_defaults(template: Tree) -> None:
    """Set the defaults of a pod template; fields that templates leave open are defaulted for each pod."""
    annotations, spec = subtree(template, "metadata", "annotations"), template.setdefault("spec", {})
    for name in _OLD_ANNOTATIONS:
        annotations.pop(name, None)
    _set_spec_defaults(spec)
    _round_resources(subtree(spec, "resources"))
    for volume in spec.get("volumes", ()):
        set_volume_defaults(volume)
    for group in GROUPS:
        for container in spec.get(group, ()):
            set_container_defaults(container)


def _set_spec_defaults(spec: Tree) -> None:
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    for name, value in (
        ("dnsPolicy", "ClusterFirst"),
        ("restartPolicy", "Always"),
        ("schedulerName", "default-scheduler"),
    ):
        if not spec.get(name):
            spec[name] = value
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    round_resource_list(spec.get("overhead"))


# -- resources


def _copy_limits(container: Tree) -> None:
    """Default the request of a resource to its limit."""
    resources = subtree(container, "resources")
    if "limits" in resources:
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}


def _round_resources(resources: Tree) -> None:
    for name in ("limits", "requests"):
        round_resource_list(resources.get(name))


def _set_pod_level_defaults(tree: Tree, resources: Tree) -> None:
    """Default pod-level requests to the requests of the containers, or else to the pod-level limits."""
    if not resources.get("limits") and not resources.get("requests"):
        return
    pod = decode_view(tree, Pod)
    limits, requests = dict(resources.get("limits", {})), dict(resources.get("requests", {}))
    for name, amount in aggregate_container_limits(pod).items():
        if is_huge_page_resource(name) and name not in requests and name not in limits:
            limits[name] = str(amount)
    if limits:
        resources["limits"] = limits
        for name, amount in aggregate_container_requests(pod).items():
            if is_pod_level_resource(name) and not is_huge_page_resource(name):
                requests.setdefault(name, str(amount))
        for name, text in limits.items():
            if is_pod_level_resource(name):
                requests.setdefault(name, text)
    if requests:
        resources["requests"] = requests


# -- containers


def set_container_defaults(container: Tree) -> None:
    for name, value in (
        ("terminationMessagePath", "/dev/termination-log"),
        ("terminationMessagePolicy", "File"),
    ):
        if not container.get(name):
            container[name] = value
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = default_pull_policy(container.get("image", ""))
    for port in container.get("ports", ()):
        if not port.get("protocol"):
            port["protocol"] = "TCP"
    for variable in container.get("env", ()):
        _set_source_defaults(subtree(variable, "valueFrom"))
    _round_resources(container.setdefault("resources", {}))
    for name in _PROBES:
        if name in container:
            _set_probe_defaults(container[name])
    for name in ("postStart", "preStop"):
        _set_handler_defaults(subtree(container, "lifecycle", name))


def set_host_ports(container: Tree) -> None:
    """Default host ports to the container ports of a pod on the host network."""
    for port in container.get("ports", ()):
        if not port.get("hostPort") and port.get("containerPort"):
            port["hostPort"] = port["containerPort"]


def _set_source_defaults(source: Tree) -> None:
    if "fieldRef" in source and not source["fieldRef"].get("apiVersion"):
        source["fieldRef"]["apiVersion"] = "v1"
    if "resourceFieldRef" in source:
        source["resourceFieldRef"].setdefault("divisor", "0")
    if "fileKeyRef" in source:
        source["fileKeyRef"].setdefault("optional", False)


def _set_probe_defaults(probe: Tree) -> None:
    for name, value in _PROBE_DEFAULTS:
        if not probe.get(name):
            probe[name] = value
    _set_handler_defaults(probe)
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _set_handler_defaults(handler: Tree) -> None:
    if "httpGet" in handler:
        request = handler["httpGet"]
        for name, value in (("path", "/"), ("scheme", "HTTP")):
            if not request.get(name):
                request[name] = value
        _expect_port(request)
    if "tcpSocket" in handler:
        _expect_port(handler["tcpSocket"])


def _expect_port(holder: Tree) -> None:
    """Raise DecodeError if a port is neither an int32 nor a string, which views cannot express."""
    port = holder.get("port", 0)
    if type(port) is not str and (type(port) is not int or not -(2**31) <= port < 2**31):
        raise DecodeError("must be a number or the name of a port", "port")


# -- status


def _set_status_defaults(status: Tree) -> None:
    single, several = status.get("podIP"), status.get("podIPs")
    if single and (not several or several[0].get("ip") != single):
        status["podIPs"] = [{"ip": single}]
    elif several and several[0].get("ip"):
        status["podIP"] = several[0]["ip"]
    for group in _STATUSES:
        for container in status.get(group, ()):
            round_resource_list(container.get("allocatedResources"))
            _round_resources(subtree(container, "resources"))
    round_resource_list(status.get("allocatedResources"))
    _round_resources(subtree(status, "resources"))
