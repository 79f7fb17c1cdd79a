"""Ledger of one node: allocatable amounts, all charges, and the headroom.

Totals are integers, as in kube-scheduler's NodeInfo. Each pod has an entry, recorded when it is added;
removing the pod subtracts that entry, so adding and removing are exact inverses in any order. A claim-level
charge (a pool) is recorded while the claim has a consumer. A claim that several pods use although it must not
be shared is counted once: the totals are reduced by the repeated charges. Placeholder pods are entries like
others; the totals are reduced by what their pods and claims are charged too. `verify()` recomputes everything
from the recorded objects. KEP-5517, "Scheduler Internal Cache Update"; docs/spec/accounting.md, "Scheduler".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from plimsoll.api.core import Node, Pod
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import ZERO, Quantity
from plimsoll.errors import LedgerError
from plimsoll.ledger.claim_state import ClaimLevelCharge, ClaimState, ConsumerShare
from plimsoll.ledger.claims import ChargedClaim, effective_policy, read_charged_claims
from plimsoll.ledger.entries import (
    ChargeRule,
    ClaimLevelShare,
    LedgerEntry,
    LedgerLine,
    compute_totals,
    make_entry,
    sum_lines,
)
from plimsoll.ledger.placeholders import (
    NAMESPACE,
    OwnerKind,
    PlaceholderOwner,
    claim_key,
    find_own_charge,
    placeholder_owner,
)
from plimsoll.ledger.policy import is_claim_level
from plimsoll.ledger.pools import ClaimPool, draw_from_pools, record_draws
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.ledger.requests import PodResourcesOptions, pod_requests, without_served_resources
from plimsoll.ledger.units import (
    CPU,
    MEMORY,
    PODS,
    Units,
    add_units,
    from_units,
    is_accounted,
    to_unit,
    to_units,
    units_to_nano,
)


@dataclass(frozen=True, slots=True)
class Discrepancy:
    """A recorded number that differs from the recomputed one."""

    where: str
    recorded: object
    computed: object

    def __str__(self) -> str:
        return f"{self.where}: recorded {self.recorded}, computed {self.computed}"


def resources_options(gates: Gates, profile: AccountingProfile) -> PodResourcesOptions:
    """Return the options for counting the pods of a node with these feature gates."""
    return PodResourcesOptions(
        form=profile.form,
        count_claims=gates.enabled("DRANodeAllocatableResources"),
        claims_in_qos=gates.enabled("DRANodeAllocatableResourcesQoS"),
        use_status=gates.enabled("InPlacePodVerticalScaling"),
        in_place_pod_level=gates.enabled("InPlacePodLevelResourcesVerticalScaling"),
        skip_pod_level=not gates.enabled("PodLevelResources"),
    )


def pod_key(pod: Pod) -> str:
    """Return the ledger's key of a pod: its UID, or its name if it has none."""
    return pod.metadata.uid or pod.metadata.full_name


def served_units(pod: Pod) -> Units:
    """Return the extended resources that devices of a pod's claim serve, in base units."""
    total = to_units(pod_requests(pod))
    rest = to_units(pod_requests(without_served_resources(pod)))
    return {name: used - rest.get(name, 0) for name, used in total.items() if used != rest.get(name, 0)}


