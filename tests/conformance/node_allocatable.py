"""Suite `node-allocatable`: charges of claims, whether a pod fits, and the node's ledger afterward.

With `--profile upstream-1.36` every row must come out exactly as kube-scheduler 1.36.4 answered. By default
Plimsoll's own rules hold: a row on which the documented differences have no bearing must still come out as
upstream's; one they touch is held against `accounting_rule.py`, a second computation of the rules that shares
no code with the ledger and is itself held against upstream's answers on every row.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod, PodStatus
from plimsoll.api.forms import ClaimCharge, Form
from plimsoll.api.gates import Gates
from plimsoll.api.quantity import Quantity
from plimsoll.api.resource import AllocationResult, ResourceClaim, ResourceSlice
from plimsoll.errors import ApiError
from plimsoll.ledger.claims import (
    ChargeContext,
    ChargedClaim,
    charge_results,
    find_referring_containers,
    read_charged_claims,
)
from plimsoll.ledger.device_index import DeviceIndex
from plimsoll.ledger.fit import PodAdmitResult, find_claim_shortages
from plimsoll.ledger.messages import format_reason, format_reasons
from plimsoll.ledger.node_ledger import NodeLedger, resources_options
from plimsoll.ledger.placement import check_admission, check_placement, check_requests, find_sharing_conflicts
from plimsoll.ledger.pod_level_budget import find_uncovered_requests
from plimsoll.ledger.profile import PROFILES, AccountingProfile
from plimsoll.ledger.status import build_status_entries, write_charges
from plimsoll.ledger.verdict import Reason, Verdict, VerdictCode
from plimsoll.scheduler.binding.bind import BindTransaction
from plimsoll.scheduler.binding.writer import BindingWriter
from tests.conformance import accounting_rule

Row = dict[str, Any]


def check_under(profile: str) -> Callable[[Row], str | None]:
    """Return the check for a profile; ValueError names the valid profiles."""
    known = sorted(name for name in PROFILES if name in ("default", "upstream-1.36"))
    if profile not in known:
        raise ValueError(f"suite node-allocatable has the profiles {', '.join(known)}, not {profile!r}")
    return partial(_check, profile=PROFILES[profile])


def check(row: Row) -> str | None:
    return _check(row, AccountingProfile.default())


def _check(row: Row, profile: AccountingProfile) -> str | None:
    return KINDS[row["kind"]](row["in"], row["want"], profile)


def _differ(what: str, got: object, wanted: object) -> str | None:
    return None if got == wanted else f"{what}: got {got!r}, wanted {wanted!r}"


# -- shapes


def _units(units: Mapping[str, int]) -> dict[str, Any]:
    """Return whole amounts as rows write them."""
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
    """Return entries by way of the 1.36 form, with canonical amounts."""
    charged_claims = [ChargedClaim(entry) for entry in entries]
    tree = codec.to_tree(write_charges(Pod(), charged_claims, Form.V1_36).lossless(Form.V1_36))
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
    reasons = list(format_reasons(verdict))
    return {"code": verdict.code.value} | ({"reasons": reasons} if reasons else {})


def _admission(answer: PodAdmitResult) -> dict[str, Any]:
    if answer.admit:
        return {"admit": True}
    return {"admit": False, "reason": answer.reason, "message": answer.message}


def _gates(features: Mapping[str, bool]) -> Gates:
    return Gates.of(features, Gates.upstream())


def _charged_claims(entries: list[Row] | None) -> tuple[ClaimCharge, ...]:
    status = codec.convert({"nodeAllocatableResourceClaimStatuses": entries or []}, PodStatus)
    return tuple(charged_claim.charge for charged_claim in read_charged_claims(Pod(status=status)))


# -- kind: filter


def _check_filter(given: Row, want: Row, profile: AccountingProfile) -> str | None:
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
        reported = {text for choice in choices for text in choice["reasons"]}
        if not reported <= possible:
            return f"the second computation does not know {sorted(reported - possible)}"
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


def _filter(given: Row, profile: AccountingProfile) -> Row:
    """Return our result in the shape of a row's `want`."""
    node = codec.convert({"metadata": {"name": given["node"]["name"]}, "status": given["node"]}, Node)
    ledger = NodeLedger(node, _gates(given["features"]), profile)
    for pod in given["existing_pods"]:
        ledger.add(codec.convert(pod, Pod))
    pod = codec.convert(given["pod"], Pod)
    claims = {c["metadata"]["name"]: codec.convert(c, ResourceClaim) for c in given["claims"]}
    allocations = {n: codec.convert(a, AllocationResult) for n, a in given["allocations"].items()}
    slices = [codec.convert(piece, ResourceSlice) for piece in given["resource_slices"]]
    charge_context = ChargeContext(DeviceIndex(slices, profile), node, {}, profile)
    to_allocate = {n: a for n, a in allocations.items() if n in claims and not claims[n].status.allocation}
    got: Row = {
        "node_requested": _units(ledger.requested),
        "claim_states": _states(ledger),
        "node_resources_fit": _verdict(check_requests(ledger, pod)),
    }
    judged = check_placement(ledger, pod, claims, to_allocate, charge_context)
    got["filter"] = _verdict(judged.verdict)
    names = {r.resource_claim_name for r in pod.spec.resource_claims} | {
        s.resource_claim_name for s in pod.status.resource_claim_statuses
    }
    got["allocator_ran"] = any(c.status.allocation is None for n, c in claims.items() if n in names)
    # A claim of which no known device charges anything is passed over even if a device is gone; rows do
    # not say what is charged then.
    gone = any(
        charge_context.devices.find(result, node) is None
        for name, allocation in to_allocate.items()
        if name in names
        for result in allocation.devices.results
    )
    if judged.charged_claims is not None and ledger.options.count_claims and not gone:
        got["calculated_statuses"] = _statuses(build_status_entries(judged.charged_claims))
        got["kubelet_admission"] = _admission(check_admission(ledger, pod, judged.charged_claims))
        if judged.demand is not None:
            got["pod_demand"] = _units(judged.demand)
    if judged.verdict.fits:
        charged_claims = judged.charged_claims or ()
        got["stored_statuses"] = _statuses(build_status_entries(charged_claims))
        ledger.assume(pod, charged_claims)
        got["assumed"] = {
            "node_requested": _units(ledger.requested),
            "claim_states": _states(ledger),
            "non_zero_requested": _non_zero(ledger),
        }
        ledger.forget(pod)
        got["forgotten"] = {"node_requested": _units(ledger.requested), "claim_states": _states(ledger)}
    if ledger.verify():
        got["ledger"] = [str(found) for found in ledger.verify()]
    return got


