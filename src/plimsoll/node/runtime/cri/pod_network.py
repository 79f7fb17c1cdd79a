"""Host name, DNS configuration and hosts file of a pod, as the kubelet generates them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from plimsoll.api.core import HostAlias, Pod, PodDNSConfig
from plimsoll.protocols.messages import cri

_HOSTNAME_MAX, _FQDN_MAX = 63, 64
#: The kubelet's limits.
_SERVERS_MAX, _SEARCHES_MAX, _SEARCH_LENGTH_MAX = 3, 32, 2048
_CLUSTER_OPTIONS = ("ndots:5",)
_HOSTS_HEADER = "# Kubernetes-managed hosts file.\n"
_NODE_HOSTS_HEADER = "# Kubernetes-managed hosts file (host network).\n"
_LOCAL_HOSTS = """127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""


@dataclass(frozen=True, slots=True)
class PodHostName:
    """Host name of a pod and its domain, which is empty without a subdomain."""

    name: str
    domain: str = ""

    @property
    def fqdn(self) -> str:
        return f"{self.name}.{self.domain}" if self.domain else self.name


def pod_host_name(pod: Pod, cluster_domain: str) -> PodHostName:
    """Return the host name of a pod, cut to what the kernel accepts."""
    spec = pod.spec
    if spec.hostname_override is not None:
        return PodHostName(_cut(spec.hostname_override))
    domain = f"{spec.subdomain}.{pod.metadata.namespace}.svc.{cluster_domain}" if spec.subdomain else ""
    return PodHostName(_cut(spec.hostname or pod.metadata.name), domain)


def _cut(name: str) -> str:
    return name if len(name) <= _HOSTNAME_MAX else name[:_HOSTNAME_MAX].rstrip("-.")


def kernel_host_name(pod: Pod, cluster_domain: str) -> str | None:
    """Return the host name that a sandbox sets; None if it is too long with its domain."""
    host = pod_host_name(pod, cluster_domain)
    if not (pod.spec.set_hostname_as_fqdn and host.domain):
        return host.name
    return host.fqdn if len(host.fqdn) <= _FQDN_MAX else None


# -- DNS


def parse_resolv_conf(text: str) -> cri.DNSConfig:
    """Parse a resolv.conf; of several search lines the last one counts."""
    servers: list[str] = []
    searches: list[str] = []
    options: dict[str, str] = {}
    for line in text.splitlines():
        word, *values = line.split() or [""]
        if word == "nameserver":
            servers += values[:1]
        elif word == "search":
            searches = [value.removesuffix(".") for value in values if value != "."]
        elif word == "options":
            options |= {option.partition(":")[0]: option for option in values}
    return cri.DNSConfig(servers=servers, searches=searches, options=list(options.values()))


def uses_cluster_dns(pod: Pod) -> bool:
    """Return whether the policy of a pod asks for the cluster's DNS service."""
    policy = pod.spec.dns_policy or "ClusterFirst"
    return policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not pod.spec.host_network)


def pod_dns(pod: Pod, machine: cri.DNSConfig, cluster_dns: Sequence[str], domain: str) -> cri.DNSConfig:
    """Return the DNS configuration of a pod; without a cluster DNS service the machine's is used."""
    if pod.spec.dns_policy == "None":
        dns = cri.DNSConfig()
    elif uses_cluster_dns(pod) and cluster_dns:
        namespace = pod.metadata.namespace
        own = (f"{namespace}.svc.{domain}", f"svc.{domain}", domain) if domain else ()
        searches = dict.fromkeys((*own, *machine.searches))
        dns = cri.DNSConfig(servers=list(cluster_dns), searches=list(searches), options=_CLUSTER_OPTIONS)
    else:
        dns = cri.DNSConfig()
        dns.CopyFrom(machine)
    if pod.spec.dns_config is not None:
        dns = _merge(dns, pod.spec.dns_config)
    return _limit(dns)


def _merge(dns: cri.DNSConfig, own: PodDNSConfig) -> cri.DNSConfig:
    options = {option.partition(":")[0]: option for option in dns.options}
    for option in own.options:
        options[option.name] = f"{option.name}:{option.value}" if option.value else option.name
    return cri.DNSConfig(
        servers=list(dict.fromkeys((*dns.servers, *own.nameservers))),
        searches=list(dict.fromkeys((*dns.searches, *(s.removesuffix(".") for s in own.searches)))),
        options=list(options.values()),
    )


def _limit(dns: cri.DNSConfig) -> cri.DNSConfig:
    """Return the configuration with as many entries as resolvers read."""
    searches: list[str] = []
    for search in dns.searches[:_SEARCHES_MAX]:
        if len(" ".join((*searches, search))) > _SEARCH_LENGTH_MAX:
            break
        searches.append(search)
    return cri.DNSConfig(servers=dns.servers[:_SERVERS_MAX], searches=searches, options=dns.options)


# -- hosts


def pod_hosts(pod: Pod, ips: Iterable[str], cluster_domain: str) -> str:
    """Return the hosts file of a pod with its own network."""
    host = pod_host_name(pod, cluster_domain)
    names = f"{host.fqdn}\t{host.name}" if host.domain else host.name
    own = "".join(f"{ip}\t{names}\n" for ip in ips)
    return f"{_HOSTS_HEADER}{_LOCAL_HOSTS}{own}{_aliases(pod.spec.host_aliases)}"


def node_hosts(pod: Pod, machine: str) -> str:
    """Return the hosts file of a pod with the network of its node."""
    return f"{_NODE_HOSTS_HEADER}{machine}{_aliases(pod.spec.host_aliases)}"


def _aliases(aliases: Sequence[HostAlias]) -> str:
    if not aliases:
        return ""
    lines = "".join(f"{alias.ip}\t" + "\t".join(alias.hostnames) + "\n" for alias in aliases)
    return f"\n# Entries added by HostAliases.\n{lines}"
