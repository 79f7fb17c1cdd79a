"""Steps for the rules on nodes and pods: cordon, taints, affinity, ports, resources, spread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from plimsoll.api.core import Node, NodeSelectorRequirement, Pod, PodAffinityTerm, Taint, Toleration
from plimsoll.api.label_selection import SelectorProblem, compile_label_selector
from plimsoll.api.node_selection import filter_valid_terms
from plimsoll.api.quantity import Quantity
from plimsoll.ledger.units import is_extended_resource, to_unit
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.filters.inter_pod_affinity import InterPodAffinityMessage
from plimsoll.scheduler.filters.spread_counts import SpreadState
from plimsoll.scheduler.filters.taint_toleration import UNSCHEDULABLE
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.topology.constraints import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY
from plimsoll.scheduler.topology.counts import NO_DOMAIN
from plimsoll.scheduler.topology.default_constraints import spread_constraints
from plimsoll.tools.amounts import format_exact, format_resource, round_amount
from plimsoll.tools.fixes.edits import Edit, FieldPath, add_item, remove_item, set_field
from plimsoll.tools.fixes.fix import FixKind, FixStep
from plimsoll.tools.fixes.trial import FixTrial
from plimsoll.tools.node_terms import (
    node_value_text,
    requirement_text,
    selector_text,
    taint_text,
    unmet_of_term,
    untolerated_taints,
)

#: Prefix of taints of unhealthy nodes, which pods should not tolerate.
_CONDITION_TAINTS = "node.kubernetes.io/"
#: Labels and fields that identify one node.
_NAMES = frozenset({"kubernetes.io/hostname", "metadata.name"})
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NODE_AFFINITY = ("spec", "affinity", "nodeAffinity", _REQUIRED)
_SPREAD = ("spec", "topologySpreadConstraints")
#: Harm of using a node with devices, which its taint reserves, for a pod without.
_TAKES_DEVICE_NODE = 30


def propose_for_node(trial: FixTrial, reasons: Sequence[NodeReason]) -> Iterator[FixStep]:
    """Yield the steps that may resolve the first failing rule, if it is not about devices."""
    proposers: Mapping[Rule, Callable[[FixTrial], Iterator[FixStep]]] = {
        Rule.UNSCHEDULABLE: _uncordon,
        Rule.TAINTS: _taint_steps,
        Rule.NODE_AFFINITY: _affinity_steps,
        Rule.PORTS: _port_steps,
        Rule.SPREAD: _spread_steps,
    }
    rule = reasons[0].rule
    if rule in proposers:
        yield from proposers[rule](trial)
    if rule is Rule.INTER_POD:
        yield from _pod_affinity_steps(trial, reasons[0])
    for reason in reasons:
        if isinstance(reason.cause, Reason):
            yield from _amount_steps(trial, reason.cause)


# -- cordon and taints


def _uncordon(trial: FixTrial) -> Iterator[FixStep]:
    node = trial.node
    edits = set_field(node, False, "spec", "unschedulable"), *_without_taint(node, UNSCHEDULABLE)
    yield FixStep(FixKind.UNCORDON, {"node": trial.name}, edits, node=trial.name)


def _without_taint(node: Node, gone: Taint) -> Iterator[Edit]:
    for taint in node.spec.taints:
        if (taint.key, taint.effect) == (gone.key, gone.effect):
            yield remove_item(node, taint, "spec", "taints")


def _taint_steps(trial: FixTrial) -> Iterator[FixStep]:
    node, devices = trial.node, trial.devices
    reserved = not trial.pod_info.claims and devices is not None and bool(devices.entries)
    for taint in untolerated_taints(trial.pod, node):
        facts = {"taint": taint_text(taint), "node": trial.name}
        if taint.key == UNSCHEDULABLE.key:
            yield from _uncordon(trial)
        elif taint.key.startswith(_CONDITION_TAINTS):
            yield FixStep(FixKind.REPAIR_NODE, facts, (*_without_taint(node, taint),), node=trial.name)
        else:
            more = Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
            harm = _TAKES_DEVICE_NODE if reserved else 0
            yield FixStep(FixKind.TOLERATE, facts, (add_item(trial.pod, more, "spec", "tolerations"),), harm)


# -- labels


def _affinity_steps(trial: FixTrial) -> Iterator[FixStep]:
    """Propose dropping what the node does not meet; safer than a new label, on which others may depend."""
    pod, node = trial.pod, trial.node
    for key, value in sorted(pod.spec.node_selector.items()):
        if node.metadata.labels.get(key) != value:
            unmet = NodeSelectorRequirement(key=key, operator="In", values=(value,))
            drop = set_field(pod, None, "spec", "nodeSelector", key)
            yield _requirement_step(unmet, node, FixKind.DROP_LABEL, drop)
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return
    terms = affinity.required.node_selector_terms
    for number, term in enumerate(terms):
        if not filter_valid_terms((term,)):
            continue
        for name, given in ("matchExpressions", term.match_expressions), ("matchFields", term.match_fields):
            for unmet in unmet_of_term(term, node):
                if unmet in given and len(term.match_expressions) + len(term.match_fields) > 1:
                    drop = remove_item(pod, unmet, *_NODE_AFFINITY, "nodeSelectorTerms", number, name)
                    yield _requirement_step(unmet, node, FixKind.DROP_REQUIREMENT, drop)
    whole = set_field(pod, None, *_NODE_AFFINITY)
    only = [*terms[0].match_expressions, *terms[0].match_fields] if len(terms) == 1 else []
    if len(only) == 1 and filter_valid_terms(terms):  # a term without requirements would match no node
        yield _requirement_step(only[0], node, FixKind.DROP_REQUIREMENT, whole)
    else:
        yield FixStep(FixKind.DROP_AFFINITY, {}, (whole,))


def _requirement_step(unmet: NodeSelectorRequirement, node: Node, kind: FixKind, drop: Edit) -> FixStep:
    facts = {"wanted": requirement_text(unmet), "had": node_value_text(unmet, node)}
    facts["node"] = node.metadata.name
    return FixStep(FixKind.GO_ELSEWHERE if unmet.key in _NAMES else kind, facts, (drop,))


# -- ports and other pods


def _port_steps(trial: FixTrial) -> Iterator[FixStep]:
    for number in sorted(
        {port.host_port for each in trial.pod.spec.containers for port in each.ports if port.host_port}
    ):
        edits = tuple(
            remove_item(trial.pod, port, "spec", "containers", at, "ports")
            for at, each in enumerate(trial.pod.spec.containers)
            for port in each.ports
            if port.host_port == number
        )
        yield FixStep(FixKind.DROP_PORT, {"port": number}, edits)


def _pod_affinity_steps(trial: FixTrial, reason: NodeReason) -> Iterator[FixStep]:
    affinity = trial.pod.spec.affinity
    if affinity is None:
        return
    given, field, what = affinity.pod_affinity, "podAffinity", "affinity"
    if reason.message is InterPodAffinityMessage.ANTI_AFFINITY:
        given, field, what = affinity.pod_anti_affinity, "podAntiAffinity", "anti-affinity"
    elif reason.message is not InterPodAffinityMessage.AFFINITY:
        return
    for term in given.required if given is not None else ():
        facts = {"what": what, **affinity_term_facts(term)}
        drop = remove_item(trial.pod, term, "spec", "affinity", field, _REQUIRED)
        yield FixStep(FixKind.DROP_POD_AFFINITY, facts, (drop,))


def affinity_term_facts(term: PodAffinityTerm) -> dict[str, str]:
    """Return the pods and the topology key of a term."""
    selector = compile_label_selector(term.label_selector)
    text = str(selector) if isinstance(selector, SelectorProblem) else selector_text(selector)
    return {"selector": text, "key": term.topology_key}


def _spread_steps(trial: FixTrial) -> Iterator[FixStep]:
    """Propose a larger maxSkew for each violated constraint, or to make it a preference."""
    constraints = spread_constraints(trial.pod_info, trial.snapshot, DO_NOT_SCHEDULE)
    own = trial.pod.spec.topology_spread_constraints
    if not isinstance(constraints, tuple) or not own:
        return
    spread = SpreadState(trial.pod_info, trial.snapshot, constraints)
    for number, constraint in enumerate(constraints):
        key, domain = constraint.topology_key, int(spread.columns[number].ids[trial.row])
        facts = {"key": key, "skew": constraint.max_skew}
        wanted = key, constraint.max_skew, DO_NOT_SCHEDULE
        places = [
            at
            for at, each in enumerate(own)
            if (each.topology_key, each.max_skew, each.when_unsatisfiable) == wanted
        ]
        if domain != NO_DOMAIN:
            present, sums = spread.present(number), spread.sums(number)
            enough = int(present.sum()) >= constraint.min_domains
            least = int(sums[present].min(initial=0 if not present.any() else 2**31 - 1)) if enough else 0
            needed = int(sums[domain]) + constraint.own - least
            if needed <= constraint.max_skew:
                continue
            edits = tuple(set_field(trial.pod, needed, *_SPREAD, at, "maxSkew") for at in places)
            more = 2 * (needed - constraint.max_skew)
            yield FixStep(FixKind.RELAX_SPREAD, facts | {"needed": needed}, edits, more)
        edits = tuple(
            set_field(trial.pod, SCHEDULE_ANYWAY, *_SPREAD, at, "whenUnsatisfiable") for at in places
        )
        yield FixStep(FixKind.DROP_SPREAD, facts, edits)


# -- resources


def _amount_steps(trial: FixTrial, cause: Reason) -> Iterator[FixStep]:
    name, wanted = cause.resource, cause.wanted or 0
    if cause.cause is Cause.INSUFFICIENT:
        yield from shrink(trial, name, wanted - (cause.had or 0))
    elif cause.cause in (Cause.POD_LEVEL_REQUEST, Cause.POD_LEVEL_LIMIT):
        what = "request" if cause.cause is Cause.POD_LEVEL_REQUEST else "limit"
        amount = round_amount(name, wanted, up=True)
        facts = {"what": what, "resource": name, "wanted": format_resource(name, amount)}
        facts["capacity"] = format_exact(name, cause.capacity or 0)
        yield FixStep(FixKind.RAISE_BUDGET, facts, (*_raised(trial, name, amount, what),))


def _raised(trial: FixTrial, name: str, amount: Quantity, what: str) -> Iterator[Edit]:
    """Yield the edits that raise the pod-level request or limit; a limit is at least the request."""
    given = trial.pod.spec.resources
    assert given is not None, "the reason is about pod-level resources"
    if what == "request":
        yield set_field(trial.pod, amount, "spec", "resources", "requests", name)
    if name in given.limits and given.limits[name] < amount:
        yield set_field(trial.pod, amount, "spec", "resources", "limits", name)


def shrink(trial: FixTrial, name: str, excess: int) -> Iterator[FixStep]:
    """Propose a smaller request of the largest container, if the rest of its request suffices for it; of an
    init container that requests more than all others together.
    """
    spec = trial.pod.spec
    units, of_init = (
        [to_unit(name, each.resources.requests.get(name, Quantity(0))) for each in containers]
        for containers in (spec.containers, spec.init_containers)
    )
    if spec.resources is not None and name in spec.resources.requests:
        of_pod = to_unit(name, spec.resources.requests[name])
        total, largest = of_pod, of_pod
        place: FieldPath = ("spec", "resources")
    elif max(of_init, default=0) > sum(units):
        total = largest = max(of_init)
        place = ("spec", "initContainers", of_init.index(largest), "resources")
    elif units:
        at = max(range(len(units)), key=units.__getitem__)
        total, largest, place = sum(units), units[at], ("spec", "containers", at, "resources")
    else:
        return
    if not 0 < excess < largest:
        return
    amount = round_amount(name, largest - excess)
    left = total - largest + to_unit(name, amount)
    edits = [set_field(trial.pod, amount, *place, "requests", name)]
    if is_extended_resource(name):
        edits.append(set_field(trial.pod, amount, *place, "limits", name))
    facts = {"resource": name, "had": format_exact(name, left), "wanted": format_exact(name, total)}
    yield FixStep(FixKind.SHRINK, facts, (*edits,), 20 * excess // total)


def use_resource(pod: Pod, old: str, new: str) -> Iterator[Edit]:
    """Yield the edits that let a pod request another extended resource."""
    for at, each in enumerate(pod.spec.containers):
        for field, amounts in ("requests", each.resources.requests), ("limits", each.resources.limits):
            for name, value in ((old, None), (new, amounts[old])) if old in amounts else ():
                yield set_field(pod, value, "spec", "containers", at, "resources", field, name)
