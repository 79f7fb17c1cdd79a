"""Locations of pods' streams: the kubelet of a pod's node, and the path there. Pure.

Rules and messages are those of kube-apiserver (pods/log, pods/exec, pods/attach, pods/portforward).

DIFF: the node's InternalIP is preferred to its host name, which often nothing resolves
(test_the_internal_address_is_preferred).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from plimsoll.apiserver.status import bad_request, invalid, service_unavailable
from plimsoll.apiserver.validation.field_errors import FieldError, FieldErrorType
from plimsoll.common.json_tree import branch, items, text
from plimsoll.errors import ApiError

Tree = Mapping[str, Any]
#: Address types by preference.
_ADDRESS_TYPES = ("InternalIP", "ExternalIP", "InternalDNS", "ExternalDNS", "Hostname")
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
#: Runtime of nodes whose pods are simulated, as `nodeInfo.containerRuntimeVersion` names it.
_SIMULATED = "none://"


@dataclass(frozen=True, slots=True)
class KubeletLocation:
    """Path of a kubelet's API, with its query."""

    node: str
    host: str
    port: int
    path: str
    query: str = ""

    @property
    def target(self) -> str:
        return f"{self.path}?{self.query}" if self.query else self.path


def is_simulated(node: Tree) -> bool:
    """Return whether the pods of a node have a state only."""
    runtime = text(branch(node, "status", "nodeInfo"), "containerRuntimeVersion")
    return runtime.startswith(_SIMULATED)


def kubelet_of(node: Tree, path: str, query: Sequence[tuple[str, str]] = ()) -> KubeletLocation:
    """Return the location of a path at a node; ApiError if the node serves no kubelet API."""
    name = text(branch(node, "metadata"), "name")
    status = branch(node, "status")
    port = branch(status, "daemonEndpoints", "kubeletEndpoint").get("Port")
    if not isinstance(port, int) or not 0 < port < 1 << 16:
        if is_simulated(node):
            raise bad_request(
                f"node {name} is simulated: its pods have no processes, so there are no logs, and nothing "
                "to execute, attach to or forward"
            )
        raise service_unavailable(
            f"node {name} serves no kubelet API (status.daemonEndpoints.kubeletEndpoint.Port is not set)"
        )
    addresses = {text(each, "type"): text(each, "address") for each in reversed(items(status, "addresses"))}
    host = next((addresses[type] for type in _ADDRESS_TYPES if addresses.get(type)), "")
    if not host:
        raise service_unavailable(f"node {name} has no address")
    return KubeletLocation(name, host, port, path, urlencode(query))


def container_of(pod: Tree, wanted: str) -> str:
    """Return the container that a request means; ApiError 400 if there is none or several."""
    name, spec = text(branch(pod, "metadata"), "name"), branch(pod, "spec")
    groups = ("initContainers", "containers", "ephemeralContainers")
    names = [text(each, "name") for group in groups for each in items(spec, group)]
    regular = items(spec, "containers")
    if wanted:
        if wanted not in names:
            raise bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(regular) == 1:
        return text(regular[0], "name")
    hint = f", choose one of: [{' '.join(names)}]" if names else ""
    raise bad_request(f"a container name must be specified for pod {name}{hint}")


def log_path(pod: Tree, container: str) -> str:
    return f"/containerLogs/{_pod_path(pod)}/{quote(container, safe='')}"


def stream_path(pod: Tree, subresource: str, container: str = "") -> str:
    """Return the path of exec, attach or portForward."""
    if subresource == "portforward":
        return f"/portForward/{_pod_path(pod)}"
    return f"/{subresource}/{_pod_path(pod)}/{quote(container, safe='')}"


def _pod_path(pod: Tree) -> str:
    meta = branch(pod, "metadata")
    return f"{quote(text(meta, 'namespace'), safe='')}/{quote(text(meta, 'name'), safe='')}"


def log_query(name: str, query: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the kubelet's parameters of a request for logs; ApiError 422 if they are invalid."""
    found = [(flag, "true") for flag in ("follow", "previous", "timestamps") if query.get(flag) in _TRUE]
    problems = []
    for field, least, why in (
        ("sinceSeconds", 1, "must be greater than 0"),
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
    ):
        value = query.get(field)
        if value is None or value == "":
            continue
        try:
            number = int(value)
        except ValueError:
            raise bad_request(f"{field}: {value[:40]!r} is not an integer") from None
        if number < least:
            problems.append(FieldError(field, FieldErrorType.INVALID, why, number))
        found.append((field, str(number)))
    if query.get("sinceTime"):
        if query.get("sinceSeconds"):
            why = "at most one of `sinceTime` or `sinceSeconds` may be specified"
            problems.append(FieldError("", FieldErrorType.FORBIDDEN, why))
        found.append(("sinceTime", query["sinceTime"]))
    if problems:
        raise invalid("", "PodLogOptions", name, problems)
    return found


def stream_query(subresource: str, query: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the kubelet's parameters of a request for a stream."""
    given = dict(reversed(query))
    if subresource == "portforward":
        ports = [value for name, value in query if name == "ports"]
        return [("port", ",".join(ports))] if ports else []
    found = []
    for name, parameter in (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty")):
        if given.get(name, "") in _TRUE:
            found.append((parameter, "1"))
    if subresource == "exec":
        found += [("command", value) for name, value in query if name == "command"]
    return found


def unbound_error(pod: str) -> ApiError:
    return bad_request(f"pod {pod} does not have a host assigned")
