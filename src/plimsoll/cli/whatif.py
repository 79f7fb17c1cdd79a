"""`plimsoll whatif`: schedule a changed copy of a cluster in memory."""

# ruff: noqa: PLC0415

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plimsoll.cli.name_completion import complete_names, complete_object
from plimsoll.cli.options import (
    FILE,
    SCHEDULERS,
    OutputFormat,
    Progress,
    Where,
    ledger_options,
    output_options,
    scheduler_config_option,
    write_report,
)

if TYPE_CHECKING:
    from plimsoll.scheduler.profile import ProfileSet

POLICIES = ("AddPerClaim", "AddPerReference", "Max", "ConsumeFrom")


@click.command(name="whatif")
@ledger_options
@click.option(
    "--add",
    "adds",
    multiple=True,
    metavar="FILE",
    help="Add the objects of a file or directory (- for stdin): pods, workloads, nodes, slices, classes, "
    "claims, templates, taint rules. Repeatable.",
)
@click.option(
    "--replicas", type=click.IntRange(1, 100_000), metavar="N", help="Number of replicas of each added pod."
)
@click.option(
    "--remove",
    "removes",
    multiple=True,
    metavar="KIND/NS/NAME",
    shell_complete=complete_object,
    help="Remove an object. Repeatable.",
)
@click.option("--add-nodes", type=click.IntRange(1, 10_000), metavar="N", help="Number of nodes to add.")
@click.option(
    "--like",
    default="",
    metavar="NODE",
    shell_complete=complete_names("nodes"),
    help="Node to copy: allocatable, labels, devices.",
)
@click.option(
    "--taint",
    "taints",
    multiple=True,
    metavar="NODE:KEY=VALUE:EFFECT",
    help="Taint a node; a trailing - removes the taint. Repeatable.",
)
@click.option(
    "--taint-devices",
    multiple=True,
    metavar="SELECTOR:KEY=VALUE:EFFECT",
    help="Taint devices selected by driver=D,pool=P,device=V (each optional). Repeatable.",
)
@click.option(
    "--drain",
    multiple=True,
    metavar="NODE",
    shell_complete=complete_names("nodes"),
    help="Cordon a node and evict its pods. Repeatable.",
)
@click.option(
    "--cordon",
    multiple=True,
    metavar="NODE",
    shell_complete=complete_names("nodes"),
    help="Mark a node unschedulable. Repeatable.",
)
@click.option("--policy", type=click.Choice(POLICIES), help="Accounting policy for all devices.")
@click.option("--no-preemption", is_flag=True, help="Disable preemption.")
@click.option("--exhaustive", is_flag=True, help="Search all possible placements (for small batches).")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=20_000,
    show_default=True,
    metavar="N",
    help="Maximum number of attempts of the exhaustive search.",
)
@click.option(
    "--as",
    "versus",
    multiple=True,
    type=click.Choice(SCHEDULERS),
    help="Also predict the result of this scheduler. Repeatable.",
)
@click.option(
    "--save",
    type=FILE,
    metavar="FILE",
    help="Write the resulting cluster to a dump file.",
)
@scheduler_config_option
@output_options
def run_whatif_command(
    where: Where,
    form: OutputFormat,
    save: Path | None,
    profiles: ProfileSet | None,
    **given: Any,
) -> None:
    """Change a cluster in memory, schedule it, and show the difference. Nothing is written to the cluster.

    Without a change, it shows where pending pods would be scheduled. Added objects without a namespace get
    the one of -n, or default. Exit code 0: every added or evicted pod (without either: every pending pod) is
    scheduled; 1: some of them are not.

    \b
    plimsoll whatif -f dump.yaml --add job.yaml --replicas 50
    plimsoll whatif --drain node-1 --add-nodes 1 --like node-2
    plimsoll whatif -f dump.yaml --add pods.yaml --as kube-1.36 --as kube-1.36-default
    plimsoll whatif -f dump.yaml --add pods.yaml --exhaustive
    plimsoll whatif -f dump.yaml --add pods.yaml --save after.yaml; plimsoll top -f after.yaml
    plimsoll whatif --taint-devices 'driver=gpu.example.com,device=gpu-0:broken=yes:NoExecute'
    plimsoll dump | plimsoll whatif -f - --add pods.yaml
    """
    from plimsoll.tools.dump import format_of, trees_of, write_file
    from plimsoll.tools.whatif import run_whatif

    def look(cluster_state: Any) -> None:
        if save is not None:
            write_file(trees_of(cluster_state.objects), save, format_of(save))

    plan = _plan(where, **given)
    cluster_state = where.cluster_state()
    with Progress() as progress:
        cluster_state.compute_ledgers(progress.tick)
        report = run_whatif(cluster_state, plan, settings=profiles, tick=progress.tick, lent=True, look=look)
    write_report(report, form)
    sys.exit(0 if report.all_placed else 1)


def _plan(
    where: Where,
    *,
    adds: tuple[str, ...],
    replicas: int | None,
    removes: tuple[str, ...],
    add_nodes: int | None,
    like: str,
    taints: tuple[str, ...],
    taint_devices: tuple[str, ...],
    drain: tuple[str, ...],
    cordon: tuple[str, ...],
    policy: str | None,
    no_preemption: bool,
    exhaustive: bool,
    steps: int,
    versus: tuple[str, ...],
) -> Any:
    from plimsoll.errors import ConfigError
    from plimsoll.tools.whatif import WhatifPlan

    if like and not add_nodes:
        raise ConfigError("--like: set the number of nodes to add with --add-nodes")
    if replicas and not adds:
        raise ConfigError("--replicas: set the pods to add with --add")
    if adds.count("-") + where.files.count("-") > 1:
        raise ConfigError("-: standard input can be read once, for -f or for --add")
    split = []
    for text in taints:
        node, colon, taint = text.partition(":")
        if not colon or not node or not taint:
            raise ConfigError(f"--taint {text!r}: write NODE:KEY=VALUE:EFFECT")
        split.append((node, taint))
    return WhatifPlan(
        policy=policy or "",
        remove=removes,
        add_nodes=add_nodes or 0,
        like=like,
        taints=tuple(split),
        taint_devices=taint_devices,
        cordon=cordon,
        drain=drain,
        add=tuple("-" if name == "-" else Path(name) for name in adds),
        replicas=replicas,
        namespace=where.namespace or "default",
        preempt=not no_preemption,
        exhaustive=exhaustive,
        steps=steps,
        versus=versus,
    )
