"""PodSandboxConfig of a pod, as the kubelet generates it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from plimsoll.api.core import Pod
from plimsoll.errors import InputError
from plimsoll.node.cgroup_plans.pods import SandboxPlan
from plimsoll.node.runtime.cri.linux_resources import runtime_resources
from plimsoll.node.runtime.cri.names import sandbox_labels
from plimsoll.node.runtime.cri.pod_network import kernel_host_name, pod_dns
from plimsoll.node.runtime.cri.security import sandbox_security, sysctls
from plimsoll.protocols.messages import cri

_PROTOCOLS = {"TCP": cri.TCP, "UDP": cri.UDP, "SCTP": cri.SCTP}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """Common part of the configurations of all pods of a node."""

    owner: str
    pod_logs: Path
    machine_dns: cri.DNSConfig
    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = "cluster.local"


def pod_log_directory(root: Path, namespace: str, name: str, uid: str) -> Path:
    """Return the directory of a pod's logs, named as the kubelet names it."""
    return root / f"{namespace}_{name}_{uid}"


def sandbox_config(
    pod: Pod, plan: SandboxPlan, cgroup_parent: str, attempt: int, node: NodeContext
) -> cri.PodSandboxConfig:
    """Return the configuration of a pod's sandbox; raises InputError for what cannot be provided."""
    meta, spec = pod.metadata, pod.spec
    hostname = "" if spec.host_network else kernel_host_name(pod, node.cluster_domain)
    if hostname is None:
        raise InputError("spec.setHostnameAsFQDN: the host name with its domain has more than 64 characters")
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(
            name=meta.name, uid=meta.uid, namespace=meta.namespace, attempt=attempt
        ),
        hostname=hostname,
        log_directory=str(pod_log_directory(node.pod_logs, meta.namespace, meta.name, meta.uid)),
        dns_config=pod_dns(pod, node.machine_dns, node.cluster_dns, node.cluster_domain),
        port_mappings=_port_mappings(pod),
        labels=sandbox_labels(pod, node.owner),
        annotations=meta.annotations,
        linux=cri.LinuxPodSandboxConfig(
            cgroup_parent=cgroup_parent,
            security_context=sandbox_security(pod),
            sysctls=sysctls(pod),
            overhead=runtime_resources(plan.overhead) if plan.overhead is not None else None,
            resources=runtime_resources(plan.resources),
        ),
    )


def _port_mappings(pod: Pod) -> list[cri.PortMapping]:
    """Return the ports of a pod that its network forwards from the node."""
    if pod.spec.host_network:
        return []
    return [
        cri.PortMapping(
            protocol=_PROTOCOLS.get(port.protocol or "TCP", cri.TCP),
            container_port=port.container_port,
            host_port=port.host_port,
            host_ip=port.host_ip,
        )
        for container in pod.spec.containers
        for port in container.ports
    ]
