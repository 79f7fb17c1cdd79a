"""Index of the scheduled pods of pod groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import pod_group_of
from plimsoll.ledger.node_ledger import pod_key
from plimsoll.scheduler.snapshot.index import SnapshotIndex

#: Namespace and name of a PodGroup.
GroupKey = tuple[str, str]


class GroupMembers(SnapshotIndex):
    """Pods of each group that are assigned to or assumed on a node."""

    def __init__(self) -> None:
        self._members: dict[GroupKey, dict[str, tuple[int, Pod]]] = {}

    def pod_added(self, row: int, pod: Pod) -> None:
        if name := pod_group_of(pod):
            self._members.setdefault((pod.metadata.namespace, name), {})[pod_key(pod)] = (row, pod)

    def pod_removed(self, row: int, pod: Pod) -> None:
        name = pod_group_of(pod)
        members = self._members.get((pod.metadata.namespace, name)) if name else None
        if members is not None:
            members.pop(pod_key(pod), None)
            if not members:
                del self._members[pod.metadata.namespace, name]

    def of(self, key: GroupKey) -> Mapping[str, tuple[int, Pod]]:
        """Return row and pod of each scheduled member, by pod key."""
        return self._members.get(key, {})

    def __iter__(self) -> Iterator[GroupKey]:
        """Iterate over the groups with scheduled members."""
        return iter(self._members)
