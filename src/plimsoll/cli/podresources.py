"""`plimsoll podresources`: client and exporter of a kubelet's PodResources API."""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plimsoll.cli.options import FILE, Output

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from plimsoll.tools.podresources.client import PodResourcesClient

_KUBELET = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
SOCKET = click.option(
    "--socket",
    "path",
    type=click.Path(path_type=Path),
    default=_KUBELET,
    show_default=True,
    metavar="PATH",
    help="PodResources socket of the kubelet.",
)
OUTPUT = click.option(
    "-o",
    "--output",
    type=Output(),
    default="table",
    show_default=True,
    help="Output format; wide prints one row per device.",
)
TIMEOUT = click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Timeout of each call.",
)


@click.group(name="podresources")
def podresources_commands() -> None:
    """Query the PodResources API of a kubelet: the resources held by the pods of this node."""


@podresources_commands.command(name="list")
@click.option("-n", "--namespace", metavar="NAMESPACE", help="Limit to pods of this namespace.")
@SOCKET
@OUTPUT
@TIMEOUT
def run_list(namespace: str | None, path: Path, output: str, timeout: float) -> None:
    """List the pods of the node with their CPUs, memory, claims and devices.

    \b
    sudo plimsoll podresources list
    sudo plimsoll podresources list -n training -o wide
    """
    from plimsoll.tools.podresources.text import pod_lines, tree_of

    answer = _call(path, timeout, lambda client: client.list())
    if namespace is not None:
        kept = [pod for pod in answer.pod_resources if pod.namespace == namespace]
        answer = type(answer)(pod_resources=kept)
    if output in ("table", "wide"):
        if not answer.pod_resources:
            click.echo("no pods found", err=True)
            return
        _print(pod_lines(answer.pod_resources, wide=output == "wide"))
    else:
        _write({"podResources": [], **tree_of(answer)}, output)


@podresources_commands.command(name="get")
@click.argument("pod")
@click.option(
    "-n",
    "--namespace",
    default="default",
    show_default=True,
    metavar="NAMESPACE",
    help="Namespace of the pod.",
)
@SOCKET
@OUTPUT
@TIMEOUT
def run_get(pod: str, namespace: str, path: Path, output: str, timeout: float) -> None:
    """Show one pod. The exit code is 1 if the node has no such pod.

    \b
    sudo plimsoll podresources get train-0 -n training -o yaml
    """
    from plimsoll.tools.colors import printable
    from plimsoll.tools.podresources.client import PodNotFound
    from plimsoll.tools.podresources.text import pod_lines, tree_of

    answer = _call(path, timeout, lambda client: client.get(namespace, pod))
    if isinstance(answer, PodNotFound):
        click.echo(printable(answer.message), err=True)
        sys.exit(1)
    if output in ("table", "wide"):
        _print(pod_lines([answer.pod_resources], wide=output == "wide"))
    else:
        _write(tree_of(answer), output)


@podresources_commands.command(name="allocatable")
@SOCKET
@OUTPUT
@TIMEOUT
def run_allocatable(path: Path, output: str, timeout: float) -> None:
    """Show the allocatable CPUs, memory and devices (of device plugins) of this node."""
    from plimsoll.tools.podresources.text import allocatable_lines, tree_of

    answer = _call(path, timeout, lambda client: client.allocatable())
    if output in ("table", "wide"):
        _print(allocatable_lines(answer))
    else:
        _write(tree_of(answer), output)


@podresources_commands.command(name="export")
@click.option(
    "--listen",
    default="127.0.0.1:9478",
    show_default=True,
    metavar="HOST:PORT",
    help="Address of /metrics; port 0 selects a free port.",
)
@click.option("--node", metavar="NAME", help="Node name. [default: NODE_NAME, else the host name]")
@click.option(
    "--kubeconfig", type=FILE, metavar="FILE", help="Kubeconfig file, to also read pods and ResourceSlices."
)
@click.option("--context", default="", metavar="NAME", help="Kubeconfig context to use.")
@click.option("--in-cluster", "inside", is_flag=True, help="Same, with the service account of this pod.")
@click.option(
    "--interval",
    type=click.FloatRange(min=0),
    default=5.0,
    show_default=True,
    metavar="SECONDS",
    help="Minimum interval between calls to the kubelet.",
)
@SOCKET
@TIMEOUT
def run_export(
    listen: str,
    node: str | None,
    kubeconfig: Path | None,
    context: str,
    inside: bool,
    interval: float,
    path: Path,
    timeout: float,
) -> None:
    """Export pods, containers, claims and devices to Prometheus.

    With a kubeconfig, pods have their UIDs, and unallocated devices are included. Scrape with honor_labels,
    so that the labels namespace, pod and container are those of the holder.

    \b
    sudo plimsoll podresources export --listen 0.0.0.0:9478
    sudo plimsoll podresources export --kubeconfig ./kubeconfig --node worker-1
    """
    from plimsoll.client.kubeconfig import find_config, in_cluster
    from plimsoll.tools.podresources.process import ExporterSettings, serve_exporter

    cluster = None
    if inside:
        cluster = in_cluster()
    elif kubeconfig or context:
        cluster = find_config(kubeconfig, context=context)
    settings = ExporterSettings(
        socket=path,
        listen=listen,
        node=node or os.environ.get("NODE_NAME") or socket.gethostname(),
        interval=interval,
        timeout=timeout,
        cluster=cluster,
    )
    asyncio.run(serve_exporter(settings, lambda url: click.echo(f"serving metrics at {url}")))


def _call(path: Path, timeout: float, method: Callable[[PodResourcesClient], Awaitable[Any]]) -> Any:
    """Call one method of a kubelet's PodResources API."""
    from plimsoll.tools.podresources.client import PodResourcesClient

    async def call() -> Any:
        async with PodResourcesClient(path, timeout=timeout) as client:
            return await method(client)

    return asyncio.run(call())


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)


def _write(tree: dict[str, Any], output: str) -> None:
    from plimsoll.common.yaml import dump_document

    if output == "json":
        click.echo(json.dumps(tree, indent=2))
    else:
        click.echo(dump_document(tree).decode(), nl=False)
