"""Parsing of the command's argument: a pod, a claim or a workload."""

from __future__ import annotations

from plimsoll.errors import InputError
from plimsoll.tools.cluster_state.related import WORKLOADS

_SHORT = {"Deployment": "deploy", "StatefulSet": "sts", "DaemonSet": "ds", "CronJob": "cj"}
_SHORT |= {"ReplicaSet": "rs", "ReplicationController": "rc"}
#: Words for kinds, as kubectl has them.
KINDS = dict.fromkeys(("pod", "pods", "po"), "pod")
KINDS |= dict.fromkeys(("claim", "claims", "resourceclaim", "resourceclaims"), "claim")
for _kind, _endpoint in WORKLOADS.items():
    _words = (_kind.lower(), _endpoint.plural, f"{_endpoint.plural}.{_endpoint.group}", _SHORT.get(_kind, ""))
    KINDS |= dict.fromkeys(filter(None, _words), _kind)


def read_subject(text: str, namespace: str = "") -> tuple[str, str, str]:
    """Return kind (`pod`, `claim` or that of a workload), namespace ("" if not given) and name.

    Accepts `NAME`, `NAMESPACE/NAME`, `pod/NAME`, `deploy/NAME`, `claim/NAMESPACE/NAME` and so on. A word that
    is a kind is not a namespace.
    """
    parts = text.split("/")
    kind = "pod"
    if len(parts) > 1 and parts[0].lower() in KINDS:
        kind = KINDS[parts.pop(0).lower()]
    if len(parts) > 2 or not all(parts):
        raise InputError(
            f"{text}: name a pod (NAME, NAMESPACE/NAME or pod/NAME), a claim (claim/NAME) or a workload "
            "(deploy/NAME)"
        )
    if len(parts) == 2:
        if namespace and namespace != parts[0]:
            raise InputError(f"{text}: namespace {parts[0]} conflicts with -n {namespace}")
        return kind, parts[0], parts[1]
    return kind, namespace, parts[0]
