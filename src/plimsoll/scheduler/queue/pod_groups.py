"""Queued pods by the PodGroup that they belong to."""

from __future__ import annotations

from collections.abc import Set

from plimsoll.api.core import Pod
from plimsoll.api.pod_claims import pod_group_of


def pod_group_key(pod: Pod) -> tuple[str, str] | None:
    """Return the namespace and name of a pod's PodGroup, which are immutable."""
    name = pod_group_of(pod)
    return (pod.metadata.namespace, name) if name else None


class PodGroupMembers:
    """Keys of queued pods by PodGroup, in the order in which they were added."""

    def __init__(self) -> None:
        self._members: dict[tuple[str, str], dict[str, None]] = {}

    def of(self, group: tuple[str, str]) -> Set[str]:
        """Return the keys of the pods of a group."""
        return self._members.get(group, {}).keys()

    def add(self, key: str, pod: Pod) -> None:
        """Add a pod, if it belongs to a group."""
        if (group := pod_group_key(pod)) is not None:
            self._members.setdefault(group, {})[key] = None

    def remove(self, key: str, pod: Pod) -> None:
        """Remove a pod."""
        group = pod_group_key(pod)
        members = self._members.get(group) if group is not None else None
        if group is not None and members is not None:
            members.pop(key, None)
            if not members:
                del self._members[group]
