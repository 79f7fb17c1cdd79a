"""Merging of the adjustments of several plugins for one container, in plugin order. Pure.

`Owners` tracks which plugin has set which field. Two plugins that set the same field are a conflict, with
upstream's message. A name that starts with `-` removes something, after which the same plugin may set it
again.

DIFF: an annotation that a later plugin removes is gone; upstream sends both the value and its removal, and
the result is arbitrary (test_a_removed_annotation_is_gone). DIFF: a pids limit is honored in updates;
upstream does not read it there, and lets every update of such a container conflict
(test_pids_count_in_updates).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any

from plimsoll.api.go_text import quote_go
from plimsoll.node.nri import checks
from plimsoll.protocols.messages import nri


class NriField(IntEnum):
    """Fields a plugin can set, under the names used in conflict messages."""

    Annotations = 1
    Mounts = 2
    OciHooks = 3
    Devices = 4
    CdiDevices = 5
    Env = 6
    Args = 7
    MemLimit = 8
    MemReservation = 9
    MemSwapLimit = 10
    MemKernelLimit = 11
    MemTCPLimit = 12
    MemSwappiness = 13
    MemDisableOomKiller = 14
    MemUseHierarchy = 15
    CPUShares = 16
    CPUQuota = 17
    CPUPeriod = 18
    CPURealtimeRuntime = 19
    CPURealtimePeriod = 20
    CPUSetCPUs = 21
    CPUSetMems = 22
    PidsLimit = 23
    HugepageLimits = 24
    BlockioClass = 25
    RdtClass = 26
    CgroupsUnified = 27
    CgroupsPath = 28
    OomScoreAdj = 29
    Rlimits = 30


_MEMORY = {
    "limit": NriField.MemLimit,
    "reservation": NriField.MemReservation,
    "swap": NriField.MemSwapLimit,
    "kernel": NriField.MemKernelLimit,
    "kernel_tcp": NriField.MemTCPLimit,
    "swappiness": NriField.MemSwappiness,
    "disable_oom_killer": NriField.MemDisableOomKiller,
    "use_hierarchy": NriField.MemUseHierarchy,
}
_CPU = {
    "shares": NriField.CPUShares,
    "quota": NriField.CPUQuota,
    "period": NriField.CPUPeriod,
    "realtime_runtime": NriField.CPURealtimeRuntime,
    "realtime_period": NriField.CPURealtimePeriod,
}
_SETS = {"cpus": NriField.CPUSetCPUs, "mems": NriField.CPUSetMems}
_CLASSES = {"blockio_class": NriField.BlockioClass, "rdt_class": NriField.RdtClass}


class Owners:
    """Plugins that have set the fields of each container; `-NAME` is a plugin that has removed the value."""

    def __init__(self) -> None:
        self._owners: dict[tuple[str, NriField, str | None], str] = {}

    def claim(self, container: str, field: NriField, plugin: str, part: str | None = None) -> str | None:
        """Make a plugin the owner of a field; return the conflict if it is taken."""
        owner = self._owners.get((container, field, part))
        if owner is not None and owner != f"-{plugin}":
            what = field.name if part is None else f"{field.name} {part}"
            return (
                f"plugins {quote_go(plugin)} and {quote_go(owner.removeprefix('-'))} both tried to set {what}"
            )
        self._owners[container, field, part] = plugin
        return None

    def clear(self, container: str, field: NriField, plugin: str, part: str | None = None) -> None:
        """Let a plugin set what another has set. Fields without an owner stay free for all."""
        if (container, field, part) in self._owners:
            self._owners[container, field, part] = f"-{plugin}"

    def message(self) -> nri.OwningPlugins:
        message = nri.OwningPlugins()
        for (container, field, part), plugin in self._owners.items():
            owners = message.owners[container]
            if part is None:
                owners.simple[field] = plugin
            else:
                owners.compound[field].owners[part] = plugin
        return message

    def claim_resources(self, container: str, adjustment: nri.LinuxResources, plugin: str) -> str | None:
        """Claim all fields that these resources set; return the first conflict."""
        for field, part in _fields_of(adjustment):
            if conflict := self.claim(container, field, plugin, part):
                return conflict
        return None


def _fields_of(adjustment: nri.LinuxResources) -> Iterable[tuple[NriField, str | None]]:
    yield from ((field, None) for name, field in _MEMORY.items() if adjustment.memory.HasField(name))
    yield from ((field, None) for name, field in _CPU.items() if adjustment.cpu.HasField(name))
    yield from ((field, None) for name, field in _SETS.items() if getattr(adjustment.cpu, name))
    yield from ((NriField.HugepageLimits, limit.page_size) for limit in adjustment.hugepage_limits)
    yield from ((NriField.CgroupsUnified, key) for key in sorted(adjustment.unified))
    yield from ((field, None) for name, field in _CLASSES.items() if adjustment.HasField(name))
    if adjustment.HasField("pids"):
        yield NriField.PidsLimit, None


def set_resources(target: nri.LinuxResources, adjustment: nri.LinuxResources) -> None:
    """Set the requested fields in `target`; others are unchanged."""
    for part, names in (("memory", _MEMORY), ("cpu", _CPU)):
        asked: Any = getattr(adjustment, part)
        for name in names:
            if asked.HasField(name):
                getattr(getattr(target, part), name).CopyFrom(getattr(asked, name))
    for name in _SETS:
        if getattr(adjustment.cpu, name):
            setattr(target.cpu, name, getattr(adjustment.cpu, name))
    for limit in adjustment.hugepage_limits:
        held = next((h for h in target.hugepage_limits if h.page_size == limit.page_size), None)
        (target.hugepage_limits.add() if held is None else held).CopyFrom(limit)
    for key, value in adjustment.unified.items():
        target.unified[key] = value
    for name in _CLASSES:
        if adjustment.HasField(name):
            getattr(target, name).CopyFrom(getattr(adjustment, name))
    if adjustment.HasField("pids"):
        target.pids.CopyFrom(adjustment.pids)


class ContainerUpdates:
    """Updates of existing containers, requested in response to an event.

    `subject` is the container of the event: one that is being created cannot be updated; one that is being
    updated starts with the resources in `requested`.
    """

    def __init__(
        self, owners: Owners, subject: str = "", requested: nri.LinuxResources | None = None
    ) -> None:
        self._owners = owners
        self._creating = subject if requested is None else ""
        self.resources: dict[str, nri.LinuxResources] = {}
        if requested is not None:
            self.resources[subject] = requested
        self._asked: dict[str, bool] = {}

    def add(self, updates: Iterable[nri.ContainerUpdate], plugin: str) -> str | None:
        """Add a plugin's updates; return the first conflict that must not be ignored."""
        for update in updates:
            container = update.container_id
            if self._creating and container == self._creating:
                return f"plugin {quote_go(plugin)} asked update of {quote_go(container)} during creation"
            ignored = update.ignore_failure
            self._asked[container] = self._asked.get(container, True) and ignored
            adjustment = update.linux.resources
            fault = checks.resources_fault(adjustment)
            if fault is not None:
                fault = f"plugin {quote_go(plugin)} asked update of {quote_go(container)}: {fault}"
            else:
                fault = self._owners.claim_resources(container, adjustment, plugin)
            if fault is None:
                set_resources(self.resources.setdefault(container, nri.LinuxResources()), adjustment)
            elif not ignored:
                return fault
        return None

    def messages(self) -> list[nri.ContainerUpdate]:
        return [
            nri.ContainerUpdate(
                container_id=container,
                linux=nri.LinuxContainerUpdate(resources=self.resources.get(container)),
                ignore_failure=ignored,
            )
            for container, ignored in self._asked.items()
        ]


