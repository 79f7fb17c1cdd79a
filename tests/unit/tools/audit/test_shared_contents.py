"""Audit of objects that share equal parts: the same findings as for objects that share nothing."""

from __future__ import annotations

import copy
import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from plimsoll.api import codec
from plimsoll.api.forms import CLASS_KEY
from plimsoll.ledger.claims import ChargedClaim, read_charged_claims
from plimsoll.ledger.placement import charge_claims
from plimsoll.ledger.profile import AccountingProfile
from plimsoll.tools.audit import audit
from plimsoll.tools.audit.charges import AuditedClaim, charged_claims
from plimsoll.tools.audit.facts import AuditFacts
from plimsoll.tools.cluster_state import ClusterObjects, ClusterState
from tests.dumps import big_cluster, make_cluster_state
from tests.sizes import examples

ANNOTATION = '{"nodeAllocatableResourceMappings": {"cpu": {"allocationMultiplier": "1"}}}'


def _damage(trees: list[dict[str, Any]], chance: random.Random) -> list[dict[str, Any]]:
    """Make some claims, slices and pods inconsistent."""
    trees = copy.deepcopy(trees)
    for tree in trees:
        if chance.random() > 0.2:
            continue
        allocation = tree.get("status", {}).get("allocation")
        if tree["kind"] == "ResourceClaim" and allocation:
            results = allocation["devices"]["results"]
            damage = chance.randrange(4)
            if damage == 0:
                results.append({**results[0], "device": "gpu-7"})
            elif damage == 1:
                results[0]["pool"] = "node-0001"
            elif damage == 2:
                results[0]["device"] = "gone"
            else:
                results[0]["consumedCapacity"] = {"cpu.example.com/cpu": chance.choice(["1", "1000m", "80"])}
        elif tree["kind"] == "ResourceSlice":
            device = chance.choice(tree["spec"]["devices"])
            device.setdefault("attributes", {})["numa"] = {"int": chance.randrange(2)}
            device["nodeAllocatableResourceMappings"] = {"cpu": {"capacityKey": "missing"}}
        elif tree["kind"] == "Pod":
            tree.get("status", {}).pop("nodeAllocatableResourceClaimStatuses", None)
    return trees


def _unshared(state: ClusterState) -> ClusterState:
    """Return the same objects, each decoded by itself."""
    objects = ClusterObjects(codec.decode(codec.encode(each), type(each)) for each in state.objects)
    objects.ignored_fields = dict(state.objects.ignored_fields)
    return ClusterState(objects, state.gates, state.profile, origin=state.origin)


def test_findings_do_not_depend_on_sharing() -> None:
    chance = random.Random(7)
    whole = big_cluster(6, pods_per_node=6, pending=3)
    seen: set[str] = set()
    for _ in range(6):
        state = make_cluster_state(_damage(whole, chance))
        shared = audit(state, now=0.0, live=True)
        alone = audit(_unshared(state), now=0.0, live=True)
        assert shared.findings == alone.findings
        seen |= {finding.id for finding in shared.findings}
    assert len(seen) >= 6


def _priced_one_by_one(facts: AuditFacts) -> list[AuditedClaim]:
    """Return every allocated claim of every bound pod, each priced by itself."""
    found = []
    snapshot, profile = facts.cluster_state.snapshot, facts.cluster_state.profile
    for user in facts.bound_with_claims:
        row = snapshot.row_of(user.pod.spec.node_name)
        recorded = {each.claim: each for each in read_charged_claims(user.pod, profile)}
        for claim in user.claims if row is not None else ():
            if claim.status.allocation is not None:
                name = claim.metadata.name
                context = snapshot.charge_context(row)
                priced = next(charge_claims(user.pod, {name: claim}, {}, context), None)
                if isinstance(priced, ChargedClaim):
                    priced = replace(priced, parts=())
                found.append(AuditedClaim(user.pod, claim, recorded.get(name), priced, bool(recorded)))
    return found


@settings(max_examples=examples(20), deadline=None)
@given(st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_claims_that_charge_nothing_are_left_out(
    chance: random.Random, charging_class: bool, kube_1_36: bool
) -> None:
    """The others are priced as if each was the only one."""
    trees = _damage(big_cluster(3, pods_per_node=4, pending=3), chance)
    for tree in trees:
        if charging_class and tree["kind"] == "DeviceClass" and tree["metadata"]["name"] == "gpu":
            tree["metadata"]["annotations"] = {CLASS_KEY: ANNOTATION}
        if tree["kind"] == "Pod" and tree["spec"].get("resourceClaims") and chance.random() < 0.2:
            tree["spec"]["resourceClaims"].append({"name": "other", "resourceClaimName": "gpu-0000-2"})
    state = make_cluster_state(trees)
    if kube_1_36:
        state = ClusterState(state.objects, profile=AccountingProfile.upstream_1_36())
    facts = AuditFacts(state, 0.0, live=True)
    wanted = [
        each
        for each in _priced_one_by_one(facts)
        if each.any_recorded or each.priced is not None or len(facts.users[each.claim.metadata.key]) > 1
    ]
    found = charged_claims(facts)
    plain = [
        replace(each, priced=replace(each.priced, parts=()))
        if isinstance(each.priced, ChargedClaim)
        else each
        for each in found
    ]
    assert [each for each in plain if each in wanted] == wanted
    assert all(each in wanted or (each.recorded is None and each.priced is None) for each in plain)
