"""`plimsoll cgroups`: cgroup settings of pods."""

# ruff: noqa: PLC0415

from __future__ import annotations

import sys

import click

from plimsoll.cli.options import (
    OutputFormat,
    Where,
    cluster_options,
    feature_gates_option,
    output_options,
    write_report,
)


@click.command(name="cgroups")
@click.option(
    "--node", default="", metavar="NAME", help="Node whose pods to show; required if there are several."
)
@click.option(
    "--form",
    "rules",
    type=click.Choice(["1.36", "1.37"]),
    default="1.37",
    show_default=True,
    help="Kubernetes release whose claim accounting is applied.",
)
@click.option(
    "--cgroup-version",
    type=click.Choice(["1", "2"]),
    default="2",
    show_default=True,
    help="cgroup version of the node.",
)
@click.option(
    "--memory",
    default="",
    metavar="AMOUNT",
    help="Memory of the machine. [default: the Node's capacity, else this machine's]",
)
@click.option("--memory-qos", is_flag=True, help="Apply memory QoS (feature gate MemoryQoS).")
@feature_gates_option()
@cluster_options
@output_options
def show_cgroups(
    node: str,
    rules: str,
    cgroup_version: str,
    memory: str,
    memory_qos: bool,
    gates: str,
    where: Where,
    form: OutputFormat,
) -> None:
    """Show QoS classes, the tree of cgroups with its values, and OOM scores.

    Claim charges are read from the pods' status or annotation. With -n only pods of that namespace are shown;
    the values of the QoS cgroups include all pods.

    \b
    plimsoll cgroups --node worker-1
    plimsoll cgroups -f pods.yaml --memory 16Gi
    kubectl get pods -o yaml --field-selector spec.nodeName=worker-1 | plimsoll cgroups -f -
    """
    from plimsoll.api.gates import Gates
    from plimsoll.tools.cgroups import CgroupPlanSettings, show_plan

    settings = CgroupPlanSettings(
        form=rules,
        version=1 if cgroup_version == "1" else 2,
        memory=memory,
        memory_qos=memory_qos,
        gates=Gates.parse(gates),
        node=node,
        namespace=where.namespace,
    )
    chosen = {"nodes": f"metadata.name={node}", "pods": f"spec.nodeName={node}"} if node else {}
    planned = show_plan(where.objects("nodes", "pods", needed=("pods",), fields=chosen), settings)
    write_report(planned, form)
    if not planned.pods:
        hint = " in the files" if where.files else f" in {where.describe()}"
        click.echo(f"no pods found{hint}", err=True)
    sys.exit(0 if planned.pods else 1)
