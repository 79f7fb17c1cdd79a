"""`CHECKS`: all checks in the order of their IDs. An ID is never reused for another check."""

from plimsoll.tools.audit.checks import (
    advertisers,
    allocations,
    capacity,
    claims,
    devices,
    drivers,
    ledgers,
    limits,
    mappings,
    pods,
    pools,
    setup,
    topology,
    unreachable,
)
from plimsoll.tools.audit.findings import Check

_MODULES = (
    advertisers,
    ledgers, pods, mappings, drivers, devices, capacity, pools, allocations, claims, limits, topology,
    unreachable, setup,
)  # fmt: skip
CHECKS: tuple[Check, ...] = tuple(
    sorted((check for module in _MODULES for check in module.CHECKS), key=lambda check: check.id)
)
