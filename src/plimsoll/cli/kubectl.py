"""`plimsoll kubectl`: run kubectl with the cluster of a data directory."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from plimsoll.cli.options import data_dir_option
from plimsoll.errors import ConfigError


class _PassedOn(click.Command):
    """Command whose arguments are another program's, which completes them itself."""

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return []


@click.command(
    name="kubectl",
    cls=_PassedOn,
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@data_dir_option(
    "Data directory of the cluster; before the arguments of kubectl.",
    default=Path("plimsoll-data"),
    show_default=True,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def run_kubectl(data: Path, arguments: tuple[str, ...]) -> None:
    """Run kubectl with the cluster that `plimsoll up` runs in a directory.

    Neither KUBECONFIG nor ~/.kube/config is used, so that no command can reach another cluster by accident.

    \b
    plimsoll kubectl get pods -A
    plimsoll kubectl --data-dir ./copy -n demo describe pod web
    """
    kubeconfig = data / "kubeconfig"
    if not kubeconfig.is_file():
        raise ConfigError(
            f"{kubeconfig}: no such file; start a cluster with `plimsoll up`, or name its directory with "
            "--data-dir"
        )
    program = shutil.which("kubectl")
    if program is None:
        raise ConfigError("kubectl: not found in PATH; install it, or use another client")
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig.resolve())}
    os.execve(program, ["kubectl", *arguments], environment)
