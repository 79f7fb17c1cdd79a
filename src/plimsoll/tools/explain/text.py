"""Texts of explanations: one format string for each kind of statement.

All other modules of `explain` produce values only. Lists are joined with commas, quantities are written in
Kubernetes notation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeGuard


class StatementKind(Enum):
    """Kind of statement; the value is its format string, the name is the `rule` in JSON output."""

    # -- nodes and their rules
    SHORT = "{resource}: wants {wanted}, {free} free of {line} ({requests} requests, {claims} claims, {overhead} overhead)"  # noqa: E501
    SHORT_WITH_CLAIMS = "{resource}: wants {wanted} ({own} requests, {charged} by its claims), {free} free of {line} ({requests} requests, {claims} claims, {overhead} overhead)"  # noqa: E501
    SHORT_BEFORE_CLAIMS = "{resource}: wants {wanted} by its requests alone, claims may add to that; {free} free of {line} ({requests} requests, {claims} claims, {overhead} overhead)"  # noqa: E501
    TOO_SMALL = "{resource}: wants {wanted}, the whole node has {line}"
    TOO_SMALL_WITH_CLAIMS = (
        "{resource}: wants {wanted} ({own} requests, {charged} by its claims), the whole node has {line}"
    )
    NO_RESOURCE = "{resource}: wants {wanted}, the node has none of it"
    TOO_MANY_PODS = "pods: the node takes at most {line} and has {pods}"
    HOLDER_POD = "pod {pod} holds {amount} ({rule})"
    HOLDER_CLAIM = "claim {claim} holds {amount} ({rule}, pod {pod})"
    HOLDER_POOL = "claim {claim} holds {amount} ({rule}, a pool)"
    MORE_HOLDERS = "{count} more hold {amount}"
    CORDONED = "closed to new pods (kubectl cordon)"
    TAINT = "taint {taint} is not tolerated"
    LABEL = "the pod wants {wanted}; the node has {had}"
    LABEL_VALUES = "nodes have {values}"
    NO_TERM = "the required node affinity has no term that can match"
    PORT = "host port {port} is in use by pod {pod}"
    VOLUME = "volume {volume} of claim {claim} can be reached only from nodes with {wanted}"
    VOLUME_USED = "claim {claim} is used by pod {pod} on node {node}"
    DISK = "a disk of the pod is mounted by another pod there"
    VOLUME_COUNT = "no more volumes of its drivers can be attached there"
    SPREAD = "{key}={value} has {had} matching pods, the least any domain has is {least}; maxSkew is {skew}"
    SPREAD_LABEL = "the node has no label {key}"
    AFFINITY = "wants a pod with {selector} in the same {key}"
    AFFINITY_NONE = "no pod with {selector} runs anywhere"
    AFFINITY_PODS = "such pods run in {key} {values}"
    ANTI_AFFINITY = "must not share {key}={value} with pod {pod} ({selector})"
    EXISTING_ANTI_AFFINITY = "pod {pod} does not want it in the same {key}={value}"
    FEATURES = "the pod needs {wanted} of the kubelet, the node declares {had}"
    # -- devices
    REQUEST = "claim {claim}, request {request}: wants {wanted}, {left} of {devices} devices left"
    NO_DEVICES = "claim {claim}, request {request}: wants {wanted}, the node has no devices"
    CLASS_SELECTOR = "{count} not of class {device_class}: {expression}"
    REQUEST_SELECTOR = "{count} refused by selector {index}: {expression}"
    NEAREST_DEVICE = "nearest {device}: {attributes}"
    NEAREST_BARE = "nearest {device}: has none of the attributes the selector reads"
    TAKEN = "{count} allocated already"
    TAKEN_BY = "{device} by claim {claim}"
    PICKED = "{count} taken by this pod's other requests"
    CAPACITY_SHORT = "{count} short of {name}: wants {wanted}, at most {had} left ({device})"
    CAPACITY_UNDEFINED = "{count} without capacity {name} (such as {device})"
    CAPACITY_MAX = "{count} with a policy that allows at most {had} of {name}, wants {wanted} ({device})"
    CAPACITY_VALID = "{count} with a policy whose largest value of {name} is {had}, wants {wanted} ({device})"
    CAPACITY_STEP = (
        "{count} with a policy of steps: {wanted} of {name} is no whole number of steps of {had} ({device})"
    )
    DEVICE_TAINT = "{count} tainted {taint} (such as {device})"
    COUNTER = "{count} blocked by counter {counter}: wants {wanted}, {had} left ({device})"
    COUNTERS_OFF = "{count} partitions, and partitionable devices are switched off"
    CONSTRAINT_NONE = "{count} without attribute {attribute} (such as {device})"
    MATCH = "{count} with another {attribute}: {device} has {values}, {other} has {theirs}"
    DISTINCT = "{count} with the same {attribute}: {device} and {other} both have {values}"
    CONSTRAINT = "{count} against a constraint on {attribute}: {device} has {values}"
    BUDGET = "{count} too expensive: {device} charges {wanted} {resource}, {line} leaves {had}"
    BINDING_OFF = "{count} bind in several steps, which is switched off"
    NOT_FOR_NODE = "{count} not for this node"
    FAILED = "{count} on which a selector fails"
    GROUP_MATCH = (
        "requests {requests}: need {wanted} devices with one value of {attribute}, at most {had} have it"
    )
    GROUP_DISTINCT = "requests {requests}: need {wanted} different values of {attribute}, there are {had}"
    AT_MOST = "at most {count} of them go together"
    TOGETHER = "each request alone could be served, together they cannot"
    STUCK = "once {held}:"
    POOL = "pool {pool} is {standing}: {why}"
    EVERYWHERE = "request {request}: {matching} would do, {taken} allocated, {free} free{tail}"
    NOWHERE = "request {request}: no device matches, of {devices} there are"
    NOWHERE_USABLE = "request {request}: no usable device; {unusable} are in pools that are not complete"
    NOWHERE_AT_ALL = "request {request}: there are no devices: no ResourceSlice has any"
    ELSEWHERE = "claim {claim} has its devices elsewhere: {where}"
    GAVE_UP = "the search ended after {steps} steps without an answer; it may fit"
    NOT_LOOKED_INTO = "refused in the same words; not looked into one by one"
    # -- the ledger's reasons
    CLAIM_USED = "claim {claim} charges its node and may not be shared; it is used by {pods}"
    POOL_EXHAUSTED = "claim {claim} has {had} {resource} left of {capacity}, the pod draws {wanted}"
    POD_LEVEL = "pod-level {what} for {resource} is {capacity}, containers and claims come to {wanted}"
    TOLD = "{text}"  #: in the words of the ledger or of the allocator
    # -- placed
    CHARGE = "{resource} {amount}  {rule}{source}"
    COVERED = "{resource} {amount}  inside the pod-level request, claim {claim}"
    HEADROOM = "{resource}: {free} free of {line}"
    DEVICE = "request {request}: {device}{share}"
    ALTERNATIVE = "alternative {number} of {count}"
    EARLIER = "alternative {name} before it: {why}"
    EARLIER_FREE = "alternative {name} before it could be had today"
    SCORE = "{scorer} {score} (weight {weight}; the best node has {best})"
    # -- claims
    USER = "pod {pod} on node {node}"
    USER_GONE = "pod {pod}: gone or ended; the reservation is stale"
    USER_WAITS = "pod {pod}: waiting, no node yet"


class FixKind(Enum):
    """Kind of fix step; the value is its format string, the name is the `kind` in JSON output."""

    REMOVE_GATES = "remove the scheduling gates {gates}: whoever set them has not let the pod go yet"
    CREATE_CLAIM = "create ResourceClaim {claim} in namespace {namespace}{near}"
    CREATE_TEMPLATE = "create ResourceClaimTemplate {template} in namespace {namespace}{near}"
    MAKE_CLAIM = "template {template} is there, but no claim was made from it: is kube-controller-manager's resourceclaim controller running?"  # noqa: E501
    WAIT_DELETION = "wait until claim {claim} is gone, then create it again; it is held by {why}"
    RENAME_OWNER = "claim {claim} belongs to {owner}: delete it, and the controller makes one for this pod"
    CREATE_CLASS = "create DeviceClass {device_class}{near}"
    NAME_SCHEDULER = "set spec.schedulerName to a scheduler that runs (pods name {names})"
    TOLERATE = "tolerate taint {taint} (node {node})"
    HEAL_NODE = "node {node} has taint {taint}: bring the node back"
    UNCORDON = "kubectl uncordon {node}"
    CHOOSE_LABEL = "node {node} has {had}, the pod wants {wanted}: ask for the former, or relabel the node"
    GO_ELSEWHERE = "let the pod go to {node}: it insists on {wanted}"
    DROP_AFFINITY = "drop the required node affinity, or correct it: no node could match its terms"
    REMOVE_PODS = "{short}{holders}without {pods} it fits"
    ADD_NODE = "no node is large enough: add one with at least {amounts}"
    ADD_ANOTHER = "add a node with {amounts}"
    SHRINK = "ask for at most {had} {resource} instead of {wanted}: node {node} has that free"
    SHRINK_POD = "ask for at most {had} {resource} instead of {wanted}: node {node} has no more"
    RAISE_BUDGET = "raise the pod-level {what} for {resource} from {capacity} to {wanted}"
    SHRINK_CAPACITY = "request {request}: ask for at most {had} of {name} instead of {wanted} ({device})"
    STEP_CAPACITY = "request {request}: {wanted} of {name} is no whole number of steps of {had}"
    RELAX_SELECTOR = (
        "request {request}: selector {expression} takes away {count}; nearest device {device}{attributes}"
    )
    RELAX_CLASS = (
        "request {request}: class {device_class} fits no device{near}; nearest device {device}{attributes}"
    )
    TOLERATE_DEVICE = "request {request}: tolerate device taint {taint} ({device})"
    ADD_DEVICES = "add devices: request {request} wants {wanted}, node {node} has {had} that would do"
    RUN_DRIVER = "request {request}: no device of node {node} fits class {device_class}; is its driver there?"
    NO_DRIVER = "publish devices: no ResourceSlice has any for request {request}; is the driver running?"
    COMPLETE_POOL = "pool {pool} is {standing} ({why}): wait for its driver, or restart it"
    REMOVE_CLAIM = "delete claim {claim}, which no pod uses and which holds {devices}"
    FREE_CLAIM = "claim {claim} may be used by one pod at a time: wait for {pods}, or give the pod its own"
    RELAX_CONSTRAINT = "requests {requests}: drop the constraint on {attribute}, or ask for at most {had}"
    RAISE_STEPS = "give the scheduler more searchSteps than {steps}, or simplify the claim"
    UPGRADE_NODE = "node {node}: run a kubelet that declares {wanted}"
    CORRECT = "correct the claim or its class: {text}"
    VOLUME = "{text}"
    MEET = "node {node}: run a pod with {selector} in its {key} first, or drop that rule"


def render_statement(kind: StatementKind | FixKind, facts: Mapping[str, object]) -> str:
    """Render a statement as text."""
    sentence: str = kind.value
    return sentence.format_map({name: _text(fact) for name, fact in facts.items()})


def facts_as_json(facts: Mapping[str, object]) -> dict[str, Any]:
    """Return facts as JSON values: integers and lists as they are, everything else as strings."""
    return {_camel(name): _plain(fact) for name, fact in facts.items()}


def pluralize(count: int, one: str, many: str = "") -> str:
    """Format a count with its noun."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def join_names(names: Sequence[str], most: int = 5) -> str:
    """Join some names, with the number of the rest."""
    shown = ", ".join(names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _text(fact: object) -> str:
    # Devices and pools are tuples, too, but with a text of their own.
    return join_names([str(each) for each in fact]) if _is_list(fact) else str(fact)


def _plain(fact: object) -> Any:
    if fact is None or isinstance(fact, (bool, int)):
        return fact
    return [_plain(each) for each in fact] if _is_list(fact) else str(fact)


def _is_list(fact: object) -> TypeGuard[tuple[object, ...]]:
    return type(fact) is tuple


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.title() for word in rest)
