"""Full views of Namespace, Node, Event, Lease, PriorityClass, Binding and Eviction, for validation.

They have the fields that a rule, a default or a stored form (quantities, timestamps) depends on; all other
fields are preserved unchanged. The everyday views are in `api.core`.
"""

from __future__ import annotations

import msgspec

from plimsoll.api.core import Node, NodeSpec, NodeStatus
from plimsoll.api.meta import Condition, Int, Int32, ObjectMeta, ObjectReference, Wire

# -- Namespace


class FullNamespaceSpec(Wire, frozen=True):
    finalizers: tuple[str, ...] = ()


class FullNamespaceStatus(Wire, frozen=True):
    phase: str = ""
    conditions: tuple[Condition, ...] = ()


class FullNamespace(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: FullNamespaceSpec = FullNamespaceSpec()
    status: FullNamespaceStatus = FullNamespaceStatus()


# -- Node


class FullNodeSpec(NodeSpec, frozen=True):
    pod_cidr: str = msgspec.field(name="podCIDR", default="")
    pod_cidrs: tuple[str, ...] = msgspec.field(name="podCIDRs", default=())
    external_id: str = msgspec.field(name="externalID", default="")


class NodeSwap(Wire, frozen=True):
    capacity: Int | None = None


class NodeSystemInfo(Wire, frozen=True):
    swap: NodeSwap | None = None


class FullNodeStatus(NodeStatus, frozen=True):
    phase: str = ""
    node_info: NodeSystemInfo = NodeSystemInfo()


class FullNode(Node, frozen=True):
    spec: FullNodeSpec = FullNodeSpec()
    status: FullNodeStatus = FullNodeStatus()


# -- Event, in the core/v1 form


class EventSource(Wire, frozen=True):
    component: str = ""
    host: str = ""


class EventSeries(Wire, frozen=True):
    count: Int32 = 0
    last_observed_time: str | None = None


class Event(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    involved_object: ObjectReference = ObjectReference()
    reason: str = ""
    message: str = ""
    source: EventSource = EventSource()
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    count: Int32 = 0
    type: str = ""
    event_time: str | None = None
    series: EventSeries | None = None
    action: str = ""
    related: ObjectReference | None = None
    reporting_component: str = ""
    reporting_instance: str = ""


# -- Lease


class FullLeaseSpec(Wire, frozen=True):
    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: Int32 | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class FullLease(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: FullLeaseSpec = FullLeaseSpec()


# -- PriorityClass


class PriorityClass(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    value: Int32 = 0
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None


# -- bodies of pod subresources


class Binding(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    target: ObjectReference = ObjectReference()


class Preconditions(Wire, frozen=True):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(Wire, frozen=True):
    grace_period_seconds: Int | None = None
    preconditions: Preconditions | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    dry_run: tuple[str, ...] = ()
    ignore_store_read_error: bool | None = msgspec.field(
        name="ignoreStoreReadErrorWithClusterBreakingPotential", default=None
    )


class Eviction(Wire, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    delete_options: DeleteOptions | None = None