# -- other kinds of rows


def _check_node_info(given: Row, want: Row, profile: AccountingProfile) -> str | None:
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
            return mismatch or f"the ledger after step {step}: {ledger.verify()}"
    return None


def _check_sharing(given: Row, want: Row, profile: AccountingProfile) -> str | None:
    pod = codec.convert(given["pod"], Pod)
    ledger = NodeLedger(profile=profile)
    for name, consumers in given["claim_states"].items():
        namespace, _, claim = name.partition("/")
        for uid in consumers:
            other = codec.convert({"metadata": {"name": uid, "namespace": namespace, "uid": uid}}, Pod)
            known = ledger.entries.get(uid)
            charged_claims = known.charged_claims if known is not None else ()
            if known is not None and known.pod.metadata.namespace != namespace:
                other = codec.convert(
                    {"metadata": {"name": uid, "namespace": namespace, "uid": f"{uid} of {namespace}"}}, Pod
                )
                charged_claims = ()
            (ledger.update if other in ledger else ledger.add)(
                other, (*charged_claims, ChargedClaim(ClaimCharge(claim)))
            )
    reasons: list[Reason] = []
    if given["claim"] is not None:
        reasons = [*find_sharing_conflicts(ledger, pod, codec.convert(given["claim"], ResourceClaim))]
    return _differ("verdict", _verdict(Verdict.of(reasons)), want)


def _check_build(given: Row, want: Row, profile: AccountingProfile) -> str | None:
    """Check the statuses built from allocations; rows have results without a driver."""
    pod = codec.convert(given["pod"], Pod)
    slices = [codec.convert(piece, ResourceSlice) for piece in given.get("resource_slices", [])]
    drivers = {piece.spec.driver for piece in slices}
    charge_context = ChargeContext(DeviceIndex(slices, profile), None, {}, profile)
    names = {a["claim"]["uid"]: a["claim"]["name"] for a in given["allocations"]}
    references = {ref: names[uid] for ref, uid in given["claim_uid_by_ref"].items() if uid in names}
    charged_claims: list[ChargedClaim] = []
    for entry in given["allocations"]:
        results = entry["allocation"]["devices"]["results"]
        if profile.exact_devices:
            nameless = [result for result in results if result["driver"] not in drivers]
            refused = _charged_claim(entry, results, pod, references, charge_context)
            if nameless and not (isinstance(refused, Reason) and refused.code is VerdictCode.ERROR):
                return f"a device of driver {nameless[0]['driver']!r} was found among those of {drivers}"
            results = [result | {"driver": min(drivers)} for result in results]
        charged_claim = _charged_claim(entry, results, pod, references, charge_context)
        if isinstance(charged_claim, Reason):
            if "error" not in want:
                return f"refused: {format_reason(charged_claim)}"
            if profile.exact_devices:
                return _differ("code", charged_claim.code, VerdictCode.ERROR)
            return _differ("error", format_reason(charged_claim), want["error"])
        charged_claims += [charged_claim] if charged_claim is not None else []
    if "error" in want:
        return f"took it as {charged_claims}, wanted error {want['error']}"
    entries = _statuses(build_status_entries(charged_claims))
    return _differ("statuses", entries, [_status(entry) for entry in want["statuses"]])


