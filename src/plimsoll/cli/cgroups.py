"""`plimsoll cgroups`: what a node would set for pods.

Owns its arguments. What it needs is imported when it runs, so that the other commands start quickly.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import json
import sys

import click

from plimsoll.cli.options import write_lines
from plimsoll.cluster.dump import read_objects


@click.command(name="cgroups")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="Pods, and maybe a Node: YAML or JSON file or folder; - is standard input. Repeatable.",
)
@click.option(
    "--form",
    type=click.Choice(["1.36", "1.37"]),
    default="1.37",
    show_default=True,
    help="Whose rules for claims hold.",
)
@click.option("--cgroup-version", type=click.Choice(["1", "2"]), default="2", show_default=True)
@click.option(
    "--memory", default="", metavar="AMOUNT", help="Of the machine. [default: the Node's, else ours]"
)
@click.option("--memory-qos", is_flag=True, help="Protect and throttle memory (the gate MemoryQoS).")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def show_cgroups(
    files: tuple[str, ...], form: str, cgroup_version: str, memory: str, memory_qos: bool, output: str
) -> None:
    """Show QoS classes, the tree of cgroups with its values, and OOM scores.

    Claims count as pods carry them, in their status or in the annotation that takes its place.

    \b
    plimsoll cgroups -f pods.yaml --memory 16Gi
    kubectl get pods -o yaml --field-selector spec.nodeName=worker-1 | plimsoll cgroups -f -
    """
    from plimsoll.run.node.plan import PlanSettings, show_plan

    settings = PlanSettings(
        form=form, version=1 if cgroup_version == "1" else 2, memory=memory, memory_qos=memory_qos
    )
    planned = show_plan(read_objects(files), settings)
    if output == "json":
        click.echo(json.dumps(planned.as_json(), indent=2))
    elif not planned.pods:
        click.echo("there are no pods: give some with -f", err=True)
    else:
        write_lines(planned.lines())
    sys.exit(0 if planned.pods else 1)
