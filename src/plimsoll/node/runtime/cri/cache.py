"""Sandboxes and containers of a runtime as last seen.

Calls of the agent change the cache at once, and relists later. A relist that was requested before such a
change reports an older state: guarantees that it neither removes what was created meanwhile, nor brings back
what was removed, nor reverts the phase of a container.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from plimsoll.node.containers import ContainerInfo, ContainerPhase, SandboxInfo
from plimsoll.node.runtime.cri.container_status import CriContainer, CriSandbox

_ORDER = (ContainerPhase.CREATED, ContainerPhase.RUNNING, ContainerPhase.EXITED)


class RuntimeCache:
    """State of one runtime's sandboxes and containers."""

    def __init__(self) -> None:
        self.sandboxes: dict[str, CriSandbox] = {}
        self.containers: dict[str, CriContainer] = {}
        #: Number of the last change by ID; later than that of a relist: the relist is older.
        self._changes: dict[str, int] = {}
        self._last = 0

    # -- queries

    def latest_sandbox(self, uid: str) -> CriSandbox | None:
        """Return the newest sandbox of a pod."""
        return max(self.sandboxes_of(uid), key=_age, default=None)

    def sandboxes_of(self, uid: str) -> list[CriSandbox]:
        return [sandbox for sandbox in self.sandboxes.values() if sandbox.info.uid == uid]

    def containers_of(self, uid: str = "") -> list[CriContainer]:
        """Return the containers of a pod, or all, oldest first."""
        found = [each for each in self.containers.values() if not uid or each.info.pod == uid]
        return sorted(found, key=lambda each: (each.info.created_at, each.info.attempt))

    def sandbox_infos(self) -> list[SandboxInfo]:
        """Return the newest sandbox of each pod."""
        newest: dict[str, CriSandbox] = {}
        for sandbox in sorted(self.sandboxes.values(), key=_age):
            newest[sandbox.info.uid] = sandbox
        return [sandbox.info for sandbox in newest.values()]

    def replaced_sandboxes(self) -> list[str]:
        """Return the IDs of stopped sandboxes that a newer one has replaced and that have no containers."""
        used = {container.sandbox for container in self.containers.values()}
        return [
            sandbox.id
            for sandbox in self.sandboxes.values()
            if not sandbox.info.running
            and sandbox.id not in used
            and self.latest_sandbox(sandbox.info.uid) is not sandbox
        ]

    # -- changes of the agent

    def put_sandbox(self, sandbox: CriSandbox) -> None:
        self.sandboxes[sandbox.id] = sandbox
        self._note(sandbox.id)

    def drop_sandbox(self, id: str) -> None:
        self.sandboxes.pop(id, None)
        self._note(id)

    def put_container(self, container: CriContainer) -> None:
        """Add a container or its new state, unless it is older than the known one."""
        known = self.containers.get(container.info.id)
        if known is None or _rank(known.info) <= _rank(container.info):
            self.containers[container.info.id] = container
        self._note(container.info.id)

    def drop_container(self, id: str) -> None:
        self.containers.pop(id, None)
        self._note(id)

    def _note(self, id: str) -> None:
        self._last += 1
        self._changes[id] = self._last

    # -- relists

    def mark(self) -> int:
        """Return the number of the last change, before a relist is requested."""
        return self._last

    def apply(
        self,
        mark: int,
        listed: Collection[str],
        sandboxes: Iterable[CriSandbox],
        containers: Mapping[str, CriContainer],
    ) -> set[str]:
        """Apply a relist: all IDs, and what has changed; return the UIDs of the pods that changed."""
        changed: set[str] = set()
        for id in [id for id in (*self.sandboxes, *self.containers) if id not in listed]:
            if self._changes.get(id, 0) <= mark:
                sandbox, container = self.sandboxes.pop(id, None), self.containers.pop(id, None)
                changed |= {sandbox.info.uid} if sandbox is not None else set()
                changed |= {container.info.pod} if container is not None else set()
        for sandbox in sandboxes:
            if self._changes.get(sandbox.id, 0) <= mark and self.sandboxes.get(sandbox.id) != sandbox:
                self.sandboxes[sandbox.id] = sandbox
                changed.add(sandbox.info.uid)
        for id, container in containers.items():
            known = self.containers.get(id)
            if self._changes.get(id, 0) > mark or known == container:
                continue
            if known is None or _rank(known.info) <= _rank(container.info):
                self.containers[id] = container
                changed.add(container.info.pod)
        for id in [id for id, number in self._changes.items() if number <= mark]:
            del self._changes[id]
        return changed


def _age(sandbox: CriSandbox) -> tuple[float, int]:
    return sandbox.info.created_at, sandbox.attempt


def _rank(info: ContainerInfo) -> int:
    return _ORDER.index(info.phase)
