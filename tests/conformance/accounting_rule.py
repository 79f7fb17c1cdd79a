"""Independent implementation of the accounting rules on plain JSON, without any Plimsoll code.

`filter_outcome(given, ours=False)` follows kube-scheduler 1.36.4; with `ours=True` the documented differences
hold: the driver is part of a device's name, and only devices of this node and of the newest generation count;
a capacityKey of an exclusive device charges its whole capacity; unreferenced claims are charged; claims
allocated before are charged; a container is listed once; admin access charges nothing. Slow and simple on
purpose.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

Row = dict[str, Any]
Amounts = dict[str, Fraction]

_SUFFIXES = {s: Fraction(1024) ** (i + 1) for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))}
_SUFFIXES |= {
    s: Fraction(1000) ** (i - 3) for i, s in enumerate(("n", "u", "m", "", "k", "M", "G", "T", "P", "E"))
}
_NUMBER = re.compile(r"([+-]?[0-9]*\.?[0-9]*)(?:[eE]([+-]?[0-9]+)|([a-zA-Z]*))")
PLAIN = ("cpu", "memory", "ephemeral-storage")


class SchedulerError(Exception):
    """Error of the scheduler, with the messages it may have, without the claim."""


def amount(text: str) -> Fraction:
    match = _NUMBER.fullmatch(text)
    assert match is not None, text
    number, exponent, suffix = match.groups()
    return Fraction(number) * (Fraction(10) ** int(exponent) if exponent else _SUFFIXES[suffix or ""])


def amounts(texts: dict[str, str] | None) -> Amounts:
    return {name: amount(text) for name, text in (texts or {}).items()}


def add(*parts: Amounts) -> Amounts:
    return {n: sum((p.get(n, Fraction()) for p in parts), Fraction()) for n in {n for p in parts for n in p}}


# -- pods


def life(pod: Row) -> Iterator[list[Row]]:
    """Return the sets of containers that run together."""
    sidecars: list[Row] = []
    for container in pod["spec"].get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            sidecars = [*sidecars, container]
            yield sidecars
        else:
            yield [*sidecars, container]
    yield [*sidecars, *(pod["spec"].get("containers") or [])]


def whole_requests(pod: Row, claims: Amounts, pod_level: bool, fill: Amounts | None = None) -> Amounts:
    def own(container: Row) -> Amounts:
        return (fill or {}) | amounts(container.get("resources", {}).get("requests"))

    phases = [add(*map(own, running)) for running in life(pod)]
    total = {n: max(p.get(n, Fraction()) for p in phases) for n in {n for p in phases for n in p}}
    total = add(total, claims)
    if pod_level:
        total |= pod_level_requests(pod)
    return add(total, amounts(pod["spec"].get("overhead")))


def pod_level_requests(pod: Row) -> Amounts:
    given = amounts((pod["spec"].get("resources") or {}).get("requests"))
    return {n: q for n, q in given.items() if n in ("cpu", "memory") or n.startswith("hugepages-")}


def non_zero(pod: Row, claims: Amounts, pod_level: bool) -> Amounts:
    fill = {"cpu": Fraction(1, 10), "memory": Fraction(200 << 20)}
    if pod_level and pod_level_requests(pod):
        fill = {n: q for n, q in fill.items() if n not in whole_requests(pod, claims, pod_level)}
    return whole_requests(pod, claims, pod_level, fill)


def status_claims(pod: Row) -> Amounts:
    entries = pod.get("status", {}).get("nodeAllocatableResourceClaimStatuses") or []
    return add(*(amounts(entry.get("resources")) for entry in entries))


def units(total: Amounts) -> dict[str, int]:
    def counted(name: str) -> bool:
        return name in PLAIN or name.startswith(("hugepages-", "attachable-volumes-")) or "/" in name

    return {n: math.ceil(q * (1000 if n == "cpu" else 1)) for n, q in total.items() if counted(n)}


def shape(whole: dict[str, int]) -> Row:
    plain = {"milliCPU": "cpu", "memory": "memory", "ephemeralStorage": "ephemeral-storage"}
    scalar = {n: u for n, u in whole.items() if n not in PLAIN}
    return {key: whole.get(name, 0) for key, name in plain.items()} | ({"scalar": scalar} if scalar else {})


# -- claims


def find(given: Row, result: Row, ours: bool) -> Row | None:
    pieces = [p["spec"] for p in given["resource_slices"] if p["spec"]["pool"]["name"] == result["pool"]]
    if ours:
        node = given["node"]["name"]
        pieces = [p for p in pieces if p["driver"] == result["driver"]]
        pieces = [p for p in pieces if p.get("nodeName", node) == node]
        newest = max((p["pool"].get("generation", 0) for p in pieces), default=0)
        pieces = [p for p in pieces if p["pool"].get("generation", 0) == newest]
    devices = [d for p in pieces for d in p.get("devices") or [] if d["name"] == result["device"]]
    return devices[0] if devices else None


def charge(given: Row, results: list[Row], ours: bool) -> Amounts | None:
    """Return the charge of one claim's results; None if no known device has a mapping."""
    devices = [find(given, result, ours) for result in results]
    if not any(d.get("nodeAllocatableResourceMappings") for d in devices if d):
        return None
    total: Amounts = {}
    for result, device in zip(results, devices, strict=True):
        if device is None:
            raise SchedulerError(
                [f"device {result['device']} not found in pool {result['pool']}"], result["device"]
            )
        if ours and result.get("adminAccess"):
            continue
        vain = []
        for name, rule in (device.get("nodeAllocatableResourceMappings") or {}).items():
            factor = rule.get("allocationMultiplier")
            key = rule.get("capacityKey")
            if not key:
                total = add(total, {name: amount(factor) if factor else Fraction()})
                continue
            consumed = result.get("consumedCapacity")
            base = (consumed or {}).get(key)
            if base is None and ours and not device.get("allowMultipleAllocations"):
                base = (device.get("capacity") or {}).get(key, {}).get("value")
            if base is None and not consumed:
                where = f"is set in NodeAllocatableResourceMappings for resource {name}"
                vain.append(f"ConsumedCapacity is nil, but Capacity key '{key}' {where}")
            elif base is not None:
                total = add(total, {name: amount(base) * (amount(factor) if factor else 1)})
        if vain:
            raise SchedulerError(vain, result["device"])
    return total


