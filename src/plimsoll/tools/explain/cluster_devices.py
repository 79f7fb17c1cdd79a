"""`describe_cluster_devices`: how many devices of the cluster match a request, and how many are left."""

from __future__ import annotations

from collections.abc import Set

from plimsoll.api.pod_claims import device_requests
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.availability import Availability
from plimsoll.tools.explain.pod_view import PodView
from plimsoll.tools.explain.selection import RequestSelectors, driver_names, may_serve, read_request_selectors
from plimsoll.tools.explain.text import StatementKind, pluralize
from plimsoll.tools.explain.tree import Statement
from plimsoll.tools.facts import join_names


def describe_cluster_devices(view: PodView, tried: Set[int]) -> tuple[Statement, ...]:
    """Return a statement for each request of the pending claims; `tried` are the nodes that no other rule
    excludes.
    """
    everywhere = Availability(view.snapshot)
    is_whole = len(tried) == len(view.snapshot)
    feasible = everywhere if is_whole else Availability(view.snapshot, sorted(tried))
    found = []
    for claim in view.pod_info.unallocated_claims:
        for name, body in device_requests(claim):
            selectors = read_request_selectors(view, name, body)
            facts: dict[str, object] = {"request": name, "claim": claim.metadata.full_name}
            counts = everywhere.of_request(body)
            if not counts.devices:
                found.append(_describe_absence(view.snapshot, selectors, facts))
                continue
            excluded = 0 if is_whole else counts.total - feasible.of_request(body).total
            closed = {why: each.devices for why, each in counts.closed.items()}
            numbers = {
                "all": counts.devices,
                "taken": counts.held,
                "closed": sum(closed.values()),
                "tainted": sum(counts.device_taints.values()),
                "free": counts.total,
            }
            blocked = max(0, 2 * counts.devices - sum(numbers.values()))
            parts = [f", {number} {why}" for why, number in closed.items()]
            parts += [f", {number} tainted {taint}" for taint, number in counts.device_taints.items()]
            parts += [f", {blocked} blocked (counters, capacity or node resources)"] if blocked else []
            facts |= {**numbers, "blocked": blocked, "unavailable": "".join(parts)}
            facts["matching"] = pluralize(counts.devices, "device matches", "devices match")
            facts["tail"] = f", {excluded} of them on nodes excluded by other rules" if excluded else ""
            found.append(Statement(StatementKind.EVERYWHERE, facts))
    return tuple(found)


def _describe_absence(snapshot: Snapshot, selectors: RequestSelectors, facts: dict[str, object]) -> Statement:
    inventory = snapshot.inventory
    pools = [pool for pool in inventory.pool_ids() if may_serve(selectors, pool.driver)]
    usable = sum(inventory.cluster_pool(pool).all.bit_count() for pool in pools)
    published = sum(len(view.devices) for pool in pools for view in inventory.slices_of(pool))
    facts |= {"devices": usable, "unusable": published - usable}
    drivers = sorted({pool.driver for pool in pools}) or driver_names(selectors)
    facts["of"] = f" of {join_names(drivers, 3)}" if drivers else ""
    kind = StatementKind.NOWHERE_USABLE if published > usable else StatementKind.NOWHERE_AT_ALL
    return Statement(StatementKind.NOWHERE if usable else kind, facts)