class NodeLedger:
    """Ledger of one node."""

    __slots__ = (
        "_claims", "_covered", "_entries", "_names", "_placeholders", "_repeated", "allocatable", "name",
        "node", "non_zero", "options", "profile", "requested",
    )  # fmt: skip

    def __init__(
        self,
        node: Node | None = None,
        gates: Gates | None = None,
        profile: AccountingProfile | None = None,
        options: PodResourcesOptions | None = None,
    ) -> None:
        """`options` are those of the gates, if they are known already."""
        if profile is None or options is None:
            gates = gates or Gates.default()
            profile = profile or AccountingProfile.for_gates(gates)
            options = options or resources_options(gates, profile)
        self.profile = profile
        self.options = options
        self.requested: dict[str, int] = {}
        self.non_zero: dict[str, int] = {CPU: 0, MEMORY: 0}
        self._entries: dict[str, LedgerEntry] = {}
        self._claims: dict[str, ClaimState] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._repeated: dict[str, Units] = {}
        self._placeholders: dict[str, str] = {}  #: key of the placeholder's entry, by key of its owner
        self._covered: dict[str, Units] = {}
        self.set_node(node or Node())

    def set_node(self, node: Node) -> None:
        """Set the node and its allocatable amounts; entries are kept."""
        self.node = node
        self.name = node.metadata.name
        allocatable = to_units(node.status.allocatable)
        if PODS in node.status.allocatable:
            allocatable[PODS] = node.status.allocatable[PODS].value()
        self.allocatable: Units = allocatable

    # -- queries

    def __len__(self) -> int:
        """Return the number of pods."""
        return len(self._entries)

    def __contains__(self, pod: Pod) -> bool:
        return pod_key(pod) in self._entries

    @property
    def entries(self) -> Mapping[str, LedgerEntry]:
        """Entries by pod, in the order of addition."""
        return self._entries

    @property
    def claims(self) -> Mapping[str, ClaimState]:
        """Claims in use, by the ledger's key (the UID if known)."""
        return self._claims

    @property
    def repeated_charges(self) -> Mapping[str, Units]:
        """Charges that pods repeat for the same claim, by claim: part of their entries, not of the totals."""
        return self._repeated

    @property
    def covered(self) -> Mapping[str, Units]:
        """Requests of placeholders that their owners are charged too, by owner; totals have them once."""
        return self._covered

    def placeholders_of(self, pod: Pod) -> list[Pod]:
        """Return the placeholders that stand for a pod alone, or for claims that no other pod here uses."""
        if not self._placeholders:
            return []
        key, namespace = pod_key(pod), pod.metadata.namespace
        entry = self._entries.get(key)
        owners = [key]
        for charged_claim in entry.charged_claims if entry is not None else ():
            state = self.claim_state(namespace, charged_claim.claim, charged_claim.uid)
            if state is not None and state.consumers <= {key}:
                owners.append(claim_key(namespace, charged_claim.claim))
        return [self._entries[self._placeholders[each]].pod for each in owners if each in self._placeholders]

    @property
    def has_placeholders(self) -> bool:
        return bool(self._placeholders)

    def has_placeholder_of(self, owner: PlaceholderOwner) -> bool:
        return owner.key in self._placeholders

    def placeholder_of(self, key: str) -> LedgerEntry | None:
        """Return the entry of the placeholder of a pod or claim, by the key of what it stands for."""
        found = self._placeholders.get(key)
        return None if found is None else self._entries[found]

    def claim_state(self, namespace: str, name: str, uid: str = "") -> ClaimState | None:
        """Return the state of a claim in use on this node."""
        return self._claims.get(self._key(namespace, name, uid))

    def lines(self) -> Iterator[LedgerLine]:
        """Yield every charge: those of pods, then claim-level charges."""
        for entry in self._entries.values():
            yield from entry.lines
        for state in self._claims.values():
            for resource, holding in state.claim_level_charges.items():
                rule = ChargeRule(effective_policy(holding.policy).value)
                whole = holding.pool.allocated
                yield LedgerLine(resource, whole, rule, state.namespace, "", state.name, holding.devices)
        for key, units in self._repeated.items():
            state = self._claims[key]
            for resource, amount in units.items():
                repeated = -from_units(resource, amount)
                yield LedgerLine(resource, repeated, ChargeRule.SHARED, state.namespace, "", state.name)
        for owner, units in self._covered.items():
            name = self._entries[self._placeholders[owner]].pod.metadata.name
            for resource, amount in units.items():
                covered = -from_units(resource, amount)
                yield LedgerLine(resource, covered, ChargeRule.PLACEHOLDER, NAMESPACE, name)

    def headroom(self) -> dict[str, int]:
        """Return allocatable minus charged, for each resource that is allocatable or charged."""
        charged = self.charged()
        left = {name: line - charged.get(name, 0) for name, line in self.allocatable.items()}
        left |= {name: -used for name, used in charged.items() if used and name not in left}
        if PODS in self.allocatable:
            left[PODS] = self.allocatable[PODS] - len(self)
        return left

    def charged(self) -> Units:
        """Return what is charged, without the extended resources that devices of claims serve.

        `requested` includes them, as in kube-scheduler, so that a node that advertises such a resource later
        does not count as free what its pods have.
        """
        absent = [
            name
            for name, used in self.requested.items()
            if used and "/" in name and not self.allocatable.get(name)
        ]
        if not absent:
            return self.requested
        charged = dict(self.requested)
        for entry in self._entries.values():
            if entry.pod.status.extended_resource_claim_status is not None:
                served = served_units(entry.pod)
                for name in absent:
                    charged[name] -= served.get(name, 0)
        return charged

    # -- updates

    def add(self, pod: Pod, charged_claims: Sequence[ChargedClaim] | None = None) -> LedgerEntry:
        """Add a pod, or confirm an assumed one; its charges default to those in its status."""
        known = self._entries.get(pod_key(pod))
        if known is None:
            if charged_claims is None:
                charged_claims = read_charged_claims(pod, self.profile)
            return self._record(make_entry(pod, charged_claims, self.options, self.profile))
        if not known.assumed:
            raise LedgerError(f"pod {pod_key(pod)} is already in the ledger of node {self.name}; update it")
        return self._replace(known, pod, charged_claims)

    def remove(self, pod: Pod) -> LedgerEntry:
        """Remove a pod with exactly its recorded charges."""
        entry = self._entries.pop(pod_key(pod), None)
        if entry is None:
            raise LedgerError(f"pod {pod_key(pod)} is not in the ledger of node {self.name}")
        self._unrecord(entry)
        return entry

    def remove_with_placeholders(self, pod: Pod) -> tuple[LedgerEntry, list[LedgerEntry]]:
        """Remove a pod and the placeholders that no other pod here needs; return their entries."""
        placeholders = self.placeholders_of(pod)
        return self.remove(pod), [self.remove(each) for each in placeholders]

    def update(self, pod: Pod, charged_claims: Sequence[ChargedClaim] | None = None) -> LedgerEntry:
        """Replace the entry of a changed pod."""
        known = self._entries.get(pod_key(pod))
        if known is None:
            raise LedgerError(f"pod {pod_key(pod)} is not in the ledger of node {self.name}; add it")
        return self._replace(known, pod, charged_claims)

    def assume(self, pod: Pod, charged_claims: Sequence[ChargedClaim] = ()) -> LedgerEntry:
        """Add a pod that is scheduled to this node but not bound yet."""
        if pod in self:
            raise LedgerError(f"pod {pod_key(pod)} is already in the ledger of node {self.name}")
        return self._record(make_entry(pod, charged_claims, self.options, self.profile, assumed=True))

    def forget(self, pod: Pod) -> LedgerEntry:
        """Remove an assumed pod."""
        entry = self._entries.get(pod_key(pod))
        if entry is None or not entry.assumed:
            raise LedgerError(f"pod {pod_key(pod)} is not assumed on node {self.name}")
        return self.remove(pod)

    def restore(self, entry: LedgerEntry) -> LedgerEntry:
        """Add a removed entry again, unchanged."""
        if entry.pod in self:
            raise LedgerError(f"pod {pod_key(entry.pod)} is already in the ledger of node {self.name}")
        return self._record(entry)

    def clone(self) -> NodeLedger:
        """Return an independent copy; entries and claim states are immutable and shared."""
        copy = NodeLedger.__new__(NodeLedger)
        copy.profile, copy.options = self.profile, self.options
        copy.node, copy.name, copy.allocatable = self.node, self.name, self.allocatable
        copy.requested, copy.non_zero = dict(self.requested), dict(self.non_zero)
        copy._entries, copy._claims = dict(self._entries), dict(self._claims)
        copy._names, copy._repeated = dict(self._names), dict(self._repeated)
        copy._placeholders, copy._covered = dict(self._placeholders), dict(self._covered)
        return copy

    def without(self, pod: Pod) -> NodeLedger:
        """Return this ledger, or a copy without the pod if it has an entry."""
        if pod not in self:
            return self
        copy = self.clone()
        copy.remove(pod)
        return copy

    # -- checking

    def verify(
        self, objects: Iterable[tuple[Pod, Sequence[ChargedClaim] | None]] | None = None
    ) -> list[Discrepancy]:
        """Recompute the ledger from the recorded objects or others, and list the differences."""
        fresh = NodeLedger(self.node, profile=self.profile, options=self.options)
        if objects is None:
            for entry in self._entries.values():
                again = compute_totals(entry.pod, entry.charged_claims, entry.options, entry.profile)
                fresh._record(replace(entry, units=again[0], non_zero=again[1], holds=()))
        else:
            for pod, charged_claims in objects:
                fresh.add(pod, charged_claims)
        found = [*_differences("requested", self.requested, fresh.requested)]
        found += _differences("non-zero requested", self.non_zero, fresh.non_zero)
        found += _differences(
            "entry", {k: _summarize_entry(e) for k, e in self._entries.items()},
            {k: _summarize_entry(e) for k, e in fresh._entries.items()},
        )  # fmt: skip
        found += _differences("claim", _summarize_claims(self._claims), _summarize_claims(fresh._claims))
        for key, entry in self._entries.items():
            found += _differences(f"lines of {key}", entry.units, to_units(sum_lines(entry.lines)))
        return found

    # -- helpers

    def _replace(
        self, known: LedgerEntry, pod: Pod, charged_claims: Sequence[ChargedClaim] | None
    ) -> LedgerEntry:
        if charged_claims is None:
            charged_claims = self._current_charges(known, pod)
        entry = make_entry(pod, charged_claims, self.options, self.profile)
        place = list(self._entries)
        self.remove(known.pod)
        recorded = self._record(entry)
        if place[-1] != pod_key(pod):  # keep the order of addition
            self._entries = {key: self._entries[key] for key in place}
        return recorded

    def _current_charges(self, known: LedgerEntry, pod: Pod) -> tuple[ChargedClaim, ...]:
        """Return the charges in a pod's status, or the equal recorded ones, which also have devices and
        UIDs.
        """
        reported = read_charged_claims(pod, self.profile)
        if not reported and self.profile.keep_assumed_charges:
            return known.charged_claims
        if len(reported) == len(known.charged_claims) and all(
            map(_is_same_charge, reported, known.charged_claims)
        ):
            return known.charged_claims
        return reported

    def _key(self, namespace: str, name: str, uid: str) -> str:
        """Return the key of a claim. A claim with unknown UID is identified by its name."""
        by_name = self._names.get((namespace, name))
        if by_name is None:
            return uid or f"{namespace}/{name}"
        if not uid or uid in self._claims:
            return uid or by_name
        return uid if self._claims[by_name].uid else by_name

    def _record(self, entry: LedgerEntry) -> LedgerEntry:
        pod = pod_key(entry.pod)
        namespace = entry.pod.metadata.namespace
        if self.options.count_claims and entry.charged_claims:
            keys = entry.claims or tuple(
                self._key(namespace, charged_claim.claim, charged_claim.uid)
                for charged_claim in entry.charged_claims
            )
            entry = self._resolve_draws(entry, keys)
            for key, charged_claim in zip(keys, entry.charged_claims, strict=True):
                name = charged_claim.charge.claim
                state = self._claims.get(key)
                self._claims[key] = (
                    ClaimState(namespace, name, charged_claim.uid, frozenset((pod,)))
                    if state is None
                    else state.with_consumer(pod)
                )
                self._names[namespace, name] = key
            for hold in entry.holds:
                self._change(hold.claim, self._claim_level_state(hold, pod, entry))
        add_units(self.requested, entry.units)
        add_units(self.non_zero, entry.non_zero)
        self._entries[pod] = entry
        for key in dict.fromkeys(entry.claims) if entry.claims else ():
            self._update_repeated(key)
        self._update_covered(entry)
        return entry

    def _unrecord(self, entry: LedgerEntry) -> None:
        pod = pod_key(entry.pod)
        add_units(self.requested, entry.units, -1)
        add_units(self.non_zero, entry.non_zero, -1)
        for hold in entry.holds:
            self._change(hold.claim, self._claims[hold.claim].without_share(hold.resource, pod))
        for key in dict.fromkeys(entry.claims):
            state = self._claims[key].without_consumer(pod)
            if state.consumers:
                self._claims[key] = state
            else:
                del self._claims[key]
                if self._names.get((state.namespace, state.name)) == key:
                    del self._names[state.namespace, state.name]
            self._update_repeated(key)
        self._update_covered(entry)

    def _update_repeated(self, key: str) -> None:
        """Update the totals after the consumers of a claim have changed."""
        state = self._claims.get(key)
        shared = state is not None and len(state.consumers) > 1 and self.profile.charge_shared_once
        if not shared and key not in self._repeated:
            return
        before = self._repeated.pop(key, {})
        after = self._find_repeated(state) if state is not None and shared else {}
        if after:
            self._repeated[key] = after
        for units, sign in ((before, 1), (after, -1)):
            add_units(self.requested, units, sign)
            add_units(self.non_zero, {n: u for n, u in units.items() if n in (CPU, MEMORY)}, sign)

    def _update_covered(self, entry: LedgerEntry) -> None:
        """Update the totals after an entry was recorded or removed: a placeholder, or what has some."""
        placeholder = placeholder_owner(entry.pod)
        if placeholder is not None:
            owners = [placeholder.key]
            self._register_placeholder(placeholder.key, pod_key(entry.pod))
        elif self._placeholders:
            namespace = entry.pod.metadata.namespace
            claims = (claim_key(namespace, charged_claim.claim) for charged_claim in entry.charged_claims)
            owners = [pod_key(entry.pod), *claims]
        else:
            return
        for owner in owners:
            before = self._covered.pop(owner, {})
            after = self._find_covered(owner)
            if after:
                self._covered[owner] = after
            for units, sign in ((before, 1), (after, -1)):
                add_units(self.requested, units, sign)
                add_units(self.non_zero, {n: u for n, u in units.items() if n in (CPU, MEMORY)}, sign)

    def _register_placeholder(self, owner: str, key: str) -> None:
        """Update which placeholder stands for an owner; of several, in any order, the first by key."""
        known = self._placeholders.get(owner)
        if key in self._entries:
            self._placeholders[owner] = key if known is None else min(known, key)
        elif known == key:
            others = (
                other
                for other, entry in self._entries.items()
                if (found := placeholder_owner(entry.pod)) is not None and found.key == owner
            )
            first = min(others, default="")
            if first:
                self._placeholders[owner] = first
            else:
                del self._placeholders[owner]

    def _find_covered(self, key: str) -> Units:
        """Return what a placeholder requests and its owner is charged too."""
        if key not in self._placeholders:
            return {}
        placeholder = self._entries[self._placeholders[key]]
        owner = placeholder_owner(placeholder.pod)
        assert owner is not None
        charged: Units = {}
        if owner.kind is OwnerKind.POD:
            entry = self._entries.get(key)
            if entry is not None and self.options.count_claims:
                charged = find_own_charge(entry.pod, entry.charged_claims, entry.options, entry.profile)
        else:
            state = self.claim_state(owner.namespace, owner.name, owner.uid)
            for name, charge in state.claim_level_charges.items() if state is not None else ():
                # What pods draw from the claim is in their requests, which every component counts.
                charged = {**charged, name: charge.units(name) - to_unit(name, charge.pool.consumed)}
        found = {name: min(units, charged.get(name, 0)) for name, units in placeholder.units.items()}
        return {name: units for name, units in found.items() if units > 0}

    def _find_repeated(self, state: ClaimState) -> Units:
        """Return what the pods of a claim are charged for it, without the largest charge."""
        totals: dict[str, Quantity] = {}
        largest: dict[str, Quantity] = {}
        for pod in state.consumers:
            for name, amount in self._entries[pod].amounts_of_claim(state.name).items():
                if is_accounted(name):
                    totals[name] = totals.get(name, ZERO) + amount
                    largest[name] = max(largest.get(name, ZERO), amount)
        # Rounded down: entries are rounded up, and the totals must not fall below what one pod is charged.
        units = {
            name: (totals[name] - largest[name]).nano // units_to_nano(name, 1) for name in sorted(totals)
        }
        return {name: amount for name, amount in units.items() if amount > 0}

    def _resolve_draws(self, entry: LedgerEntry, keys: tuple[str, ...]) -> LedgerEntry:
        """Return the entry with its claim keys, and its draws from pools recorded in its charges."""
        held = {
            (key, resource): (place, charge)
            for place, (key, charged_claim) in enumerate(zip(keys, entry.charged_claims, strict=True))
            for resource, charge in charged_claim.charge.resources.items()
            if is_claim_level(charge, self.profile)
        }
        if not held:
            return replace(entry, claims=keys)
        charged_claims = list(entry.charged_claims)
        if any(charge.drawn is None for _, charge in held.values()):
            pools = self.pools_for(entry.pod, charged_claims)
            charges = [charged_claim.charge for charged_claim in charged_claims]
            drawn = draw_from_pools(entry.pod, charges, self.options, pools, overdraw=True)
            assert isinstance(drawn, dict)
            charged_claims = [record_draws(charged_claim, drawn) for charged_claim in charged_claims]
        holds = []
        for (key, resource), (place, charge) in held.items():
            took = charged_claims[place].charge.resources[resource].drawn or ZERO
            holds.append(ClaimLevelShare(key, resource, charge.quantity or ZERO, took))
        return replace(entry, claims=keys, charged_claims=tuple(charged_claims), holds=tuple(holds))

    def pools_for(self, pod: Pod, charged_claims: Sequence[ChargedClaim]) -> dict[tuple[str, str], ClaimPool]:
        """Return the pools in use on this node, by (claim, resource)."""
        found = {}
        for charged_claim in charged_claims:
            state = self.claim_state(pod.metadata.namespace, charged_claim.claim, charged_claim.uid)
            for resource, holding in state.claim_level_charges.items() if state is not None else ():
                found[charged_claim.claim, resource] = holding.pool
        return found

    def _claim_level_state(self, hold: ClaimLevelShare, pod: str, entry: LedgerEntry) -> ClaimState:
        charged_claim = entry.charged_claims[entry.claims.index(hold.claim)]
        blank = ClaimLevelCharge(
            charged_claim.charge.resources[hold.resource].policy, {}, charged_claim.devices(hold.resource)
        )
        part = ConsumerShare(hold.total, hold.drawn)
        return self._claims[hold.claim].with_share(hold.resource, pod, part, blank)

    def _change(self, key: str, after: ClaimState) -> None:
        """Replace the state of a claim and update the totals of claim-level charges."""
        before = self._claims[key]
        self._claims[key] = after
        for state, sign in ((before, -1), (after, 1)):
            units = {r: held.units(r) for r, held in state.claim_level_charges.items() if is_accounted(r)}
            add_units(self.requested, units, sign)
            add_units(self.non_zero, {n: u for n, u in units.items() if n in (CPU, MEMORY)}, sign)


