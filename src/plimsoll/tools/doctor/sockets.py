"""Sockets: served by the node, driver registration, and stale sockets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from plimsoll.errors import InputError
from plimsoll.node.layout import Layout
from plimsoll.node.plugins.plugin_info import RegistrationRefusal
from plimsoll.node.plugins.registration import PluginTiming, get_plugin_info, open_registration
from plimsoll.node.plugins.sockets import scan
from plimsoll.tools.doctor.facts import DriverFact, NodeFacts, Role, SocketFact, SocketFacts
from plimsoll.tools.doctor.files import REFUSED, FileEntry, age_text, probe_socket, stat_entry, user_name
from plimsoll.tools.doctor.findings import command, error, finding, move_away, note, ok, warning
from plimsoll.tools.findings import Finding, Severity
from plimsoll.tools.podresources.client import PodResourcesClient

#: Age up to which a socket may not be served yet.
SETTLED_SECONDS = 10.0
_AT_ONCE = 16
_OURS, _KUBELETS = 0o077, 0o022


async def gather(layout: Layout, nri: Path | None, *, timeout: float, kubelet: bool = False) -> SocketFacts:
    """Inspect and query the sockets. `nri` is the NRI socket path, or None; `timeout` is for each query."""
    wanted: list[tuple[Role, Path]] = [("pod-resources", layout.pod_resources)]
    if nri is not None and not kubelet:
        wanted.append(("nri", nri))
    wanted += [("registration", path) for path in sorted(await asyncio.to_thread(scan, layout.registry))]
    known = {path for _, path in wanted}
    found = sorted(await asyncio.to_thread(scan, layout.plugins))
    wanted += [("driver", path) for path in found if path not in known]
    slots = asyncio.Semaphore(_AT_ONCE)
    times = PluginTiming(dial=timeout, info=timeout)

    async def inspect(role: Role, path: Path) -> SocketFact:
        async with slots:
            entry = await asyncio.to_thread(stat_entry, path)
            target = entry.kind in ("socket", "link")
            return SocketFact(
                role=role, entry=entry, answer=await asyncio.to_thread(probe_socket, path) if target else ""
            )

    async def query(fact: SocketFact) -> DriverFact:
        async with slots:
            return await _query_driver(fact.entry.path, times)

    sockets = await asyncio.gather(*(inspect(role, path) for role, path in wanted))
    served = [each for each in sockets if each.role == "registration" and not each.answer]
    listed, problem = None, ""
    if sockets[0].entry.kind in ("socket", "link") and not sockets[0].answer:
        listed, problem = await _list(layout.pod_resources, timeout)
    return SocketFacts(
        registry=stat_entry(layout.registry),
        sockets=tuple(sockets),
        drivers=tuple(await asyncio.gather(*map(query, served))),
        listed=listed,
        list_error=problem,
    )


async def _list(path: Path, timeout: float) -> tuple[int | None, str]:
    try:
        async with PodResourcesClient(path, timeout=timeout) as client:
            return len((await client.list()).pod_resources), ""
    except InputError as problem:
        return None, str(problem)


async def _query_driver(path: Path, times: PluginTiming) -> DriverFact:
    async with open_registration(path, times) as channel:
        if isinstance(channel, RegistrationRefusal):
            return DriverFact(socket=path, problem=channel.message)
        offer = await get_plugin_info(channel, path, times)
    if isinstance(offer, RegistrationRefusal):
        return DriverFact(socket=path, problem=offer.message)
    answer = await asyncio.to_thread(probe_socket, Path(offer.endpoint))
    return DriverFact(socket=path, name=offer.driver, endpoint=offer.endpoint, endpoint_answer=answer)


# -- checks


def check(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.sockets
    for each in found.sockets:
        if each.role in ("pod-resources", "nri"):
            yield from _check_served(facts, each)
    if found.list_error:
        fix = "restart the agent" if facts.running else "find the process that serves it"
        yield error("sockets.list", str(facts.layout.pod_resources), found.list_error, fix)
    elif found.listed is not None:
        yield ok("sockets.list", str(facts.layout.pod_resources), f"List returns {found.listed} pods")
    yield from _check_registry(facts)
    yield from _check_drivers(facts)


def _check_served(facts: NodeFacts, each: SocketFact) -> Iterator[Finding]:
    """Check a socket that the node itself serves."""
    entry, subject, id = each.entry, str(each.entry.path), f"sockets.{each.role}"
    fix = f"restart {facts.whose}"
    if not entry.exists:
        if not facts.running:
            yield ok(id, subject, "does not exist: no agent is running")
        elif each.role == "nri":
            fix = "it is disabled, or configured elsewhere"
            yield note(id, subject, f"{facts.whose} does not serve NRI here", fix)
        else:
            yield error(id, subject, f"{facts.whose} is running, but the socket does not exist", fix)
        return
    if entry.kind not in ("socket", "link"):
        fix = f"move it away: {move_away(entry.path, facts.layout.quarantine)}"
        yield error(id, subject, f"a {entry.kind} exists at this path", fix)
    elif each.answer == REFUSED and not facts.running:
        text = f"stale: not served for {age_text(facts.now - entry.changed)}"
        fix = f"the next agent replaces it; to remove it: {command('rm', entry.path)}"
        yield warning("sockets.stale", subject, text, fix)
    elif each.answer == REFUSED:
        yield error(id, subject, f"{facts.whose} is running, but does not serve it", fix)
    elif each.answer:
        yield warning(id, subject, f"cannot connect: {each.answer}", "run the doctor as root")
    elif not facts.running:
        yield warning(id, subject, "served, but no agent is running", "find the process: ss -xlp")
    else:
        yield from _check_access(facts, id, entry)


def _check_access(facts: NodeFacts, id: str, entry: FileEntry) -> Iterator[Finding]:
    subject, mode = str(entry.path), f"{entry.mode:04o}"
    if entry.uid not in (0, facts.uid):
        fix = f"restart {facts.whose} as root"
        yield error("sockets.owner", subject, f"it belongs to {user_name(entry.uid)}", fix)
    # A kubelet's socket is 0755 in a private directory; connecting needs write permission.
    elif entry.kind == "socket" and entry.mode & (_KUBELETS if facts.is_kubelet else _OURS):
        fix = f"only root may use it: {command('chmod', '0600', entry.path)}"
        yield error("sockets.mode", subject, f"its mode is {mode}", fix)
    else:
        yield ok(id, subject, f"served; owner {user_name(entry.uid)}, mode {mode}")


def _check_registry(facts: NodeFacts) -> Iterator[Finding]:
    registry, subject = facts.sockets.registry, str(facts.layout.registry)
    if not registry.exists:
        if facts.running:
            fix = f"restart {facts.whose}: no driver can register"
            yield error("sockets.registry", subject, "does not exist", fix)
        return
    if registry.kind != "directory":
        fix = f"move it away: {move_away(registry.path, facts.layout.quarantine)}"
        yield error("sockets.registry", subject, f"a {registry.kind} exists at this path", fix)
        return
    if registry.mode & _KUBELETS:
        fix = f"any socket created there is treated as a driver: {command('chmod', 'go-w', registry.path)}"
        yield error("sockets.registry", subject, f"its mode is {registry.mode:04o}", fix)
        return
    names = sorted({each.name for each in facts.sockets.drivers if each.name})
    yield ok("sockets.registry", subject, f"drivers: {', '.join(names) or 'none'}")


def _check_drivers(facts: NodeFacts) -> Iterator[Finding]:
    for each in facts.sockets.sockets:
        if each.role in ("registration", "driver"):
            yield from _check_foreign(facts, each)
    for driver in facts.sockets.drivers:
        subject = str(driver.socket)
        if driver.problem:
            yield warning("sockets.driver", subject, driver.problem, "see the driver's log; restart it")
        elif driver.endpoint_answer:
            why = "connection refused" if driver.endpoint_answer == REFUSED else driver.endpoint_answer
            text = f"{driver.name} registered endpoint {driver.endpoint}: {why}"
            yield error("sockets.driver", subject, text, "restart the driver")
        else:
            yield ok("sockets.driver", subject, f"{driver.name} at {driver.endpoint}")


def _check_foreign(facts: NodeFacts, each: SocketFact) -> Iterator[Finding]:
    """Check a socket created by a driver."""
    entry, subject = each.entry, str(each.entry.path)
    if not each.answer or not entry.exists:
        return
    if each.answer != REFUSED:
        yield note("sockets.driver", subject, f"cannot connect: {each.answer}", "run the doctor as root")
        return
    age = facts.now - entry.changed
    if age < SETTLED_SECONDS:
        yield note("sockets.stale", subject, f"not served yet; {age_text(age)} old")
        return
    what = "a registration socket" if each.role == "registration" else "a driver socket"
    severity = Severity.WARNING if each.role == "registration" else Severity.INFO
    text = f"{what} that has not been served for {age_text(age)}"
    fix = f"start the driver again, or remove the socket: {command('rm', entry.path)}"
    yield finding("sockets.stale", severity, subject, text, fix)
