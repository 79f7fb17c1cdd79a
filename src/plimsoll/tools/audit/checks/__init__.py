"""`CHECKS`: all checks in the order of their IDs. An ID is never reused for another check."""

from plimsoll.tools.audit.checks import (
    allocations,
    capacity,
    claims,
    devices,
    drivers,
    ledgers,
    limits,
    pods,
    pools,
    setup,
    topology,
)
from plimsoll.tools.audit.findings import Check

_MODULES = (ledgers, pods, drivers, devices, capacity, pools, allocations, claims, limits, topology, setup)
CHECKS: tuple[Check, ...] = tuple(
    sorted((check for module in _MODULES for check in module.CHECKS), key=lambda check: check.id)
)