def _is_same_charge(reported: ChargedClaim, recorded: ChargedClaim) -> bool:
    """Return whether a charge from a status equals the recorded one; a status may omit draws."""
    if (reported.charge.claim, reported.charge.containers) != (
        recorded.charge.claim,
        recorded.charge.containers,
    ):
        return False
    ours = recorded.charge.resources
    return reported.charge.resources.keys() == ours.keys() and all(
        charge == (ours[name] if charge.drawn is not None else replace(ours[name], drawn=None))
        for name, charge in reported.charge.resources.items()
    )


def _summarize_entry(entry: LedgerEntry) -> tuple[object, ...]:
    return entry.units, entry.non_zero, entry.holds


def _summarize_claims(claims: Mapping[str, ClaimState]) -> dict[str, tuple[object, ...]]:
    return {key: (state.consumers, state.allocated, state.consumed) for key, state in claims.items()}


def _differences(
    what: str, recorded: Mapping[str, object], computed: Mapping[str, object]
) -> Iterator[Discrepancy]:
    """Yield the differences; zero equals absent."""
    if recorded == computed:
        return
    for name in sorted({*recorded, *computed}):
        if (recorded.get(name) or 0) != (computed.get(name) or 0):
            yield Discrepancy(f"{what} {name}", recorded.get(name), computed.get(name))
