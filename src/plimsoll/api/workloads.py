"""Typed views of objects that select pods: Service, ReplicationController, ReplicaSet, StatefulSet.

Only their selectors: the scheduler spreads the pods they select.
"""

from __future__ import annotations

from plimsoll.api.meta import LabelSelector, ObjectMeta, Wire


class LabelMapSpec(Wire, frozen=True):
    """Selector of a Service or ReplicationController: labels that all of its pods have."""

    selector: dict[str, str] = {}


class LabelSelectorSpec(Wire, frozen=True):
    """Selector of a ReplicaSet or StatefulSet."""

    selector: LabelSelector | None = None


class Service(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: LabelMapSpec = LabelMapSpec()


class ReplicationController(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: LabelMapSpec = LabelMapSpec()


class ReplicaSet(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: LabelSelectorSpec = LabelSelectorSpec()


class StatefulSet(Wire, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: LabelSelectorSpec = LabelSelectorSpec()


SELECTING_KINDS = frozenset({Service, ReplicationController, ReplicaSet, StatefulSet})
