"""Detection of kinds that a dump lacks, from references in the objects it contains. Pure.

Bound pods that use claims that are missing, allocated claims without any ResourceSlice, and a dump without
nodes indicate that these kinds were not collected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from plimsoll.api.core import Node, Pod
from plimsoll.api.pod_claims import uses_claims
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.tools.cluster_state.objects import ClusterObjects, Gap

#: Command that collects all kinds.
COMMAND = "plimsoll dump"


def find_gaps(objects: ClusterObjects, origin: str) -> Iterator[Gap]:
    """Yield a gap for each kind that should have objects and has none."""
    pods = objects.all(Pod)
    claims = objects.all(ResourceClaim)
    if not objects.all(Node):
        yield Gap("nodes", f"none in {origin}; collect them with: {COMMAND}")
    users = sum(1 for pod in pods if pod.spec.node_name and uses_claims(pod))
    if users and not claims:
        yield Gap("resourceclaims", f"none in {origin}, but {users} scheduled pods use claims")
    held = sum(1 for claim in claims if claim.status.allocation is not None)
    if held and not objects.all(ResourceSlice):
        yield Gap("resourceslices", f"none in {origin}, but {held} claims are allocated")
    if claims and not objects.all(DeviceClass):
        yield Gap("deviceclasses", f"none in {origin}, but {len(claims)} claims reference classes")


def summarize_gaps(gaps: Iterable[Gap]) -> list[str]:
    """Return one line per gap; kinds that are missing for the same reason share a line."""
    lines: dict[str, list[str]] = {}
    for gap in gaps:
        if gap.served:  # a kind that is not served is not missing
            lines.setdefault(gap.brief or gap.why, []).append(gap.kind)
    return [f"{', '.join(kinds)}: {why}" for why, kinds in lines.items()]
