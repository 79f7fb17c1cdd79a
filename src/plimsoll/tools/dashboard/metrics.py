"""`show_metrics`: node, pool, pod and claim metrics in Prometheus text format, from the rows the page shows.

Series: five per node for each of cpu, memory and huge page sizes plus one, three per pool, and about a dozen
more; what is not counted only where there is some; see docs/dashboard.md, "Metrics".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal

from plimsoll.api.core import Pod
from plimsoll.api.resource import ResourceClaim
from plimsoll.ledger.amounts import is_huge_page
from plimsoll.ledger.placeholders import is_placeholder
from plimsoll.tools.availability import Availability
from plimsoll.tools.cluster_state import ClusterState
from plimsoll.tools.dashboard.devices import DeviceCache
from plimsoll.tools.dashboard.nodes import NodeRowCache
from plimsoll.tools.top.claims import claim_state

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_COLUMNS = (
    ("allocatable", "line", "Allocatable resources of a node."),
    ("requests", "requests", "Pod requests charged to a node, less what they draw from claims."),
    ("claims", "claims", "Charges of claims to a node."),
    ("overhead", "overhead", "Overhead of pods and devices charged to a node."),
    ("free", "free", "Free resources of a node; negative if overcommitted."),
)


def show_metrics(cluster_state: ClusterState, nodes: NodeRowCache, devices: DeviceCache) -> bytes:
    """Return all metrics."""
    return "".join(_lines(cluster_state, nodes, devices)).encode()


def _lines(cluster_state: ClusterState, nodes: NodeRowCache, devices: DeviceCache) -> Iterator[str]:
    node_rows = nodes.rows(cluster_state)
    rows = [
        (f'{{node="{_escape(node.name)}",resource="{row.resource}"}}', row)
        for node in node_rows
        for row in node.rows
        if row.resource in ("cpu", "memory") or is_huge_page(row.resource)
    ]
    for name, column, help in _COLUMNS:
        yield _head(f"plimsoll_node_{name}", help + " cpu in cores, other resources in bytes.")
        for labels, row in rows:
            amount = getattr(row, column)
            yield f"plimsoll_node_{name}{labels} {_cores(amount) if row.resource == 'cpu' else amount}\n"
    yield _head(
        "plimsoll_node_uncounted",
        "What claims take of a node without being charged. cpu in cores, other resources in bytes.",
    )
    for labels, row in rows:
        if row.uncounted:
            amount = _cores(row.uncounted) if row.resource == "cpu" else row.uncounted
            yield f"plimsoll_node_uncounted{labels} {amount}\n"
    yield _head("plimsoll_node_past_line", "Number of overcommitted resources of a node.")
    for node in node_rows:
        yield f'plimsoll_node_past_line{{node="{_escape(node.name)}"}} {len(node.past)}\n'
    yield _head(
        "plimsoll_node_past_line_uncounted",
        "Number of resources of a node that are overcommitted only if uncounted claims are counted.",
    )
    for node in node_rows:
        if node.past_uncounted:
            count = len(node.past_uncounted)
            yield f'plimsoll_node_past_line_uncounted{{node="{_escape(node.name)}"}} {count}\n'
    pools = {
        f'driver="{_escape(pool.driver)}",pool="{_escape(pool.pool)}"': pool.devices
        for pool in devices.pools(cluster_state)
    }
    classes = {
        f'device_class="{_escape(each.device_class)}"': {"total": each.total, "most": each.most}
        for each in Availability(cluster_state.snapshot).all_classes()
    }
    for found, columns in ((pools, _POOLS), (classes, _CLASSES)):
        for name, column, help in columns:
            yield _head(f"plimsoll_{name}", help)
            for labels, each in found.items():
                yield f"plimsoll_{name}{{{labels}}} {each[column]}\n"
    yield _head("plimsoll_pods", "Pods that have not terminated, bound or pending, and placeholder pods.")
    pending = len(cluster_state.pending)
    yield f'plimsoll_pods{{state="bound"}} {len(cluster_state.pods) - pending}\n'
    yield f'plimsoll_pods{{state="pending"}} {pending}\n'
    placeholders = sum(map(is_placeholder, cluster_state.objects.all(Pod)))
    yield f'plimsoll_pods{{state="placeholder"}} {placeholders}\n'
    yield _head("plimsoll_pending_pods", "Pending pods by the reason of their PodScheduled condition.")
    for reason, count in sorted(Counter(map(_reason, cluster_state.pending)).items()):
        yield f'plimsoll_pending_pods{{reason="{_escape(reason)}"}} {count}\n'
    yield _head("plimsoll_claims", "ResourceClaims by state.")
    for state, count in sorted(Counter(map(claim_state, cluster_state.objects.all(ResourceClaim))).items()):
        yield f'plimsoll_claims{{state="{state}"}} {count}\n'


_POOLS = (
    ("pool_devices", "all", "Devices of a pool; partitions are not counted."),
    ("pool_devices_free", "free", "Devices of a pool that are entirely free."),
    ("pool_devices_taken", "taken", "Fully allocated devices of a pool."),
)
_CLASSES = (
    ("class_free", "total", "Devices of a class that can still be allocated."),
    ("class_free_on_one_node", "most", "Devices of a class that one pod can still get."),
)


def _reason(pod: Pod) -> str:
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False" and condition.reason:
            return str(condition.reason)
    return "NotTriedYet"


def _head(name: str, help: str) -> str:
    return f"# HELP {name} {help}\n# TYPE {name} gauge\n"


def _cores(milli: int) -> str:
    return str(Decimal(milli).scaleb(-3).normalize() + 0) if milli % 1000 else str(milli // 1000)


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
