"""Whom to believe after a restart: the record, the CDI files, the runtime. Pure.

Owns the rules (section 9 of the CPU driver's specification is what they mend). Witnesses that agree are
believed, one that is missing is made good, and where two of them contradict each other nobody is: all CPUs
that any of them names are kept from everybody until the claim is released. The environment of a container is
never believed alone, since whoever writes a pod can write that.

DIFF: a contradiction makes one claim disputed; in the Go driver it makes all of Synchronize fail, or goes
unnoticed (test_a_disputed_claim_is_refused_until_it_is_released, test_a_container_that_was_told_otherwise).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from plimsoll.api.cpuset import EMPTY, CpuSet
from plimsoll.common.checkpoint import Finding, Severity
from plimsoll.drivers.cpu.state.cdi import CdiFile, requests_of
from plimsoll.drivers.cpu.state.holdings import Grant, Holding, How, union
from plimsoll.drivers.cpu.state.prepare import Scene, extent
from plimsoll.protocols.dra import ClaimRef

_RELEASE = "delete the pods of the claim: the dispute ends when it is unprepared"


class Seen(Protocol):
    """What is asked of a container."""

    @property
    def where(self) -> str: ...
    @property
    def namespace(self) -> str: ...
    @property
    def claims(self) -> Mapping[str, CpuSet]: ...


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What to believe. `rewrite` are claims whose CDI file is to be written again.

    Disputes are part of the holdings; `find_disputes` puts them into words.
    """

    holdings: Mapping[str, Holding]
    findings: tuple[Finding, ...] = ()
    rewrite: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Doubt:
    """What a running container says against a holding that record and CDI file agree about."""

    text: str
    contested: CpuSet = EMPTY


def reconcile(
    record: Mapping[str, Holding],
    files: Mapping[str, CdiFile],
    scene: Scene,
    leaving: Collection[str] = (),
) -> Reconciled:
    """What record and CDI files say together.

    `leaving` are claims that are gone from the cluster: if the file is gone as well, another driver has
    released them. They keep their CPUs until nobody is seen to use them, and dispute nobody else's.
    """
    holdings: dict[str, Holding] = {}
    findings: list[Finding] = []
    rewrite: list[str] = []
    for uid in sorted(record.keys() | files.keys()):
        known, file = record.get(uid), files.get(uid)
        if known is not None and file is None and uid in leaving:
            holdings[uid] = known
            what = f"claim {name(known)} was released meanwhile: neither the cluster nor a CDI file knows it"
            findings.append(Finding(Severity.INFO, what))
        elif known is not None:
            holdings[uid], again = _compare(known, file, findings)
            if again:
                rewrite.append(uid)
        elif file is not None and file.cpus:
            holdings[uid] = _adopt(file, scene, findings)
        elif file is not None:
            what = (
                f"the CDI file of claim {uid} cannot be used, and the record does not know it: {file.fault}"
            )
            findings.append(Finding(Severity.ERROR, what, f"remove {file.path}", file.path))
    _dispute_overlaps(holdings, [uid for uid in leaving if uid not in files])
    disputed = [uid for uid, holding in holdings.items() if holding.disputed]
    return Reconciled(holdings, tuple(findings), tuple(uid for uid in rewrite if uid not in disputed))


def find_misplaced(holdings: Mapping[str, Holding], scene: Scene) -> tuple[Finding, ...]:
    """Holdings that have CPUs which are not there for claims any more: they keep them until released."""
    findings = []
    for uid in sorted(holdings):
        holding = holdings[uid]
        if offline := holding.granted - scene.topology.all:
            what = f"CPUs {offline} of claim {name(holding)} are offline"
            findings.append(Finding(Severity.WARNING, what, "bring them online, or delete its pods"))
        if holding.disputed:
            continue
        for cpus, kept in (
            (scene.arrangement.reserved, "reserved"),
            (scene.arrangement.floor, "always shared"),
        ):
            if overlap := holding.granted & cpus:
                what = f"CPUs {overlap} of claim {name(holding)} are {kept} by now; it keeps them"
                findings.append(Finding(Severity.WARNING, what, "delete its pods to have them back"))
    return tuple(findings)


def doubt(
    holdings: Mapping[str, Holding], containers: Iterable[Seen], scene: Scene
) -> tuple[dict[str, Doubt], tuple[Finding, ...]]:
    """What running containers say that differs from the holdings.

    A container that was told other CPUs than the record and the CDI file have makes its claim disputed for as
    long as it is there. CPUs that only it names are kept too, as far as they could have been given to the
    claim at all: those of its devices that nobody else has, and never the last one that is shared.
    """
    doubts: dict[str, Doubt] = {}
    findings: list[Finding] = []
    # Not what is shared now: CPUs that were contested a moment ago are looked at anew.
    free = scene.topology.all - scene.arrangement.reserved - union(h.cpus for h in holdings.values())
    for container in sorted(containers, key=lambda seen: seen.where):
        for uid in sorted(container.claims):
            told, holding = container.claims[uid], holdings.get(uid)
            if holding is None:
                what = (
                    f"container {container.where} was told CPUs {told} of claim {uid}, which is not prepared"
                )
                fix = "delete the pod; what its environment says is not believed"
                findings.append(Finding(Severity.WARNING, what, fix))
                continue
            if told == holding.granted:
                continue
            what = f"container {container.where} was told CPUs {told}, the claim has {holding.granted}"
            home = holding.ref.namespace
            if home and container.namespace and home != container.namespace:
                what = f"claim {name(holding)}: {what}; it is of another namespace and not believed"
                findings.append(Finding(Severity.WARNING, what, "delete the pod"))
                continue
            reach = union(_reach(grant, scene) for grant in holding.grants)
            more = (told - holding.cpus) & reach & free
            if more == free:
                more = EMPTY
            free -= more
            before = doubts.get(uid, Doubt(what))
            doubts[uid] = Doubt(before.text, before.contested | more)
            findings.append(_dispute_finding(holding, what))
    return doubts, tuple(findings)


