"""Who holds which CPUs: holdings of claims, the shared pool, and the record of both.

Start at `book.py`. What a claim gets is decided in `prepare.py`, what to believe after a restart in
`reconcile.py`; both are pure.
"""

from plimsoll.drivers.cpu.state.affinity import near_of, needs_neighbours
from plimsoll.drivers.cpu.state.cpu_state import CpuBook, held_before
from plimsoll.drivers.cpu.state.holdings import Grant, Holding, How, union

__all__ = ["CpuBook", "Grant", "Holding", "How", "held_before", "near_of", "needs_neighbours", "union"]
