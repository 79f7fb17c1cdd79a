"""Texts of the demo: the problem of KEP-5517 in four steps.

Every number is an argument: computed by the ledger, or read from the running cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap

from plimsoll.tools.amounts import format_short
from plimsoll.tools.colors import Paint
from plimsoll.tools.top.nodes import ResourceRow
from plimsoll.up.demo.two_ledgers import SeparateLedgers

DATABASE, WEB = "database", "web"
_COMMAND = 34
_WIDTH = 100


@dataclass(frozen=True, slots=True)
class DemoPodState:
    """State of a demo pod: its node, why it is pending, or that it is deleted."""

    pod: str
    node: str = ""
    why: str = ""
    gone: bool = False

    @property
    def is_pending(self) -> bool:
        return not self.node and not self.gone


def describe_problem(paint: Paint, node: str, ledgers: SeparateLedgers) -> Iterator[str]:
    """Describe the requests of the demo pods and the result of separate accounting."""
    row = ledgers.row
    yield paint.bold("One node, two ledgers")
    yield f"{node} has {_cpus(row.line)} allocatable CPUs. Two pods are to run there:"
    yield f"  {DATABASE:<10} claims {_cpus(row.claims)} CPUs through DRA (ResourceClaim database-cpus)"
    yield f"  {WEB:<10} requests {_cpus(row.requests)} CPUs (resources.requests)"


def describe_two_ledgers(paint: Paint, node: str, ledgers: SeparateLedgers) -> Iterator[str]:
    """Describe step 1: separate accounting, computed."""
    row = ledgers.row
    line = _cpus(row.line)
    yield ""
    yield paint.bold("1. Requests and claims accounted separately, as in stock Kubernetes") + paint.dim(
        " (computed)"
    )
    yield f"  {'requests':<10} {_cpus(row.requests)} of {line} CPUs: {WEB} fits"
    yield f"  {'claims':<10} {_cpus(row.claims)} of {line} CPUs: {DATABASE} fits"
    both = [pod for pod, place in ledgers.nodes.items() if place == node]
    total = paint.red(f"{_cpus(row.used)} of {line} CPUs, overcommitted by {_cpus(ledgers.overcommitted)}")
    yield f"  {' and '.join(both)} are both scheduled to {node}: {total}."


def describe_one_ledger(
    paint: Paint, node: str, states: list[DemoPodState], row: ResourceRow
) -> Iterator[str]:
    """Describe step 2: the same pods in the running cluster."""
    yield ""
    yield paint.bold("2. One ledger, in this cluster") + paint.dim(" (real pods)")
    for state in states:
        yield from _format_pod(paint, state)
    yield _format_node(node, row)
    yield _command(paint, "plimsoll top nodes", "the ledger of every node")
    yield _command(paint, f"plimsoll explain {WEB} -n demo", f"why {WEB} is pending, and the nearest fix")


def describe_release(paint: Paint, node: str, states: list[DemoPodState], row: ResourceRow) -> Iterator[str]:
    """Describe step 3: the pod with the claim is deleted."""
    yield ""
    yield paint.bold(f"3. {DATABASE} is deleted, its claim is released")
    for state in states:
        yield from _format_pod(paint, state)
    yield _format_node(node, row)
    yield _command(paint, f"plimsoll top nodes {node}", f"pods and claims on {node}")


def describe_return(
    paint: Paint, node: str, states: list[DemoPodState], row: ResourceRow, page: str = ""
) -> Iterator[str]:
    """Describe step 4: it is created again."""
    yield ""
    yield paint.bold(f"4. {DATABASE} is created again and stays pending: requests count against claims, too")
    for state in states:
        yield from _format_pod(paint, state)
    yield _format_node(node, row)
    yield _command(paint, f"plimsoll explain {DATABASE} -n demo", f"why {DATABASE} is pending")
    if page:
        address = f"{page}#/pending"
        yield f"      {paint.blue(f'{address:<{_COMMAND}}')} pending pods in the dashboard"


def describe_rerun(paint: Paint, node: str, states: list[DemoPodState], row: ResourceRow) -> Iterator[str]:
    """Describe the state of a demo that was loaded before."""
    yield paint.bold("The demo is already loaded") + "; its pods are unchanged."
    for state in states:
        yield from _format_pod(paint, state)
    yield _format_node(node, row)


def _format_pod(paint: Paint, state: DemoPodState) -> Iterator[str]:
    if state.gone:
        yield f"  {state.pod:<10} is deleted"
        return
    if not state.is_pending:
        yield f"  {state.pod:<10} {paint.green('running')} on {state.node}"
        return
    first, *rest = wrap(f"pending: {state.why}", min(_WIDTH, paint.width) - 13) or ["pending"]
    yield f"  {state.pod:<10} {first.replace('pending', paint.yellow('pending'), 1)}"
    yield from (f"{'':<13}{line}" for line in rest)


def _format_node(node: str, row: ResourceRow) -> str:
    parts = f"{_cpus(row.claims)} by claims, {_cpus(row.requests)} by requests, {_cpus(row.free)} free"
    return f"  {node:<10} {_cpus(row.line)} CPUs: {parts}"


def _command(paint: Paint, command: str, what: str) -> str:
    return f"    {paint.blue(f'$ {command:<{_COMMAND}}')} {what}"


def _cpus(units: int) -> str:
    return format_short("cpu", units)
