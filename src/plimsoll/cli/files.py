"""`plimsoll check|select|allocate|convert`: work on files alone.

Owns their arguments. What they need is imported when they run.
"""

# ruff: noqa: PLC0415

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime

import click

from plimsoll.api.forms.internal import Form
from plimsoll.cli.options import write_lines

FILES = click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    help="YAML or JSON file or folder; - is standard input. May be given several times.",
)
GATES = click.option(
    "--feature-gates", "gates", default="", metavar="NAME=BOOL,...", help="Switch features; all are on."
)
OUTPUT = click.option(
    "-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True
)


@click.command(name="check")
@FILES
@GATES
@OUTPUT
def run_check(files: tuple[str, ...], gates: str, output: str) -> None:
    """Check objects as the API server would on create.

    \b
    plimsoll check -f slices/
    kubectl get resourceslices -o yaml | plimsoll check -f -
    """
    from plimsoll.api.gates import Gates
    from plimsoll.cluster.dump import read_objects
    from plimsoll.tools import check

    report = check.check_all(read_objects(files), datetime.now(UTC), Gates.parse(gates))
    if output == "json":
        click.echo(json.dumps(report.as_json(), indent=2))
    else:
        write_lines(report.lines())
    sys.exit(1 if report.refused else 0)


@click.command(name="select")
@click.argument("expression")
@FILES
@GATES
@OUTPUT
def run_select(expression: str, files: tuple[str, ...], gates: str, output: str) -> None:
    """Say which devices of the given ResourceSlices a CEL selector matches.

    \b
    plimsoll select 'device.driver == "gpu.example.com"' -f slices.yaml
    """
    from plimsoll.api.gates import Gates
    from plimsoll.cluster.dump import read_objects
    from plimsoll.tools import columns, select

    answers = list(select.select_devices(expression, read_objects(files), Gates.parse(gates)))
    if output == "json":
        click.echo(json.dumps([answer.as_json() for answer in answers], indent=2))
    elif not answers:
        click.echo("there are no devices: give ResourceSlices with -f", err=True)
    else:
        rows = [("DEVICE", "ANSWER"), *((answer.device, answer.text) for answer in answers)]
        write_lines(columns.lay_out(rows))
    sys.exit(0 if any(answer.matched for answer in answers) else 1)


@click.command(name="allocate")
@FILES
@click.option(
    "--claim", "claims", multiple=True, metavar="[NAMESPACE/]NAME", help="Only this claim; repeatable."
)
@click.option("--node", "nodes", multiple=True, metavar="NODE", help="Only this node; repeatable.")
@click.option("--together", is_flag=True, help="All claims on one node, as one pod would have them.")
@click.option("--least-waste", is_flag=True, help="Prefer the device with the least left over.")
@click.option("--steps", type=click.IntRange(min=1), default=200_000, show_default=True, help="Step budget.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Give up after this long.")
@GATES
@OUTPUT
def run_allocate(
    files: tuple[str, ...],
    claims: tuple[str, ...],
    nodes: tuple[str, ...],
    together: bool,
    least_waste: bool,
    steps: int,
    timeout: float | None,
    gates: str,
    output: str,
) -> None:
    """Say which devices the pending ResourceClaims would get, or rule by rule why not.

    \b
    plimsoll allocate -f cluster.yaml
    kubectl get nodes,resourceslices,deviceclasses,resourceclaims -A -o yaml | plimsoll allocate -f -
    """
    from plimsoll.api.gates import Gates
    from plimsoll.cluster.dump import read_objects
    from plimsoll.tools import allocation

    answers = list(
        allocation.ask(
            read_objects(files),
            allocation.Question(
                claims,
                nodes,
                together,
                allocation.preference(least_waste),
                Gates.parse(gates),
                allocation.limits(steps, timeout),
            ),
        )
    )
    if output == "json":
        click.echo(json.dumps([answer.as_json() for answer in answers], indent=2))
    elif not answers:
        click.echo("no ResourceClaim is waiting for devices: give some with -f", err=True)
    else:
        write_lines(line for answer in answers for line in answer.lines())
    sys.exit(0 if answers and all(answer.served for answer in answers) else 1)


@click.command(name="convert")
@FILES
@click.option(
    "--form", required=True, type=click.Choice([form.value for form in Form]), help="The form to write."
)
def run_convert(files: tuple[str, ...], form: str) -> None:
    """Rewrite node-allocatable fields in another wire form, as JSON lines.

    What the form has no room for is said on standard error, and the exit code is then 1.

    \b
    plimsoll convert -f slices.yaml --form 1.37
    kubectl get resourceslices,pods -A -o yaml | plimsoll convert -f - --form 1.36
    """
    from plimsoll.cluster.dump import read_objects
    from plimsoll.tools import convert
    from plimsoll.tools.paint import printable

    lossless = True
    for converted in list(convert.convert_all(read_objects(files), form)):  # all of them, or none
        click.echo(converted.json())
        for loss in converted.losses:
            lossless = False
            click.echo(f"lost: {printable(loss)}", err=True)
    sys.exit(0 if lossless else 1)
