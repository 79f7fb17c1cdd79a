"""Suite `node-allocatable`: what claims charge, whether a pod fits, and what the node's books say after.

With `--profile upstream-1.36` every row must come out exactly as kube-scheduler 1.36.4 answered. By default
Plimsoll's own rules hold: a row on which the documented differences have no bearing must still come out as
upstream's; one they touch is held against `accounting_rule.py`, a second computation of the rules that shares
no code with the ledger and is itself held against upstream's answers on every row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod, PodStatus
from plimsoll.api.forms import ClaimCharge, Form
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import AllocationResult, ResourceClaim, ResourceSlice
from plimsoll.ledger.budget import uncovered_requests
from plimsoll.ledger.claims import Bill, Pricing, bill_results, bills_in_status, referring_containers
from plimsoll.ledger.devices import DeviceIndex
from plimsoll.ledger.fit import Admission, claim_shortages
from plimsoll.ledger.judge import judge_admission, judge_placement, judge_requests, sharing_conflicts
from plimsoll.ledger.node import NodeLedger, options_for
from plimsoll.ledger.profile import PROFILES, Profile
from plimsoll.ledger.status import patch_failed, plan_clear, plan_patch, status_entries, with_charges
from plimsoll.ledger.texts import render, render_all
from plimsoll.ledger.verdict import Code, Reason, Verdict
from tests.conformance import accounting_rule

Row = dict[str, Any]


def check_under(profile: str) -> Callable[[Row], str | None]:
    """The check under a profile; ValueError names the profiles there are."""
    known = sorted(name for name in PROFILES if name in ("default", "upstream-1.36"))
    if profile not in known:
        raise ValueError(f"suite node-allocatable has the profiles {', '.join(known)}, not {profile!r}")
    return partial(_check, profile=PROFILES[profile])


def check(row: Row) -> str | None:
    return _check(row, Profile.default())


def _check(row: Row, profile: Profile) -> str | None:
    return KINDS[row["kind"]](row["in"], row["want"], profile)


def _differ(what: str, got: object, wanted: object) -> str | None:
    return None if got == wanted else f"{what}: got {got!r}, wanted {wanted!r}"


# -- shapes


def _units(units: Mapping[str, int]) -> dict[str, Any]:
    """Whole amounts as rows write them."""
    shape: dict[str, Any] = {
        "milliCPU": units.get("cpu", 0),
        "memory": units.get("memory", 0),
        "ephemeralStorage": units.get("ephemeral-storage", 0),
    }
    scalar = {n: u for n, u in units.items() if n not in ("cpu", "memory", "ephemeral-storage", "pods")}
    return shape | ({"scalar": scalar} if scalar else {})


def _whole(shape: Mapping[str, Any]) -> dict[str, int]:
    names = {"milliCPU": "cpu", "memory": "memory", "ephemeralStorage": "ephemeral-storage"}
    scalar: dict[str, int] = shape.get("scalar", {})
    return {names[n]: shape[n] for n in names if n in shape} | scalar


def _non_zero(ledger: NodeLedger) -> dict[str, int]:
    return {"milliCPU": ledger.non_zero["cpu"], "memory": ledger.non_zero["memory"]}


def _states(ledger: NodeLedger) -> dict[str, list[str]]:
    return {f"{s.namespace}/{s.name}": sorted(s.consumers) for s in ledger.claims.values()}


def _statuses(entries: tuple[ClaimCharge, ...]) -> list[dict[str, Any]]:
    """Entries by way of the 1.36 form, with canonical amounts."""
    bills = [Bill(entry) for entry in entries]
    tree = codec.to_tree(with_charges(Pod(), bills, Form.V1_36).whole(Form.V1_36))
    found = tree.get("status", {}).get("nodeAllocatableResourceClaimStatuses", [])
    return [_status(entry) for entry in found]


def _status(entry: Row) -> Row:
    amounts = {n: Quantity.parse(q).canonical() for n, q in entry.get("resources", {}).items()}
    return {
        "resourceClaimName": entry["resourceClaimName"],
        "containers": entry.get("containers") or [],
        "resources": amounts,
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    reasons = list(render_all(verdict))
    return {"code": verdict.code.value} | ({"reasons": reasons} if reasons else {})


def _admission(answer: Admission) -> dict[str, Any]:
    if answer.admit:
        return {"admit": True}
    return {"admit": False, "reason": answer.reason, "message": answer.message}


def _gates(features: Mapping[str, bool]) -> Gates:
    return Gates.of(features, Gates.upstream())


def _bills(entries: list[Row] | None) -> tuple[ClaimCharge, ...]:
    status = codec.convert({"nodeAllocatableResourceClaimStatuses": entries or []}, PodStatus)
    return tuple(bill.charge for bill in bills_in_status(Pod(status=status)))


# -- kind: filter


def _check_filter(given: Row, want: Row, profile: Profile) -> str | None:
    got = _filter(given, profile)
    if profile.name == "default":
        plain = accounting_rule.filter_outcome(given, ours=False)
        ruled = accounting_rule.filter_outcome(given, ours=True)
        wrong = accounting_rule.mismatch(plain, want)
        if wrong:
            return f"the second computation differs from upstream: {wrong}"
        return accounting_rule.mismatch(got, want if ruled == plain else ruled)
    choices = want.get("filter_one_of") or [want["filter"]]
    if {got["filter"]["code"], choices[0]["code"]} == {"Error"}:
        # Where several claims cannot be priced, which one upstream complains of is up to the order of a map.
        possible = accounting_rule.possible_errors(given)
        told = {text for choice in choices for text in choice["reasons"]}
        if not told <= possible:
            return f"the second computation does not know {sorted(told - possible)}"
        want = {**want, "filter_one_of": [{"code": "Error", "reasons": [text]} for text in possible]}
    return _compare(got, want)


def _compare(got: Row, want: Row) -> str | None:
    for key in sorted({*got, *want}):
        if key.startswith(("filter", "kubelet_admission")):
            continue  # compared below, where several answers may be right
        wanted = want.get(key)
        if key in ("calculated_statuses", "stored_statuses") and wanted is not None:
            wanted = [_status(entry) for entry in wanted]
        mismatch = _differ(key, got.get(key), wanted)
        if mismatch:
            return mismatch
    for key in ("filter", "kubelet_admission"):
        allowed = want.get(f"{key}_one_of") or [want.get(key)]
        if got.get(key) not in allowed:
            return f"{key}: got {got.get(key)!r}, wanted one of {allowed!r}"
    return None


def _filter(given: Row, profile: Profile) -> Row:
    """What Plimsoll says, in the shape of a row's `want`."""
    node = codec.convert({"metadata": {"name": given["node"]["name"]}, "status": given["node"]}, Node)
    ledger = NodeLedger(node, _gates(given["features"]), profile)
    for pod in given["existing_pods"]:
        ledger.add(codec.convert(pod, Pod))
    pod = codec.convert(given["pod"], Pod)
    claims = {c["metadata"]["name"]: codec.convert(c, ResourceClaim) for c in given["claims"]}
    allocations = {n: codec.convert(a, AllocationResult) for n, a in given["allocations"].items()}
    slices = [codec.convert(piece, ResourceSlice) for piece in given["resource_slices"]]
    pricing = Pricing(DeviceIndex(slices, profile), node, {}, profile)
    to_allocate = {n: a for n, a in allocations.items() if n in claims and not claims[n].status.allocation}
    got: Row = {
        "node_requested": _units(ledger.requested),
        "claim_states": _states(ledger),
        "node_resources_fit": _verdict(judge_requests(ledger, pod)),
    }
    judged = judge_placement(ledger, pod, claims, to_allocate, pricing)
    got["filter"] = _verdict(judged.verdict)
    names = {r.resource_claim_name for r in pod.spec.resource_claims} | {
        s.resource_claim_name for s in pod.status.resource_claim_statuses
    }
    got["allocator_ran"] = any(c.status.allocation is None for n, c in claims.items() if n in names)
    # A claim of which no known device charges anything is passed over even if a device is gone; rows do
    # not say what is charged then.
    gone = any(
        pricing.devices.find(result, node) is None
        for name, allocation in to_allocate.items()
        if name in names
        for result in allocation.devices.results
    )
    if judged.bills is not None and ledger.options.count_claims and not gone:
        got["calculated_statuses"] = _statuses(status_entries(judged.bills))
        got["kubelet_admission"] = _admission(judge_admission(ledger, pod, judged.bills))
        if judged.demand is not None:
            got["pod_demand"] = _units(judged.demand)
    if judged.verdict.fits:
        bills = judged.bills or ()
        got["stored_statuses"] = _statuses(status_entries(bills))
        ledger.assume(pod, bills)
        got["assumed"] = {
            "node_requested": _units(ledger.requested),
            "claim_states": _states(ledger),
            "non_zero_requested": _non_zero(ledger),
        }
        ledger.forget(pod)
        got["forgotten"] = {"node_requested": _units(ledger.requested), "claim_states": _states(ledger)}
    if ledger.verify():
        got["books"] = [str(found) for found in ledger.verify()]
    return got


