"""Pods: directories, processes, quarantine.

A terminated pod keeps its directory, with logs, until it is deleted from the API. A directory without an
admitted pod is a problem only if processes still run, or if the API does not have the pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from plimsoll.common.checkpoint import NodeFinding as RecordFinding
from plimsoll.common.checkpoint import read_boot_id
from plimsoll.node.layout import Layout, is_path_component
from plimsoll.node.runtime.shims import descendants
from plimsoll.node.runtime.state_dir import ContainerRecord, ExitRecord, PodRecord, RunRecord, load
from plimsoll.tools.doctor.facts import ContainerDir, NodeFacts, PodDir, PodFacts
from plimsoll.tools.doctor.files import FileEntry, age_text, list_dir, size_text
from plimsoll.tools.doctor.findings import command, error, finding, move_away, note, ok, warning
from plimsoll.tools.doctor.processes import SPEC, find_shims, is_alive
from plimsoll.tools.findings import Finding, Severity

# -- gathering


def gather(layout: Layout, *, kubelet: bool = False) -> PodFacts:
    """Inspect the pod directories; for a kubelet only their names."""
    listing = list_dir(layout.pods)
    found = dict(find_shims(layout)) if not kubelet else {}
    pods, strange = [], []
    for entry in listing.entries:
        if entry.path.name.startswith("."):
            continue  # temporary
        if entry.kind != "directory" or not is_path_component(entry.path.name):
            strange.append(entry)
        elif kubelet:
            pods.append(PodDir(entry=entry, uid=entry.path.name))
        else:
            pods.append(_pod(entry, found))
    known = {str(each.path / SPEC) for pod in pods for each in pod.containers}
    return PodFacts(
        pods=tuple(pods),
        error=listing.error,
        more=listing.more,
        strange=tuple(strange) if not kubelet else (),
        quarantine=list_dir(layout.quarantine).entries,
        orphans={spec: tuple(descendants(pid)) for spec, pid in found.items() if spec not in known},
    )


def _pod(entry: FileEntry, shims: Collection[str]) -> PodDir:
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
        _container(attempt.path, shims)
        for container in list_dir(entry.path / "containers").entries
        if container.kind == "directory"
        for attempt in list_dir(container.path).entries
        if attempt.kind == "directory"
    ]
    return PodDir(entry=entry, uid=uid, name=name, problem=problem, containers=tuple(containers))


def _container(path: Path, shims: Collection[str]) -> ContainerDir:
    record = load(path / "state.json", ContainerRecord)
    run, exit = load(path / "run.json", RunRecord), load(path / "exit.json", ExitRecord)
    problems = [each.what for each in (record, run, exit) if isinstance(each, RecordFinding)]
    alive = str(path / SPEC) in shims
    if isinstance(run, RunRecord) and run.boot_id == read_boot_id():
        alive = alive or is_alive(run.shim, run.shim_start) or is_alive(run.pid, run.pid_start)
    return ContainerDir(
        path=path,
        name=path.parent.name,
        attempt=path.name,
        problem="; ".join(problems),
        started=isinstance(record, ContainerRecord) and record.started and run is not None,
        exited=isinstance(exit, ExitRecord),
        alive=alive,
    )


# -- checks


def check(facts: NodeFacts) -> Iterator[Finding]:
    found = facts.pods
    if facts.is_kubelet:
        yield ok("pods.directories", facts.layout.pods, f"{len(found.pods)} pods")
        return
    if found.error:
        yield error("pods.directories", facts.layout.pods, found.error, "run the doctor as root")
    elif found.more:
        text = f"it has more than {len(found.pods) + len(found.strange)} entries; the rest was not checked"
        yield warning("pods.directories", facts.layout.pods, text, "find out what creates them")
    for entry in found.strange:
        yield _check_strange(facts, entry)
    yield from _check_pods(facts)
    yield from _check_orphans(facts)
    for entry in found.quarantine:
        text = f"quarantined {age_text(facts.now - entry.changed)} ago, {size_text(entry.size)}"
        fix = f"inspect it, then remove it: {command('rm', '-r', entry.path)}"
        yield note("pods.quarantine", entry.path, text, fix)
    count, running = sum(len(pod.containers) for pod in found.pods), sum(pod.running for pod in found.pods)
    text = f"{len(found.pods)} pods, {count} containers, {running} running"
    yield ok("pods.directories", facts.layout.pods, text)


def _check_strange(facts: NodeFacts, entry: FileEntry) -> Finding:
    text = f"a {entry.kind} that is not a pod directory"
    fix = move_away(entry.path, facts.layout.quarantine)
    if entry.kind in ("link", "pipe", "socket"):
        fix = command("rm", entry.path)
    return warning("pods.strange", entry.path, text, f"move it away: {fix}")


def _check_pods(facts: NodeFacts) -> Iterator[Finding]:
    sure = facts.records.admitted.usable
    api = None
    if facts.cluster is not None and facts.cluster.pods is not None and facts.cluster.node is not None:
        api = {pod.uid for pod in facts.cluster.pods}
    for pod in facts.pods.pods:
        if pod.problem:
            yield _check_damaged(facts, pod)
        elif sure and pod.uid not in facts.records.pods:
            yield from _check_unknown(facts, pod, api)
        for each in pod.containers:
            yield from _check_container(facts, pod, each)


def _check_damaged(facts: NodeFacts, pod: PodDir) -> Finding:
    text = f"{pod.problem}; {pod.running} containers running"
    fix = f"{'restart' if facts.running else 'start'} the agent: it kills the processes of the pod, removes"
    fix += " the directory and runs the pod again"
    if not pod.containers:
        # The pod was being created or deleted.
        severity = Severity.INFO if facts.running else Severity.WARNING
        return finding("pods.damaged", severity, pod.title, text, fix)
    return error("pods.damaged", pod.title, text, fix)


def _check_unknown(facts: NodeFacts, pod: PodDir, api: set[str] | None) -> Iterator[Finding]:
    """Check a pod that is not admitted: terminated or unknown."""
    if pod.running:
        text = f"{pod.running} containers of a pod that was not admitted are running"
        if facts.running:
            yield note("pods.unknown", pod.title, text, "the agent stops it within a minute")
        else:
            yield warning("pods.unknown", pod.title, text, "start the agent: it stops it")
    elif api is not None and pod.uid not in api and not facts.running:
        text = "its directory remains; the pod is no longer in the API"
        fix = f"start the agent, which removes it; or: {command('rm', '-r', pod.entry.path)}"
        yield warning("pods.leftover", pod.title, text, fix)


def _check_container(facts: NodeFacts, pod: PodDir, each: ContainerDir) -> Iterator[Finding]:
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


def _check_orphans(facts: NodeFacts) -> Iterator[Finding]:
    for spec, pids in facts.pods.orphans.items():
        text = f"runs for a container whose directory does not exist: {spec}"
        fix = f"no agent tracks it: {command('kill', '-9', *pids)}"
        yield warning("pods.process", f"process {pids[0]}", text, fix)
