"""`nearest_nodes`: the nodes on which fixes are tried, one of each kind of refusal, nearest first.

Every rule is evaluated for every node, not only the first that fails: of the nodes with a taint, one that
lacks nothing else is nearer than one that is also full.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from plimsoll.allocator import AllocationFault
from plimsoll.api.pod_claims import device_requests
from plimsoll.api.resource import expressions_of
from plimsoll.ledger.columns import Mask
from plimsoll.ledger.units import CPU
from plimsoll.scheduler.cycle import build_filters
from plimsoll.scheduler.devices import DynamicResourcesFilter, simulated_ids
from plimsoll.scheduler.devices.filter import node_state
from plimsoll.scheduler.devices.usage import read_usage
from plimsoll.scheduler.pod_info import PodInfo
from plimsoll.scheduler.profile import SchedulerProfile
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.snapshot.snapshot import Snapshot
from plimsoll.tools.node_terms import taint_text, unmet_requirements, untolerated_taints

#: Estimated harm of passing a rule; others count as much as removing a pod.
_HARMS = {Rule.UNSCHEDULABLE: 10, Rule.TAINTS: 10, Rule.NODE_AFFINITY: 20, Rule.SPREAD: 25}
_OTHER_HARM, _NO_DEVICES, _OTHER_DEVICES, _TOO_FEW = 30, 100, 45, 25


def nearest_nodes(pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile, most: int) -> list[int]:
    """Return rows of nodes with different states, those first that need the least harm by estimate."""
    found: dict[Hashable, int] = {}
    for row, failed in rank_nodes(pod_info, snapshot, settings).items():
        if len(found) == most:
            break
        found.setdefault(_state(pod_info, snapshot, row, failed), row)
    return [*found.values()]


def rank_nodes(pod_info: PodInfo, snapshot: Snapshot, settings: SchedulerProfile) -> dict[int, list[Rule]]:
    """Return the rows of all nodes with the rules that each fails, by the estimated harm of passing them."""
    filters = build_filters(pod_info, snapshot, settings, simulated_ids())
    passed: list[tuple[Rule, Mask]] = []
    for each in () if isinstance(filters, NodeReason) else filters:
        if not isinstance(each, DynamicResourcesFilter):
            passed.append((each.rule, each.filter()))
    free_cpu = snapshot.columns.free(CPU)
    ranked = []
    for row in snapshot.rows():
        failed = [rule for rule, mask in passed if not mask[row]]
        harm = sum(_HARMS.get(rule, _OTHER_HARM) for rule in failed) + _device_harm(pod_info, snapshot, row)
        ranked.append((harm, -int(free_cpu[row]), snapshot.node(row).metadata.name, row, failed))
    return {row: failed for *_, row, failed in sorted(ranked, key=lambda each: each[:3])}


def _state(pod_info: PodInfo, snapshot: Snapshot, row: int, failed: Sequence[Rule]) -> Hashable:
    """Return a key that is equal for nodes that refuse a pod for the same reasons and have equal devices."""
    node = snapshot.node(row)
    details: list[Hashable] = [*failed]
    if Rule.TAINTS in failed:
        details += map(taint_text, untolerated_taints(pod_info.pod, node))
    if Rule.NODE_AFFINITY in failed:
        details += [(each.key, each.values) for each in unmet_requirements(pod_info.pod, node)]
    if Rule.RESOURCES in failed or not pod_info.claims:
        details.append(tuple(sorted(snapshot.ledger(row).headroom().items())))
    if pod_info.claims:
        details.append(node_state(snapshot, row) or _pools(snapshot, row))
    return (*details,)


def _pools(snapshot: Snapshot, row: int) -> Hashable:
    """Return a key of a node with devices of several nodes: its pools, and which devices are in use."""
    devices = snapshot.inventory.devices_for(snapshot.node(row))
    if isinstance(devices, AllocationFault):
        return str(devices)
    pools = tuple((pool.id.driver, pool.status, len(pool.slices)) for pool in devices.pools)
    return pools, read_usage(snapshot, devices).signature


def _device_harm(pod_info: PodInfo, snapshot: Snapshot, row: int) -> int:
    """Estimate the harm of getting devices on a node: how many match, whether they are free or not."""
    claims = pod_info.at_node(snapshot.node(row)).unallocated_claims
    requests = [body for claim in claims for _, body in device_requests(claim)]
    if not requests:
        return 0
    devices = snapshot.inventory.devices_for(snapshot.node(row))
    if isinstance(devices, AllocationFault):
        return _NO_DEVICES
    usage = read_usage(snapshot, devices)
    harm = 0
    for body in requests:
        found = snapshot.classes.get(body.device_class_name)
        class_selectors = expressions_of(found.spec.selectors) if found is not None else ()
        of_class = devices.select(class_selectors, ()).mask
        matching = devices.select(class_selectors, expressions_of(body.selectors)).mask
        if not of_class:
            named = any(pool.id.driver in text for pool in devices.pools for text in class_selectors)
            harm += _OTHER_DEVICES if named else _NO_DEVICES
        elif (matching & ~usage.taken).bit_count() < max(body.count, 1):
            harm += _TOO_FEW
    return harm
