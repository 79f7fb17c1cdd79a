"""What a dump lacks, told by what is in it.

Owns `find_gaps` and `summarize_gaps`, which are pure. Pods that use claims that are not there, claims with
devices that nobody publishes, and a cluster without nodes are signs of a dump that was taken without these
kinds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from plimsoll.api.core import Node, Pod
from plimsoll.api.resource import DeviceClass, ResourceClaim, ResourceSlice
from plimsoll.tools.cluster_state.objects import ClusterObjects, Gap

#: What to ask kubectl for.
WANTED = ",".join(
    (
        "nodes",
        "pods",
        "namespaces",
        "resourceslices",
        "resourceclaims",
        "resourceclaimtemplates",
        "deviceclasses",
        "devicetaintrules",
    )
)
COMMAND = f"kubectl get {WANTED} -A -o yaml"


def find_gaps(objects: ClusterObjects, origin: str) -> Iterator[Gap]:
    """The kinds of which there should be some and are none."""
    pods = objects.all(Pod)
    claims = objects.all(ResourceClaim)
    if not objects.all(Node):
        yield Gap("nodes", f"there are none in {origin}; take all with: {COMMAND}")
    users = sum(1 for pod in pods if pod.spec.node_name and pod.spec.resource_claims)
    if users and not claims:
        yield Gap("resourceclaims", f"there are none in {origin}, and pods with a node use some ({users})")
    held = sum(1 for claim in claims if claim.status.allocation is not None)
    if held and not objects.all(ResourceSlice):
        yield Gap("resourceslices", f"there are none in {origin}, and claims have devices of some ({held})")
    if claims and not objects.all(DeviceClass):
        yield Gap("deviceclasses", f"there are none in {origin}, and claims name some ({len(claims)})")


def summarize_gaps(gaps: Iterable[Gap]) -> list[str]:
    """A line for each thing that is missing; kinds that lack for the same reason share one."""
    lines: dict[str, list[str]] = {}
    for gap in gaps:
        if gap.served:  # what a cluster does not have at all is not missing in its cluster state
            lines.setdefault(gap.brief or gap.why, []).append(gap.kind)
    return [f"{', '.join(kinds)}: {why}" for why, kinds in lines.items()]
