"""DynamicResources: device allocation and ledger fit on one node (`exact`), as a filter (`filter`) with a
cache of searches (`search_cache`).
"""

from plimsoll.scheduler.devices.charging_nodes import charges_node
from plimsoll.scheduler.devices.exact import (
    MAX_SCORE,
    NO_CLAIMS,
    NewId,
    NodeFit,
    check_charges,
    find_delegated_shortages,
    is_usable_on,
    simulated_ids,
    try_node,
)
from plimsoll.scheduler.devices.filter import DynamicResourcesFilter, needs_capacity, node_state
from plimsoll.scheduler.devices.search_cache import SearchCache, SearchResults
from plimsoll.scheduler.devices.usage import read_usage

__all__ = [
    "MAX_SCORE",
    "NO_CLAIMS",
    "DynamicResourcesFilter",
    "NewId",
    "NodeFit",
    "SearchCache",
    "SearchResults",
    "charges_node",
    "check_charges",
    "find_delegated_shortages",
    "is_usable_on",
    "needs_capacity",
    "node_state",
    "read_usage",
    "simulated_ids",
    "try_node",
]
