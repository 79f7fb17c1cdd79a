"""Defaulting of pods.

Works in place on canonical trees. Also normalizes legacy input: a negative grace period, a single pod IP
instead of the list, the deprecated serviceAccount alias.
"""

from __future__ import annotations

from plimsoll.api.coercion import wire_types
from plimsoll.api.core import Pod
from plimsoll.api.gates import Gates
from plimsoll.apiserver.registry.schema_view import view_of
from plimsoll.apiserver.validation.object_trees import Tree, subtree
from plimsoll.apiserver.validation.pod.images import default_pull_policy
from plimsoll.apiserver.validation.resource_names import is_huge_page_resource
from plimsoll.apiserver.validation.schema_defaults import set_schema_defaults
from plimsoll.apiserver.validation.write_context import decode_view
from plimsoll.ledger.requests import (
    aggregate_container_limits,
    aggregate_container_requests,
    is_pod_level_resource,
)

GROUPS = ("initContainers", "containers", "ephemeralContainers")
VOLUME_SOURCES = frozenset(wire_types(view_of("core.v1.Volume"))) - {"name"}

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
    set_schema_defaults("core.v1.Pod", tree)
    set_template_defaults(tree)
    if spec["terminationGracePeriodSeconds"] < 0:
        spec["terminationGracePeriodSeconds"] = 1
    _set_status_defaults(status)


def set_template_defaults(template: Tree) -> None:
    """Set the defaults of a pod template that the schema does not state."""
    annotations, spec = subtree(template, "metadata", "annotations"), template["spec"]
    for name in _OLD_ANNOTATIONS:
        annotations.pop(name, None)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for volume in spec.get("volumes", ()):
        _set_volume_defaults(volume)
    for group in GROUPS:
        for container in spec.get(group, ()):
            if not container.get("imagePullPolicy"):
                container["imagePullPolicy"] = default_pull_policy(container.get("image", ""))


def _set_volume_defaults(volume: Tree) -> None:
    """Default the source of a volume to emptyDir, and the pull policy of an image by its tag."""
    if volume.keys().isdisjoint(VOLUME_SOURCES):
        volume["emptyDir"] = {}
    if "image" in volume and not volume["image"].get("pullPolicy"):
        volume["image"]["pullPolicy"] = default_pull_policy(volume["image"].get("reference", ""))


# -- resources


def _copy_limits(container: Tree) -> None:
    """Default the request of a resource to its limit."""
    resources = subtree(container, "resources")
    if "limits" in resources:
        resources["requests"] = {**resources["limits"], **resources.get("requests", {})}


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


def set_host_ports(container: Tree) -> None:
    """Default host ports to the container ports of a pod on the host network."""
    for port in container.get("ports", ()):
        if not port.get("hostPort") and port.get("containerPort"):
            port["hostPort"] = port["containerPort"]


def _set_status_defaults(status: Tree) -> None:
    """Copy podIP and the first of podIPs to each other."""
    single, several = status.get("podIP"), status.get("podIPs")
    if single and (not several or several[0].get("ip") != single):
        status["podIPs"] = [{"ip": single}]
    elif several and several[0].get("ip"):
        status["podIP"] = several[0]["ip"]
