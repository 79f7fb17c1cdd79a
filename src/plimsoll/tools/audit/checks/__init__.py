"""The checks, by subject; each is a small function from facts to troubles.

Owns `CHECKS`, in the order of their ids. An id is never given to another question.
"""

from plimsoll.tools.audit.checks import ledgers as books
from plimsoll.tools.audit.checks import claims, devices, drivers, setup, topology
from plimsoll.tools.audit.findings import Check

CHECKS: tuple[Check, ...] = (
    *books.CHECKS,
    *drivers.CHECKS,
    *devices.CHECKS,
    *claims.CHECKS,
    *topology.CHECKS,
    *setup.CHECKS,
)
