"""`plimsoll server`, `plimsoll kubeconfig` and `plimsoll store`: the API server and its store."""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plimsoll.api.gates import Gates
from plimsoll.cli.options import FILE, data_dir_option, feature_gates_option
from plimsoll.common.addresses import read_address
from plimsoll.common.gc_pause import without_collection
from plimsoll.common.structured_log import set_up_logging
from plimsoll.errors import ConfigError

if TYPE_CHECKING:
    from plimsoll.apiserver.process import RunningServer


@click.command(name="server")
@data_dir_option("Directory for the store, keys and tokens.")
@click.option("--memory", is_flag=True, help="Keep all data in memory, for tests.")
@click.option(
    "--listen",
    default="127.0.0.1:6443",
    show_default=True,
    metavar="HOST:PORT",
    help="Address to serve on; port 0 selects a free port.",
)
@click.option(
    "--kubeconfig-out", type=FILE, metavar="FILE", help="Write an administrator kubeconfig to this file."
)
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="NAME",
    help="Additional DNS name or IP address for the serving certificate. Repeatable.",
)
@click.option(
    "--tls-cert",
    type=FILE,
    metavar="FILE",
    help="Serving certificate. [default: issued by the server's own CA]",
)
@click.option("--tls-key", type=FILE, metavar="FILE", help="Private key of the serving certificate.")
@click.option(
    "--tls-ca", type=FILE, metavar="FILE", help="CA bundle of the serving certificate, for the kubeconfig."
)
@click.option("--client-ca", type=FILE, metavar="FILE", help="Additional CA bundle for client certificates.")
@click.option(
    "--token-file",
    type=FILE,
    metavar="FILE",
    help='CSV file of bearer tokens: token,user,uid,"group1,group2".',
)
@click.option(
    "--kubelet-certificate-authority",
    "kubelet_ca",
    type=FILE,
    metavar="FILE",
    help="CA bundle to verify the serving certificates of kubelets. [default: not verified]",
)
@click.option(
    "--kubelet-client-certificate",
    "kubelet_certificate",
    type=FILE,
    metavar="FILE",
    help="Client certificate for kubelets. [default: issued by the server's own CA]",
)
@click.option(
    "--kubelet-client-key", "kubelet_key", type=FILE, metavar="FILE", help="Private key of that certificate."
)
@click.option(
    "--durability",
    type=click.Choice(["full", "normal"]),
    default="full",
    show_default=True,
    help="full: sync each write before acknowledging it. normal: a power failure may lose the last writes.",
)
@click.option(
    "--max-unauthenticated-connections",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum number of connections without valid credentials that are served at once (default: 128).",
)
@click.option(
    "--max-unauthenticated-per-address",
    type=click.IntRange(min=1),
    metavar="N",
    help="Maximum number of such connections from one source address, waiting ones included (default: 1024).",
)
@click.option(
    "--request-header-timeout",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Time in which the headers of a request must arrive (default: 30).",
)
@click.option(
    "--volumes-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Directory for volumes of the provisioner plimsoll.dev/host-path, which all nodes must see.",
)
@click.option(
    "--no-controllers",
    is_flag=True,
    help="Do not run controllers (claims from templates, garbage collection, ...).",
)
@click.option(
    "--controllers",
    default="*",
    show_default=True,
    metavar="LIST",
    help="Controllers to run: * for all, NAME, or -NAME to leave one out; separated by commas.",
)
@click.option(
    "--start-empty", is_flag=True, help="Start with an empty store although a damaged store was set aside."
)
@feature_gates_option()
@click.option("-v", "--verbose", is_flag=True, help="Enable debug logging.")
def run_server(
    data: Path | None,
    memory: bool,
    listen: str,
    kubeconfig_out: Path | None,
    names: tuple[str, ...],
    tls_cert: Path | None,
    tls_key: Path | None,
    tls_ca: Path | None,
    client_ca: Path | None,
    token_file: Path | None,
    kubelet_ca: Path | None,
    kubelet_certificate: Path | None,
    kubelet_key: Path | None,
    durability: Any,
    max_unauthenticated_connections: int | None,
    max_unauthenticated_per_address: int | None,
    request_header_timeout: float | None,
    volumes_dir: Path | None,
    no_controllers: bool,
    controllers: str,
    start_empty: bool,
    gates: str,
    verbose: bool,
) -> None:
    """Run a Kubernetes API server in one process, with durable storage in one directory.

    \b
    plimsoll server --data-dir ./cluster --kubeconfig-out ./kubeconfig
    kubectl --kubeconfig ./kubeconfig get namespaces
    """
    with without_collection():  # a tenth of the time of a start
        from plimsoll.apiserver.limits import ServerLimits
        from plimsoll.apiserver.process import ServerSettings, serve

    if memory == (data is not None):
        raise ConfigError("no storage given: use --data-dir DIR, or --memory to keep all data in memory")
    host, port = read_address(listen, example="127.0.0.1:6443")
    given: dict[str, Any] = {
        "unauthenticated": max_unauthenticated_connections,
        "unauthenticated_per_address": max_unauthenticated_per_address,
        "header_timeout": request_header_timeout,
    }
    limits = ServerLimits(**{name: value for name, value in given.items() if value is not None})
    settings = ServerSettings(
        data=data,
        host=host,
        port=port,
        names=names,
        certificate=tls_cert,
        key=tls_key,
        authority=tls_ca,
        client_ca=client_ca,
        token_file=token_file,
        kubelet_ca=kubelet_ca,
        kubelet_certificate=kubelet_certificate,
        kubelet_key=kubelet_key,
        gates=Gates.parse(gates),
        durability=durability,
        volumes_dir=None if volumes_dir is None else volumes_dir.absolute(),
        controllers=not no_controllers,
        controller_names=_choose_controllers(controllers),
        start_empty=start_empty,
        limits=limits,
    )
    set_up_logging(verbose=verbose, level=logging.WARNING)

    def ready(server: RunningServer) -> None:
        if kubeconfig_out is not None:
            server.write_kubeconfig(kubeconfig_out)
        click.echo(f"serving the Kubernetes API at {server.url}")

    try:
        asyncio.run(serve(settings, ready))
    except OSError as error:
        raise ConfigError(f"cannot listen on {listen}: {error.strerror or error}") from None


