"""`plimsoll node`: the node agent as a process.

Owns its arguments. What it needs is imported when it runs, so that the other commands start quickly.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import click

_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command(name="node")
@click.option(
    "--kubeconfig", type=_FILE, metavar="FILE", help="The cluster; else KUBECONFIG, or the pod's own account."
)
@click.option("--context", default="", metavar="NAME", help="A context of the kubeconfig.")
@click.option("--config", type=_FILE, metavar="FILE", help="Settings, in YAML; flags go before it.")
@click.option("--name", metavar="NAME", help="The node's name. [default: the host's name]")
@click.option(
    "--count", type=click.IntRange(1, 10_000), metavar="N", help="So many simulated nodes, NAME-0 and on."
)
@click.option(
    "--root", type=_FOLDER, metavar="FOLDER", help="Files and sockets. [default: /var/lib/plimsoll]"
)
@click.option(
    "--runtime",
    type=click.Choice(["process", "none"]),
    help="What runs containers: local processes, or nothing. [default: process]",
)
@click.option(
    "--unsupported-security-context",
    "on_unsupported_security",
    type=click.Choice(["refuse", "warn"]),
    help="What to do with a container whose security context the process runtime cannot apply in full: "
    "refuse to start it, or start it and warn. [default: refuse]",
)
@click.option("--machine", "machine_file", type=_FILE, metavar="FILE", help="What the machine is said to be.")
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="Of a new Node; repeatable.")
@click.option(
    "--taint", "taints", multiple=True, metavar="KEY=VALUE:EFFECT", help="Of a new Node; repeatable."
)
@click.option("--address", "addresses", multiple=True, metavar="IP", help="The node's own; repeatable.")
@click.option("--max-pods", "most_pods", type=click.IntRange(1, 100_000), metavar="N", help="[default: 110]")
@click.option("--system-reserved", metavar="cpu=500m,...", help="Kept for the system.")
@click.option("--kube-reserved", metavar="memory=1Gi,...", help="Kept for agents.")
@click.option("--reserved-cpus", metavar="0-1", help="Kept free of pods, by number.")
@click.option(
    "--eviction-hard", metavar="SIGNAL<VALUE,...", help="[default: memory.available<100Mi, and others]"
)
@click.option("--cdi", multiple=True, type=_FOLDER, metavar="FOLDER", help="Of CDI files; repeatable.")
@click.option("--nri", type=click.Path(path_type=Path), metavar="SOCKET", help="For NRI plugins.")
@click.option(
    "--cgroups",
    type=click.Choice(["auto", "v1", "v2", "plan"]),
    help="Which cgroups are set; plan: none. [default: auto]",
)
@click.option(
    "--cgroup-root", metavar="NAME", help="Root of the cgroups. [default: plimsoll-NODE-KEY, KEY from --root]"
)
@click.option(
    "--form", type=click.Choice(["1.36", "1.37"]), help="Whose rules for claims hold. [default: 1.37]"
)
@click.option("--feature-gates", "gates", metavar="NAME=BOOL,...", help="All are on.")
@click.option(
    "--listen", metavar="HOST:PORT", help="Health and metrics; '' for none. [default: 127.0.0.1:10248]"
)
@click.option("--leave/--no-leave", default=None, help="Delete the Node at the end. [default: no]")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="[default: text]")
@click.option("-v", "--verbose", is_flag=True, default=None, help="Log more.")
def run_node(kubeconfig: Path | None, context: str, config: Path | None, **given: Any) -> None:
    """Run a node: admit pods, prepare claims, run containers, tell the API.

    Drivers and monitoring agents find their sockets below the root, as with a kubelet. Stopping the agent
    stops no container; the next one takes over.

    \b
    plimsoll node --kubeconfig ./kubeconfig --name worker-1
    plimsoll node --kubeconfig ./kubeconfig --name sim --count 100 --runtime none --machine machine.yaml
    """
    from plimsoll.client.kubeconfig import find_config
    from plimsoll.node.process.run import serve_node
    from plimsoll.node.process.settings import override, read_settings

    settings = override(read_settings(config), **given)
    asyncio.run(serve_node(find_config(kubeconfig, context=context), settings))
