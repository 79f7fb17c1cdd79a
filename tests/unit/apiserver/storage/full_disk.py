"""A process that writes until no file may grow any more, and goes on when there is room again.

    python -m tests.unit.apiserver.storage.full_disk FILE

Prints what it saw, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from pathlib import Path
from typing import Any

from plimsoll.apiserver.storage import ObjectKey, Store
from plimsoll.errors import StoreError


async def write_until_full(store: Store) -> tuple[dict[str, int], int, str]:
    """Return the acknowledged writes, the revision that was not acknowledged, and the error."""
    acknowledged: dict[str, int] = {}
    for number in range(10_000):
        key = ObjectKey("pods", "", f"p{number % 50}")
        stored = store.get(key)
        tree = {"padding": "x" * 3000}
        stored = store.update(key, tree, stored.revision) if stored else store.create(key, tree)
        try:
            await store.wait_durable(stored.revision)
        except StoreError as error:
            return acknowledged, stored.revision, str(error)
        acknowledged[key.name] = stored.revision
    raise AssertionError("the disk never became full")


async def scenario(path: Path) -> dict[str, Any]:
    store = Store.open(path)
    cursor = store.watch("pods", 0)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, hard))
    acknowledged, failed, reason = await write_until_full(store)
    seen = {stored.key.name: stored.revision for stored in store.list("pods").items}
    again = 0
    for _ in range(5):  # it stays full, and says so each time
        try:
            await store.wait_durable(
                store.create(ObjectKey("pods", "", "late"), {"padding": "y" * 20_000}).revision
            )
        except StoreError:
            again += 1
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    late = store.create(ObjectKey("pods", "", "late"), {"padding": "y" * 20_000}).revision
    await store.wait_durable(late)
    events = [event.revision for event in cursor.take(100_000)]
    await store.close()
    return {
        "acknowledged": acknowledged,
        "failed": failed,
        "reason": reason,
        "seen": seen,
        "again": again,
        "late": late,
        "events": events,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(scenario(Path(sys.argv[1])))))