def possible_errors(given: Row) -> set[str]:
    """Return every error that upstream may report for these claims; a Go map decides which comes first."""
    texts = set()
    for name in claims_of(given["pod"]).values():
        allocated = [c for c in given["claims"] if c["metadata"]["name"] == name]
        if any(c.get("status", {}).get("allocation") for c in allocated) or name not in given["allocations"]:
            continue
        try:
            charge(given, given["allocations"][name]["devices"]["results"], False)
        except SchedulerError as wrong:
            found, device = wrong.args
            place = f"claim {given['pod']['metadata']['namespace']}/{name}, device {device}"
            texts |= {f"{place}: {text}" for text in found}
    return texts


def claims_of(pod: Row) -> dict[str, str]:
    made = {
        s["name"]: s.get("resourceClaimName")
        for s in pod.get("status", {}).get("resourceClaimStatuses") or []
    }
    entries = pod["spec"].get("resourceClaims") or []
    names = {e["name"]: e.get("resourceClaimName") or made.get(e["name"]) for e in entries}
    return {reference: name for reference, name in names.items() if name}


def containers_of(pod: Row, claim: str, ours: bool) -> list[str]:
    names = claims_of(pod)
    everyone = [*(pod["spec"].get("initContainers") or []), *(pod["spec"].get("containers") or [])]
    found = [
        c["name"]
        for c in everyone
        for r in c.get("resources", {}).get("claims") or []
        if names.get(r["name"]) == claim
    ]
    return list(dict.fromkeys(found)) if ours else found


def entries_of(given: Row, ours: bool) -> tuple[list[Row], bool]:
    """Return the entries of the pod's status, amounts as fractions, and whether any device has a mapping."""
    entries, mapped = {}, False
    claims = {c["metadata"]["name"]: c for c in given["claims"]}
    for name in claims_of(given["pod"]).values():
        before = claims.get(name, {}).get("status", {}).get("allocation")
        allocation = before if before and ours else None if before else given["allocations"].get(name)
        total = charge(given, allocation["devices"]["results"], ours) if allocation else None
        mapped = mapped or total is not None
        if total:
            containers = containers_of(given["pod"], name, ours)
            entries[name] = {"resourceClaimName": name, "containers": containers, "resources": total}
    return [entries[name] for name in sorted(entries)], mapped


