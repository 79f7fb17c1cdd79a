"""Host names, DNS configurations and hosts files of pods."""

from __future__ import annotations

from typing import Any

import pytest

from plimsoll.node.runtime.cri.pod_network import (
    kernel_host_name,
    node_hosts,
    parse_resolv_conf,
    pod_dns,
    pod_hosts,
)
from plimsoll.protocols.messages import cri

from .harness import a_pod

MACHINE = parse_resolv_conf("""
# comment
nameserver 192.0.2.1
nameserver 192.0.2.2
search old.example.com
search example.com. .
options ndots:2 timeout:1
options ndots:3
""")


def test_the_resolver_of_the_machine() -> None:
    assert (
        cri.DNSConfig(
            servers=["192.0.2.1", "192.0.2.2"], searches=["example.com"], options=["ndots:3", "timeout:1"]
        )
        == MACHINE
    )


@pytest.mark.parametrize(
    ("spec", "servers", "searches", "options"),
    [
        (
            {"dnsPolicy": "ClusterFirst"},
            ["10.0.0.10"],
            ["default.svc.c.local", "svc.c.local", "c.local", "example.com"],
            ["ndots:5"],
        ),
        ({"dnsPolicy": "Default"}, *(list(getattr(MACHINE, n)) for n in ("servers", "searches", "options"))),
        (
            {"dnsPolicy": "ClusterFirst", "hostNetwork": True},
            *(list(getattr(MACHINE, n)) for n in ("servers", "searches", "options")),
        ),
        (
            {
                "dnsPolicy": "None",
                "dnsConfig": {
                    "nameservers": ["1.1.1.1"],
                    "searches": ["a."],
                    "options": [{"name": "edns0"}, {"name": "ndots", "value": "1"}],
                },
            },
            ["1.1.1.1"],
            ["a"],
            ["edns0", "ndots:1"],
        ),
    ],
)
def test_dns_policies(
    spec: dict[str, Any], servers: list[str], searches: list[str], options: list[str]
) -> None:
    found = pod_dns(a_pod(**spec), MACHINE, ("10.0.0.10",), "c.local")
    assert found == cri.DNSConfig(servers=servers, searches=searches, options=options)


def test_no_more_than_resolvers_read() -> None:
    own = {
        "nameservers": [f"1.1.1.{i}" for i in range(4)],
        "searches": [f"{i}.{'x' * 100}" for i in range(40)],
    }
    found = pod_dns(a_pod(dnsPolicy="None", dnsConfig=own), MACHINE, (), "")
    assert len(found.servers) == 3
    assert len(" ".join(found.searches)) <= 2048
    assert len(found.searches) <= 32


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({}, "web"),
        ({"hostname": "h"}, "h"),
        ({"hostname": "h", "subdomain": "s"}, "h"),
        ({"hostname": "h", "subdomain": "s", "setHostnameAsFQDN": True}, "h.s.default.svc.c.local"),
        ({"hostname": "h" * 60, "subdomain": "s", "setHostnameAsFQDN": True}, None),
        ({"hostnameOverride": "own.name"}, "own.name"),
    ],
)
def test_host_names(spec: dict[str, Any], name: str | None) -> None:
    assert kernel_host_name(a_pod(**spec), "c.local") == name


def test_long_names_are_cut() -> None:
    assert kernel_host_name(a_pod(name="a" * 62 + "-b" * 9), "c") == "a" * 62


def test_hosts_files() -> None:
    pod = a_pod(hostAliases=[{"ip": "1.2.3.4", "hostnames": ["a", "b"]}])
    text = pod_hosts(pod, ("10.0.0.1",), "c.local")
    assert text.startswith("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n")
    assert text.endswith("10.0.0.1\tweb\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n")
    assert "machine\n" in node_hosts(pod, "192.0.2.1\tmachine\n")
