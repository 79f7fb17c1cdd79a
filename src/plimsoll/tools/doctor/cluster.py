"""API objects of the node compared with the machine: Node, lease, pods, claims, slices, clocks.

Only requests that the Node authorizer allows are made (the node's own pods and their claims), so the node's
kubeconfig suffices.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from plimsoll.api import codec
from plimsoll.api.core import Node, Pod
from plimsoll.api.pod_claims import is_reserved_for
from plimsoll.api.resource import ResourceClaim, ResourceSlice
from plimsoll.api.timestamps import parse_time
from plimsoll.client import Client
from plimsoll.client.endpoints import LEASES, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from plimsoll.errors import ApiError, DecodeError, UnreachableError
from plimsoll.node.admission.admission_handler import is_terminal
from plimsoll.node.claims.checks import named_claims
from plimsoll.node.status.node_object import NODE_LEASE_NAMESPACE
from plimsoll.tools.doctor.facts import BoundPod, ClusterFacts, NodeFacts, ReservedClaim
from plimsoll.tools.doctor.files import age_text
from plimsoll.tools.doctor.findings import error, finding, note, ok, warning
from plimsoll.tools.findings import Finding, Severity

#: Age up to which a pod may not be admitted yet.
_SETTLED_SECONDS = 30.0
#: The Date header has a resolution of seconds; a larger skew is a wrong clock.
_SKEW = 5.0
_SHOWN = 3


# -- gathering


async def gather(client: Client, node: str, server: str = "") -> ClusterFacts:
    return await _ClusterReader(client, node, server).read()


class _ClusterReader:
    """Reader of the node's objects; forbidden requests are recorded and skipped."""

    def __init__(self, client: Client, node: str, server: str) -> None:
        self._client = client
        self._node = node
        self._found: dict[str, Any] = {"server": server}
        self._refused: list[tuple[str, str]] = []

    async def read(self) -> ClusterFacts:
        try:
            for part in (self._read_node, self._read_lease, self._read_pods, self._read_slices):
                try:
                    await part()
                except UnreachableError:
                    raise
                except (ApiError, DecodeError) as problem:
                    self._refused.append((part.__name__.removeprefix("_read_"), str(problem)))
        except UnreachableError as problem:
            self._found["error"] = str(problem)
        return ClusterFacts(refused=tuple(self._refused), **self._found)

    async def _read_node(self) -> None:
        before = time.time()
        try:
            reply = await self._client.call("GET", NODES.path(None, self._node))
        except ApiError as problem:
            if problem.code != 404:
                raise
            self._found["node_missing"] = True
            return
        self._found["skew"] = clock_skew(reply.headers.get("date", ""), before, time.time())
        self._found["node"] = codec.decode(reply.body, Node)

    async def _read_lease(self) -> None:
        try:
            tree = await self._client.get(LEASES, self._node, NODE_LEASE_NAMESPACE)
        except ApiError as problem:
            if problem.code != 404:
                raise
            self._found["lease_missing"] = True
            return
        spec = tree.get("spec")
        spec = spec if isinstance(spec, Mapping) else {}
        renewed = parse_time(spec.get("renewTime"))
        seconds = spec.get("leaseDurationSeconds")
        if renewed is not None:
            self._found["lease_age"] = time.time() - renewed
        if isinstance(seconds, int) and seconds > 0:
            self._found["lease_seconds"] = seconds

    async def _read_pods(self) -> None:
        listing = await self._client.list(PODS, fields=f"spec.nodeName={self._node}")
        pods = [codec.decode(raw, Pod) for raw in listing.items]
        self._found["pods"] = tuple(
            BoundPod(
                uid=pod.metadata.uid,
                name=pod.metadata.full_name,
                ended=is_terminal(pod),
                created=parse_time(pod.metadata.creation_timestamp) or 0.0,
            )
            for pod in pods
        )
        claims = []
        for pod in pods:
            if not is_terminal(pod):
                claims += [claim async for claim in self._claims(pod)]
        self._found["claims"] = tuple(claims)

    async def _claims(self, pod: Pod) -> Any:
        """Yield the claims reserved for a pod."""
        for _, name, _ in named_claims(pod):
            if not isinstance(name, str) or not name:
                continue
            try:
                raw = await self._client.get_raw(RESOURCE_CLAIMS, name, pod.metadata.namespace)
                claim = codec.decode(raw, ResourceClaim)
            except (ApiError, DecodeError) as problem:
                if isinstance(problem, UnreachableError):
                    raise
                if getattr(problem, "code", 0) != 404:
                    self._refused.append((f"claim {pod.metadata.namespace}/{name}", str(problem)))
                continue
            allocation = claim.status.allocation
            if allocation is None or not is_reserved_for(claim, pod):
                continue
            yield ReservedClaim(
                name=f"{pod.metadata.namespace}/{name}",
                uid=claim.metadata.uid,
                pod=pod.metadata.uid,
            )

    async def _read_slices(self) -> None:
        listing = await self._client.list(RESOURCE_SLICES, fields=f"spec.nodeName={self._node}")
        counts: dict[str, int] = {}
        for raw in listing.items:
            driver = codec.decode(raw, ResourceSlice).spec.driver
            counts[driver] = counts.get(driver, 0) + 1
        self._found["slices"] = counts


