"""Every order of prepare, start, crash, restart, release, and of drivers, agents and API servers that come
and go. A line is a step (`script.py`); after the last one everything comes back, all pods go, and nothing of
them may be left."""

from __future__ import annotations

import pytest

from tests.playbooks.script import play

CONVERSATIONS = {
    "a pod comes and goes": """
        driver comes
        agent starts
        pod p with a
        p runs
        quiet
        pod p is deleted
        p is gone
        quiet
        a asked 1
        a released 1
    """,
    # -- prepare
    "prepare fails twice, then works": """
        driver comes
        driver refuses a
        agent starts
        pod p with a
        a asked 3 or more
        p waits
        p says FailedPrepareDynamicResources: no device for a
        quiet
        driver works
        p runs
        p started 1
    """,
    "one claim of two fails: the other is not prepared again": """
        driver comes
        driver refuses b
        agent starts
        pod p with a,b
        b asked 3 or more
        a asked 1
        quiet
        driver works
        p runs
        a asked 1
    """,
    "driver absent, comes": """
        agent starts
        pod p with a
        p waits
        p says FailedPrepareDynamicResources: DRA driver gpu.example.com is not registered
        quiet
        driver comes
        p runs
        a asked 1
        p started 1
    """,
    "driver dies when it is asked": """
        driver comes
        driver breaks off at a
        agent starts
        pod p with a
        driver is dead
        p waits
        quiet
        driver comes
        p runs
        a asked 2
    """,
    "driver dies after it has prepared, before it answers": """
        driver comes
        driver breaks off after a
        agent starts
        pod p with a
        driver is dead
        p waits
        quiet
        driver comes
        p runs
        a asked 2
        p started 1
    """,
    "driver dies when it is asked to release": """
        driver comes
        agent starts
        pod p with a
        p runs
        driver breaks off at a
        pod p is deleted
        driver is dead
        p is leaving
        driver comes
        p is gone
        a asked 1
        a released 2
    """,
    "driver dies after it has released": """
        driver comes
        agent starts
        pod p with a
        p runs
        driver breaks off after a
        pod p is deleted
        driver is dead
        p is leaving
        driver comes
        p is gone
        a released 2
    """,
    "driver refuses to release twice": """
        driver comes
        agent starts
        pod p with a
        p runs
        driver refuses a
        pod p is deleted
        a released 3 or more
        p is leaving
        p says FailedUnprepareDynamicResources: a stays
        driver works
        p is gone
    """,
    "driver leaves in good order while it is asked": """
        driver comes
        driver falls silent
        agent starts
        pod p with a
        a asked 1
        driver speaks
        driver goes
        driver comes
        p runs
        a asked 1
    """,
    # -- drivers that come and go
    "driver restarts while the container runs": """
        driver comes
        agent starts
        pod p with a
        p runs
        driver restarts
        quiet
        driver dies
        quiet
        driver comes
        quiet
        p started 1
        a asked 1
    """,
    "container crashes, and restarts without a new prepare": """
        driver comes
        agent starts
        pod p with a
        p runs
        p crashes
        p started 2
        p runs
        quiet
        p crashes
        p started 3
        p runs
        quiet
        a asked 1
    """,
    "container crashes while the driver is away": """
        driver comes
        agent starts
        pod p with a
        p runs
        driver dies
        p crashes
        p started 2
        p runs
        quiet
        a asked 1
    """,
    "container ends for good: its claim is released, the pod stays": """
        driver comes
        agent starts
        pod p with a never
        p runs
        p exits
        p is Succeeded
        a released 1
        quiet
        pod q with b never
        q runs
        q crashes
        q is Failed
        b released 1
        quiet
        agent restarts
        quiet
        agent is killed
        agent starts
        quiet
        p is Succeeded
        a asked 1
        b asked 1
    """,
    "container ends for good while the driver is away": """
        driver comes
        agent starts
        pod p with a never
        p runs
        driver dies
        p exits
        agent restarts
        driver comes
        p is Succeeded
        quiet
        a released 1
    """,
    # -- deletions
    "pod deleted while it is prepared": """
        driver comes
        driver falls silent
        agent starts
        pod p with a
        a asked 1
        pod p is deleted
        p is leaving
        driver speaks
        p is gone
        quiet
        a released 1
    """,
    "pod deleted while prepare fails": """
        driver comes
        driver refuses a
        agent starts
        pod p with a
        a asked 2 or more
        pod p is deleted
        driver works
        p is gone
        quiet
    """,
    "pod deleted while it starts": """
        driver comes
        agent starts
        starts wait
        pod p with a
        p is starting
        pod p is deleted
        p is leaving
        starts go on
        p is gone
        quiet
        a released 1
    """,
    "pod forced off": """
        driver comes
        agent starts
        pod p with a
        p runs
        pod p is forced off
        p is gone
        quiet
        a released 1
    """,
    "pod forced off while it is prepared": """
        driver comes
        driver falls silent
        agent starts
        pod p with a
        a asked 1
        pod p is forced off
        p is gone
        driver speaks
        quiet
        a released 1
    """,
    "pod forced off while it starts": """
        driver comes
        agent starts
        starts wait
        pod p with a
        p is starting
        pod p is forced off
        starts go on
        quiet
        a released 1
    """,
    "pod forced off while the driver is away": """
        driver comes
        agent starts
        pod p with a
        p runs
        driver dies
        pod p is forced off
        p is gone
        driver comes
        quiet
        a released 1
    """,
    "pod forced off, then made again with the same claim": """
        driver comes
        agent starts
        pod p with a
        p runs
        pod p is forced off
        pod p with a
        p runs
        quiet
    """,
    "deleted while the agent is down": """
        driver comes
        agent starts
        pod p with a
        p runs
        agent stops
        pod p is deleted
        agent starts
        p is gone
        quiet
        a released 1
    """,
    "forced off while the agent is down": """
        driver comes
        agent starts
        pod p with a
        pod q with b
        p runs
        q runs
        agent is killed
        pod p is forced off
        agent starts
        quiet
        a released 1
        q started 1
    """,
    "forced off and made again while the agent is down": """
        driver comes
        agent starts
        pod p with a
        p runs
        agent is killed
        pod p is forced off
        pod p with a
        agent starts
        p runs
        quiet
    """,
    "deleted while the API is away": """
        driver comes
        agent starts
        pod p with a
        p runs
        api goes
        pod p is deleted
        quiet
        api comes
        p is gone
        quiet
        a released 1
    """,
    "forced off while the API is away": """
        driver comes
        agent starts
        pod p with a
        p runs
        api goes
        pod p is forced off
        quiet
        api comes
        quiet
        a released 1
    """,
    "driver absent at the end: the pod stays until it comes": """
        driver comes
        agent starts
        pod p with a
        p runs
        driver goes
        pod p is deleted
        p is leaving
        quiet
        agent restarts
        p is leaving
        driver comes
        p is gone
        quiet
        a released 1
    """,
    "the agent is killed while a pod waits for its driver to leave": """
        driver comes
        agent starts
        pod p with a
        p runs
        driver dies
        pod p is deleted
        p is leaving
        agent is killed
        agent starts
        p is leaving
        driver comes
        p is gone
        a released 1
    """,
    # -- shared claims
    "claim shared by two pods: prepared once, released with the last": """
        driver comes
        agent starts
        pod p with a
        pod q with a
        p runs
        q runs
        quiet
        a asked 1
        pod p is deleted
        p is gone
        quiet
        a released 0
        agent restarts
        pod q is deleted
        q is gone
        quiet
        a asked 1
        a released 1
    """,
    "one user of a claim goes while the other is prepared": """
        driver comes
        driver falls silent
        agent starts
        pod p with a
        a asked 1
        pod q with a
        pod p is forced off
        driver speaks
        q runs
        quiet
        p is gone
    """,
    "a user comes while the last one leaves": """
        driver comes
        agent starts
        pod p with a
        p runs
        driver falls silent
        pod p is deleted
        a released 1
        pod q with a
        driver speaks
        p is gone
        q runs
        quiet
        a asked 2
    """,
    "claim made anew under the same name": """
        driver comes
        agent starts
        pod p with a
        p runs
        pod p is deleted
        p is gone
        claim a is made anew
        pod p with a
        p runs
        quiet
        a asked 2
    """,
    "claim made anew while its old one is still held": """
        driver comes
        agent starts
        pod p with a
        p runs
        driver dies
        pod p is forced off
        claim a is made anew
        pod q with a
        q waits
        driver comes
        q runs
        quiet
        a asked 2
        a released 1
    """,
    # -- agents that come and go
    "agent restarts while the container runs": """
        driver comes
        agent starts
        pod p with a
        p runs
        agent restarts
        quiet
        agent is killed
        agent starts
        quiet
        p started 1
        a asked 1
    """,
    "container crashes while the agent is down": """
        driver comes
        agent starts
        pod p with a
        p runs
        agent stops
        p crashes
        agent starts
        p started 2
        p runs
        quiet
        a asked 1
    """,
    "agent and driver are killed together": """
        driver comes
        agent starts
        pod p with a
        p runs
        driver dies
        agent is killed
        agent starts
        quiet
        p crashes
        p started 2
        driver comes
        quiet
        a asked 1
    """,
    "agent killed between the record and the call": """
        driver comes
        agent starts
        calls stop before the call
        pod p with a
        agent is killed before the call
        a asked 0
        quiet
        agent starts
        p runs
        quiet
        a asked 1
        p started 1
    """,
    "agent killed between the answer and the record": """
        driver comes
        agent starts
        calls stop after the answer
        pod p with a
        agent is killed after the answer
        a asked 1
        quiet
        agent starts
        p runs
        quiet
        a asked 2
        p started 1
    """,
    "agent killed while the driver prepares": """
        driver comes
        driver falls silent
        agent starts
        pod p with a
        a asked 1
        agent is killed
        driver speaks
        quiet
        agent starts
        p runs
        quiet
    """,
    "agent stopped while the driver prepares": """
        driver comes
        driver falls silent
        agent starts
        pod p with a
        a asked 1
        agent stops
        driver speaks
        agent starts
        p runs
        quiet
        p started 1
    """,
    "agent killed before the call that releases": """
        driver comes
        agent starts
        pod p with a
        p runs
        calls stop before the call
        pod p is deleted
        agent is killed before the call
        a released 0
        quiet
        agent starts
        p is gone
        quiet
        a released 1
    """,
    "agent killed after the claim was released": """
        driver comes
        agent starts
        pod p with a
        p runs
        calls stop after the answer
        pod p is deleted
        agent is killed after the answer
        agent starts
        p is gone
        quiet
        a released 2
    """,
    "agent killed before the call, and the pod is forced off": """
        driver comes
        agent starts
        calls stop before the call
        pod p with a
        agent is killed before the call
        pod p is forced off
        agent starts
        quiet
        a released 1
    """,
    "agent killed after the answer, and the pod is forced off": """
        driver comes
        agent starts
        calls stop after the answer
        pod p with a
        agent is killed after the answer
        pod p is forced off
        agent starts
        quiet
        a released 1
    """,
    "agent killed while a container starts": """
        driver comes
        agent starts
        starts wait
        pod p with a
        p is starting
        agent is killed
        starts go on
        agent starts
        p runs
        quiet
        p started 1
        a asked 1
    """,
    "agent killed again and again": """
        driver comes
        agent starts
        pod p with a
        pod q with a,b
        agent is killed
        agent starts
        pod r with b
        agent is killed
        agent starts
        p runs
        q runs
        r runs
        agent is killed
        pod q is deleted
        agent begins
        agent is killed
        agent starts
        q is gone
        quiet
        p started 1
        r started 1
    """,
    # -- the API server
    "API away while a container crashes": """
        driver comes
        agent starts
        pod p with a
        p runs
        api goes
        p crashes
        p started 2
        quiet
        api comes
        quiet
        a asked 1
    """,
    "API away while a container ends for good": """
        driver comes
        agent starts
        pod p with a never
        p runs
        api goes
        p exits
        a released 1
        quiet
        api comes
        p is Succeeded
        quiet
    """,
    "API goes while a pod is prepared": """
        driver comes
        driver falls silent
        agent starts
        pod p with a
        a asked 1
        api goes
        driver speaks
        p started 1
        quiet
        api comes
        p runs
        quiet
        a asked 1
    """,
    "agent restarts with the API away": """
        driver comes
        agent starts
        pod p with a
        p runs
        api goes
        agent stops
        agent begins
        api comes
        agent gets ready
        quiet
        p started 1
        a asked 1
    """,
    "agent killed and begun with the API away, and a pod deleted meanwhile": """
        driver comes
        agent starts
        pod p with a
        pod q with b
        p runs
        q runs
        api goes
        agent is killed
        pod p is deleted
        agent begins
        pod q is forced off
        api comes
        agent gets ready
        p is gone
        quiet
        a released 1
        b released 1
    """,
    "API, driver and agent all go and come": """
        driver comes
        agent starts
        pod p with a
        p runs
        api goes
        driver dies
        agent is killed
        p crashes
        agent begins
        driver comes
        api comes
        agent gets ready
        p started 2
        p runs
        quiet
        a asked 1
    """,
    # -- records
    "record of claims damaged: set aside, rebuilt, pods go on": """
        driver comes
        agent starts
        pod p with a
        pod q with a,b
        p runs
        q runs
        agent stops
        claims are damaged
        agent starts
        quiet
        p started 1
        q started 1
        a asked 2
        p crashes
        p started 2
        quiet
        a asked 2
        pod p is deleted
        pod q is deleted
        p is gone
        q is gone
        quiet
    """,
    "record of claims damaged while the driver is away": """
        driver comes
        agent starts
        pod p with a
        p runs
        agent is killed
        driver dies
        claims are damaged
        agent starts
        p runs
        driver comes
        quiet
        p started 1
    """,
    "record of claims damaged; the driver comes long after": """
        driver comes
        agent starts
        pod p with a
        p runs
        agent stops
        driver goes
        claims are damaged
        agent starts
        pause
        driver comes
        quiet
        p started 1
    """,
    "forced off while neither agent nor driver are there; the driver comes long after": """
        driver comes
        agent starts
        pod p with a
        p runs
        agent is killed
        driver dies
        pod p is forced off
        agent starts
        pause
        driver comes
        quiet
        a released 1
    """,
    "record of claims damaged, and the pod deleted": """
        driver comes
        agent starts
        pod p with a
        p runs
        agent stops
        claims are damaged
        pod p is deleted
        agent starts
        p is gone
        quiet
        a released 1
    """,
    "record of pods damaged: they go on": """
        driver comes
        agent starts
        pod p with a cpu 2
        pod q cpu 2
        p runs
        q runs
        agent stops
        admitted is damaged
        agent starts
        quiet
        p started 1
        q started 1
    """,
    "both records damaged": """
        driver comes
        agent starts
        pod p with a cpu 2
        p runs
        agent is killed
        claims are damaged
        admitted is damaged
        agent starts
        quiet
        p started 1
    """,
    # -- admission
    "two pods that do not fit together: the first stays in": """
        agent starts
        pod p cpu 3
        p runs
        pod q cpu 2
        q is Failed
        agent restarts
        quiet
        p runs
        p started 1
        agent is killed
        pod r cpu 2
        agent starts
        r is Failed
        pod p is deleted
        p is gone
        pod s cpu 4
        s runs
        quiet
    """,
    "a pod that has ended makes room": """
        driver comes
        agent starts
        pod p with a cpu 3 never
        p runs
        p exits
        p is Succeeded
        pod q with b cpu 3
        q runs
        quiet
    """,
}


@pytest.mark.parametrize("script", CONVERSATIONS.values(), ids=list(CONVERSATIONS))
def test_conversation(script: str) -> None:
    play(script)