def _charged_claim(
    entry: Row, results: list[Row], pod: Pod, references: Mapping[str, str], charge_context: ChargeContext
) -> ChargedClaim | Reason | None:
    claim = codec.convert({"metadata": entry["claim"]}, ResourceClaim)
    allocation = codec.convert({"devices": {"results": results}}, AllocationResult)
    containers = find_referring_containers(pod, references, claim.metadata.name, charge_context.profile)
    return charge_results(claim, allocation.devices.results, containers, charge_context)


def _check_fits(given: Row, want: Row, profile: AccountingProfile) -> str | None:
    shortages = find_claim_shortages(*(_whole(given[key]) for key in ("request", "allocatable", "requested")))
    return _differ("verdict", _verdict(Verdict.of(shortages)), want)


def _check_budget(given: Row, want: Row, profile: AccountingProfile) -> str | None:
    pod = codec.convert(given["pod"], Pod)
    budget = {name: Quantity.parse(text) for name, text in given["requests_with_pod_level"].items()}
    options = resources_options(Gates.default(), profile)
    charges = tuple(charged_claim.charge for charged_claim in read_charged_claims(pod))
    reasons: list[Reason] = []
    if pod.spec.resources is not None and pod.spec.resources.requests:
        reasons = [*find_uncovered_requests(pod, budget, options, charges)]
    got = _verdict(Verdict.of(reasons[:1]))
    if "reasons_one_of" in want:
        all_messages = [format_reason(reason) for reason in reasons]
        return _differ("code", got["code"], want["code"]) or _differ(
            "reasons", sorted(all_messages), sorted(want["reasons_one_of"])
        )
    return _differ("verdict", got, want)


# -- writes of a binding


class _RecordingWriter:
    """Binding writer that records the writes to a pod's charges; one with an error rejects them."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.writes: list[tuple[ClaimCharge, ...]] = []

    async def write_charges(self, pod: Pod, entries: Sequence[ClaimCharge], node: str = "") -> Pod:
        self.writes.append(tuple(entries))
        if self.error:
            raise ApiError(422, "Invalid", self.error)
        charged_claims = [ChargedClaim(entry) for entry in entries]
        return write_charges(pod, charged_claims, Form.V1_36).lossless(Form.V1_36)

    async def clear_charges(self, pod: Pod) -> Pod:
        return await self.write_charges(pod, ())


def _transaction(writer: _RecordingWriter) -> BindTransaction:
    pod = codec.convert({"metadata": {"name": "test-pod", "namespace": "test-ns"}}, Pod)
    return BindTransaction(pod, cast(BindingWriter, writer), lambda claim: None)


def _check_patch(given: Row, want: Row, profile: AccountingProfile) -> str | None:
    """Check the write before binding.

    Upstream computes the entries a second time and fails if they differ from those it assumed. Plimsoll
    writes the charges that the ledger assumed (`Placement.charged_claims`), so rows with a difference have no
    counterpart: there the assumed charges must be written.
    """
    assumed = _charged_claims(given.get("assumed"))
    writer = _RecordingWriter(given.get("patch_error", ""))
    failed = asyncio.run(_transaction(writer).write_charges(assumed))
    if assumed != _charged_claims(given.get("calculated")):
        return _differ("writes", writer.writes, [assumed])
    got: Row = {"code": "Error" if failed else "Success", "patched": bool(writer.writes)}
    if failed:
        got["reasons"] = [failed.error.removeprefix('running PreBind plugin "DynamicResources": ')]
    return _differ("patch", got, want)


def _check_clear(given: Row, want: Row, profile: AccountingProfile) -> str | None:
    """Check the write after a failed binding, which removes the charges written before."""
    writer = _RecordingWriter()

    async def fail_binding() -> None:
        binding = _transaction(writer)
        await binding.write_charges(_charged_claims(given.get("status")))
        writer.writes.clear()
        await binding.undo()

    asyncio.run(fail_binding())
    return _differ("clear", {"patched": writer.writes == [()]}, want)


KINDS: dict[str, Callable[[Row, Row, AccountingProfile], str | None]] = {
    "filter": _check_filter,
    "nodeinfo": _check_node_info,
    "claim_sharing": _check_sharing,
    "build_status": _check_build,
    "node_fits": _check_fits,
    "pod_level_budget": _check_budget,
    "patch_status": _check_patch,
    "clear_status": _check_clear,
}