# -- outcome


def filter_outcome(given: Row, ours: bool) -> Row:
    features, pod = given["features"], given["pod"]
    on, level = features["DRANodeAllocatableResources"], features["PodLevelResources"]
    line, used, filled, states = ledgers(given, on, level)
    outcome: Row = {
        "node_requested": shape(used),
        "claim_states": states,
        "node_resources_fit": unfit(
            units(whole_requests(pod, {}, level)), line, used, len(given["existing_pods"])
        ),
    }
    refused = shared(given, states) if on else None
    try:
        entries, mapped = entries_of(given, ours) if on else ([], False)
    except SchedulerError:
        return {**outcome, "filter": refused or {"code": "Error"}}
    total = add(*(entry["resources"] for entry in entries))
    demand = units(whole_requests(pod, total, level))
    if on and not any_gone(given, ours):
        outcome |= {"calculated_statuses": entries, "pod_demand": shape(demand)}
        outcome["kubelet_admission"] = admission(demand, line, used, len(given["existing_pods"]))
    if refused is None and mapped:
        refused = (None if ours else unreferenced(entries)) or budget(pod, total, level)
        refused = refused or short(demand, line, used)
    outcome["filter"] = refused or {"code": "Success"}
    if refused is None:
        meta = pod["metadata"]
        keys = [f"{meta['namespace']}/{entry['resourceClaimName']}" for entry in entries]
        mine = {key: sorted({*states.get(key, []), meta["uid"]}) for key in keys}
        filled = plus(filled, units(non_zero(pod, total, level)))
        outcome["stored_statuses"] = entries
        outcome["assumed"] = {
            "node_requested": shape(plus(used, demand)),
            "claim_states": states | mine,
            "non_zero_requested": {"milliCPU": filled.get("cpu", 0), "memory": filled.get("memory", 0)},
        }
        outcome["forgotten"] = {
            "node_requested": shape(plus(used, dict.fromkeys(demand, 0))),
            "claim_states": states,
        }
    return outcome


def plus(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {*one, *other}}


def ledgers(given: Row, on: bool, level: bool) -> tuple[dict[str, int], dict[str, int], dict[str, int], Row]:
    """Return the node's allocatable resources, requests, non-zero requests, and the users of its claims."""
    line = units(amounts(given["node"]["allocatable"]))
    line["pods"] = int(amount(given["node"]["allocatable"].get("pods", "0")))
    used: dict[str, int] = {}
    filled: dict[str, int] = {}
    states: dict[str, list[str]] = {}
    for pod in given["existing_pods"]:
        claims = status_claims(pod) if on else {}
        used = plus(used, units(whole_requests(pod, claims, level)))
        filled = plus(filled, units(non_zero(pod, claims, level)))
        for entry in pod.get("status", {}).get("nodeAllocatableResourceClaimStatuses") or [] if on else []:
            users = states.setdefault(f"{pod['metadata']['namespace']}/{entry['resourceClaimName']}", [])
            users += [pod["metadata"]["uid"]] if pod["metadata"]["uid"] not in users else []
    return line, used, filled, {key: sorted(users) for key, users in states.items()}


def any_gone(given: Row, ours: bool) -> bool:
    """Return whether a device of a claim allocated now is unknown; rows do not have the charge then."""
    allocated = {c["metadata"]["name"] for c in given["claims"] if c.get("status", {}).get("allocation")}
    names = set(claims_of(given["pod"]).values()) - allocated
    return any(
        find(given, result, ours) is None
        for name in names & given["allocations"].keys()
        for result in given["allocations"][name]["devices"]["results"]
    )


def shared(given: Row, states: dict[str, list[str]]) -> Row | None:
    claims = {c["metadata"]["name"]: c for c in given["claims"]}
    meta = given["pod"]["metadata"]
    for name in claims_of(given["pod"]).values():
        users = states.get(f"{meta['namespace']}/{name}", [])
        if not claims.get(name, {}).get("status", {}).get("allocation") or users in ([], [meta["uid"]]):
            continue
        how = "shared by multiple pods" if len(users) > 1 else "is already used by another pod"
        return no(f"node allocatable resource claim {name} {how}")
    return None


