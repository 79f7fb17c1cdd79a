"""Commands in containers that are processes of this machine: for exec probes and hooks.

Owns `HostCommands`. A command gets the environment and the working folder of its container and runs in its
cgroup, so that it is limited and killed with it. Not here: mounts that only the container sees.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from plimsoll.node.containers import ContainerSpec
from plimsoll.node.pods.checks import Outcome

#: Joins the cgroups named first, up to `--`, then becomes the command.
_JOIN = 'while [ "$1" != "--" ]; do echo $$ > "$1" || exit 126; shift; done; shift; exec "$@"'
_LONGEST = 10 * 1024


class HostCommands:
    """Runs commands beside the process of a container."""

    def __init__(
        self,
        find: Callable[[str], ContainerSpec | None],
        join: Callable[[str, str], Sequence[Path]] = lambda pod, id: (),
    ) -> None:
        """`find`: a container by its id; `join`: the files by which a process joins its cgroups."""
        self._find = find
        self._join = join

    async def execute(self, id: str, command: Sequence[str], seconds: float) -> Outcome:
        spec = self._find(id)
        if spec is None:
            return Outcome(False, f"container {id} is not known")
        if not command:
            return Outcome(False, "there is no command")
        files = [str(path) for path in self._join(spec.pod, id)]
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh",
                "-c",
                _JOIN,
                "sh",
                *files,
                "--",
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env={"PATH": os.environ.get("PATH", os.defpath), **spec.env},
                cwd=spec.working_dir or None,
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            return Outcome(False, str(error))
        return await _finish(process, seconds)


async def _finish(process: asyncio.subprocess.Process, seconds: float) -> Outcome:
    assert process.stdout is not None
    output = b""
    try:
        async with asyncio.timeout(seconds):
            while chunk := await process.stdout.read(_LONGEST):
                output = (output + chunk)[:_LONGEST]
            code = await process.wait()
    except TimeoutError:
        return Outcome(False, f"command timed out after {seconds:g}s")
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(TimeoutError):  # whoever got away with the pipe is not waited for
                async with asyncio.timeout(1.0):
                    await process.communicate()
    text = output.decode(errors="replace").strip()
    return Outcome(code == 0, text or f"exit code {code}")
