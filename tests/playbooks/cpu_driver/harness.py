"""Node with a CPU driver: a machine in a directory, a runtime on a socket, and a client that prepares claims.

Every verb does one thing to the driver, and to the model; `check` compares the two, and both with what the
runtime has set. Guarantees, checked after every verb:

* Whatever happens: no empty set of CPUs leaves the driver; runtimes that cannot be changed at any time are
  not; a container with claims is not made while another one that can be changed is on its CPUs (`Runtime`).
* Holdings, CDI files and record are what the model has; exclusive sets are disjoint, inside their devices,
  and outside of the shared pool.
* Containers, once the driver has had its say, have exactly what the model wants. When that is: at once with
  runtimes that can be changed at any time, as soon as they answer at all; with others, after the next answer
  to an event (a container that is made, updated or stopped, or everything at a reconnect), for all containers
  that were made by then. No driver or no connection: after the next connection. A change in an answer that
  such a runtime passes over is not noticed; it is sent again before others get the CPUs for themselves.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import patch

from plimsoll.api.cpuset import CpuSet
from plimsoll.common.tasks import cancel_tasks
from plimsoll.drivers.cpu import driver as driver_module
from plimsoll.drivers.cpu.driver import CpuDriver
from plimsoll.drivers.cpu.pinning.nri import NriEnforcer
from plimsoll.drivers.cpu.pinning.plan import PinFaultReason
from plimsoll.drivers.cpu.settings import CpuSettings, DeviceMode, PinEnforcement, PinSettings
from plimsoll.drivers.cpu.settings import Mapping as MappingChoice
from plimsoll.drivers.cpu.stale_claims import StaleClaimTracker
from plimsoll.drivers.cpu.state import ClaimAllocation
from plimsoll.drivers.cpu.state.cdi import read_files
from plimsoll.drivers.cpu.topology.topology import Topology
from plimsoll.drivers.plugin import AllocatedClaim, ClaimError, ClaimRef, PreparedDevice
from plimsoll.errors import ApiError
from tests.playbooks.cpu_driver.model import DAMAGED, Model
from tests.playbooks.cpu_driver.runtime import Runtime, RuntimeVersion
from tests.unit.drivers.cpu.machines import make_machine, switch_off, write_sysfs
from tests.unit.drivers.cpu.state.fixtures import NODE, AllocationSpec, make_claim, uid_of
from tests.waiting import until

WHOLE = make_machine(sockets=2, cores=2, threads=2)  # CPUs 0-7; 0, 1, 4, 5 are node 0
PATIENCE = 5.0
#: How long a driver waits for a runtime; its changes do not come to pass where that takes longer.
LIMIT = 0.2
#: How long a claim waits for others to leave its CPUs.
LEAVING = 0.1


class Api:
    """API server as the driver uses it: claims by name."""

    def __init__(self) -> None:
        self.claims: dict[str, Mapping[str, Any]] = {}

    async def get(self, endpoint: Any, name: str, namespace: str = "") -> Mapping[str, Any]:
        if endpoint.plural == "nodes":
            return {"metadata": {"name": name}}
        if name not in self.claims:
            raise ApiError(404, "NotFound", f'resourceclaims "{name}" not found')
        return self.claims[name]

    async def create(self, endpoint: Any, tree: Any, namespace: str = "", **more: Any) -> Any:
        return tree

    async def list(self, endpoint: Any, **more: Any) -> Any:
        return SimpleNamespace(items=[])

    async def pages(self, endpoint: Any, **more: Any) -> AsyncIterator[Any]:
        yield SimpleNamespace(items=[json.dumps(tree).encode() for tree in self.claims.values()])


class PluginServer:
    """Fake plugin server: claims are prepared by direct calls, and nothing is published."""

    registered, published, watched = True, True, True
    registration_error = ""
    publish_errors: tuple[str, ...] = ()
    claim_status_errors: tuple[str, ...] = ()

    def __init__(self, harness: StatefulHarness) -> None:
        self.harness = harness
        #: How often the driver has looked after its files.
        self.looks = 0

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    def publish(self) -> None: ...
    def publish_health(self) -> None: ...
    def update_claim_status(self) -> None: ...

    def list_metadata_claims(self) -> dict[str, ClaimRef]:
        return {}

    async def prepare(self, ref: ClaimRef) -> ClaimError | None:
        raise AssertionError(f"no container is trusted here, but {ref} was recovered")

    async def release(self, ref: ClaimRef) -> ClaimError | None:
        return await self.harness.unprepare(ref.uid)

    async def restore_metadata(self, desired: object) -> tuple[str, ...]:
        self.looks += 1
        return ()


def quick_enforcer(state: Any, topology: Any, settings: CpuSettings, client: Any) -> NriEnforcer:
    return NriEnforcer(
        state,
        topology,
        settings,
        apply_timeout=LEAVING,
        call_timeout=LIMIT,
        shortest=0.001,
        longest=0.02,
        retry=0.002,
        quiet=3600.0,
    )


class StatefulHarness:
    """Node with a driver; call `open` first and `close` last."""

    def __init__(
        self, age: RuntimeVersion = RuntimeVersion.NEW, topology: Topology = WHOLE, **extra: Any
    ) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="p-", dir="/tmp"))
        self.whole = topology
        self.extra = extra
        pin = extra.get("pin", PinSettings())
        reserved = extra.get("reserved", CpuSet())
        self.model = Model(set(topology.all), set(reserved), include_shared=pin.include_shared)
        self.runtime = Runtime(self.root / "nri" / "nri.sock", age, lambda: self.model.online)
        self.api = Api()
        self.driver: CpuDriver | None = None
        self.claims: dict[str, AllocatedClaim] = {}
        #: How many answers had been given when something last changed: the next one brings it about.
        self.spoken = 0
        self.synchronized = 0
        self.stale = StaleClaimTracker()
        self.stale_interval = 3600.0
        self.files_interval = 3600.0
        self._machines = 0
        self._set_machine(topology)
        self._patience = patch.multiple(
            driver_module, make_enforcer=quick_enforcer, LINK_SECONDS=0.02, **self.parts()
        )

    # -- setup

    def parts(self) -> dict[str, Any]:
        """Return replacements for components of the driver."""
        return {"PluginServer": lambda *parts, **more: PluginServer(self)}

    @property
    def settings(self) -> CpuSettings:
        pin = self.extra.get("pin", PinSettings())
        more = {key: value for key, value in self.extra.items() if key != "pin"}
        return CpuSettings(
            node=NODE,
            kubelet_root=self.root / "kubelet",
            cdi=self.root / "cdi",
            nri=self.runtime.path,
            host_root=self.root / "host",
            mapping=MappingChoice.OFF,
            pin=replace(pin, enforcement=PinEnforcement.NRI),
            **{"min_shared": 0, **more},
        )

    async def open(self) -> None:
        self._patience.start()
        await self.runtime.start()
        await self.start_driver()
        await self.connected()

    async def close(self) -> None:
        try:
            await self.kill_driver()
            await self.runtime.stop()
        finally:
            self._patience.stop()
            shutil.rmtree(self.root)

    async def until(self, true: Callable[[], bool], what: Callable[[], object] = lambda: "") -> None:
        await until(true, seconds=PATIENCE, context=what)

    async def connected(self) -> None:
        """Wait until the driver is connected, if there is one."""
        if self.driver is not None and self.runtime.up:
            driver = self.driver
            await self.until(lambda: driver.enforcer.linked and self.runtime.linked > 0, lambda: "a link")
            await self.until(lambda: not driver.state.recovering, lambda: "an end of the recovery")
            if self.model.recovering:
                self.model.end_recovery()
                self.spoken = self.runtime.answers  # CPUs were withheld for containers until now
            # Now it is known who uses claims that seem to have been released: those stay.
            for uid in sorted(self.model.deleted):
                await self.until(lambda uid=uid: uid not in self.model.assigned or self.path(uid).exists())  # type: ignore[misc]
                if uid in self.model.assigned:
                    self.model.files.setdefault(uid, set(self.model.assigned[uid]))

    @property
    def linked(self) -> bool:
        return self.driver is not None and self.driver.enforcer.linked and self.runtime.linked > 0

    # -- the driver

    def make_driver(self) -> CpuDriver:
        return CpuDriver(
            cast(Any, self.api),
            self.settings,
            watch_interval=0.005,
            stale=self.stale,
            stale_interval=self.stale_interval,
            files_interval=self.files_interval,
        )

    async def start_driver(self) -> None:
        assert self.driver is None
        driver = self.make_driver()
        await driver.start()
        self.driver = driver
        self.model.restart()
        await self.until(lambda: set(driver.topology.all) == self.model.online and self.looked_after(driver))

    def looked_after(self, driver: CpuDriver) -> bool:
        """Return whether the driver has checked its files since its start: it does so periodically."""
        return cast(PluginServer, driver.plugin_server).looks > 0

    async def stop_driver(self) -> None:
        driver, self.driver = self.driver, None
        if driver is not None:
            await driver.stop()
            await self.until(lambda: not self.runtime.peers, lambda: "a plugin that left")

    async def kill_driver(self) -> None:
        """Stop the driver as kill -9 does: no shutdown, no notification."""
        driver, self.driver = self.driver, None
        if driver is not None:
            await cancel_tasks([*driver.tasks, *cast(NriEnforcer, driver.enforcer).tasks])
            await self.until(lambda: not self.runtime.peers, lambda: "a plugin that left")

    def snapshot(self) -> tuple[object, ...]:
        """Return all state that must survive a restart."""
        assert self.driver is not None
        files = {path.name: path.read_bytes() for path in self.settings.cdi.glob("*")}
        record = self.settings.checkpoint_path
        return (
            dict(self.driver.state.allocations),
            record.read_bytes() if record.exists() else b"",
            files,
            self.driver.state.shared,
            sorted(path.name for path in record.parent.glob("*")),
        )

    # -- claims

    def ask(self, number: int, *asked: AllocationSpec, **more: Any) -> AllocatedClaim:
        claim = make_claim(number, *asked, **more)
        self.api.claims[claim.ref.name] = claim.tree
        return claim

    async def call_prepare(self, claim: AllocatedClaim) -> Sequence[PreparedDevice] | ClaimError:
        """Call Prepare directly, as the node does."""
        assert self.driver is not None
        return await self.driver.prepare(claim)

    async def call_unprepare(self, ref: ClaimRef) -> ClaimError | None:
        assert self.driver is not None
        return await self.driver.unprepare(ref)

    async def prepare(self, claim: AllocatedClaim) -> ClaimError | set[int]:
        """Prepare a claim and return its CPUs as in its CDI file."""
        assert self.driver is not None
        uid = claim.ref.uid
        strangers = self.linked and uid not in self.model.assigned and self.model.strangers
        if strangers:
            self.model.compare()  # what another driver has prepared meanwhile is taken over first
        before = self.snapshot()
        shared_pool_in_use = self.linked and self.shared_pool_in_use
        failed, started = self.driver.enforcer.counters.failed, time.monotonic()
        answer = await self.call_prepare(claim)
        in_time = time.monotonic() - started < LEAVING and self.driver.enforcer.counters.failed == failed
        if isinstance(answer, ClaimError):
            if uid not in self.model.assigned and not strangers:
                assert self.snapshot() == before, "a refused claim leaves a trace"
            return answer
        cpus = self.file(uid)
        assert cpus is not None
        for device in answer:
            assert device.cdi[0] == f"dra.k8s.io/cpu=claim-{uid}"
            assert device.pool == NODE
        assert len(answer) == len(claim.results)
        if uid in self.model.assigned:
            assert cpus == self.model.assigned[uid], "a repeated call gives other CPUs"
            self.model.files[uid] = cpus
            return cpus
        self.check_grant(claim, cpus)
        assert not shared_pool_in_use or self.model.shared - cpus, "the shared pool is empty and in use"
        self.note_grant(claim, cpus)
        if in_time and self.runtime.age.pushes and self.linked:
            self.check_left(uid, cpus)
        return cpus

    def check_left(self, uid: str, cpus: set[int]) -> None:
        """Check that others have left a claim's CPUs when it is prepared, where the runtime applies
        updates.
        """
        for box in self.runtime.boxes.values():
            if (
                box.created
                and self.model.compute_desired(box.env_claims)
                and not self.runtime.is_stubborn(box.id)
            ):
                assert uid in box.env_claims or not self.runtime.cpus(box.id) & cpus, f"{box.id} has not left"

    def note_grant(self, claim: AllocatedClaim, cpus: set[int]) -> None:
        self.claims[claim.ref.uid] = claim
        self.model.assignment(claim.ref.uid, cpus)
        self.spoken = self.runtime.answers

    def check_grant(self, claim: AllocatedClaim, cpus: set[int], usable: set[int] | None = None) -> None:
        """Check newly granted CPUs: the requested number, from the requested devices, held by no other
        claim.
        """
        assert self.driver is not None
        allocation = self.driver.state.allocations[claim.ref.uid]
        assert isinstance(allocation, ClaimAllocation)
        assert set(allocation.assigned) == cpus
        assert not cpus & self.model.allocated
        assert cpus <= (usable or self.model.usable)
        assert not cpus & set(self.driver.state.layout.always_shared)
        seen: set[int] = set()
        for result, assignment in zip(claim.results, allocation.assignments, strict=True):
            amount = result.consumed_capacity.get("dra.cpu/cpu")
            assert len(assignment.cpus) == (1 if amount is None else amount.value())
            assert set(assignment.cpus) <= self.device(result.device), "outside of its device"
            assert not seen & set(assignment.cpus)
            seen |= set(assignment.cpus)
        assert seen == cpus
        if usable is None:
            assert len(self.model.shared - cpus) >= (self.settings.min_shared or 0)

    def device(self, name: str) -> set[int]:
        """Return the CPUs of a device by its name."""
        if name.startswith("cpudevnuma"):
            return {cpu.id for cpu in self.whole.cpus if cpu.numa == int(name.removeprefix("cpudevnuma"))}
        if self.settings.mode is DeviceMode.INDIVIDUAL:
            assert self.driver is not None
            names = self.driver.state.layout.names
            cpus = {cpu for cpu in names if names[cpu] == name}
            assert len(cpus) == 1
            return cpus
        return set(self.whole.all)

    def fits(self, claim: AllocatedClaim) -> bool:
        """Return whether a claim that has no CPUs yet should get some."""
        assert self.driver is not None
        model = self.model
        free = model.shared - set(self.driver.state.layout.always_shared)
        desired = 0
        for result in claim.results:
            if result.device not in self.driver.state.layout.domains:
                return False
            amount = result.consumed_capacity.get("dra.cpu/cpu")
            count = 1 if amount is None else amount.value()
            desired += count
            mine = free & self.device(result.device)
            if len(mine) < count:
                return False
            free -= set(sorted(mine)[:count])  # devices do not overlap: which ones does not matter
        return len(model.shared) - desired >= (self.settings.min_shared or int(self.shared_pool_in_use))

    @property
    def shared_pool_in_use(self) -> bool:
        """Return whether containers share CPUs, as far as can be known."""
        return any(not box.env_claims and not box.unseen for box in self.runtime.boxes.values())

    async def unprepare(self, uid: str) -> ClaimError | None:
        assert self.driver is not None
        ref = self.claims[uid].ref if uid in self.claims else ClaimRef("default", "any", uid)
        answer = await self.call_unprepare(ref)
        if answer is None:
            self.model.release(uid)
            self.claims.pop(uid, None)
            self.spoken = self.runtime.answers
        return answer

    # -- containers

    def file(self, uid: str) -> set[int] | None:
        """Return the CDI data passed to containers, as a runtime reads it; None if it cannot."""
        path = self.settings.cdi / f"dra.k8s.io-cpu_claim-{uid}.json"
        try:
            (device,) = json.loads(path.read_bytes())["devices"]
            assert device["name"] == f"claim-{uid}"
            found = [
                entry for entry in device["containerEdits"]["env"] if entry.startswith(f"DRA_CPUSET_{uid}=")
            ]
            return set(CpuSet.parse(found[0].partition("=")[2]))
        except (OSError, ValueError, KeyError, IndexError):
            return None

    def env(self, uids: Iterable[str]) -> list[str] | None:
        """Return the environment of a container with claims, as the runtime sets it."""
        found = []
        for uid in uids:
            cpus = self.file(uid)
            if cpus is None:
                return None
            found.append(f"DRA_CPUSET_{uid}={CpuSet(cpus)}")
        return found

    async def create(self, id: str, pod: str, uids: Iterable[str] = (), *, finish: bool = True) -> str:
        """Create a container as kubelet and runtime do; return the error, or an empty text."""
        env = self.env(uids)
        if env is None:
            return "unresolvable CDI devices"
        linked = self.linked
        env_claims = {
            entry[11:].partition("=")[0]: set(CpuSet.parse(entry.partition("=")[2])) for entry in env
        }
        expected = self.model.to_claim_error(env_claims)
        must = not expected and not self.in_the_way(env_claims, pod)
        before = {box.id: box.cpus for box in self.runtime.boxes.values()}
        problem = await self.runtime.begin(id, pod, env)
        if linked and self.runtime.linked == 1:
            assert problem or not expected, f"{id} was made: {expected}"
            assert not problem or not must, f"{id} was not made: {problem}"
            if not problem:
                self.check_new(id, env_claims)
        if problem:
            assert self.driver is None or id not in {view.id for view in self.driver.enforcer.containers()}, (
                "a refused container leaves a trace"
            )
            assert before.keys() == self.runtime.boxes.keys()
        elif finish:
            await self.runtime.finish(id)
        return problem

    def in_the_way(self, env_claims: dict[str, set[int]], pod: str) -> bool:
        """Return whether some container may prevent the creation of a new one."""
        for box in self.runtime.boxes.values():
            if box.env_claims.keys() & env_claims.keys() and box.pod != pod:
                return True
            alone = set().union(*(cpus for uid, cpus in env_claims.items() if uid not in box.env_claims))
            stays = self.model.compute_desired(box.env_claims) is None
            include_unconfirmed = self.runtime.is_stubborn(box.id) or (stays and not self.runtime.age.pushes)
            # Where it is not known what another one has, it may have anything.
            if alone and (
                include_unconfirmed or ((stays or not box.created) and alone & self.runtime.cpus(box.id))
            ):
                return True
        # A claim belongs to the first pod that used it until the sandbox of that is gone.
        return any(self.users.get(uid, pod) != pod for uid in env_claims)

    @property
    def users(self) -> dict[str, str]:
        """Return the pods that use claims, as far as the driver knows; only decides whether another pod
        may be refused.
        """
        if self.driver is None:
            return {}
        owners = cast(NriEnforcer, self.driver.enforcer).container_table.owners
        return {uid: pod.removeprefix("uid-") for uid, pod in owners.items()}

    def check_new(self, id: str, env_claims: dict[str, set[int]]) -> None:
        desired = self.model.compute_desired(env_claims)
        if desired:
            assert self.runtime.cpus(id) == desired, f"{id} begins on {self.runtime.boxes[id].cpus}"

    # -- the machine

    def _set_machine(self, topology: Topology) -> None:
        """Change all files of the machine at once."""
        self._machines += 1
        place = self.root / f"host-{self._machines}"
        write_sysfs(topology, place)
        link = self.root / "host.new"
        link.symlink_to(place)
        os.replace(link, self.root / "host")

    async def switch(self, off: set[int]) -> None:
        topology = switch_off(self.whole, CpuSet(off)) if off else self.whole
        self._set_machine(topology)
        self.model.online = set(topology.all)
        self.spoken = self.runtime.answers
        if self.driver is not None:
            driver = self.driver
            await self.until(lambda: set(driver.topology.all) == self.model.online, lambda: "hotplug")

    # -- files

    def path(self, uid: str) -> Path:
        return self.settings.cdi / f"dra.k8s.io-cpu_claim-{uid}.json"

    def lose_file(self, uid: str) -> None:
        self.path(uid).unlink()
        del self.model.files[uid]

    def damage_file(self, uid: str) -> None:
        self.path(uid).write_bytes(self.path(uid).read_bytes()[:20])
        self.model.files[uid] = set(DAMAGED)

    def alter_file(self, uid: str, cpus: set[int]) -> None:
        """Write a CDI file as another driver would, with other CPUs or for its own claim."""
        env = f"DRA_CPUSET_{uid}={CpuSet(cpus)}"
        tree = {
            "cdiVersion": "0.8.0",
            "kind": "dra.k8s.io/cpu",
            "devices": [{"name": f"claim-{uid}", "containerEdits": {"env": [env]}}],
        }
        self.settings.cdi.mkdir(parents=True, exist_ok=True)
        self.path(uid).write_text(json.dumps(tree))
        self.model.files[uid] = set(cpus)

    def lose_record(self, *, damage: bool = False) -> None:
        record = self.settings.checkpoint_path
        if damage and record.exists():
            record.write_bytes(record.read_bytes()[:-10])
        else:
            record.unlink(missing_ok=True)
        self.model.amnesia = True

    # -- checks

    async def check(self) -> None:
        """Check all guarantees, as soon as they are due."""
        assert not self.runtime.wrongs, self.runtime.wrongs
        self.check_files()
        if self.driver is None:
            return
        runtime = self.runtime
        if self.linked and runtime.synchronized != self.synchronized:
            self.synchronized = runtime.synchronized
            self.record_failure()
        self.check_cpu_state()
        if not self.linked:
            return
        if runtime.age.pushes:
            if not runtime.refuses and runtime.slow < LIMIT:
                await self.until(lambda: not self.misplaced() and not self.refused(), self.misplaced)
        elif runtime.answers > self.spoken:
            self.spoken = runtime.answers
            assert runtime.refuses or not self.misplaced(), self.misplaced()

    def record_failure(self) -> None:
        """Note that all containers were checked: some may have other CPUs than their claims."""
        assert self.driver is not None
        model, allocations = self.model, self.driver.state.allocations
        model.conflicts = {}
        for env_claims in self.runtime.env_claims:
            for uid, cpus in env_claims.items():
                if uid in model.assigned and model.assigned[uid] != cpus:
                    more = set(allocations[uid].contested) - model.contested.get(uid, set())
                    assert more <= set().union(*(other.get(uid, set()) for other in self.runtime.env_claims))
                    model.conflicts[uid] = more

    def misplaced(self) -> list[str]:
        """Return the containers that have wrong CPUs."""
        found = []
        for box in self.runtime.boxes.values():
            desired = self.model.compute_desired(box.env_claims)
            offline_allocated = box.id in self.runtime.failing or (box.astray and not self.runtime.age.pushes)
            if box.created and desired is not None and not offline_allocated:
                has = set(CpuSet.parse(box.cpus))
                if has != desired:
                    found.append(f"{box.id} is on {box.cpus or 'all'}, not on {CpuSet(desired)}")
        return found

    def refused(self) -> bool:
        """Return whether the driver has pending updates that can be applied."""
        assert self.driver is not None
        return any(
            fault.reason is PinFaultReason.REFUSED and not self.runtime.is_stubborn(fault.container)
            for fault in self.driver.enforcer.faults()
        )

    def check_cpu_state(self) -> None:
        assert self.driver is not None
        state, model = self.driver.state, self.model
        assert {
            uid: set(allocation.assigned) for uid, allocation in state.allocations.items()
        } == model.assigned
        assert {
            uid for uid, allocation in state.allocations.items() if allocation.disputed
        } == model.in_dispute
        assert {uid: set(h.cpus) for uid, h in state.allocations.items()} == {
            uid: model.cpus(uid) for uid in model.assigned
        }
        assert set(state.shared) == model.shared
        peaceful = [uid for uid in model.assigned if uid not in model.in_dispute]
        for uid in peaceful:
            assert not any(uid != other and model.cpus(uid) & model.cpus(other) for other in model.assigned)
            assert not model.cpus(uid) & model.shared

    def check_files(self) -> None:
        files, faults = read_files(self.settings.cdi)
        assert not faults
        seen = {uid: set(DAMAGED) if file.fault else set(file.cpus) for uid, file in files.items()}
        assert seen == self.model.files


def number(uid: str) -> int:
    return int(uid.rpartition("-")[2])


__all__ = ["WHOLE", "AllocationSpec", "RuntimeVersion", "StatefulHarness", "number", "uid_of"]
