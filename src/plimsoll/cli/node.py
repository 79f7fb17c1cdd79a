"""`plimsoll node`: run the node agent."""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

from plimsoll.cli.options import DIRECTORY, FILE, connection_options, feature_gates_option


@click.command(name="node")
@connection_options
@click.option("--config", type=FILE, metavar="FILE", help="Configuration file (YAML); flags override it.")
@click.option("--name", metavar="NAME", help="Node name. [default: the host name]")
@click.option(
    "--count",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Number of simulated nodes (NAME-0, NAME-1, ...).",
)
@click.option(
    "--root",
    type=DIRECTORY,
    metavar="DIR",
    help="Root directory for state and sockets. [default: /var/lib/plimsoll]",
)
@click.option(
    "--runtime",
    type=click.Choice(["process", "none", "cri"]),
    help="Container runtime: local processes, none (simulated), or a container runtime (containerd, CRI-O). "
    "[default: process]",
)
@click.option(
    "--cri-endpoint",
    metavar="SOCKET",
    help="Socket of the container runtime, such as unix:///run/containerd/containerd.sock.",
)
@click.option(
    "--cluster-dns",
    multiple=True,
    metavar="IP",
    help="Address of the cluster's DNS service, for the runtime cri. Repeatable.",
)
@click.option(
    "--cluster-domain",
    metavar="NAME",
    help="DNS domain of the cluster, for the runtime cri. [default: cluster.local]",
)
@click.option(
    "--unsupported-security-context",
    "on_unsupported_security",
    type=click.Choice(["refuse", "warn"]),
    help="Action for a container whose security context the process runtime cannot fully apply: "
    "refuse to start it, or start it and warn. [default: refuse]",
)
@click.option(
    "--stages",
    type=FILE,
    metavar="FILE",
    help="File with the run times and exit codes of simulated pods.",
)
@click.option(
    "--machine",
    "machine_file",
    type=FILE,
    metavar="FILE",
    help="File that describes the machine (CPUs, memory, ...).",
)
@click.option(
    "--label", "labels", multiple=True, metavar="KEY=VALUE", help="Label of a new Node. Repeatable."
)
@click.option(
    "--taint", "taints", multiple=True, metavar="KEY=VALUE:EFFECT", help="Taint of a new Node. Repeatable."
)
@click.option(
    "--address", "addresses", multiple=True, metavar="IP", help="IP address of the node. Repeatable."
)
@click.option(
    "--max-pods",
    "most_pods",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Maximum number of pods. [default: 110]",
)
@click.option("--system-reserved", metavar="cpu=500m,...", help="Resources reserved for the system.")
@click.option("--kube-reserved", metavar="memory=1Gi,...", help="Resources reserved for Kubernetes agents.")
@click.option("--reserved-cpus", metavar="0-1", help="CPUs reserved for the system, as a CPU list.")
@click.option(
    "--eviction-hard",
    metavar="SIGNAL<VALUE,...",
    help="Hard eviction thresholds. [default: memory.available<100Mi, ...]",
)
@click.option("--cdi", multiple=True, type=DIRECTORY, metavar="DIR", help="CDI directory. Repeatable.")
@click.option("--nri", type=click.Path(path_type=Path), metavar="SOCKET", help="Socket for NRI plugins.")
@click.option(
    "--cgroups",
    type=click.Choice(["auto", "v1", "v2", "plan"]),
    help="cgroup version to use; plan applies none. [default: auto]",
)
@click.option(
    "--cgroup-driver",
    type=click.Choice(["cgroupfs", "systemd"]),
    help="Driver of the cgroups of pods: that of the container runtime. [default: cgroupfs]",
)
@click.option(
    "--cgroup-root", metavar="NAME", help="cgroup root. [default: plimsoll-NODE-KEY, KEY derived from --root]"
)
@click.option(
    "--form",
    type=click.Choice(["1.36", "1.37"]),
    help="Kubernetes release whose claim accounting is applied. [default: 1.37]",
)
@feature_gates_option(None)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Address for health and metrics; '' disables it. [default: 127.0.0.1:10248]",
)
@click.option(
    "--kubelet-listen",
    metavar="HOST:PORT",
    help="Address of the kubelet API (logs, exec, port-forward); '' disables it. "
    "[default: port 10250 of the node's address, or a free port if it is taken]",
)
@click.option(
    "--client-ca-file",
    type=FILE,
    metavar="FILE",
    help="CA bundle for client certificates of the kubelet API. [default: the CA of the kubeconfig]",
)
@click.option(
    "--tls-cert-file",
    type=FILE,
    metavar="FILE",
    help="Serving certificate of the kubelet API. [default: self-signed]",
)
@click.option("--tls-private-key-file", type=FILE, metavar="FILE", help="Private key of that certificate.")
@click.option("--leave/--no-leave", default=None, help="Delete the Node object on exit. [default: no]")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Log format. [default: text]")
@click.option("-v", "--verbose", is_flag=True, default=None, help="Enable debug logging.")
def run_node(kubeconfig: Path | None, context: str, config: Path | None, **given: Any) -> None:
    """Run a node agent: admit pods, prepare claims, run containers, report status.

    Drivers and monitoring agents find their sockets below the root, as with a kubelet. Containers keep
    running when the agent stops; the next agent adopts them.

    \b
    plimsoll node --kubeconfig ./kubeconfig --name worker-1
    plimsoll node --kubeconfig ./kubeconfig --runtime cri --cri-endpoint unix:///run/containerd/containerd.sock
    plimsoll node --kubeconfig ./kubeconfig --name sim --count 100 --runtime none --machine machine.yaml
    """
    from plimsoll.client.kubeconfig import find_config
    from plimsoll.node.process.run import serve_node
    from plimsoll.node.process.settings import override
    from plimsoll.node.process.settings_file import read_settings

    settings = override(read_settings(config), **given)
    asyncio.run(serve_node(find_config(kubeconfig, context=context), settings))
