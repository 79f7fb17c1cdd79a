"""The checks, by subject; each is a small function from facts to troubles.

Owns `CHECKS`, in the order of their ids. An id is never given to another question.
"""

from plimsoll.tools.audit.checks import claims, devices, drivers, ledgers, setup, topology
from plimsoll.tools.audit.findings import Check

CHECKS: tuple[Check, ...] = (
    *ledgers.CHECKS,
    *drivers.CHECKS,
    *devices.CHECKS,
    *claims.CHECKS,
    *topology.CHECKS,
    *setup.CHECKS,
)
