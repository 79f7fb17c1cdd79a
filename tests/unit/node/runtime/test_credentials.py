"""Credentials of processes, read from /proc and tried."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from plimsoll.node.containers import ContainerInfo, RuntimeFault
from plimsoll.node.pods.command_runner import HostCommandRunner
from plimsoll.node.runtime import ProcessRuntime
from plimsoll.node.security.capabilities import DEFAULT, mask_of
from plimsoll.node.security.context import SecurityRequest
from plimsoll.node.security.credentials import ProcessCredentials, compute_credentials
from plimsoll.node.security.rights import read_rights
from plimsoll.protocols.cdi import CdiSpec, CdiSpecDevice, Edits, Mount, write_spec
from tests.waiting import until

from .runtime_harness import a_container, a_pod, alive, ended, lines, run, runtime_harness, shell, state

RIGHTS = read_rights()
needs_root = pytest.mark.skipif(not RIGHTS.can_switch_user, reason="needs root")
needs_mounts = pytest.mark.skipif(
    not RIGHTS.can_switch_user or not RIGHTS.capabilities & mask_of(("SYS_ADMIN",)),
    reason="needs root and CAP_SYS_ADMIN",
)
RESTRICTED = {
    "runAsUser": 1234,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def credentials(
    container: dict[str, Any] | None = None, pod: dict[str, Any] | None = None
) -> ProcessCredentials:
    found = compute_credentials(SecurityRequest(pod or {}, container or {}), RIGHTS)
    assert found.unsupported == ()
    return found.credentials


def status_of(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/status").read_text()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def masks(status: Mapping[str, str]) -> dict[str, int]:
    return {name: int(status[f"Cap{name}"], 16) for name in ("Inh", "Prm", "Eff", "Bnd", "Amb")}


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split()]


async def started(runtime: ProcessRuntime, given: ProcessCredentials, **changes: Any) -> ContainerInfo:
    """Start a container that waits, and wait until its command runs."""
    spec = a_container("sleep", "1000", credentials=given, **changes)
    found = await run(runtime, spec)
    await until(lambda: Path(f"/proc/{found.pid}/comm").read_text() == "sleep\n")
    return found


def observe(given: ProcessCredentials) -> dict[str, str]:
    """Return the status of a container's first process."""
    found: dict[str, str] = {}

    async def scenario() -> None:
        async with runtime_harness() as harness, harness.runtime() as runtime:
            found.update(status_of((await started(runtime, given)).pid))

    asyncio.run(scenario())
    return found


