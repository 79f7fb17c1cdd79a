"""Pods: directories, processes, temporary files, quarantine.

A terminated pod keeps its directory, with logs, until it is deleted from the API. A directory without an
admitted pod is a problem only if processes still run, or if the API does not have the pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from plimsoll.common.checkpoint import NodeFinding as RecordFinding
from plimsoll.common.checkpoint import read_boot_id
from plimsoll.node.layout import Layout, is_path_component
from plimsoll.node.runtime.state_dir import ContainerRecord, ExitRecord, PodRecord, RunRecord, load
from plimsoll.tools.doctor.facts import ContainerDir, NodeFacts, PodDir, PodFacts, ShimProcess
from plimsoll.tools.doctor.files import FileEntry, age_text, format_date, list_dir, size_text
from plimsoll.tools.doctor.findings import DoctorFinding, Level, error, note, ok, warning
from plimsoll.tools.doctor.processes import SPEC, Processes, find_shims, read_processes
from plimsoll.tools.doctor.repairs import EndPod, EndShim, Quarantine, RemoveDir, RemoveFile

#: Age up to which temporary files may belong to a write in progress.
_SETTLED_SECONDS = 60.0


# -- gathering


def gather(layout: Layout, cdi: Sequence[Path] = (), *, kubelet: bool = False) -> PodFacts:
    """Inspect the pod directories; for a kubelet only their names."""
    listing = list_dir(layout.pods)
    processes = Processes() if kubelet else read_processes()
    found = list(find_shims(layout, processes))
    pods, strange = [], []
    for entry in listing.entries:
        if entry.path.name.startswith("."):
            continue  # temporary
        if entry.kind != "directory" or not is_path_component(entry.path.name):
            strange.append(entry)
        elif kubelet:
            pods.append(PodDir(entry=entry, uid=entry.path.name))
        else:
            pods.append(_pod(entry, found, processes))
    known = {str(each.path / SPEC) for pod in pods for each in pod.containers}
    return PodFacts(
        pods=tuple(pods),
        error=listing.error,
        more=listing.more,
        strange=tuple(strange) if not kubelet else (),
        temporary=tuple(_temporary(layout, pods, cdi)) if not kubelet else (),
        quarantine=list_dir(layout.quarantine).entries,
        orphans=tuple(each for each in found if each.spec not in known),
    )


def _pod(entry: FileEntry, found: Collection[ShimProcess], processes: Processes) -> PodDir:
    uid = entry.path.name
    record = load(entry.path / "sandbox.json", PodRecord)
    name = problem = ""
    if isinstance(record, PodRecord):
        name = f"{record.spec.namespace}/{record.spec.name}"
        if record.spec.uid != uid:
            problem = f"sandbox.json is of pod {record.spec.uid}"
    else:
        problem = record.what if isinstance(record, RecordFinding) else "sandbox.json is missing"
    containers = [
        _container(attempt.path, found, processes)
        for container in list_dir(entry.path / "containers").entries
        if container.kind == "directory"
        for attempt in list_dir(container.path).entries
        if attempt.kind == "directory"
    ]
    return PodDir(entry=entry, uid=uid, name=name, problem=problem, containers=tuple(containers))


def _container(path: Path, found: Collection[ShimProcess], processes: Processes) -> ContainerDir:
    record = load(path / "state.json", ContainerRecord)
    run, exit = load(path / "run.json", RunRecord), load(path / "exit.json", ExitRecord)
    problems = [each.what for each in (record, run, exit) if isinstance(each, RecordFinding)]
    own = [each.pid for each in found if each.spec == str(path / SPEC)]
    leader = None
    if isinstance(run, RunRecord) and run.boot_id == read_boot_id():
        leader = run.pid, run.pid_start
        own += [pid for pid, start in ((run.shim, run.shim_start), leader) if processes.is_alive(pid, start)]
    living = processes.family(own, leader)
    return ContainerDir(
        path=path,
        name=path.parent.name,
        attempt=path.name,
        problem="; ".join(problems),
        started=isinstance(record, ContainerRecord) and record.started and run is not None,
        exited=isinstance(exit, ExitRecord),
        alive=bool(living),
        processes=len(living),
    )


def _temporary(layout: Layout, pods: Sequence[PodDir], cdi: Sequence[Path]) -> Iterator[FileEntry]:
    """Yield the files of interrupted writes and removals."""
    directories = [layout.root, layout.pods, *(pod.entry.path for pod in pods)]
    directories += [each.path for pod in pods for each in pod.containers]
    for directory in directories:
        for entry in list_dir(directory).entries:
            name = entry.path.name
            if name.startswith(".") and (name.endswith(".tmp") or name.startswith(".gone-")):
                yield entry
    for directory in cdi:
        for entry in list_dir(directory).entries:
            if entry.path.name.startswith("spec.") and entry.path.name.endswith(".tmp"):
                yield entry


# -- checks


def check(facts: NodeFacts) -> Iterator[DoctorFinding]:
    found = facts.pods
    if facts.is_kubelet:
        yield ok("pods.directories", str(facts.layout.pods), f"{len(found.pods)} pods")
        return
    if found.error:
        yield error("pods.directories", str(facts.layout.pods), found.error, "run the doctor as root")
    elif found.more:
        text = f"it has more than {len(found.pods) + len(found.strange)} entries; the rest was not checked"
        yield warning("pods.directories", str(facts.layout.pods), text, "find out what creates them")
    for entry in found.strange:
        yield _check_strange(facts, entry)
    yield from _check_pods(facts)
    yield from _check_orphans(facts)
    yield from _check_temporary(facts)
    for entry in found.quarantine:
        text = f"quarantined {format_date(entry.changed)}, {size_text(entry.size)}"
        yield note("pods.quarantine", str(entry.path), text, "inspect it, then remove it")
    containers = [each for pod in found.pods for each in pod.containers]
    text = f"{len(found.pods)} pods, {len(containers)} containers, {sum(c.alive for c in containers)} running"
    yield ok("pods.directories", str(facts.layout.pods), text)


def _check_strange(facts: NodeFacts, entry: FileEntry) -> DoctorFinding:
    text = f"a {entry.kind} that is not a pod directory"
    away: RemoveFile | Quarantine = Quarantine(entry.path, entry.identity, facts.layout.quarantine)
    if entry.kind in ("link", "pipe", "socket"):
        away = RemoveFile(entry.path, entry.identity)
    return warning("pods.strange", str(entry.path), text, "remove it", away)


def _check_pods(facts: NodeFacts) -> Iterator[DoctorFinding]:
    sure = facts.records.admitted.usable
    api = None
    if facts.cluster is not None and facts.cluster.pods is not None and facts.cluster.node is not None:
        api = {pod.uid for pod in facts.cluster.pods}
    for pod in facts.pods.pods:
        if pod.problem:
            yield _check_damaged(facts, pod)
        elif sure and pod.uid not in facts.records.pods:
            yield from _check_unknown(facts, pod, api)
        elif api is not None and pod.uid not in api and not facts.running:
            text = f"no longer in the API; {pod.processes} processes running"
            yield note("pods.deleted", pod.title, text, "the next agent stops it")
        for each in pod.containers:
            yield from _check_container(facts, pod, each)


def _check_damaged(facts: NodeFacts, pod: PodDir) -> DoctorFinding:
    text = f"{pod.problem}; {pod.processes} processes running"
    fix = "the next agent kills its processes, removes it and runs the pod again"
    repair = EndPod(pod.uid, pod.processes)
    if pod.processes == 0 and not pod.containers:
        # The pod was being created or deleted.
        level = Level.INFO if facts.running else Level.WARNING
        return DoctorFinding("pods.damaged", level, pod.title, text, fix, repair)
    return error("pods.damaged", pod.title, text, fix, repair)


def _check_unknown(facts: NodeFacts, pod: PodDir, api: set[str] | None) -> Iterator[DoctorFinding]:
    """Check a pod that is not admitted: terminated or unknown."""
    if pod.processes:
        text = f"{pod.processes} processes of a pod that was not admitted are running"
        if facts.running:
            yield note("pods.unknown", pod.title, text, "the agent stops it within a minute")
        else:
            fix = "kill them: no agent manages them"
            yield warning("pods.unknown", pod.title, text, fix, EndPod(pod.uid, pod.processes))
    elif api is not None and pod.uid not in api and not facts.running:
        text = "its directory remains; the pod is no longer in the API"
        yield warning(
            "pods.leftover", pod.title, text, "remove it, or start the agent, which does", EndPod(pod.uid, 0)
        )
    else:
        text = f"terminated; logs of {len(pod.containers)} containers are kept until the pod is deleted"
        yield note("pods.ended", pod.title, text)


def _check_container(facts: NodeFacts, pod: PodDir, each: ContainerDir) -> Iterator[DoctorFinding]:
    subject = f"{pod.title} {each.name}"
    if each.problem:
        fix = "the next agent quarantines the file"
        yield warning("pods.record", subject, each.problem, fix)
    elif each.started and not each.exited and not each.alive:
        text = f"attempt {each.attempt}: its processes ended without an exit code"
        if facts.running:
            yield warning("pods.lost", subject, text, "restart the agent: it should have detected this")
        else:
            yield note("pods.lost", subject, text, "the next agent reports ContainerStatusUnknown")


def _check_orphans(facts: NodeFacts) -> Iterator[DoctorFinding]:
    for shim in facts.pods.orphans:
        text = f"runs for a container whose directory does not exist: {shim.spec}"
        fix = "kill it: the agent no longer tracks it"
        yield warning("pods.process", f"process {shim.pid}", text, fix, EndShim(shim.pid, shim.start))


def _check_temporary(facts: NodeFacts) -> Iterator[DoctorFinding]:
    for entry in facts.pods.temporary:
        age = facts.now - entry.changed
        if facts.running and age < _SETTLED_SECONDS:
            continue
        remove = RemoveDir if entry.kind == "directory" else RemoveFile
        text = f"an interrupted write, {age_text(age)} ago"
        fix = "no data is lost; it can be removed"
        yield note("pods.temporary", str(entry.path), text, fix, remove(entry.path, entry.identity))