def clock_skew(date: str, before: float, after: float) -> float | None:
    """Return the minimum by which the server's clock is ahead, from the Date header; None without one."""
    try:
        declared = parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    # The header was written between the two times, rounded down to a second.
    if declared > after:
        return declared - after
    return min(0.0, declared + 1 - before)


# -- checks


def check(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.cluster
    if found is None:
        return
    server = found.server or "API server"
    if found.error:
        fix = "check that the server is running and the kubeconfig is correct"
        yield error("cluster.reach", server, found.error, fix)
        return
    for what, why in found.refused:
        yield warning("cluster.refused", what, why, "use a kubeconfig of the node or of an administrator")
    yield from _check_node(facts, found)
    yield from _check_lease(facts, found)
    yield from _check_clock(facts, found)
    if found.pods is not None:
        yield from _check_pods(facts, found)
        yield from _check_claims(facts, found)
    yield from _check_slices(facts, found)


def _check_node(facts: NodeFacts, found: ClusterFacts) -> Iterator[Finding]:
    subject = f"node {facts.node}"
    if found.node_missing:
        severity = Severity.ERROR if facts.running else Severity.INFO
        fix = "the agent registers it; if it is running, see its log, or pass its name with --name"
        yield finding("cluster.node", severity, subject, "the Node does not exist in the API", fix)
        return
    if found.node is None:
        return
    status = {each.type: each for each in found.node.status.conditions}
    ready = status.get("Ready")
    text = f"Ready is {ready.status}" if ready is not None else "it has no Ready condition"
    is_ready = ready is not None and ready.status == "True"
    if facts.running and not is_ready:
        why = f": {ready.message}" if ready is not None and ready.message else ""
        yield error("cluster.ready", subject, text + why, "see the agent's log")
    elif not facts.running and is_ready:
        fix = f"start {facts.whose}, or wait: Ready becomes Unknown when the lease expires"
        yield warning("cluster.ready", subject, f"{text}, but {facts.whose} is not running", fix)
    else:
        yield ok("cluster.ready", subject, text)
    pressed = [each.type for each in status.values() if each.type != "Ready" and each.status == "True"]
    if pressed:
        yield warning("cluster.pressure", subject, f"True: {', '.join(sorted(pressed))}", "free the resource")
    yield from _check_amounts(facts, found.node)


def _check_amounts(facts: NodeFacts, node: Node) -> Iterator[Finding]:
    subject = f"node {facts.node}"
    capacity = node.status.capacity
    machine = facts.machine.declared or facts.machine.real
    # Simulated nodes can be any machine; only one that runs processes has to be this one.
    if machine is None or (facts.machine.declared is None and facts.runtime != "process"):
        return
    different = []
    for name in ("cpu", "memory"):
        has, declared = machine.capacity.get(name), capacity.get(name)
        if has is not None and declared is not None and has != declared:
            different.append(
                f"{name}: the Node has {declared.canonical()}, the machine has {has.canonical()}"
            )
    if different and facts.running:
        fix = "restart the agent; if it uses a machine file, pass it with --machine"
        yield warning("cluster.amounts", subject, "; ".join(different), fix)
    elif not different:
        yield ok("cluster.amounts", subject, "capacity matches the machine")


def _check_lease(facts: NodeFacts, found: ClusterFacts) -> Iterator[Finding]:
    subject = f"lease {NODE_LEASE_NAMESPACE}/{facts.node}"
    if found.lease_missing or found.lease_age is None:
        if facts.running and found.node is not None:
            text = "it does not exist, or was never renewed"
            yield error("cluster.lease", subject, text, "see the agent's log")
        return
    text = f"renewed {age_text(found.lease_age)} ago, duration {found.lease_seconds}s"
    late = found.lease_age > found.lease_seconds
    if late and facts.running:
        fix = "see the agent's log: the node is considered lost"
        yield error("cluster.lease", subject, text, fix)
    elif not late and not facts.running and found.lease_age < found.lease_seconds / 2:
        text += f"; {facts.whose} is not running"
        yield note("cluster.lease", subject, text, "check for another node with this name")
    else:
        yield ok("cluster.lease", subject, text)


def _check_clock(facts: NodeFacts, found: ClusterFacts) -> Iterator[Finding]:
    if found.skew is None:
        return
    if abs(found.skew) <= _SKEW:
        yield ok("cluster.clock", "clock", f"within {_SKEW:g}s of the server's clock")
        return
    side = "ahead of" if found.skew > 0 else "behind"
    text = f"the server's clock is at least {age_text(abs(found.skew))} {side} this one"
    fix = "synchronize the clocks (chrony, ntp): leases and grace periods depend on them"
    severity = Severity.ERROR if abs(found.skew) > found.lease_seconds else Severity.WARNING
    yield finding("cluster.clock", severity, "clock", text, fix)


def _check_pods(facts: NodeFacts, found: ClusterFacts) -> Iterator[Finding]:
    bound = found.pods or ()
    living = [pod for pod in bound if not pod.ended]
    subject, bad = f"node {facts.node}", False
    if facts.is_kubelet:
        here = {pod.uid for pod in facts.pods.pods}
    else:
        if not facts.records.admitted.usable:
            return
        here = set(facts.records.pods)
    out = [p for p in living if p.uid not in here and facts.now - p.created > _SETTLED_SECONDS]
    if out:
        bad = True
        make = warning if facts.running else note
        fix = "see the agent's log" if facts.running else f"start {facts.whose}"
        text = f"{len(out)} pods are bound here and not admitted: {_some([pod.name for pod in out])}"
        yield make("cluster.pods", subject, text, fix)
    gone = sorted(here - {pod.uid for pod in bound})
    if gone:
        bad = True
        names = [facts.records.pods.get(uid) or uid for uid in gone]
        fix = "the agent stops them" if facts.running else f"{facts.whose} stops them when it starts"
        text = f"{len(gone)} pods are here but no longer in the API: {_some(names)}"
        yield note("cluster.pods", subject, text, fix)
    if not bad:
        yield ok("cluster.pods", subject, f"{len(bound)} pods bound, {len(here)} admitted")


def _check_claims(facts: NodeFacts, found: ClusterFacts) -> Iterator[Finding]:
    records = facts.records
    if not records.claims_known:
        return
    # The checkpoint of a kubelet only records the request.
    done = [claim for claim in records.prepared if claim.ready or facts.is_kubelet]
    ready = {(claim.ref.uid, pod) for claim in done for pod in claim.pods}
    fresh = {pod.uid for pod in found.pods or () if facts.now - pod.created <= _SETTLED_SECONDS}
    missing = [c for c in found.claims if (c.uid, c.pod) not in ready and c.pod not in fresh]
    for claim in missing:
        text = f"reserved for pod {claim.pod} of this node, but not prepared"
        fix = "see the agent's log" if facts.running else f"start {facts.whose}"
        make = warning if facts.running else note
        yield make("cluster.claims", claim.name, text, fix)
    if found.claims and not missing:
        yield ok("cluster.claims", "claims", f"{len(found.claims)} reserved for pods here, all prepared")


def _check_slices(facts: NodeFacts, found: ClusterFacts) -> Iterator[Finding]:
    absent = [driver for driver in found.slices if driver not in facts.sockets.served]
    for driver in sorted(absent):
        text = f"has {found.slices[driver]} ResourceSlices of this node, but is not registered"
        fix = "start the driver: its devices are allocated but cannot be prepared"
        make = warning if facts.running else note
        yield make("cluster.slices", driver, text, fix)
    if found.slices and not absent:
        yield ok("cluster.slices", "ResourceSlices", f"of {len(found.slices)} drivers, all registered")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