def find_disputes(holdings: Mapping[str, Holding]) -> tuple[Finding, ...]:
    """What is disputed now."""
    return tuple(
        _dispute_finding(holdings[uid], holdings[uid].disputed)
        for uid in sorted(holdings)
        if holdings[uid].disputed
    )


def apply(holding: Holding, doubted: Doubt | None) -> Holding:
    """A holding as it is to be seen while there is a doubt."""
    if doubted is None:
        return holding
    contested = (holding.contested | doubted.contested) - holding.granted
    return replace(holding, disputed=holding.disputed or doubted.text, contested=contested)


def name(holding: Holding) -> str:
    """A claim as people know it, as far as it is known."""
    ref = holding.ref
    return f"{ref} ({ref.uid})" if ref.name else ref.uid


def _compare(known: Holding, file: CdiFile | None, findings: list[Finding]) -> tuple[Holding, bool]:
    """A holding of the record beside its file, and whether that is to be written again."""
    if file is None:
        what = f"the CDI file of claim {name(known)} is missing; it is written again"
        findings.append(Finding(Severity.INFO, what))
        return known, True
    if file.cpus == known.granted and not file.fault:
        return known, known.apart and set(requests_of(known)) - file.requests.keys() != set()
    if file.fault and file.cpus <= known.granted:
        what = f"the CDI file of claim {name(known)} cannot be used: {file.fault}; it is written again"
        findings.append(Finding(Severity.WARNING, what, path=file.path))
        return known, True
    what = f"the record has CPUs {known.granted}, the CDI file {file.cpus}"
    if file.fault:
        what += f" ({file.fault})"
    contested = (known.contested | file.cpus) - known.granted
    return replace(known, disputed=known.disputed or what, contested=contested), False


def _adopt(file: CdiFile, scene: Scene, findings: list[Finding]) -> Holding:
    """A holding made of a CDI file that another driver, or a lost record, left behind."""
    node, cpus = scene.settings.node, file.cpus
    grants = [
        Grant("", node, device, cpus & domain.cpus, how=How.ADOPTED)
        for device, domain in scene.arrangement.domains.items()
        if cpus & domain.cpus
    ]
    if rest := cpus - union(grant.cpus for grant in grants):
        grants.append(Grant("", node, "", rest, how=How.ADOPTED))
    holding = Holding(ClaimRef("", "", file.uid), tuple(grants), adopted=True, apart=bool(file.requests))
    why = [file.fault] if file.fault else []
    if overlap := cpus & scene.arrangement.reserved:
        why.append(f"CPUs {overlap} are reserved")
    if away := cpus - scene.topology.all:
        why.append(f"CPUs {away} are offline")
    if why:
        return replace(holding, disputed=f"its CDI file has CPUs {cpus}: {'; '.join(why)}")
    what = f"claim {file.uid} is not in the record; it is taken over from its CDI file with CPUs {cpus}"
    findings.append(Finding(Severity.INFO, what, path=file.path))
    return holding


def _dispute_overlaps(holdings: dict[str, Holding], leaving: Collection[str]) -> None:
    """Claims that have CPUs in common are all disputed: which of them was there first cannot be known."""
    owners: dict[int, list[str]] = {}
    for uid, holding in holdings.items():
        for cpu in holding.cpus if uid not in leaving else ():
            owners.setdefault(cpu, []).append(uid)
    rivals: dict[str, set[str]] = {}
    for uids in owners.values():
        for uid in uids if len(uids) > 1 else ():
            rivals.setdefault(uid, set()).update(uids)
    for uid in sorted(rivals):
        holding = holdings[uid]
        others = sorted(rivals[uid] - {uid})
        shared = union(holdings[other].cpus for other in others) & holding.cpus
        what = f"CPUs {shared} are also those of claim {', '.join(others)}"
        if not holding.disputed:
            holdings[uid] = replace(holding, disputed=what)


def _dispute_finding(holding: Holding, what: str) -> Finding:
    return Finding(Severity.ERROR, f"claim {name(holding)} is disputed: {what}", _RELEASE)


def _reach(grant: Grant, scene: Scene) -> CpuSet:
    domain = scene.arrangement.domains.get(grant.device)
    return grant.cpus if domain is None else extent(domain, scene)
