"""Command `plimsoll driver memory`: memory and huge pages of NUMA nodes as devices."""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import os
import platform
from pathlib import Path

import click

from plimsoll.api.forms import Form
from plimsoll.cli.options import DIRECTORY, FILE, connection_options


@click.command(name="memory")
@connection_options
@click.option("--hostname-override", default="", metavar="NAME", help="Node name. [default: host name]")
@click.option(
    "--reserved-memory",
    default="",
    metavar="AMOUNTS",
    help="Memory that is not published, in the kubelet's format: 0:memory=1Gi;1:hugepages-2Mi=64Mi.",
)
@click.option(
    "--node-allocatable-form",
    type=click.Choice(["auto", "1.36", "1.37"]),
    default="auto",
    show_default=True,
    help="Wire form of node resources.",
)
@click.option(
    "--enforcement",
    type=click.Choice(["nri", "none"]),
    default="nri",
    show_default=True,
    help="How containers are bound to memory nodes.",
)
@click.option(
    "--kubelet-root-dir",
    type=DIRECTORY,
    default=Path("/var/lib/kubelet"),
    show_default=True,
    metavar="DIR",
    help="Kubelet root directory.",
)
@click.option(
    "--cdi-dir",
    type=DIRECTORY,
    default=Path("/var/run/cdi"),
    show_default=True,
    metavar="DIR",
    help="Directory for CDI files.",
)
@click.option(
    "--nri-socket",
    type=FILE,
    default=Path("/var/run/nri/nri.sock"),
    show_default=True,
    metavar="FILE",
    help="NRI socket of the runtime.",
)
@click.option(
    "--host-root",
    type=DIRECTORY,
    default=Path("/"),
    envvar="HOST_ROOT",
    show_default=True,
    metavar="DIR",
    help="Directory that contains the host's sys.",
)
@click.option(
    "--bind-address",
    default="127.0.0.1:8082",
    show_default=True,
    metavar="HOST:PORT",
    help="Address of health and metrics; '' disables them.",
)
@click.option(
    "--cert-dir",
    type=DIRECTORY,
    metavar="DIR",
    help="Serve HTTPS with tls.crt and tls.key of DIR, self-signed if missing; metrics need a token.",
)
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Log format."
)
@click.option("-v", "--verbose", is_flag=True, help="Enable debug logging.")
def run_memory(
    kubeconfig: Path | None,
    context: str,
    hostname_override: str,
    reserved_memory: str,
    node_allocatable_form: str,
    enforcement: str,
    kubelet_root_dir: Path,
    cdi_dir: Path,
    nri_socket: Path,
    host_root: Path,
    bind_address: str,
    cert_dir: Path | None,
    log_format: str,
    verbose: bool,
) -> None:
    """Run the memory driver of a node: publish memory and huge pages, bind containers to NUMA nodes.

    \b
    plimsoll driver memory --kubeconfig ./kubeconfig
    plimsoll driver memory --reserved-memory '0:memory=1Gi;1:memory=1Gi'
    """
    from plimsoll.client.kubeconfig import find_config
    from plimsoll.drivers.memory.process import serve_memory
    from plimsoll.drivers.memory.settings import MemoryEnforcement, MemorySettings, parse_reserved

    settings = MemorySettings(
        node=hostname_override or os.environ.get("NODE_NAME") or platform.node(),
        reserved=parse_reserved(reserved_memory),
        form=None if node_allocatable_form == "auto" else Form(node_allocatable_form),
        enforcement=MemoryEnforcement(enforcement),
        host_root=host_root,
        kubelet_root=kubelet_root_dir,
        cdi=cdi_dir,
        nri=nri_socket,
        bind_address=bind_address,
        cert_dir=cert_dir,
    )
    config = find_config(kubeconfig, context=context)
    asyncio.run(serve_memory(config, settings, log_format=log_format, verbose=verbose))