def unreferenced(entries: list[Row]) -> Row | None:
    for entry in entries:
        if not entry["containers"]:
            how = "node-allocatable resource claim not referenced by any container within the pod"
            return no(f"claim {entry['resourceClaimName']}: {how}")
    return None


def budget(pod: Row, claims: Amounts, level: bool) -> Row | None:
    if not level or not (pod["spec"].get("resources") or {}).get("requests"):
        return None
    taken, given = whole_requests(pod, claims, False), whole_requests(pod, claims, True)
    for name in sorted(given):
        if taken.get(name, Fraction()) > given[name]:
            how = "is insufficient to cover the aggregated container and node-allocatable DRA requests"
            return no(f"pod level request for {name} {how}")
    return None


def short(demand: dict[str, int], line: dict[str, int], used: dict[str, int]) -> Row | None:
    huge = sorted(name for name in demand if name.startswith("hugepages-"))
    return lacking([n for n in PLAIN if demand.get(n, 0) > 0] + huge, demand, line, used, [])


def unfit(demand: dict[str, int], line: dict[str, int], used: dict[str, int], pods: int) -> Row:
    others = sorted(name for name in demand if name not in PLAIN)
    names = [name for name in (*PLAIN, *others) if demand.get(name, 0) > 0]
    crowded = ["Too many pods"] if pods + 1 > line["pods"] else []
    return lacking(names, demand, line, used, crowded) or {"code": "Success"}


def lacking(
    names: list[str], demand: dict[str, int], line: dict[str, int], used: dict[str, int], texts: list[str]
) -> Row | None:
    found = [n for n in names if demand[n] > line.get(n, 0) - used.get(n, 0)]
    if not found and not texts:
        return None
    exceeds_line = any(demand[n] > line.get(n, 0) for n in found)
    code = "UnschedulableAndUnresolvable" if exceeds_line else "Unschedulable"
    return {"code": code, "reasons": [*texts, *(f"Insufficient {n}" for n in found)]}


def no(text: str) -> Row:
    return {"code": "UnschedulableAndUnresolvable", "reasons": [text]}


def admission(demand: dict[str, int], line: dict[str, int], used: dict[str, int], pods: int) -> Row:
    order = ["pods", *PLAIN, *sorted(n for n in demand if n not in PLAIN)]
    wanted = {**demand, "pods": 1}
    taken = {**used, "pods": pods}
    for name in order:
        asked = wanted.get(name, 0)
        if "/" in name and name not in line:
            continue  # an extended resource of another provider
        if asked > 0 and asked > line.get(name, 0) - taken.get(name, 0):
            numbers = f"requested: {asked}, used: {taken.get(name, 0)}, capacity: {line.get(name, 0)}"
            message = f"Node didn't have enough resource: {name}, {numbers}"
            return {"admit": False, "reason": f"OutOf{name}", "message": message}
    return {"admit": True}


# -- comparison


KEYS = (
    "node_requested",
    "claim_states",
    "node_resources_fit",
    "calculated_statuses",
    "pod_demand",
    "stored_statuses",
    "assumed",
    "forgotten",
    "filter",
    "kubelet_admission",
)


def mismatch(got: Row, want: Row) -> str | None:
    """Return the difference of two outcomes; of errors only the code counts, and any answer upstream may give
    passes.
    """
    for key in KEYS:
        choices = [_plain(choice) for choice in want.get(f"{key}_one_of", [want.get(key)])]
        reported = _plain(got.get(key))
        if key == "filter" and choices[0]["code"] == "Error":
            reported, choices = {"code": reported["code"]}, [{"code": "Error"}]
        if reported not in choices:
            return f"{key}: got {reported!r}, wanted {choices!r}"
    return None


def _plain(value: Any) -> Any:
    """Return statuses with amounts as fractions."""
    if not isinstance(value, list):
        return value
    return [
        {
            "claim": entry["resourceClaimName"],
            "containers": entry.get("containers") or [],
            "resources": {
                n: q if isinstance(q, Fraction) else amount(q) for n, q in entry["resources"].items()
            },
        }
        for entry in value
    ]
