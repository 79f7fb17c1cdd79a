"""Who holds which CPUs: holdings of claims, the shared pool, and the record of both.

Start at `book.py`. What a claim gets is decided in `prepare.py`, what to believe after a restart in
`reconcile.py`; both are pure.
"""

from plimsoll.drivers.cpu.book.holdings import Grant, Holding, How, union

__all__ = ["Grant", "Holding", "How", "union"]
