"""Steps for the rules on nodes and pods: cordon, taints, affinity, ports, resources, spread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from plimsoll.api.core import Affinity, Container, Node, NodeSelectorRequirement, PodSpec, Taint, Toleration
from plimsoll.api.meta import LabelSelector
from plimsoll.api.node_selection import filter_valid_terms
from plimsoll.api.quantity import Quantity
from plimsoll.ledger.units import from_units, is_extended_resource, to_unit
from plimsoll.ledger.verdict import Cause, Reason
from plimsoll.scheduler.filters.inter_pod_affinity import InterPodAffinityMessage
from plimsoll.scheduler.filters.spread_counts import SpreadState
from plimsoll.scheduler.filters.taint_toleration import UNSCHEDULABLE
from plimsoll.scheduler.reasons import NodeReason, Rule
from plimsoll.scheduler.topology.constraints import DO_NOT_SCHEDULE, SCHEDULE_ANYWAY
from plimsoll.scheduler.topology.counts import NO_DOMAIN
from plimsoll.scheduler.topology.default_constraints import spread_constraints
from plimsoll.tools.amounts import format_exact
from plimsoll.tools.fixes.fix import FixKind, FixStep, FixTarget, ObjectChange, edits_spec
from plimsoll.tools.fixes.trial import FixTrial
from plimsoll.tools.node_terms import (
    node_value_text,
    requirement_text,
    taint_text,
    unmet_of_term,
    untolerated_taints,
)

#: Prefix of taints of unhealthy nodes, which pods should not tolerate.
_CONDITION_TAINTS = "node.kubernetes.io/"
#: Labels and fields that identify one node.
_NAMES = frozenset({"kubernetes.io/hostname", "metadata.name"})


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
    name = trial.name
    yield FixStep(FixKind.UNCORDON, {"node": name}, _without_taint(name, UNSCHEDULABLE), node=name)


def _without_taint(name: str, gone: Taint) -> ObjectChange:
    def apply(target: FixTarget) -> None:
        node = target.find(Node, name, "")
        assert node is not None, "a step names an existing node"
        kept = tuple(each for each in node.spec.taints if (each.key, each.effect) != (gone.key, gone.effect))
        closed = node.spec.unschedulable and gone.key != UNSCHEDULABLE.key
        target.changes.set(replace(node, spec=replace(node.spec, taints=kept, unschedulable=closed)))

    return apply


def _taint_steps(trial: FixTrial) -> Iterator[FixStep]:
    for taint in untolerated_taints(trial.pod, trial.node):
        facts = {"taint": taint_text(taint), "node": trial.name}
        if taint.key == UNSCHEDULABLE.key:
            yield from _uncordon(trial)
        elif taint.key.startswith(_CONDITION_TAINTS):
            yield FixStep(FixKind.REPAIR_NODE, facts, _without_taint(trial.name, taint), node=trial.name)
        else:
            more = Toleration(key=taint.key, operator="Equal", value=taint.value, effect=taint.effect)
            yield FixStep(FixKind.TOLERATE, facts, edits_spec(partial(_tolerate, more)))


def _tolerate(toleration: Toleration, spec: PodSpec) -> PodSpec:
    return replace(spec, tolerations=(*spec.tolerations, toleration))


# -- labels


def _affinity_steps(trial: FixTrial) -> Iterator[FixStep]:
    """Propose dropping what the node does not meet; safer than a new label, on which others may depend."""
    spec, node = trial.pod.spec, trial.node
    for key, value in sorted(spec.node_selector.items()):
        if node.metadata.labels.get(key) != value:
            unmet = NodeSelectorRequirement(key=key, operator="In", values=(value,))
            yield _requirement_step(unmet, node, FixKind.DROP_LABEL, partial(_without_label, key))
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return
    seen = set()
    for term in filter_valid_terms(affinity.required.node_selector_terms):
        for requirement in unmet_of_term(term, node):
            if requirement not in seen:
                seen.add(requirement)
                change = partial(_without_requirement, requirement)
                yield _requirement_step(requirement, node, FixKind.DROP_REQUIREMENT, change)
    yield FixStep(FixKind.DROP_AFFINITY, {}, edits_spec(_without_node_affinity))


def _requirement_step(
    unmet: NodeSelectorRequirement, node: Node, kind: FixKind, change: Callable[[PodSpec], PodSpec]
) -> FixStep:
    facts = {"wanted": requirement_text(unmet), "had": node_value_text(unmet, node)}
    facts["node"] = node.metadata.name
    return FixStep(FixKind.GO_ELSEWHERE if unmet.key in _NAMES else kind, facts, edits_spec(change))


def _without_label(key: str, spec: PodSpec) -> PodSpec:
    return replace(
        spec, node_selector={each: value for each, value in spec.node_selector.items() if each != key}
    )


def _without_requirement(gone: NodeSelectorRequirement, spec: PodSpec) -> PodSpec:
    """Return the spec without a requirement; a term without any matches nothing, so none must remain so."""
    assert spec.affinity is not None
    assert spec.affinity.node_affinity is not None
    required = spec.affinity.node_affinity.required
    terms = []
    for term in required.node_selector_terms if required is not None else ():
        expressions = tuple(each for each in term.match_expressions if each != gone)
        fields = tuple(each for each in term.match_fields if each != gone)
        if not expressions and not fields:
            return _without_node_affinity(spec)
        terms.append(replace(term, match_expressions=expressions, match_fields=fields))
    if required is None:
        return spec
    kept = replace(required, node_selector_terms=tuple(terms))
    return replace(
        spec,
        affinity=replace(spec.affinity, node_affinity=replace(spec.affinity.node_affinity, required=kept)),
    )


def _without_node_affinity(spec: PodSpec) -> PodSpec:
    affinity = spec.affinity
    if affinity is None or affinity.node_affinity is None:
        return spec
    free = replace(affinity.node_affinity, required=None)
    return replace(spec, affinity=replace(affinity, node_affinity=free))


# -- ports and other pods


def _port_steps(trial: FixTrial) -> Iterator[FixStep]:
    ports = {port.host_port for each in trial.pod.spec.containers for port in each.ports if port.host_port}
    for number in sorted(ports):
        yield FixStep(FixKind.DROP_PORT, {"port": number}, edits_spec(partial(_without_port, number)))


def _without_port(number: int, spec: PodSpec) -> PodSpec:
    containers = tuple(
        replace(each, ports=tuple(port for port in each.ports if port.host_port != number))
        for each in spec.containers
    )
    return replace(spec, containers=containers)


def _pod_affinity_steps(trial: FixTrial, reason: NodeReason) -> Iterator[FixStep]:
    affinity = trial.pod.spec.affinity
    fields = {
        InterPodAffinityMessage.AFFINITY: ("pod_affinity", "affinity"),
        InterPodAffinityMessage.ANTI_AFFINITY: ("pod_anti_affinity", "anti-affinity"),
    }
    if affinity is None or reason.message not in fields:
        return
    name, what = fields[reason.message]
    given = getattr(affinity, name)
    for number, term in enumerate(given.required if given is not None else ()):
        facts = {"what": what, "selector": selector_text(term.label_selector), "key": term.topology_key}
        change = edits_spec(partial(_without_pod_term, name, number))
        yield FixStep(FixKind.DROP_POD_AFFINITY, facts, change)


def _without_pod_term(name: str, number: int, spec: PodSpec) -> PodSpec:
    affinity: Affinity | None = spec.affinity
    given = getattr(affinity, name)
    rest = tuple(term for index, term in enumerate(given.required) if index != number)
    assert affinity is not None
    return replace(spec, affinity=replace(affinity, **{name: replace(given, required=rest)}))


def selector_text(selector: LabelSelector | None) -> str:
    """Format a label selector as kubectl does."""
    if selector is None:
        return "no labels"
    texts = [f"{key}={value}" for key, value in sorted(selector.match_labels.items())]
    texts += [
        f"{each.key} {each.operator} ({', '.join(each.values)})"
        if each.values
        else f"{each.key} {each.operator}"
        for each in selector.match_expressions
    ]
    return ",".join(texts) or "any labels"


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
        if domain != NO_DOMAIN:
            present, sums = spread.present(number), spread.sums(number)
            enough = int(present.sum()) >= constraint.min_domains
            least = int(sums[present].min(initial=0 if not present.any() else 2**31 - 1)) if enough else 0
            needed = int(sums[domain]) + constraint.own - least
            if needed <= constraint.max_skew:
                continue
            change = partial(_with_spread, key, constraint.max_skew, {"max_skew": needed})
            more = 2 * (needed - constraint.max_skew)
            yield FixStep(FixKind.RELAX_SPREAD, facts | {"needed": needed}, edits_spec(change), more)
        anyway = partial(_with_spread, key, constraint.max_skew, {"when_unsatisfiable": SCHEDULE_ANYWAY})
        yield FixStep(FixKind.DROP_SPREAD, facts, edits_spec(anyway))


def _with_spread(key: str, skew: int, fields: Mapping[str, object], spec: PodSpec) -> PodSpec:
    changed = tuple(
        replace(each, **fields)
        if (each.topology_key, each.max_skew, each.when_unsatisfiable) == (key, skew, DO_NOT_SCHEDULE)
        else each
        for each in spec.topology_spread_constraints
    )
    return replace(spec, topology_spread_constraints=changed)


# -- resources


def _amount_steps(trial: FixTrial, cause: Reason) -> Iterator[FixStep]:
    name, wanted = cause.resource, cause.wanted or 0
    if cause.cause is Cause.INSUFFICIENT:
        yield from shrink(trial, name, wanted - (cause.had or 0))
    elif cause.cause in (Cause.POD_LEVEL_REQUEST, Cause.POD_LEVEL_LIMIT):
        what = "request" if cause.cause is Cause.POD_LEVEL_REQUEST else "limit"
        facts = {"what": what, "resource": name, "wanted": format_exact(name, wanted)}
        facts["capacity"] = format_exact(name, cause.capacity or 0)
        amount = from_units(name, wanted)
        yield FixStep(FixKind.RAISE_BUDGET, facts, edits_spec(partial(_with_budget, name, amount, what)))


def shrink(trial: FixTrial, name: str, excess: int) -> Iterator[FixStep]:
    """Propose a smaller request of the largest container, if the rest of its request suffices for it."""
    spec = trial.pod.spec
    requests = [each.resources.requests.get(name) for each in spec.containers]
    units = [to_unit(name, each) if each is not None else 0 for each in requests]
    total = sum(units)
    if spec.resources is not None and name in spec.resources.requests:
        total = to_unit(name, spec.resources.requests[name])
    elif not units or max(units) <= excess:
        return
    left = total - excess
    if left <= 0 or excess <= 0:
        return
    facts = {"resource": name, "had": format_exact(name, left), "wanted": format_exact(name, total)}
    change = edits_spec(partial(_with_request, name, excess))
    yield FixStep(FixKind.SHRINK, facts, change, 20 * excess // total)


def _with_request(name: str, excess: int, spec: PodSpec) -> PodSpec:
    if spec.resources is not None and name in spec.resources.requests:
        lower = _lowered(spec.resources.requests, name, excess)
        return replace(spec, resources=replace(spec.resources, requests=lower))
    largest = max(spec.containers, key=lambda each: _units_of(each, name))
    requests = _lowered(largest.resources.requests, name, excess)
    limits = largest.resources.limits
    if is_extended_resource(name) and name in limits:
        limits = {**limits, name: requests[name]}
    smaller = replace(largest, resources=replace(largest.resources, requests=requests, limits=limits))
    return replace(spec, containers=tuple(smaller if each is largest else each for each in spec.containers))


def _units_of(container: Container, name: str) -> int:
    amount = container.resources.requests.get(name)
    return to_unit(name, amount) if amount is not None else 0


def _lowered(requests: Mapping[str, Quantity], name: str, excess: int) -> dict[str, Quantity]:
    return {**requests, name: from_units(name, to_unit(name, requests[name]) - excess)}


def _with_budget(name: str, amount: Quantity, what: str, spec: PodSpec) -> PodSpec:
    """Return the spec with a larger pod-level request or limit; a limit is at least the request."""
    assert spec.resources is not None, "the reason is about pod-level resources"
    requests, limits = dict(spec.resources.requests), dict(spec.resources.limits)
    if what == "request":
        requests[name] = amount
    if name in limits and limits[name] < amount:
        limits[name] = amount
    return replace(spec, resources=replace(spec.resources, requests=requests, limits=limits))
