"""Texts of explanations: one format string for each kind of statement.

All other modules of `explain` produce values only. Lists are joined with commas, amounts are written as in
all tools (`tools/amounts.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from plimsoll.tools.facts import fact_text


class StatementKind(Enum):
    """Kind of statement; the value is its format string, the name is the `rule` in JSON output."""

    # -- nodes and their rules
    SHORT = "{resource}: requests {wanted}, {free} of {line} free ({requests} requests, {claims} claims, {overhead} overhead)"  # noqa: E501
    SHORT_WITH_CLAIMS = "{resource}: needs {wanted} ({own} requests, {charged} by its claims), {free} of {line} free ({requests} requests, {claims} claims, {overhead} overhead)"  # noqa: E501
    SHORT_BEFORE_CLAIMS = "{resource}: requests {wanted} without its claims, which may add more; {free} of {line} free ({requests} requests, {claims} claims, {overhead} overhead)"  # noqa: E501
    TOO_SMALL = "{resource}: requests {wanted}, the node has {line} allocatable"
    TOO_SMALL_WITH_CLAIMS = "{resource}: needs {wanted} ({own} requests, {charged} by its claims), the node has {line} allocatable"  # noqa: E501
    NO_RESOURCE = "{resource}: requests {wanted}, the node has none"
    UNPROVIDED = "{resource}: requests {wanted}; no DeviceClass serves it, and no node advertises it"
    TOO_MANY_PODS = "pods: the node allows {line} and has {pods}"
    HOLDER_POD = "pod {pod} holds {amount} ({rule})"
    HOLDER_PLACEHOLDER = "placeholder pod {pod} holds {amount} beyond the charge of {owner}"
    HOLDER_CLAIM = "claim {claim} holds {amount} ({rule}, pod {pod})"
    HOLDER_POOL = "claim {claim} holds {amount} ({rule}, a pool)"
    UNCOUNTED = "claims hold {amount} that is not counted"
    MORE_HOLDERS = "{count} others hold {amount}"
    CORDONED = "node is unschedulable (kubectl cordon)"
    TAINT = "taint {taint} is not tolerated"
    LABEL = "the pod requires {wanted}; the node has {had}"
    LABEL_VALUES = "nodes have {values}"
    NO_TERM = "the required node affinity has no term that can match"
    PORT = "host port {port} is in use by pod {pod}"
    VOLUME = "volume {volume} of claim {claim} can be reached only from nodes with {wanted}"
    VOLUME_UNBOUND = "claim {claim} ({size}, class {storage_class}) is not bound: {why}"
    VOLUME_USED = "claim {claim} is used by pod {pod} on node {node}"
    DISK = "a disk of the pod is mounted by another pod on the node"
    VOLUME_COUNT = "no more volumes of its drivers can be attached to the node"
    SPREAD = "{key}={value} has {had} matching pods, {fewest} {least}; maxSkew is {skew}"
    SPREAD_LABEL = "the node has no label {key}"
    AFFINITY = "requires a pod with {selector} in the same {key}"
    AFFINITY_NONE = "no pod with {selector} runs anywhere"
    AFFINITY_PODS = "such pods run in {key} {values}"
    ANTI_AFFINITY = "must not share {key}={value} with pod {pod} ({selector})"
    EXISTING_ANTI_AFFINITY = "anti-affinity of pod {pod} excludes it from {key}={value}"
    FEATURES = "the pod needs kubelet feature {wanted}, the node declares {had}"
    # -- devices
    REQUEST = "claim {claim}, request {request}: needs {wanted}, {left} of {devices} devices available"
    NO_DEVICES = "claim {claim}, request {request}: needs {wanted}, the node has no devices"
    CLASS_SELECTOR = "{count} not of class {device_class}: {expression}"
    REQUEST_SELECTOR = "{count} not matched by selector {index}: {expression}"
    NO_DRIVER = (
        "claim {claim}, request {request}: needs {wanted}, the node has no {usable}device of driver {driver}"
    )
    ATTRIBUTE = "wants {attribute} {wanted}; devices of {driver} on {node}: {values}"
    CONDITION_VALUES = "wants {wanted}; devices of {driver} on {node}: {values}"
    CONDITION = "wants {wanted}"
    WANTS_SHARED = "wants devices that allow multiple allocations; those of {driver} on {node} are exclusive"
    WANTS_EXCLUSIVE = "wants exclusive devices; those of {driver} on {node} allow multiple allocations"
    PLUGIN = "{count} may be held by pods that got {resource} from the device plugin of the node"
    TAKEN = "{count} already allocated"
    TAKEN_BY = "{device} to claim {claim}"
    TAKEN_UNUSED = "{device} to claim {claim}, which no pod uses"
    PICKED = "{count} used by other requests of this pod"
    CAPACITY_SHORT = "{count} short of {name}: needs {wanted}, at most {had} available ({device})"
    CAPACITY_UNDEFINED = "{count} without capacity {name} (such as {device})"
    CAPACITY_MAX = (
        "{count} with a request policy that allows at most {had} of {name}, needs {wanted} ({device})"
    )
    CAPACITY_VALID = (
        "{count} with a request policy whose largest value of {name} is {had}, needs {wanted} ({device})"
    )
    CAPACITY_STEP = (
        "{count} with a request policy step of {had}: {wanted} of {name} is not a multiple of it ({device})"
    )
    DEVICE_TAINT = "{count} tainted {taint} (such as {device})"
    COUNTER = "{count} blocked by counter {counter}: needs {wanted}, {had} available ({device})"
    COUNTERS_OFF = "{count} partitions, and the feature gate for partitionable devices is disabled"
    COMPATIBILITY = "{count} not compatible with devices in use: {device} {conflict}"
    NODE_OPERATIONS = "{count} that the node cannot use: {device} {problem}"
    CONSTRAINT_NONE = "{count} without attribute {attribute} (such as {device})"
    MATCH = "{count} with a different {attribute}: {device} has {values}, {other} has {theirs}"
    DISTINCT = "{count} with the same {attribute}: {device} and {other} both have {values}"
    CONSTRAINT = "{count} violate a constraint on {attribute}: {device} has {values}"
    BUDGET = "{count} exceed the budget: {device} charges {wanted} {resource}, {line} has {had} left"
    BINDING_OFF = "{count} have binding conditions, and their feature gate is disabled"
    NOT_FOR_NODE = "{count} not available on this node"
    FAILED = "{count} on which a selector or derived attribute fails to evaluate"
    CONSTRAINT_UNMET = "claim {claim}, constraint {index} wants {relation} {attribute} for {devices}; present on {node}: {values}"  # noqa: E501
    AT_MOST = "at most {count} of them can be allocated together"
    TOGETHER = "each request alone can be allocated, together they cannot"
    DEVICES_TOGETHER = "each device alone can be allocated, together they cannot"
    STUCK = "when {held}:"
    POOL = "pool {pool} is {standing}: {why}"
    EVERYWHERE = "request {request}: {matching}, {taken} in use{unavailable}, {free} free{tail}"
    NOWHERE = "request {request}: no device{of} matches ({devices} published)"
    NOWHERE_USABLE = "request {request}: no usable device{of}; {unusable} are in incomplete pools"
    NOWHERE_AT_ALL = "request {request}: no ResourceSlice publishes any device{of}"
    ELSEWHERE = "claim {claim} is allocated on other nodes: {where}"
    SELECTOR_FAILS = "{owner}, selector #{index}: {expression}"
    DERIVED_FAILS = "claim {claim}, request {request}, derived attribute {attribute}: {expression}"
    CANNOT_SKIP = "claim {claim} has devices that skip node operations, which the node does not support"
    FAILS_ON = "fails on device {device}: {error}"
    OTHERS_NOT_TRIED = "other nodes are not tried: the pod stays pending until the selector or the device is corrected (selectorErrors: skip-node tries them)"  # noqa: E501
    GAVE_UP = "the device search reached its limit of {steps} steps; the pod may fit"
    NOT_LOOKED_INTO = "refused for the same reason; not evaluated in detail"
    # -- the ledger's reasons
    CLAIM_USED = "claim {claim} charges its node and cannot be shared; it is used by {pods}"
    POOL_EXHAUSTED = "claim {claim} has {had} of {capacity} {resource} left, the pod draws {wanted}"
    POD_LEVEL = "pod-level {what} for {resource} is {capacity}, containers and claims need {wanted}"
    TEXT = "{text}"  #: in the words of the ledger or of the allocator
    # -- placed
    CHARGE = "{resource} {amount}  {rule}{source}"
    COVERED = "{resource} {amount}  covered by the pod-level request, claim {claim}"
    HEADROOM = "{resource}: {free} of {line} free{uncounted}"
    DEVICE = "request {request}: {device}{share}"
    ALTERNATIVE = "subrequest {number} of {count}"
    EARLIER = "earlier subrequest {name}: {why}"
    EARLIER_FREE = "earlier subrequest {name} could be allocated now"
    SCORE = "{scorer} {score} (weight {weight}; the best node has {best})"
    EVENT = "{time}  {type} {reason}{times}, {source}: {message}"
    # -- claims
    USER = "pod {pod} on node {node}"
    USER_GONE = "pod {pod}: deleted or terminated; the reservation is stale"
    USER_WAITS = "pod {pod}: pending"


def render_statement(kind: StatementKind, facts: Mapping[str, object]) -> str:
    """Render a statement as text."""
    sentence: str = kind.value
    return sentence.format_map({name: fact_text(fact) for name, fact in facts.items()})


def pluralize(count: int, one: str, many: str = "") -> str:
    """Format a count with its noun."""
    return f"{count} {one if count == 1 else many or one + 's'}"
