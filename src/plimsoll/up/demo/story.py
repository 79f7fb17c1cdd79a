"""The story of the demo, in words.

Owns the text. Every number in it is given: computed by the ledger, or read from the cluster that runs.
Document 000, "Core Problem", in four steps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import wrap

from plimsoll.tools.colors import Paint
from plimsoll.tools.top.books import BookRow, text_of
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
    def waits(self) -> bool:
        return not self.node and not self.gone


def describe_problem(paint: Paint, node: str, books: SeparateLedgers) -> Iterator[str]:
    """Describe the requests of the demo pods and the result of separate accounting."""
    row = books.row
    yield paint.bold("One node, two books")
    yield f"{node} may carry {_cpus(row.line)} CPUs: that is its line. Two pods want to go there:"
    yield f"  {DATABASE:<10} claims {_cpus(row.claims)} CPUs through DRA (ResourceClaim database-cpus)"
    yield f"  {WEB:<10} requests {_cpus(row.requests)} CPUs the usual way (resources.requests)"


def describe_two_ledgers(paint: Paint, node: str, books: SeparateLedgers) -> Iterator[str]:
    """Step 1: computed, nothing is run."""
    row = books.row
    line = _cpus(row.line)
    yield ""
    yield paint.bold("1. Two books, as stock Kubernetes keeps them") + paint.dim(
        " (computed, nothing is run)"
    )
    yield f"  {'requests':<10} {_cpus(row.requests)} of {line} CPUs: there is room for {WEB}"
    yield f"  {'claims':<10} {_cpus(row.claims)} of {line} CPUs: there is room for {DATABASE}"
    both = [pod for pod, place in books.places.items() if place == node]
    booked = paint.red(f"{_cpus(row.used)} CPUs booked on {line}, {_cpus(books.past)} past the line")
    yield f"  {' and '.join(both)} both go to {node}: {booked}; neither book shows it."


def describe_one_ledger(paint: Paint, node: str, stands: list[DemoPodState], row: BookRow) -> Iterator[str]:
    """Step 2: the same pods in the cluster that runs."""
    yield ""
    yield paint.bold("2. One book, in this cluster") + paint.dim(" (these pods are real)")
    for stand in stands:
        yield from _stand(paint, stand)
    yield _book(node, row)
    yield _command(paint, "plimsoll top nodes", "the book of every node")
    yield _command(paint, f"plimsoll explain {WEB} -n demo", f"why {WEB} waits, and what would help")


def describe_release(paint: Paint, node: str, stands: list[DemoPodState], row: BookRow) -> Iterator[str]:
    """Step 3: who held the CPUs goes."""
    yield ""
    yield paint.bold(f"3. {DATABASE} goes, its claim is released")
    for stand in stands:
        yield from _stand(paint, stand)
    yield _book(node, row)
    yield _command(paint, f"plimsoll top nodes {node}", f"who holds what of {node}")


def describe_return(
    paint: Paint, node: str, stands: list[DemoPodState], row: BookRow, page: str = ""
) -> Iterator[str]:
    """Step 4: and comes back."""
    yield ""
    yield paint.bold(f"4. {DATABASE} comes back and has to wait: the line holds from both sides")
    for stand in stands:
        yield from _stand(paint, stand)
    yield _book(node, row)
    yield _command(paint, f"plimsoll explain {DATABASE} -n demo", f"why {DATABASE} waits")
    if page:
        address = f"{page}#/pending"
        yield f"      {paint.blue(f'{address:<{_COMMAND}}')} all that waits, as a page"


def describe_rerun(paint: Paint, node: str, stands: list[DemoPodState], row: BookRow) -> Iterator[str]:
    """The demo over a folder that has it already."""
    yield paint.bold("The demo is loaded already") + ": its pods are as they were."
    for stand in stands:
        yield from _stand(paint, stand)
    yield _book(node, row)


def _stand(paint: Paint, stand: DemoPodState) -> Iterator[str]:
    if stand.gone:
        yield f"  {stand.pod:<10} is not there any more"
        return
    if not stand.waits:
        yield f"  {stand.pod:<10} {paint.green('runs')} on {stand.node}"
        return
    first, *rest = wrap(f"waits: {stand.why}", min(_WIDTH, paint.width) - 13) or ["waits"]
    yield f"  {stand.pod:<10} {first.replace('waits', paint.yellow('waits'), 1)}"
    yield from (f"{'':<13}{line}" for line in rest)


def _book(node: str, row: BookRow) -> str:
    parts = f"{_cpus(row.claims)} by claims, {_cpus(row.requests)} by requests, {_cpus(row.free)} free"
    return f"  {node:<10} {_cpus(row.line)} CPUs: {parts}"


def _command(paint: Paint, command: str, what: str) -> str:
    return f"    {paint.blue(f'$ {command:<{_COMMAND}}')} {what}"


def _cpus(units: int) -> str:
    return text_of("cpu", units)
