"""`plimsoll allocate`: run the device allocator over the claims of a dump.

Pending claims are tried on the nodes one after the other (each keeps what it was allocated) or together, as
one pod would. The report lists the allocated devices or, rule by rule, why a node was refused. Nothing is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any
from uuid import uuid4

from plimsoll.allocator import (
    Allocation,
    AllocationOutcome,
    AllocationState,
    Features,
    Inventory,
    Preference,
    Refusal,
    SearchLimits,
    allocate_claims,
    explain_lines,
)
from plimsoll.api import codec
from plimsoll.api.core import Node
from plimsoll.api.gates import Gates
from plimsoll.api.meta import ObjectMeta
from plimsoll.api.resource import (
    DeviceClass,
    DeviceRequestAllocationResult,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
)
from plimsoll.errors import InputError
from plimsoll.tools.check import check_object
from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.tools.colors import PLAIN, Paint
from plimsoll.tools.columns import format_table
from plimsoll.tools.facts import join_names
from plimsoll.tools.views import decode_views


@dataclass(frozen=True, slots=True)
class AllocatorInput:
    """Nodes, slices, classes and claims read from a dump."""

    nodes: tuple[Node, ...]
    slices: tuple[ResourceSlice, ...]
    classes: dict[str, DeviceClass]
    claims: tuple[ResourceClaim, ...]
    taint_rules: tuple[DeviceTaintRule, ...]
    problems: dict[str, tuple[str, ...]]  #: claim -> its validation errors

    @staticmethod
    def read(objects: Iterable[ParsedObject], now: datetime, gates: Gates) -> AllocatorInput:
        """Decode the relevant kinds with defaults applied; skip all other kinds."""
        found = list(objects)
        nodes = {node.metadata.name: node for node in decode_views(found, Node, now)}
        slices = decode_views(found, ResourceSlice, now)
        # A driver's slices alone are sufficient: nodes that only they name have no labels.
        for each in slices:
            name = each.spec.node_name
            if name and name not in nodes:
                nodes[name] = Node(metadata=ObjectMeta(name=name))
        claims = decode_views(found, ResourceClaim, now)
        trees = [each.tree for each in found if each.kind == ResourceClaim.__name__]
        problems = {
            claim.metadata.full_name: check_object(tree, now, gates).problems
            for claim, tree in zip(claims, trees, strict=True)
            if claim.status.allocation is None
        }
        return AllocatorInput(
            tuple(nodes.values()),
            tuple(slices),
            {each.metadata.name: each for each in decode_views(found, DeviceClass, now)},
            tuple(claims),
            tuple(decode_views(found, DeviceTaintRule, now)),
            problems,
        )


@dataclass(frozen=True, slots=True)
class AllocationAttempt:
    """Result for a group of claims: the node and its devices, or the refusal of each node."""

    claims: tuple[ResourceClaim, ...]
    node: str = ""
    allocation: Allocation | None = None
    refusals: tuple[tuple[str, AllocationOutcome], ...] = ()
    problems: tuple[str, ...] = ()  #: validation errors; no node was tried

    @property
    def served(self) -> bool:
        return self.allocation is not None

    def lines(self, paint: Paint = PLAIN, *, wide: bool = False) -> Iterator[str]:
        names = ", ".join(claim.metadata.full_name for claim in self.claims)
        if self.allocation is not None:
            steps = f", after {self.allocation.steps:,} steps" if wide else ""
            yield f"{paint.green(f'{names}: allocated on node {self.node}')}{steps}"
            rows = [("REQUEST", "DEVICE", "CONSUMES")]
            for claim, result in zip(self.claims, self.allocation.results, strict=True):
                prefix = f"{claim.metadata.name}: " if len(self.claims) > 1 else ""
                rows += [
                    (prefix + each.request, f"{each.driver}/{each.pool}/{each.device}", _consumed(each))
                    for each in result.devices.results
                ]
            yield from (f"  {line}" for line in format_table(rows))
            return
        if self.problems:
            yield paint.red(f"{names}: invalid claim, the API server would reject it")
            yield from (f"  {problem}" for problem in self.problems)
            return
        yield paint.red(
            f"{names}: cannot be allocated on any of {len(self.refusals)} nodes"
            if self.refusals
            else f"{names}: no nodes"
        )
        for node, outcome in self.refusals:
            yield f"  {node}:"
            yield from (f"    {line}" for line in _reasons(outcome))

    def as_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {"claims": [claim.metadata.full_name for claim in self.claims]}
        if self.allocation is not None:
            results = [codec.to_tree(result) for result in self.allocation.results]
            return {**made, "node": self.node, "allocations": results, "steps": self.allocation.steps}
        if self.problems:
            return {**made, "node": None, "problems": list(self.problems)}
        refused = [{"node": node, "reasons": _reasons(outcome)} for node, outcome in self.refusals]
        return {**made, "node": None, "refusals": refused}


@dataclass(frozen=True, slots=True)
class AllocationReport:
    """Results for all claims that were tried."""

    answers: tuple[AllocationAttempt, ...]

    @property
    def served(self) -> bool:
        """True if at least one claim was tried and all of them were allocated."""
        return bool(self.answers) and all(answer.served for answer in self.answers)

    def lines(self, paint: Paint = PLAIN, *, wide: bool = False) -> Iterator[str]:
        for answer in self.answers:
            yield from answer.lines(paint, wide=wide)

    def as_json(self) -> list[dict[str, Any]]:
        return [answer.as_json() for answer in self.answers]


@dataclass(frozen=True, slots=True)
class AllocationQuery:
    """Options: claims and nodes to try (all if none are named), together or in turn.

    With a namespace, only its claims are tried; claims of other namespaces still hold their devices.
    """

    claims: Sequence[str] = ()
    nodes: Sequence[str] = ()
    together: bool = False
    least_waste: bool = False  #: prefer devices of which the least is left unused
    gates: Gates = field(default_factory=Gates.default)
    limits: SearchLimits = field(default_factory=SearchLimits)
    namespace: str = ""


def allocate(objects: Iterable[ParsedObject], query: AllocationQuery) -> Iterator[AllocationAttempt]:
    """Try the claims among the objects. Share IDs are random."""
    devices = AllocatorInput.read(objects, datetime.now(UTC), query.gates)
    return try_claims(devices, query, lambda: str(uuid4()))


def make_limits(steps: int, timeout: float | None) -> SearchLimits:
    """Return a step budget with a deadline `timeout` seconds from now."""
    if timeout is None:
        return SearchLimits(steps)
    end = monotonic() + timeout
    return SearchLimits(steps, lambda: monotonic() > end)


def try_claims(
    devices: AllocatorInput, query: AllocationQuery, new_id: Callable[[], str]
) -> Iterator[AllocationAttempt]:
    """Try the claims. Raise InputError if a named claim or node does not exist."""
    features = Features.of(query.gates)
    inventory = Inventory(
        devices.slices,
        features,
        devices.taint_rules if query.gates.enabled("DRADeviceTaintRules") else (),
    )
    state = AllocationState.of(devices.claims, features.consumable_capacity)
    wanted = _pick_claims(devices, query.claims, query.namespace)
    nodes = _pick_nodes(devices, query.nodes)
    groups = [tuple(wanted)] if query.together and wanted else [(claim,) for claim in wanted]
    for group in groups:
        problems = [
            problem for claim in group for problem in devices.problems.get(claim.metadata.full_name, ())
        ]
        if problems:
            yield AllocationAttempt(group, problems=tuple(problems))
            continue
        refusals: list[tuple[str, AllocationOutcome]] = []
        for node in nodes:
            outcome = allocate_claims(
                inventory,
                state,
                group,
                node,
                classes=devices.classes,
                new_id=new_id,
                limits=query.limits,
                preference=Preference.LEAST_WASTE if query.least_waste else Preference.FIRST,
            )
            if isinstance(outcome, Allocation):
                for claim, result in zip(group, outcome.results, strict=True):
                    if claim.status.allocation is None:
                        state.hold_all(result)
                yield AllocationAttempt(group, node.metadata.name, outcome)
                break
            refusals.append((node.metadata.name, outcome))
        else:
            yield AllocationAttempt(group, refusals=tuple(refusals))


def _pick_claims(devices: AllocatorInput, names: Sequence[str], namespace: str) -> list[ResourceClaim]:
    within = [
        claim for claim in devices.claims if not namespace or claim.metadata.namespace in ("", namespace)
    ]
    if not names:
        return [claim for claim in within if claim.status.allocation is None]
    by_name = {claim.metadata.full_name: claim for claim in devices.claims}
    for claim in within:
        by_name.setdefault(claim.metadata.name, claim)
    of = f" in namespace {namespace}" if namespace else ""
    _require_known("ResourceClaim", names, by_name, of, [each.metadata.full_name for each in within])
    return [by_name[name] for name in names]


def _require_known(
    kind: str, names: Sequence[str], found: Container[str], of: str, known: Iterable[str]
) -> None:
    for name in names:
        if name not in found:
            existing = join_names(sorted(known), 12) or "none"
            raise InputError(f"{kind} {name!r} not found{of}; existing: {existing}")


def _pick_nodes(devices: AllocatorInput, names: Sequence[str]) -> list[Node]:
    if not names:
        return list(devices.nodes)
    by_name = {node.metadata.name: node for node in devices.nodes}
    _require_known("node", names, by_name, "", by_name)
    return [by_name[name] for name in names]


def _reasons(outcome: AllocationOutcome) -> list[str]:
    if isinstance(outcome, Refusal):
        return list(explain_lines(outcome)) or ["no devices to allocate from"]
    return [str(outcome)]


def _consumed(result: DeviceRequestAllocationResult) -> str:
    if result.consumed_capacity:
        return ", ".join(f"{name}={amount}" for name, amount in sorted(result.consumed_capacity.items()))
    if result.share_id is not None:
        return "a share"
    return "admin access" if result.admin_access else "exclusive"
