"""A process that holds a runtime, to be killed: `python -m tests.unit.node.runtime.agent ROOT CGROUPS COUNT`.

Starts containers one after the other in the directory ROOT, saying so line by line, and then waits.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from plimsoll.node.cgroups import open_cgroups
from plimsoll.node.layout import Layout
from plimsoll.node.runtime import ProcessRuntime
from plimsoll.protocols.cdi import CdiCache

from .runtime_harness import a_pod, shell


async def main(root: Path, cgroups: str, count: int) -> None:
    tree = open_cgroups(cgroups or "plimsoll-test", want="auto" if cgroups else "plan")
    tree.set_up()
    layout = Layout(root)
    runtime = ProcessRuntime(layout, tree, CdiCache([layout.cdi]))
    await runtime.start(lambda uid: None)
    for number in range(count):
        uid = f"pod-{number % 3}"
        id = f"c{number}"
        spec = shell(f"echo {id}; read line < {root}/go 2>/dev/null; exit {number % 50}", id=id, pod=uid)
        for fault in (
            await runtime.run_sandbox(a_pod(uid)),
            await runtime.create(spec),
            await runtime.start_container(id),
        ):
            assert fault is None, fault
        found = next(state for state in runtime.containers() if state.id == id)
        sys.stdout.write(f"{id} {found.pid}\n")
        sys.stdout.flush()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
