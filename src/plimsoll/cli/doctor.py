"""`plimsoll doctor`: check of a node."""

# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from plimsoll.cli.options import FILE, OutputFormat, output_options, write_report

#: Not checked for readability here: the doctor reports that.
_DIRECTORY = click.Path(readable=False, path_type=Path)


@click.command(name="doctor")
@click.option(
    "--root",
    type=_DIRECTORY,
    metavar="DIR",
    help="Root directory of a node agent or kubelet. [default: /var/lib/plimsoll]",
)
@click.option("--name", metavar="NAME", help="Node name. [default: the host name]")
@click.option("--config", type=FILE, metavar="FILE", help="Node agent configuration file; flags override it.")
@click.option(
    "--runtime",
    type=click.Choice(["process", "none"]),
    help="Container runtime of the agent. [default: detected]",
)
@click.option(
    "--machine",
    "machine_file",
    type=FILE,
    metavar="FILE",
    help="File that describes the machine (CPUs, memory, ...).",
)
@click.option(
    "--cdi",
    multiple=True,
    type=_DIRECTORY,
    metavar="DIR",
    help="CDI directory. Repeatable.",
)
@click.option(
    "--cgroup-root", metavar="NAME", help="Root of the node's cgroups. [default: plimsoll-NODE-KEY]"
)
@click.option("--kubeconfig", type=FILE, metavar="FILE", help="Also check the node against this cluster.")
@click.option("--context", default="", metavar="NAME", help="Kubeconfig context to use.")
@output_options
def run_doctor(
    root: Path | None,
    name: str | None,
    config: Path | None,
    runtime: str | None,
    machine_file: Path | None,
    cdi: tuple[Path, ...],
    cgroup_root: str | None,
    kubeconfig: Path | None,
    context: str,
    form: OutputFormat,
) -> None:
    """Check a node: sockets, permissions, cgroups, checkpoints, leaked files and processes, CDI files.

    Nothing is changed: fixes are printed as commands. Exit code 0: no errors or warnings; 1: there are some;
    2: the node could not be checked.

    \b
    sudo plimsoll doctor
    sudo plimsoll doctor --root /var/lib/kubelet --kubeconfig ./kubeconfig --name worker-1
    """
    from plimsoll.client.kubeconfig import find_config
    from plimsoll.node.process.settings import override
    from plimsoll.node.process.settings_file import read_settings
    from plimsoll.tools.doctor import doctor

    settings = override(
        read_settings(config),
        root=root,
        name=name,
        machine_file=machine_file,
        cdi=cdi,
        cgroup_root=cgroup_root,
    )
    examination = doctor.Doctor(
        settings=settings,
        runtime=runtime or ("" if config is None else settings.runtime),  # type: ignore[arg-type]
        cluster=find_config(kubeconfig, context=context) if kubeconfig or context else None,
    )
    found = asyncio.run(examination.examine())
    write_report(found, form)
    sys.exit(found.exit_code)