@needs_root
def test_default_credentials_are_root_with_containerds_capabilities() -> None:
    status = observe(credentials())
    own = DEFAULT & RIGHTS.capabilities
    assert numbers(status["Uid"]) == [0] * 4
    assert numbers(status["Gid"]) == [0] * 4
    assert numbers(status["Groups"]) == [0]
    assert masks(status) == {"Inh": 0, "Prm": own, "Eff": own, "Bnd": own, "Amb": 0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("0", "0")


@needs_root
def test_users_groups_and_their_merging() -> None:
    pod = {"runAsUser": 1, "runAsGroup": 3000, "fsGroup": 2000, "supplementalGroups": [4000, 4001]}
    status = observe(credentials({"runAsUser": 1234}, pod))
    assert numbers(status["Uid"]) == [1234] * 4
    assert numbers(status["Gid"]) == [3000] * 4
    assert numbers(status["Groups"]) == [2000, 3000, 4000, 4001]
    own = DEFAULT & RIGHTS.capabilities
    assert masks(status) == {"Inh": 0, "Prm": 0, "Eff": 0, "Bnd": own, "Amb": 0}


@needs_root
def test_capabilities() -> None:
    context = {"capabilities": {"add": ["NET_ADMIN"], "drop": ["CHOWN", "KILL"]}}
    own = (DEFAULT & RIGHTS.capabilities | mask_of(("NET_ADMIN",))) & ~mask_of(("CHOWN", "KILL"))
    if not RIGHTS.capabilities & mask_of(("NET_ADMIN",)):
        pytest.skip("needs CAP_NET_ADMIN")
    assert masks(observe(credentials(context))) == {"Inh": 0, "Prm": own, "Eff": own, "Bnd": own, "Amb": 0}
    every = RIGHTS.capabilities
    privileged = masks(observe(credentials({"privileged": True})))
    assert privileged == {"Inh": 0, "Prm": every, "Eff": every, "Bnd": every, "Amb": 0}


@needs_root
def test_a_restricted_pod() -> None:
    status = observe(credentials(RESTRICTED))
    assert numbers(status["Uid"]) == [1234] * 4
    assert masks(status) == dict.fromkeys(("Inh", "Prm", "Eff", "Bnd", "Amb"), 0)
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")


@needs_root
@pytest.mark.parametrize("escalation", [True, False])
async def test_the_seccomp_profile_is_in_force(escalation: bool) -> None:
    """A personality without address randomization is refused; ordinary programs work."""
    profile = {"seccompProfile": {"type": "RuntimeDefault"}, "allowPrivilegeEscalation": escalation}
    async with runtime_harness() as harness, harness.runtime() as runtime:
        text = "setarch -R true 2>/dev/null && echo allowed; (echo $((1 + 1)) | cat); ls / | grep -c ^tmp$"
        await run(runtime, shell(text, credentials=credentials({**profile, "runAsUser": 1234})))
        assert lines(await ended(runtime)) == ["2", "1"]
        # The same without a profile, to show that it was the profile.
        plain = credentials({"runAsUser": 1234, "allowPrivilegeEscalation": escalation})
        await run(runtime, shell("setarch -R true && echo allowed", id="c2", credentials=plain))
        assert lines(await ended(runtime, "c2")) == ["allowed"]


@needs_root
async def test_a_user_cannot_do_what_root_can(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("x")
    secret.chmod(0o600)
    async with runtime_harness() as harness, harness.runtime() as runtime:
        text = (
            f"cat {secret} 2>/dev/null || echo unreadable; echo mine > file && cat file; id -u; "
            "echo again > /dev/stdout; kill -0 1 2>/dev/null || echo powerless"
        )
        await run(runtime, shell(text, credentials=credentials({"runAsUser": 1234})))
        found = await ended(runtime)
        assert lines(found) == ["unreadable", "mine", "1234", "again", "powerless"]
        work = Path(found.log).parent / "work"
        assert (work.stat().st_uid, (work / "file").stat().st_uid) == (1234, 1234)


@needs_mounts
async def test_a_read_only_root_file_system() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        root = harness.layout.root
        for name in ("shared", "open"):
            (root / name).mkdir()
        mount = Mount(host_path=str(root / "shared"), container_path=str(root / "open"))
        edits = Edits(mounts=(mount,))
        spec = CdiSpec(version="0.8.0", kind="v.com/c", devices=(CdiSpecDevice(name="x", edits=edits),))
        write_spec(harness.layout.cdi, "a", spec)
        text = (
            f"for at in / /tmp /sys/fs {root} {root}/shared . /proc/sys/kernel; do "
            "  (: > $at/plimsoll-probe) 2>/dev/null && echo $at is writable; done; "
            "(echo plimsoll > /proc/sys/kernel/domainname) 2>/dev/null && echo sysctl; "
            f"echo a > {root}/open/file && echo b > /dev/null && echo 950 > /proc/self/oom_score_adj && "
            "echo done; sleep 1000"
        )
        given = credentials({"readOnlyRootFilesystem": True})
        await run(runtime, shell(text, cdi=("v.com/c=x",), credentials=given))
        await until(lambda: bool(lines(state(runtime))))
        assert lines(state(runtime)) == ["done"]
        # The machine is as it was, and so is a command in the container as the container is.
        assert (root / "shared" / "file").read_text() == "a\n"
        (root / "probe").write_text("writable")
        commands = HostCommandRunner(runtime.exec_spec, lambda: runtime.exec_program)
        outcome = await commands.execute("c1", ["touch", str(root / "more")], 20)
        assert not outcome.ok
        assert "Read-only file system" in outcome.text
        assert (await commands.execute("c1", ["touch", str(root / "open" / "more")], 20)).ok


@needs_root
async def test_commands_run_as_the_container_does() -> None:
    async with runtime_harness() as harness:
        text = "grep -E '^(Uid|Gid|Groups|Cap...|NoNewPrivs|Seccomp):' /proc/self/status; pwd; echo $A"
        given = credentials(RESTRICTED, {"supplementalGroups": [4000]})
        async with harness.runtime() as runtime:
            found = await started(runtime, given, env={"A": "secret"})
            first = status_of(found.pid)
        # Another agent has taken over: commands are the container's all the same.
        async with harness.runtime() as runtime:
            assert state(runtime).pid == found.pid
            assert status_of(found.pid)["Uid"] == first["Uid"]
            commands = HostCommandRunner(runtime.exec_spec, lambda: runtime.exec_program)
            outcome = await commands.execute("c1", ["sh", "-c", text], 20)
            assert outcome.ok
            *shown, directory, variable = outcome.text.splitlines()
            own = dict(line.split(":", 1) for line in shown)
            assert len(own) == 10
            assert {name: value.strip() for name, value in own.items()} == {n: first[n] for n in own}
            assert directory == str(Path(found.log).parent / "work")
            assert variable == "secret"
            os.kill(found.pid, signal.SIGKILL)
            await ended(runtime)
            outcome = await commands.execute("c1", ["true"], 20)
            assert not outcome.ok
            assert outcome.text == "container c1 is not running"


@needs_root
async def test_the_pause_image_has_credentials() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        spec = a_container(image="pause", credentials=credentials(RESTRICTED))
        status = status_of((await run(runtime, spec)).pid)
        assert numbers(status["Uid"]) == [1234] * 4
        assert masks(status) == dict.fromkeys(("Inh", "Prm", "Eff", "Bnd", "Amb"), 0)
        assert status["NoNewPrivs"] == "1"
        # It runs no command, whose start would have set what is permitted.
        spec = a_container(image="pause", id="c2", credentials=credentials())
        own = DEFAULT & RIGHTS.capabilities
        found = masks(status_of((await run(runtime, spec)).pid))
        assert found == {"Inh": 0, "Prm": own, "Eff": own, "Bnd": own, "Amb": 0}


@needs_root
async def test_the_container_of_a_user_dies_with_its_shim() -> None:
    """A change of user clears the signal that the kernel sends when the parent dies; it is set again."""
    async with runtime_harness() as harness:
        async with harness.runtime() as runtime:
            found = await started(runtime, credentials({"runAsUser": 1234}))
        # No agent is there that would clean up.
        os.kill(int(status_of(found.pid)["PPid"]), signal.SIGKILL)
        await until(lambda: not alive(found.pid))
        async with harness.runtime() as runtime:
            assert (await ended(runtime)).exit_code == 137


async def test_credentials_that_cannot_be_set_prevent_the_start() -> None:
    """A group ID that no process can have."""
    given = ProcessCredentials(uid=RIGHTS.uid, gid=RIGHTS.gid, groups=(2**32 - 1,), switch=True)
    async with runtime_harness() as harness, harness.runtime() as runtime:
        spec = shell(f"touch {harness.layout.root}/ran", credentials=given)
        assert await runtime.run_sandbox(a_pod(spec.pod)) is None
        assert await runtime.create(spec) is None
        fault = await runtime.start_container(spec.id)
        assert fault is not None
        assert "cannot set" in fault.message
        assert not (harness.layout.root / "ran").exists()


async def test_nothing_is_started_without_credentials() -> None:
    async with runtime_harness() as harness, harness.runtime() as runtime:
        spec = shell("true", credentials=None)
        assert await runtime.run_sandbox(a_pod(spec.pod)) is None
        fault = await runtime.create(spec)
        assert fault == RuntimeFault("CreateContainerError", "container 'c1' has no credentials")