class ContainerCreation:
    """Container being created. `container` is what the next plugin receives, `adjust` the difference."""

    def __init__(self, container: nri.Container) -> None:
        self.container = container
        self.adjust = nri.ContainerAdjustment()
        self.owners = Owners()
        self.changes = ContainerUpdates(self.owners, container.id)

    def add(self, response: nri.CreateContainerResponse, plugin: str) -> str | None:
        """Add a plugin's response; return why the container cannot be created with it."""
        if response.HasField("adjust"):
            if fault := checks.adjustment_fault(response.adjust):
                return f"plugin {quote_go(plugin)}: {fault}"
            if conflict := self._adjust(response.adjust, plugin):
                return conflict
        return self.changes.add(response.update, plugin)

    def _adjust(self, adjustment: nri.ContainerAdjustment, plugin: str) -> str | None:
        return (
            self._annotations(adjustment, plugin)
            or self._mounts(adjustment, plugin)
            or self._env(adjustment, plugin)
            or self._args(adjustment, plugin)
            or self._devices(adjustment, plugin)
            or self._resources(adjustment, plugin)
            or self._oom_score(adjustment, plugin)
            or self._cdi(adjustment, plugin)
        )

    def _claim(self, field: NriField, plugin: str, part: str | None = None) -> str | None:
        return self.owners.claim(self.container.id, field, plugin, part)

    def _clear(self, field: NriField, plugin: str, part: str | None = None) -> None:
        self.owners.clear(self.container.id, field, plugin, part)

    def _annotations(self, adjustment: nri.ContainerAdjustment, plugin: str) -> str | None:
        for removal in sorted(key for key in adjustment.annotations if key.startswith("-")):
            key = removal[1:]
            self._clear(NriField.Annotations, plugin, key)
            self.adjust.annotations.pop(key, None)
            self.container.annotations.pop(key, None)
            self.adjust.annotations[removal] = ""
        for key in sorted(key for key in adjustment.annotations if not key.startswith("-")):
            if conflict := self._claim(NriField.Annotations, plugin, key):
                return conflict
            self.adjust.annotations[key] = adjustment.annotations[key]
            self.container.annotations[key] = adjustment.annotations[key]
        return None

    def _mounts(self, adjustment: nri.ContainerAdjustment, plugin: str) -> str | None:
        removed = {m.destination[1:]: m for m in adjustment.mounts if m.destination.startswith("-")}
        added = [m for m in adjustment.mounts if not m.destination.startswith("-")]
        new = {m.destination for m in added}
        for destination in removed:
            self._clear(NriField.Mounts, plugin, destination)
        _filter(self.adjust.mounts, lambda m: m.destination not in removed)
        _filter(self.container.mounts, lambda m: m.destination not in removed and m.destination not in new)
        for mount in added:
            if conflict := self._claim(NriField.Mounts, plugin, mount.destination):
                return conflict
            self.adjust.mounts.append(mount)
        self.adjust.mounts.extend(m for destination, m in removed.items() if destination not in new)
        self.container.mounts.extend(added)
        return None

    def _devices(self, adjustment: nri.ContainerAdjustment, plugin: str) -> str | None:
        removed = {d.path[1:] for d in adjustment.linux.devices if d.path.startswith("-")}
        added = [d for d in adjustment.linux.devices if not d.path.startswith("-")]
        new = {d.path for d in added}
        for path in removed:
            self._clear(NriField.Devices, plugin, path)
        _filter(self.adjust.linux.devices, lambda d: d.path not in removed)
        _filter(self.container.linux.devices, lambda d: d.path not in removed and d.path not in new)
        for device in added:
            if conflict := self._claim(NriField.Devices, plugin, device.path):
                return conflict
            self.adjust.linux.devices.append(device)
        self.container.linux.devices.extend(added)
        return None

    def _env(self, adjustment: nri.ContainerAdjustment, plugin: str) -> str | None:
        removed = {v.key[1:]: v for v in adjustment.env if v.key.startswith("-")}
        added = [v for v in adjustment.env if not v.key.startswith("-")]
        new = {v.key for v in added}
        for key in removed:
            self._clear(NriField.Env, plugin, key)
        _filter(self.adjust.env, lambda v: v.key not in removed)
        env = [
            e for e in self.container.env if (key := e.partition("=")[0]) not in removed and key not in new
        ]
        for variable in added:
            if conflict := self._claim(NriField.Env, plugin, variable.key):
                return conflict
            self.adjust.env.append(variable)
        # A removal is passed on, so that a variable of the container itself is removed too.
        self.adjust.env.extend(v for key, v in removed.items() if key not in new)
        self.container.env[:] = [*env, *(f"{v.key}={v.value}" for v in added)]
        return None

    def _args(self, adjustment: nri.ContainerAdjustment, plugin: str) -> str | None:
        if not adjustment.args:
            return None
        args = list(adjustment.args)
        if args[0] == "":  # marks a plugin that intends to replace what others have set
            self._clear(NriField.Args, plugin)
            args = args[1:]
        if conflict := self._claim(NriField.Args, plugin):
            return conflict
        self.adjust.args[:] = args
        self.container.args[:] = args
        return None

    def _resources(self, adjustment: nri.ContainerAdjustment, plugin: str) -> str | None:
        resources = adjustment.linux.resources
        if conflict := self.owners.claim_resources(self.container.id, resources, plugin):
            return conflict
        set_resources(self.adjust.linux.resources, resources)
        set_resources(self.container.linux.resources, resources)
        return None

    def _oom_score(self, adjustment: nri.ContainerAdjustment, plugin: str) -> str | None:
        if not adjustment.linux.HasField("oom_score_adj"):
            return None
        if conflict := self._claim(NriField.OomScoreAdj, plugin):
            return conflict
        self.adjust.linux.oom_score_adj.CopyFrom(adjustment.linux.oom_score_adj)
        self.container.linux.oom_score_adj.CopyFrom(adjustment.linux.oom_score_adj)
        return None

    def _cdi(self, adjustment: nri.ContainerAdjustment, plugin: str) -> str | None:
        for device in adjustment.CDI_devices:
            if conflict := self._claim(NriField.CdiDevices, plugin, device.name):
                return conflict
            self.adjust.CDI_devices.append(device)
        return None


def _filter(messages: Any, wanted: Any) -> None:
    """Remove the elements of a repeated field that do not match."""
    kept = [message for message in messages if wanted(message)]
    if len(kept) < len(messages):
        del messages[:]
        messages.extend(kept)