def _choose_controllers(wanted: str) -> tuple[str, ...]:
    """Return the names of the controllers to run; InputError if one is unknown."""
    if wanted == "*":  # all: their names are not needed, nor their modules unless they run
        return ("*",)
    from plimsoll.controllers.manager import choose_controllers

    return tuple(choose_controllers(wanted.split(",")))


@click.command(name="kubeconfig")
@click.argument("who")
@data_dir_option("Data directory of the server.", required=True)
@click.option("--server", required=True, metavar="URL", help="URL of the API server.")
@click.option("--out", type=FILE, required=True, metavar="FILE", help="Kubeconfig file to write.")
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=365,
    show_default=True,
    help="Validity of the certificate in days.",
)
def run_kubeconfig(who: str, data: Path, server: str, out: Path, days: int) -> None:
    """Issue a kubeconfig with a client certificate.

    WHO is admin, scheduler, controllers, controller-manager, node:NAME, driver:NAME or viewer:NAME.

    \b
    plimsoll kubeconfig node:worker-1 --data-dir ./cluster --server https://127.0.0.1:6443 --out ./worker-1
    """
    from plimsoll.apiserver.auth.credentials import issue_kubeconfig, parse_component_user

    issue_kubeconfig(data, parse_component_user(who), out, server, days=days)
    click.echo(f"wrote {out}")


@click.group(name="store")
def store_commands() -> None:
    """Back up, restore or recover the store of an API server."""


@store_commands.command(name="backup")
@data_dir_option("Data directory of the server.", required=True)
@click.option("--out", type=FILE, required=True, metavar="FILE", help="Backup file to write.")
def run_backup(data: Path, out: Path) -> None:
    """Back up the store of a running server. The backup contains every acknowledged write."""
    from plimsoll.apiserver.process import STORE_FILE
    from plimsoll.apiserver.storage import copy_store

    copy_store(data / STORE_FILE, out)
    click.echo(f"copied to {out}")


@store_commands.command(name="restore")
@data_dir_option("Data directory of the server.", required=True)
@click.option("--from", "source", type=FILE, required=True, metavar="FILE", help="Backup file to restore.")
def run_restore(data: Path, source: Path) -> None:
    """Restore a backup into an empty data directory. The server must be stopped."""
    from plimsoll.apiserver.process import STORE_FILE
    from plimsoll.apiserver.storage import restore

    if not source.exists():
        raise ConfigError(f"{source}: no such file")
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    revision = restore(source, data / STORE_FILE)
    click.echo(f"restored; continues from revision {revision}")


@store_commands.command(name="recover")
@data_dir_option("Data directory of the server.", required=True)
def run_recover(data: Path) -> None:
    """Recover a new store from a damaged one. The damaged file is kept."""
    from plimsoll.apiserver.process import STORE_FILE
    from plimsoll.apiserver.storage import recover

    if not data.exists():
        raise ConfigError(f"{data}: no such directory")
    recovery = recover(data / STORE_FILE)
    for line in recovery.reports:
        click.echo(line)
    click.echo(f"{recovery.kept} objects kept, {recovery.lost} records lost")
    sys.exit(1 if recovery.lost else 0)
