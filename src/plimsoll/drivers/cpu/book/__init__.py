"""Who holds which CPUs: holdings of claims, the shared pool, and the record of both.

Start at `book.py`. What a claim gets is decided in `prepare.py`, what to believe after a restart in
`reconcile.py`; both are pure.
"""

from plimsoll.drivers.cpu.book.book import CpuBook, held_before
from plimsoll.drivers.cpu.book.holdings import Grant, Holding, How, union
from plimsoll.drivers.cpu.book.near import near_of, needs_neighbours

__all__ = ["CpuBook", "Grant", "Holding", "How", "held_before", "near_of", "needs_neighbours", "union"]