# -- the smaller kinds


def _check_node_info(given: Row, want: Row, profile: Profile) -> str | None:
    ledger = NodeLedger(Node(), _gates(given["features"]), profile)
    pods = [codec.convert(pod, Pod) for pod in given["pods"]]
    for step, (op, index) in enumerate(given["ops"]):
        (ledger.add if op == "add" else ledger.remove)(pods[index])
        got = {
            "pods": len(ledger),
            "requested": _units(ledger.requested),
            "non_zero_requested": _non_zero(ledger),
            "claim_states": _states(ledger),
        }
        mismatch = _differ(f"after {op} {index}", got, want["after"][step])
        if mismatch or ledger.verify():
            return mismatch or f"the books after step {step}: {ledger.verify()}"
    return None


def _check_sharing(given: Row, want: Row, profile: Profile) -> str | None:
    pod = codec.convert(given["pod"], Pod)
    ledger = NodeLedger(profile=profile)
    for name, consumers in given["claim_states"].items():
        namespace, _, claim = name.partition("/")
        for uid in consumers:
            other = codec.convert({"metadata": {"name": uid, "namespace": namespace, "uid": uid}}, Pod)
            known = ledger.entries.get(uid)
            bills = known.bills if known is not None else ()
            if known is not None and known.pod.metadata.namespace != namespace:
                other = codec.convert(
                    {"metadata": {"name": uid, "namespace": namespace, "uid": f"{uid} of {namespace}"}}, Pod
                )
                bills = ()
            (ledger.update if other in ledger else ledger.add)(other, (*bills, Bill(ClaimCharge(claim))))
    reasons: list[Reason] = []
    if given["claim"] is not None:
        reasons = [*sharing_conflicts(ledger, pod, codec.convert(given["claim"], ResourceClaim))]
    return _differ("verdict", _verdict(Verdict.of(reasons)), want)


