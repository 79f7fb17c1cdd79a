"""Pod statuses and the patch that reports them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.api.core import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from plimsoll.api.meta import Condition, ObjectMeta
from plimsoll.api.quantity import Quantity
from plimsoll.node.containers import ContainerInfo, ContainerPhase, SandboxInfo
from plimsoll.node.pods.phases import phase_of
from plimsoll.node.pods.pod_state import ProbeResults, Termination, TerminationCause, WaitingReason
from plimsoll.node.pods.status import build_status, merge_reported, reject_status, status_patch
from plimsoll.node.pods.status_input import StatusInput

NOW = 1_750_000_000.0
WHEN = "2025-06-15T15:06:40Z"
SANDBOX = SandboxInfo(uid="u", name="p", namespace="d", running=True, created_at=NOW, ip="10.1.0.1")


def pod_of(inits: tuple[Container, ...] = (), policy: str = "Always", **status: Any) -> Pod:
    return Pod(
        metadata=ObjectMeta(name="p", namespace="d", uid="u"),
        spec=PodSpec(
            containers=(Container(name="m", image="img"),), init_containers=inits, restart_policy=policy
        ),
        status=PodStatus(**status),
    )


def state(
    name: str = "m", phase: ContainerPhase = ContainerPhase.RUNNING, attempt: int = 0, **rest: Any
) -> ContainerInfo:
    known = {"created_at": NOW, "started_at": NOW, **rest}
    if phase is ContainerPhase.EXITED:
        known.setdefault("finished_at", NOW)
    return ContainerInfo(id=f"{name}{attempt}", pod="u", name=name, attempt=attempt, phase=phase, **known)


def see(pod: Pod, *states: ContainerInfo, **rest: Any) -> StatusInput:
    known = {"sandbox": SANDBOX, "runtime": "process", "host_ips": ("10.0.0.1",), **rest}
    return StatusInput(pod=pod, now=NOW, states=states, **known)


def conditions(status: dict[str, Any]) -> dict[str, tuple[str, str, str]]:
    return {c["type"]: (c["status"], c.get("reason", ""), c.get("message", "")) for c in status["conditions"]}


def test_status_before_the_sandbox_exists() -> None:
    status = build_status(see(pod_of(), sandbox=None))
    unready = ("False", "ContainersNotReady", "containers with unready status: [m]")
    assert status["phase"] == "Pending"
    assert conditions(status) == {
        "PodReadyToStartContainers": ("False", "", ""),
        "Initialized": ("True", "", ""),
        "Ready": unready,
        "ContainersReady": unready,
        "PodScheduled": ("True", "", ""),
    }
    (own,) = status["containerStatuses"]
    assert own["state"] == {"waiting": {"reason": "ContainerCreating"}}
    assert status["startTime"] == WHEN
    assert status["qosClass"] == "BestEffort"


def test_running() -> None:
    status = build_status(see(pod_of(), state()))
    assert status["phase"] == "Running"
    (own,) = status["containerStatuses"]
    assert own == {
        "name": "m",
        "image": "img",
        "imageID": "img",
        "containerID": "process://m0",
        "restartCount": 0,
        "state": {"running": {"startedAt": WHEN}},
        "lastState": {},
        "resources": {},
        "started": True,
        "ready": True,
    }
    assert (status["podIP"], status["podIPs"]) == ("10.1.0.1", [{"ip": "10.1.0.1"}])
    assert (status["hostIP"], status["hostIPs"]) == ("10.0.0.1", [{"ip": "10.0.0.1"}])


def test_simulated_pods_have_a_condition() -> None:
    condition = conditions(build_status(see(pod_of(), state(), simulated=True)))["plimsoll.dev/Simulated"]
    assert condition[:2] == ("True", "SimulatedNode")
    assert "plimsoll.dev/Simulated" not in conditions(build_status(see(pod_of(), state())))


def test_initializing() -> None:
    pod = pod_of((Container(name="i"),))
    status = build_status(see(pod, state("i")))
    assert status["phase"] == "Pending"
    assert conditions(status)["Initialized"] == (
        "False",
        "ContainersNotInitialized",
        "containers with incomplete status: [i]",
    )
    assert status["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    created = build_status(see(pod, state("i", ContainerPhase.CREATED)))
    assert created["initContainerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    done = build_status(see(pod, state("i", ContainerPhase.EXITED)))
    assert conditions(done)["Initialized"][0] == "True"
    assert done["initContainerStatuses"][0]["ready"] is True
    assert done["phase"] == "Pending"


def test_an_init_container_that_failed_permanently() -> None:
    pod = pod_of((Container(name="i"),), "Never")
    failed = see(pod, state("i", ContainerPhase.EXITED, exit_code=3))
    assert build_status(failed)["phase"] == "Pending", "not before everything is stopped"
    status = build_status(replace(failed, terminal=True))
    assert status["phase"] == "Failed"
    assert conditions(status)["Ready"] == ("False", "PodFailed", "")
    assert status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    assert "waiting" in status["containerStatuses"][0]["state"], "it never ran"


def test_crash_loop() -> None:
    waiting = {"m": WaitingReason("CrashLoopBackOff", "back-off 10s ...")}
    states = (
        state(phase=ContainerPhase.EXITED, exit_code=1),
        state(phase=ContainerPhase.EXITED, attempt=1, exit_code=2, reason="OOMKilled"),
    )
    status = build_status(see(pod_of(), *states, waiting=waiting))
    assert status["phase"] == "Running"
    (own,) = status["containerStatuses"]
    assert own["state"] == {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s ..."}}
    assert own["lastState"]["terminated"]["reason"] == "OOMKilled"
    assert own["restartCount"] == 1
    assert own["ready"] is False


def test_last_state_is_the_previous_attempt() -> None:
    status = build_status(see(pod_of(), state(phase=ContainerPhase.EXITED, exit_code=9), state(attempt=1)))
    (own,) = status["containerStatuses"]
    assert own["lastState"]["terminated"] == {
        "exitCode": 9,
        "reason": "Error",
        "startedAt": WHEN,
        "finishedAt": WHEN,
        "containerID": "process://m0",
    }


@pytest.mark.parametrize(("code", "phase"), [(0, "Succeeded"), (1, "Failed")])
def test_a_final_phase_is_reported_when_no_container_runs(code: int, phase: str) -> None:
    ended = see(
        pod_of(policy="Never"),
        state(phase=ContainerPhase.EXITED, exit_code=code),
        before={"phase": "Running"},
    )
    assert build_status(ended)["phase"] == "Running"
    assert build_status(replace(ended, terminal=True))["phase"] == phase


def test_a_deleted_pod_that_always_restarts_ends_as_its_containers_did() -> None:
    ended = see(pod_of(), state(phase=ContainerPhase.EXITED), before={"phase": "Running"}, terminal=True)
    assert build_status(ended)["phase"] == "Succeeded"


def test_a_pod_that_never_ran_fails() -> None:
    status = build_status(see(pod_of(), sandbox=None, terminal=True))
    assert status["phase"] == "Failed"
    assert status["containerStatuses"][0]["state"]["terminated"]["reason"] == "ContainerStatusUnknown"


def test_deadline_and_eviction() -> None:
    termination = Termination(TerminationCause.DEADLINE, NOW, NOW, "DeadlineExceeded", "too long")
    running = see(pod_of(), state(), termination=termination, before={"phase": "Running"})
    assert build_status(running)["phase"] == "Running"
    ended = replace(running, states=(state(phase=ContainerPhase.EXITED),), terminal=True)
    status = build_status(ended)
    assert (status["phase"], status["reason"], status["message"]) == (
        "Failed",
        "DeadlineExceeded",
        "too long",
    )
    evicted = build_status(replace(ended, disruption="TerminationByKubelet"))
    assert conditions(evicted)["DisruptionTarget"] == ("True", "TerminationByKubelet", "too long")


def test_a_final_phase_stays() -> None:
    pod = pod_of(phase="Failed", reason="NodeLost", message="m")
    status = build_status(see(pod, state()))
    assert (status["phase"], status["reason"]) == ("Failed", "NodeLost")


def test_a_lost_container_has_an_unknown_status() -> None:
    before = {"containerStatuses": [{"name": "m", "restartCount": 2, "state": {"running": {}}}]}
    (own,) = build_status(see(pod_of(), before=before))["containerStatuses"]
    assert own["lastState"]["terminated"]["exitCode"] == 137
    assert own["lastState"]["terminated"]["reason"] == "ContainerStatusUnknown"
    ended = {"containerStatuses": [{"name": "m", "state": {"terminated": {"exitCode": 4}}}]}
    (own,) = build_status(see(pod_of(), before=ended))["containerStatuses"]
    assert own["state"] == {"terminated": {"exitCode": 4}}


def test_sidecars_and_probes() -> None:
    side = Container(name="s", restart_policy="Always")
    pod = pod_of((side,))
    slow = see(pod, state("s"), probes={"s0": ProbeResults(started=False)})
    assert build_status(slow)["phase"] == "Pending"
    both = see(pod, state("s", ContainerPhase.EXITED, exit_code=1), state())
    status = build_status(both)
    assert status["phase"] == "Running"
    assert conditions(status)["ContainersReady"][2] == "containers with unready status: [s]"
    unready = see(pod, state("s"), state(), probes={"m0": ProbeResults(ready=False)})
    assert conditions(build_status(unready))["Ready"][2] == "containers with unready status: [m]"


def test_transition_times_move_only_with_the_status() -> None:
    first = build_status(see(pod_of(), sandbox=None))
    later = replace(see(pod_of(), state()), now=NOW + 60, before=first)
    then = {c["type"]: c["lastTransitionTime"] for c in build_status(later)["conditions"]}
    assert then["Ready"] == then["PodReadyToStartContainers"] == "2025-06-15T15:07:40Z"
    assert then["Initialized"] == then["PodScheduled"] == WHEN
    assert build_status(later)["startTime"] == WHEN


def test_rejected() -> None:
    status = reject_status(pod_of(), "OutOfcpu", "m", NOW)
    assert status["phase"] == "Failed"
    assert "containerStatuses" not in status


# -- the patch


def test_a_patch_names_our_fields_only() -> None:
    reported = {
        "phase": "Pending",
        "reason": "Old",
        "nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "c"}],
        "conditions": [
            {"type": "Mine", "status": "True"},
            {"type": "Ready", "status": "False", "reason": "R", "message": "M"},
            {"type": "PodResizePending", "status": "True"},
        ],
    }
    status = build_status(see(pod_of(), state(), before=reported))
    patch = status_patch("u", reported, status)
    assert patch is not None
    assert patch["metadata"] == {"uid": "u"}
    assert "nodeAllocatableResourceClaimStatuses" not in patch["status"]
    assert patch["status"]["reason"] is None
    kinds = [c["type"] for c in patch["status"]["conditions"]]
    assert "Mine" not in kinds
    ready = next(c for c in patch["status"]["conditions"] if c["type"] == "Ready")
    assert (ready["reason"], ready["message"]) == (None, None)
    assert {"$patch": "delete", "type": "PodResizePending"} in patch["status"]["conditions"]


def test_no_patch_without_changes() -> None:
    status = build_status(see(pod_of(), state()))
    assert status_patch("u", merge_reported({}, status), status) is None


def test_conditions_of_a_resize_are_passed_on() -> None:
    resize = Condition(type="PodResizePending", status="True", reason="Deferred", message="later")
    status = build_status(see(pod_of(), state(), resize=(resize,)))
    assert conditions(status)["PodResizePending"] == ("True", "Deferred", "later")


# -- phases, against a plain reading of the rules

state_trees = st.sampled_from(
    [
        {"waiting": {"reason": "ContainerCreating"}},
        {"running": {"startedAt": WHEN}},
        {"terminated": {"exitCode": 0}},
        {"terminated": {"exitCode": 1}},
    ]
)


@given(st.lists(state_trees, min_size=1, max_size=3), st.sampled_from(["Always", "OnFailure", "Never"]))
def test_phases_of_plain_pods(states: list[dict[str, Any]], policy: str) -> None:
    names = [f"m{i}" for i in range(len(states))]
    pod = Pod(spec=PodSpec(containers=tuple(Container(name=n) for n in names), restart_policy=policy))
    regular = [{"name": n, "state": s, "lastState": {}} for n, s in zip(names, states, strict=True)]
    codes = [s["terminated"]["exitCode"] for s in states if "terminated" in s]
    if any("waiting" in s for s in states):
        expected = "Pending"
    elif any("running" in s for s in states) or policy == "Always" or (policy == "OnFailure" and any(codes)):
        expected = "Running"
    else:
        expected = "Failed" if any(codes) else "Succeeded"
    assert phase_of(pod, [], regular, terminal=False, initialized=True) == expected


def test_a_terminated_init_container_status_is_kept() -> None:
    pod = pod_of((Container(name="i"),))
    first = build_status(see(pod, state("i", ContainerPhase.EXITED), state()))
    again = build_status(see(pod, state("i", ContainerPhase.EXITED), state("i", attempt=1), before=first))
    assert again["initContainerStatuses"] == first["initContainerStatuses"]


def test_pod_level_resources_are_reported() -> None:
    whole = ResourceRequirements(limits={"cpu": Quantity.parse("2")}, requests={"cpu": Quantity.parse("1")})
    status = build_status(see(pod_of(), state(), pod_level=whole))
    assert status["allocatedResources"] == {"cpu": "1"}
    assert status["resources"] == {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}
    patch = status_patch("u", {}, status)
    assert patch is not None
    assert patch["status"]["allocatedResources"] == {"cpu": "1"}
    assert "resources" not in build_status(see(pod_of(), state()))


def test_ephemeral_containers_are_reported_and_do_not_count() -> None:
    debugger = Container(name="debugger", image="busybox")
    pod = Pod(
        metadata=ObjectMeta(name="p", namespace="d", uid="u"),
        spec=PodSpec(
            containers=(Container(name="m", image="img"),),
            ephemeral_containers=(debugger,),
            restart_policy="Never",
        ),
    )
    status = build_status(
        see(pod, state(), waiting={"debugger": WaitingReason("CreateContainerError", "no")})
    )
    (own,) = status["ephemeralContainerStatuses"]
    assert own["state"] == {"waiting": {"reason": "CreateContainerError", "message": "no"}}
    assert (status["phase"], conditions(status)["Ready"][0]) == ("Running", "True")

    status = build_status(see(pod, state(), state("debugger"), before=status))
    (own,) = status["ephemeralContainerStatuses"]
    assert own["state"] == {"running": {"startedAt": WHEN}}
    assert own["containerID"] == "process://debugger0"
    assert (own["ready"], own.get("started")) == (False, None)

    (lost,) = build_status(see(pod, state(), before=status))["ephemeralContainerStatuses"]
    assert lost["state"]["terminated"]["reason"] == "ContainerStatusUnknown"
    assert lost["lastState"] == {}
    ended = build_status(
        see(pod, state(), state("debugger", ContainerPhase.EXITED, exit_code=3), before=status)
    )
    (own,) = ended["ephemeralContainerStatuses"]
    assert own["state"]["terminated"]["exitCode"] == 3
    assert (ended["phase"], conditions(ended)["Ready"][0]) == ("Running", "True")
