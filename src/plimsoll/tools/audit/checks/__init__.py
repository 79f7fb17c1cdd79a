"""`CHECKS`: all checks in the order of their IDs. An ID is never reused for another check."""

from plimsoll.tools.audit.checks import (
    allocations,
    claims,
    devices,
    drivers,
    ledgers,
    limits,
    pods,
    setup,
    topology,
)
from plimsoll.tools.audit.findings import Check

_MODULES = (ledgers, pods, drivers, devices, allocations, claims, limits, topology, setup)
CHECKS: tuple[Check, ...] = tuple(
    sorted((check for module in _MODULES for check in module.CHECKS), key=lambda check: check.id)
)