def _check_build(given: Row, want: Row, profile: Profile) -> str | None:
    """Statuses from allocations. Rows give results without a driver, which only upstream takes for one."""
    pod = codec.convert(given["pod"], Pod)
    slices = [codec.convert(piece, ResourceSlice) for piece in given.get("resource_slices", [])]
    drivers = {piece.spec.driver for piece in slices}
    pricing = Pricing(DeviceIndex(slices, profile), None, {}, profile)
    names = {a["claim"]["uid"]: a["claim"]["name"] for a in given["allocations"]}
    references = {ref: names[uid] for ref, uid in given["claim_uid_by_ref"].items() if uid in names}
    bills: list[Bill] = []
    for entry in given["allocations"]:
        results = entry["allocation"]["devices"]["results"]
        if profile.exact_devices:
            nameless = [result for result in results if result["driver"] not in drivers]
            refused = _bill(entry, results, pod, references, pricing)
            if nameless and not (isinstance(refused, Reason) and refused.code is Code.ERROR):
                return f"a device of driver {nameless[0]['driver']!r} was found among those of {drivers}"
            results = [result | {"driver": min(drivers)} for result in results]
        bill = _bill(entry, results, pod, references, pricing)
        if isinstance(bill, Reason):
            if "error" not in want:
                return f"refused: {render(bill)}"
            if profile.exact_devices:
                return _differ("code", bill.code, Code.ERROR)
            return _differ("error", render(bill), want["error"])
        bills += [bill] if bill is not None else []
    if "error" in want:
        return f"took it as {bills}, wanted error {want['error']}"
    entries = _statuses(status_entries(bills))
    return _differ("statuses", entries, [_status(entry) for entry in want["statuses"]])


