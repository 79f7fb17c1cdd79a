"""Who holds which CPUs: holdings of claims, the shared pool, and the record of both."""

from plimsoll.drivers.cpu.book.holdings import Grant, Holding

__all__ = ["Grant", "Holding"]
