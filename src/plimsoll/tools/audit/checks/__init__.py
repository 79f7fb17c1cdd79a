"""`CHECKS`: all checks in the order of their IDs. An ID is never reused for another check."""

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