def _bill(
    entry: Row, results: list[Row], pod: Pod, references: Mapping[str, str], pricing: Pricing
) -> Bill | Reason | None:
    claim = codec.convert({"metadata": entry["claim"]}, ResourceClaim)
    allocation = codec.convert({"devices": {"results": results}}, AllocationResult)
    containers = referring_containers(pod, references, claim.metadata.name, pricing.profile)
    return bill_results(claim, allocation.devices.results, containers, pricing)


def _check_fits(given: Row, want: Row, profile: Profile) -> str | None:
    shortages = claim_shortages(*(_whole(given[key]) for key in ("request", "allocatable", "requested")))
    return _differ("verdict", _verdict(Verdict.of(shortages)), want)


def _check_budget(given: Row, want: Row, profile: Profile) -> str | None:
    pod = codec.convert(given["pod"], Pod)
    budget = {name: Quantity.parse(text) for name, text in given["requests_with_pod_level"].items()}
    options = options_for(Gates.all_on(), profile)
    charges = tuple(bill.charge for bill in bills_in_status(pod))
    reasons: list[Reason] = []
    if pod.spec.resources is not None and pod.spec.resources.requests:
        reasons = [*uncovered_requests(pod, budget, options, charges)]
    got = _verdict(Verdict.of(reasons[:1]))
    if "reasons_one_of" in want:
        all_told = [render(reason) for reason in reasons]
        return _differ("code", got["code"], want["code"]) or _differ(
            "reasons", sorted(all_told), sorted(want["reasons_one_of"])
        )
    return _differ("verdict", got, want)


def _check_patch(given: Row, want: Row, profile: Profile) -> str | None:
    assumed = codec.convert({"nodeAllocatableResourceClaimStatuses": given.get("assumed") or []}, PodStatus)
    patch = plan_patch(assumed, _bills(given.get("calculated")))
    verdict = patch.verdict
    if patch.entries is not None and "patch_error" in given:
        pod = codec.convert({"metadata": {"name": "test-pod", "namespace": "test-ns"}}, Pod)
        verdict = patch_failed(pod, given["patch_error"])
    return _differ("patch", {**_verdict(verdict), "patched": patch.entries is not None}, want)


def _check_clear(given: Row, want: Row, profile: Profile) -> str | None:
    status = codec.convert({"nodeAllocatableResourceClaimStatuses": given.get("status") or []}, PodStatus)
    return _differ("clear", {"patched": plan_clear(status).entries is not None}, want)


KINDS: dict[str, Callable[[Row, Row, Profile], str | None]] = {
    "filter": _check_filter,
    "nodeinfo": _check_node_info,
    "claim_sharing": _check_sharing,
    "build_status": _check_build,
    "node_fits": _check_fits,
    "pod_level_budget": _check_budget,
    "patch_status": _check_patch,
    "clear_status": _check_clear,
}
