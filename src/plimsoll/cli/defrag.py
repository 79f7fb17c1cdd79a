"""`plimsoll defrag`: the fewest pods to move so that others fit."""

# ruff: noqa: PLC0415

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from plimsoll.cli.options import (
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


@click.command(name="defrag")
@click.argument("pod", default="", metavar="[[NAMESPACE/]POD]")
@click.option("--group", default="", metavar="[NAMESPACE/]NAME", help="Pending pod group that must fit.")
@click.option(
    "--class", "device_class", default="", metavar="NAME", help="Device class of which devices are needed."
)
@click.option(
    "--count",
    type=click.IntRange(1, 256),
    metavar="N",
    help="Number of devices of the class, for one pod. [default: 1]",
)
@click.option(
    "--toleration",
    "tolerations",
    multiple=True,
    metavar="KEY[=VALUE][:EFFECT]",
    help="Toleration of the pod for --class, besides those that such pods have. Repeatable.",
)
@click.option(
    "--add", "adds", multiple=True, metavar="FILE", help="File with pods that must fit. Repeatable."
)
@click.option(
    "--replicas", type=click.IntRange(1, 1000), metavar="N", help="Number of replicas of each added pod."
)
@click.option(
    "--max-moves",
    type=click.IntRange(0, 20),
    default=4,
    show_default=True,
    metavar="N",
    help="Largest number of pods to move.",
)
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=5_000,
    show_default=True,
    metavar="N",
    help="Maximum number of sets of pods to try.",
)
@click.option("--force", is_flag=True, help="Also move pods without a controller, which are deleted.")
@ledger_options
@scheduler_config_option
@output_options
def run_defrag(
    pod: str,
    group: str,
    device_class: str,
    count: int | None,
    tolerations: tuple[str, ...],
    adds: tuple[str, ...],
    replicas: int | None,
    max_moves: int,
    steps: int,
    force: bool,
    where: Where,
    profiles: ProfileSet | None,
    form: OutputFormat,
) -> None:
    """Find the fewest pods to move so that a pod, a pod group or devices of a class fit.

    Every set of pods is evicted in memory, and everything is scheduled again: the result is a set for which
    the scheduler places all of them. The commands that move the pods are printed, and never run. Pods of
    DaemonSets, mirror pods, pods without a controller and those that a disruption budget protects stay. Exit
    code 0: it fits; 1: it does not, with --max-moves.

    \b
    plimsoll defrag ml/trainer-0
    plimsoll defrag --class gpu.example.com --count 4
    plimsoll defrag --group ml/trainer --max-moves 6
    plimsoll defrag -f cluster.json.gz --add pod.yaml
    """
    from plimsoll.errors import ConfigError
    from plimsoll.tools.defrag import DefragLimits, DefragReport, DefragTarget, find_moves

    if sum(map(bool, (pod, group, device_class, adds))) != 1:
        raise ConfigError("set one of POD, --group, --class or --add")
    if (count or tolerations) and not device_class:
        option = "--count" if count else "--toleration"
        raise ConfigError(f"{option}: set the device class with --class")
    if replicas and not adds:
        raise ConfigError("--replicas: set the pods to add with --add")
    target = DefragTarget(
        add=tuple("-" if name == "-" else Path(name) for name in adds),
        replicas=replicas,
        pod=pod,
        group=group,
        device_class=device_class,
        count=count or 1,
        tolerations=tolerations,
        namespace=where.namespace or "default",
    )
    cluster_state = where.cluster_state()
    limits = DefragLimits(max_moves, steps, force)
    with Progress() as progress:
        result = find_moves(cluster_state, target, limits, settings=profiles, tick=progress.tick)
    report = DefragReport(target, result)
    write_report(report, form)
    sys.exit(0 if report.fits else 1)
