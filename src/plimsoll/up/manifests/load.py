"""Loading of files into a running cluster; idempotent.

`load` creates new objects with the status they have in the files; existing objects are applied as manifests
and keep their status. Files may be in any order. A rejected object is reported in one line with file and
object, and the others are still loaded.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from plimsoll.client import Client
from plimsoll.client.endpoints import NAMESPACES, SERVICE_ACCOUNTS, Endpoint
from plimsoll.errors import ApiError, InputError
from plimsoll.tools.cluster_state.manifests import ParsedObject
from plimsoll.up.manifests.apply import Applier, Tree, metadata_of, name_of, namespace_of
from plimsoll.up.manifests.order import (
    ACCOUNTS,
    WAITING,
    arrange,
    missing_accounts,
    missing_namespaces,
    rank_of,
)
from plimsoll.up.manifests.restore import (
    FLEETING,
    SIMULATED,
    claim_status,
    describe,
    is_dumped,
    owners,
    restored,
)

_log = logging.getLogger("plimsoll.manifests")

MANAGER = "plimsoll-up"
_AT_ONCE = 32
Tick = Callable[[int, int], None]


@dataclass(slots=True)
class LoadResult:
    """Result of loading files: created, rejected and skipped objects."""

    new: int = 0
    known: int = 0  #: existed before
    problems: list[str] = field(default_factory=list)  #: rejected: file, object and reason
    skipped: Counter[str] = field(default_factory=Counter)  #: number of skipped objects by kind

    @property
    def all(self) -> int:
        return self.new + self.known

    def lines(self, most: int = 5) -> list[str]:
        """Return the messages to print after the count."""
        found = self.problems[:most]
        if len(self.problems) > most:
            found.append(f"and {len(self.problems) - most} more rejected: see the log")
        if self.skipped:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.skipped.items()))
            found.append(f"skipped: {kinds}")
        return found


async def load(
    client: Client,
    found: Iterable[ParsedObject],
    own: Collection[str] = (),
    tick: Tick = lambda done, whole: None,
) -> LoadResult:
    """Load objects; `own` are nodes that have agents and publish their own devices."""
    return await _Load(client, list(found), own, tick).run()


class _Load:
    def __init__(
        self, client: Client, found: Sequence[ParsedObject], own: Collection[str], tick: Tick
    ) -> None:
        self._client = client
        self._applier = Applier(client, MANAGER)
        self._found = found
        self._own = own
        self._tick = tick
        self._loaded = LoadResult()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._claims = {
            (namespace_of(each.tree), each.name) for each in found if each.kind == "ResourceClaim"
        }
        #: Old UID -> new UID, and pods by namespace and name.
        self._uids: dict[str, str] = {}
        self._pods: dict[tuple[str, str], str] = {}
        self._fresh: list[ParsedObject] = []

    async def run(self) -> LoadResult:
        wanted = [each for each in self._found if self._is_wanted(each)]
        for name, labels in missing_namespaces(wanted).items():
            await self._ensure(NAMESPACES, {"metadata": {"name": name, "labels": labels}}, "")
        accounts = missing_accounts(wanted)
        done = 0
        resumed = False
        for group in arrange(wanted):
            rank = rank_of(group[0].tree)
            if accounts and rank >= ACCOUNTS:  # after the namespaces of the files
                for namespace, name in accounts:
                    await self._ensure(SERVICE_ACCOUNTS, {"metadata": {"name": name}}, namespace)
                accounts = []
            if rank == WAITING:
                resumed = True
                await self._resume_claims()
            await asyncio.gather(*map(self._load_object, group))
            done += len(group)
            self._tick(done, len(wanted))
        if not resumed:
            await self._resume_claims()
        await asyncio.gather(*(self._restore_owners(each) for each in self._fresh))
        return self._loaded

    def _is_wanted(self, each: ParsedObject) -> bool:
        spec = each.tree.get("spec")
        if each.kind in FLEETING:
            self._loaded.skipped[each.kind] += 1
            return False
        if each.kind == "ResourceSlice" and isinstance(spec, dict) and spec.get("nodeName") in self._own:
            self._loaded.skipped["ResourceSlice of nodes that publish their own"] += 1
            return False
        return True

    async def _ensure(self, endpoint: Endpoint, tree: Tree, namespace: str) -> None:
        """Create an object that the files do not include, unless it exists."""
        try:
            await self._client.create(endpoint, tree, namespace)
        except ApiError as error:
            if error.code != 409:
                self._loaded.problems.append(f"{endpoint.plural} {name_of(tree)}: {error}")

    async def _load_object(self, each: ParsedObject) -> None:
        tree = restored(each.tree, self._claims)
        if each.kind == "Node" and each.name in self._own:
            tree.pop("status", None)
            annotations = tree["metadata"].get("annotations") or {}
            tree["metadata"]["annotations"] = {k: v for k, v in annotations.items() if k != SIMULATED}
        if each.kind == "ResourceClaim":
            tree.pop("status", None)  # restored when its pods exist
        async with self._slots:
            try:
                await self._apply(each, tree)
            except InputError as error:
                self._reject(each, error)

    async def _apply(self, each: ParsedObject, tree: Tree) -> None:
        if not name_of(tree):
            raise InputError("metadata.name: required, to recognize the object at the next start")
        try:
            endpoint = await self._applier.endpoint_of(tree)
        except InputError:
            if not is_dumped(each.tree):
                raise
            self._loaded.skipped[f"{each.tree.get('apiVersion')} {each.kind} (not served)"] += 1
            return
        namespace = namespace_of(tree)
        before = await self._get_existing(endpoint, name_of(tree), namespace)
        if before is not None:
            tree.pop("status", None)
        written = await self._applier.apply(tree)
        self._note(each, written, is_new=before is None)

    async def _get_existing(self, endpoint: Any, name: str, namespace: str) -> Tree | None:
        try:
            return await self._client.get(endpoint, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def _note(self, each: ParsedObject, written: Tree, *, is_new: bool) -> None:
        uid = str(metadata_of(written).get("uid") or "")
        old = str(metadata_of(each.tree).get("uid") or "")
        if old:
            self._uids[old] = uid
        if each.kind == "Pod":
            self._pods[namespace_of(each.tree), each.name] = uid
        if is_new:
            self._loaded.new += 1
            self._fresh.append(each)
        else:
            self._loaded.known += 1

    async def _resume_claims(self) -> None:
        """Restore the allocations and reservations of claims."""
        await asyncio.gather(
            *(self._resume_claim(each) for each in self._fresh if each.kind == "ResourceClaim")
        )

    async def _resume_claim(self, each: ParsedObject) -> None:
        status = claim_status(each.tree, self._pods)
        if status is None:
            return
        async with self._slots:
            try:
                await self._applier.apply_status({**each.tree, "status": status})
            except InputError as error:
                self._reject(each, error)

    async def _restore_owners(self, each: ParsedObject) -> None:
        """Restore the owner references of an object."""
        found = owners(each.tree, self._uids)
        if not found:
            return
        async with self._slots:
            try:
                endpoint = await self._applier.endpoint_of(each.tree)
                patch = {"metadata": {"ownerReferences": found}}
                await self._client.patch(endpoint, each.name, patch, namespace_of(each.tree))
            except ApiError as error:
                if error.code != 404:
                    self._reject(each, error)

    def _reject(self, each: ParsedObject, error: InputError) -> None:
        text = " ".join(str(error).split())
        problem = f"{each.where}: {describe(each.tree)}: {text}"[:500]
        self._loaded.problems.append(problem)
        _log.warning("rejected: %s", problem)
