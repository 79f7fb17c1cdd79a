"""`plimsoll check|select|allocate|convert`: commands on objects of files or of a cluster.

Each command reads only the kinds it needs from a cluster.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click

from plimsoll.api.forms.internal import Form as WireForm
from plimsoll.cli.options import (
    OutputFormat,
    Progress,
    Where,
    cluster_options,
    feature_gates_option,
    output_options,
    write_report,
)


@click.command(name="check")
@click.argument("kinds", nargs=-1, metavar="[KIND]...")
@click.option(
    "--server-version",
    default="",
    metavar="VERSION",
    help="Kubernetes version that the objects are written for, such as 1.34. [default: 1.36, all gates on]",
)
@click.option("--warnings-as-errors", is_flag=True, help="Exit with code 1 if there are warnings, too.")
@feature_gates_option()
@cluster_options
@output_options
def run_check(
    kinds: tuple[str, ...],
    server_version: str,
    warnings_as_errors: bool,
    gates: str,
    where: Where,
    form: OutputFormat,
) -> None:
    """Validate objects as the API server does on create.

    Files can have objects of all kinds of the API; KIND limits the check to some. Unknown fields and versions
    that are not served are refused, as by kubectl. Pods must not violate the LimitRanges of their namespace,
    and admin access needs the label of its Namespace; both are read from the same files.

    For a cluster, it lists the stored objects that are invalid by these rules; KIND is resourceslices,
    deviceclasses, devicetaintrules, resourceclaimtemplates, resourceclaims or pods, by default all of them.
    The exit code is 1 if an object is invalid.

    \b
    plimsoll check -f manifests/
    helm template . | plimsoll check -f - --server-version 1.34
    kubectl get resourceslices -o yaml | plimsoll check -f -
    plimsoll check resourceslices --context prod
    plimsoll check -n team-a --feature-gates DRAPrioritizedList=false
    """
    from plimsoll.api.gates import Gates
    from plimsoll.tools import check

    release = check.parse_release(server_version) if server_version else None
    switched = Gates.parse(gates, Gates.of_release(release[1]) if release else None)
    wanted = check.read_kinds(kinds, of_files=bool(where.files))
    supporting = ("limitranges", "namespaces")
    found = where.objects(*wanted, *supporting, needed=wanted if kinds else (), narrow=True, as_written=True)
    server = "" if where.files else where.describe(namespaced=False)
    with Progress() as progress:
        report = check.check_all(
            progress.over("checking", found),
            datetime.now(UTC),
            switched,
            server,
            release=release,
            kinds=wanted if kinds else None,
        )
    write_report(report, form)
    sys.exit(1 if report.refused or (warnings_as_errors and report.warned) else 0)


@click.command(name="select")
@click.argument("expression")
@feature_gates_option()
@cluster_options
@output_options
def run_select(expression: str, gates: str, where: Where, form: OutputFormat) -> None:
    """List the devices of ResourceSlices that a CEL selector matches.

    The exit code is 1 if it matches none. -o wide shows the evaluation cost.

    \b
    plimsoll select 'device.driver == "gpu.example.com"'
    plimsoll select 'device.driver == "gpu.example.com"' -f slices.yaml
    """
    from plimsoll.api.gates import Gates
    from plimsoll.tools import select

    switched = Gates.parse(gates)
    select.check_expression(expression, switched)  # before the cluster is read
    found = where.objects("resourceslices", needed=("resourceslices",))
    report = select.SelectionReport(tuple(select.select_devices(expression, found, switched)))
    write_report(report, form)
    if not report.answers:
        _report_empty("no devices found", where, namespaced=False)
    sys.exit(0 if report.matched else 1)


@click.command(name="allocate")
@click.option(
    "--claim", "claims", multiple=True, metavar="[NAMESPACE/]NAME", help="Limit to this claim. Repeatable."
)
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="Limit to this node. Repeatable.")
@click.option("--together", is_flag=True, help="Allocate all claims on one node, as for one pod.")
@click.option("--least-waste", is_flag=True, help="Prefer devices with the least unused capacity.")
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=200_000,
    show_default=True,
    help="Maximum number of search steps.",
)
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Give up after this long.")
@feature_gates_option()
@cluster_options
@output_options
def run_allocate(
    claims: tuple[str, ...],
    nodes: tuple[str, ...],
    together: bool,
    least_waste: bool,
    steps: int,
    timeout: float | None,
    gates: str,
    where: Where,
    form: OutputFormat,
) -> None:
    """Show the devices that pending ResourceClaims would be allocated, or why allocation fails.

    Nothing is written. With -n, only claims of that namespace are tried; the allocations of all others count.
    The exit code is 1 if a claim cannot be allocated, or if none is pending.

    \b
    plimsoll allocate
    plimsoll allocate --claim team-a/gpus --node node-17
    plimsoll allocate -f cluster.yaml
    kubectl get nodes,resourceslices,deviceclasses,resourceclaims -A -o yaml | plimsoll allocate -f -
    """
    from plimsoll.api.gates import Gates
    from plimsoll.tools import allocation

    switched = Gates.parse(gates)
    needed = ("resourceslices", "deviceclasses", "resourceclaims")
    found = where.objects("nodes", *needed, "devicetaintrules", needed=needed)
    question = allocation.AllocationQuery(
        claims,
        nodes,
        together,
        least_waste,
        switched,
        allocation.make_limits(steps, timeout),
        where.namespace,
    )
    report = allocation.AllocationReport(tuple(allocation.allocate(found, question)))
    write_report(report, form)
    if not report.answers:
        _report_empty("no pending ResourceClaim found", where)
    sys.exit(0 if report.served else 1)


@click.command(name="convert")
@click.option(
    "--form",
    "wire_form",
    required=True,
    type=click.Choice([form.value for form in WireForm]),
    help="Wire form to write.",
)
@cluster_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["json", "yaml"]),
    default="json",
    show_default=True,
    help="JSON lines, or YAML documents.",
)
def run_convert(wire_form: str, where: Where, output: str) -> None:
    """Convert node-allocatable fields to another wire form, as JSON lines.

    For a cluster, its ResourceSlices, DeviceClasses and Pods are read; nothing is written to it. Fields that
    the form cannot express are reported on standard error, with exit code 1.

    \b
    plimsoll convert -f slices.yaml --form 1.37
    plimsoll convert --form 1.36 -o yaml > older.yaml
    kubectl get resourceslices,pods -A -o yaml | plimsoll convert -f - --form 1.36
    """
    from plimsoll.tools import convert
    from plimsoll.tools.colors import printable

    found = where.objects("resourceslices", "deviceclasses", "pods", narrow=True)
    lossless = True
    with Progress() as progress:
        made = list(convert.convert_all(progress.over("converting", found), wire_form))  # all, or none
    for number, converted in enumerate(made):
        if output == "json":
            click.echo(converted.json())
        else:
            click.echo(("---\n" if number else "") + converted.yaml(), nl=False)
        for loss in converted.losses:
            lossless = False
            click.echo(f"lost: {printable(loss)}", err=True)
    sys.exit(0 if lossless else 1)


def _report_empty(what: str, where: Where, *, namespaced: bool = True) -> None:
    place = "the files" if where.files else where.describe(namespaced=namespaced)
    click.echo(f"{what} in {place}", err=True)
