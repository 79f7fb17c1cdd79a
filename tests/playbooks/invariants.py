"""Invariants of an idle node: nothing leaks, and the API reports the actual state."""

from __future__ import annotations

from typing import Any

from plimsoll.ledger.node_ledger import pod_key
from plimsoll.node.containers import ContainerPhase
from tests.playbooks.node_harness import NodeHarness, Tree
from tests.waiting import until

TERMINAL = ("Succeeded", "Failed")


async def quiet(harness: NodeHarness) -> None:
    """Wait until nothing is violated."""

    async def find() -> list[str]:
        found = await find_violations(harness)
        assert not harness.wrongs, harness.wrongs
        return found

    await until(find, lambda found: not found)


async def find_violations(harness: NodeHarness) -> list[str]:
    """Return the violated invariants."""
    wrong = [*_driver(harness)]
    if harness.up:
        wrong += _agent(harness)
        if not harness.away:
            wrong += _api(harness, await harness.pods())
    return wrong


def _driver(harness: NodeHarness) -> list[str]:
    """Check that the driver has prepared no unrecorded claim, and all claims that containers use."""
    disk, held = harness.recorded(), harness.driver.held
    wrong = [f"the driver holds {name}, which has no record" for uid, name in held.items() if uid not in disk]
    wrong += [
        f"{row['name']} is ready on record, and not held"
        for uid, row in disk.items()
        if row.get("ready") and uid not in held
    ]
    if harness.driver.files() != set(held):
        wrong.append(f"CDI files are {harness.driver.files()}, not {set(held)}")
    return wrong


def _agent(harness: NodeHarness) -> list[str]:
    """Check that the agent's state agrees with its checkpoints and with itself."""
    agent = harness.agent
    own, wrong = agent.components, []
    claim_cache = {claim.ref.uid: claim for claim in own.claim_cache.claims()}
    if set(claim_cache) != set(harness.recorded()):
        wrong.append(f"the claim cache has claims {set(claim_cache)}, the record {set(harness.recorded())}")
    if list(agent.admission_handler.admitted_uids) != harness.admitted():
        wrong.append(f"let in are {agent.admission_handler.admitted_uids}, on record {harness.admitted()}")
    wrong += [str(each) for each in agent.admission_handler.ledger.verify()]
    sandboxes = {each.uid for each in own.runtime.sandboxes() if each.running}
    if not sandboxes <= set(agent.admission_handler.admitted_uids):
        wrong.append(f"sandboxes {sandboxes} run, let in are {agent.admission_handler.admitted_uids}")
    users = {pod for claim in claim_cache.values() for pod in claim.pods}
    if not users <= set(agent.admission_handler.admitted_uids):
        wrong.append(f"pods {users} hold claims, let in are {agent.admission_handler.admitted_uids}")
    for claim in claim_cache.values():
        if not claim.pods:
            wrong.append(f"{claim.ref.name} is held without a user")
    left = [path.name for path in harness.layout.root.iterdir() if path.name.startswith(".")]
    if left or (harness.layout.quarantine.exists() and not harness.damaged):
        wrong.append(f"files are left: {left or 'quarantine'}")
    return wrong


def _api(harness: NodeHarness, pods: list[Tree]) -> list[str]:
    """Check that the API reports the actual state of pods, and that pods are as desired."""
    agent, wrong = harness.agent, []
    own = agent.components
    uids = {tree["metadata"]["uid"] for tree in pods}
    if {pod_key(pod) for pod in agent.pods()} != uids:
        wrong.append("the agent does not know the pods of the API")
    for what, known in (
        ("sandboxes", {each.uid for each in own.runtime.sandboxes()}),
        ("workers", set(agent.workers)),
        ("cgroups", set(own.cgroups.pods())),
        ("directories", {path.name for path in harness.layout.pods.glob("*")}),
    ):
        if not known <= uids:
            wrong.append(f"{what} of pods that are gone: {known - uids}")
    for tree in pods:
        wrong += [f"{tree['metadata']['name']}: {each}" for each in _pod(harness, tree)]
    return wrong


def _pod(harness: NodeHarness, tree: Tree) -> list[str]:
    agent, wrong = harness.agent, []
    own, meta, status = agent.components, tree["metadata"], tree.get("status", {})
    uid, phase = meta["uid"], status.get("phase")
    states = [state for state in own.runtime.containers(uid) if state.phase is ContainerPhase.RUNNING]
    shown = {
        each["name"]: each["containerID"]
        for each in status.get("containerStatuses", ())
        if "running" in each.get("state", {})
    }
    if shown != {state.name: f"{own.runtime.name}://{state.id}" for state in states}:
        wrong.append(f"containers {shown} are reported as running, {[state.id for state in states]} do")
    for state in states:
        count = (
            next(
                (each["restartCount"] for each in status["containerStatuses"] if each["name"] == state.name),
                None,
            )
            if shown
            else None
        )
        if count != state.attempt:
            wrong.append(f"restarts {count}, should be {state.attempt}")
    claims = own.claim_cache.claims_of_pod(uid)
    if phase in TERMINAL:
        if states or uid in agent.admission_handler or claims:
            wrong.append(f"it has {phase} and holds something")
        if meta.get("deletionTimestamp"):
            wrong.append("it has ended and is not taken from the API")
        return wrong
    if uid not in agent.admission_handler:
        wrong.append("it is neither let in nor refused")
    stuck = _blocked(harness, tree)
    if meta.get("deletionTimestamp"):
        if not stuck:
            wrong.append("it is still there")
        return wrong
    if states:
        if phase != "Running":
            wrong.append(f"it runs, and its phase is {phase}")
        wanted = {
            harness.claims[each["resourceClaimName"]]["metadata"]["uid"]
            for each in tree["spec"].get("resourceClaims", ())
        }
        if {claim.ref.uid for claim in claims if claim.ready} != wanted:
            wrong.append("it runs without its claims")
    elif not stuck:
        wrong.append(f"it is not running: {phase}")
    return wrong


def _blocked(harness: NodeHarness, tree: dict[str, Any]) -> bool:
    """Return whether a pod cannot proceed because of its driver."""
    names = {each["resourceClaimName"] for each in tree["spec"].get("resourceClaims", ())}
    driver = harness.driver
    return bool(names) and (not driver.up or not driver.gate.is_set() or bool(names & driver.refuses))
