"""Plugins that connect, disconnect, hang and send garbage, compared with naive expectations."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll.node.containers import RuntimeFault
from plimsoll.node.hooks import AdjustedContainer
from plimsoll.protocols.messages import nri
from plimsoll.protocols.mux import encode_frame
from plimsoll.protocols.nri import NriEvent, NriPlugin, edits
from plimsoll.protocols.ttrpc import TtrpcFault
from tests import virtual_time
from tests.coroutines import run_by
from tests.sizes import examples
from tests.unit.node.nri.fixtures import POD, RESOURCES, SPEC, FakeRuntime, fake_runtime, held, state
from tests.unit.protocols.nri.responses import cpu_resources, pin
from tests.waiting import until

KINDS = ["mark", "pin", "error", "hang", "die", "validator", "dead validator", "wild"]


@dataclass(eq=False)
class ConnectedPlugin:
    """Plugin in the test, with its task."""

    kind: str
    index: str
    name: str
    task: asyncio.Task[Any] | None = None
    plugin: NriPlugin | None = None

    async def on_create(
        self, request: nri.CreateContainerRequest
    ) -> nri.CreateContainerResponse | TtrpcFault | None:
        if self.kind == "mark":
            return edits.creation(edits.adjustment(env={f"BY_{self.name}": self.index}))
        if self.kind == "pin":
            return pin("1")
        if self.kind == "error":
            return TtrpcFault(2, f"{self.name} says no")
        if self.kind == "wild":
            return pin("not a set")
        if self.kind in ("hang", "dead validator"):
            await asyncio.sleep(3600)
        if self.kind == "die":
            assert self.task is not None
            self.task.cancel()
            await asyncio.sleep(3600)
        return None

    @property
    def is_validator(self) -> bool:
        return "validator" in self.kind

    @property
    def falls(self) -> bool:
        """Return whether the plugin disconnects before the end of a creation."""
        return self.kind in ("hang", "die", "dead validator")


class PluginSet:
    """Plugins that should be connected, and the expected result of a creation."""

    def __init__(self, here: FakeRuntime) -> None:
        self.here = here
        self.guests: list[ConnectedPlugin] = []
        self.count = 0

    async def come(self, kind: str, index: int) -> None:
        self.count += 1
        guest = ConnectedPlugin(kind, f"{index:02}", f"g{self.count}")
        handlers: dict[NriEvent, Any] = {NriEvent.CREATE_CONTAINER: guest.on_create}
        if guest.is_validator:
            handlers[NriEvent.VALIDATE_CONTAINER_ADJUSTMENT] = _nothing
        guest.plugin = NriPlugin(guest.name, guest.index, handlers, socket=self.here.server.socket)
        guest.task = asyncio.create_task(guest.plugin.run())
        self.guests.append(guest)
        await self.settle()

    async def go(self, which: int) -> None:
        if self.guests:
            guest = self.guests.pop(which % len(self.guests))
            await _end(guest)
        await self.settle()

    def in_order(self) -> list[ConnectedPlugin]:
        return sorted(self.guests, key=lambda guest: guest.index)

    async def settle(self) -> None:
        want = [guest.name for guest in self.in_order()]
        await until(lambda: [plugin.base for plugin in self.here.server.plugins()] == want)

    def expected(self) -> tuple[str, set[ConnectedPlugin]]:
        """Return the expected result of a creation, and the plugins that are closed by it."""
        fallen: set[ConnectedPlugin] = set()
        pinned = ""
        for guest in self.in_order():
            if guest.falls:
                fallen.add(guest)
            elif guest.kind == "error":
                return f"{guest.name} says no", fallen
            elif guest.kind == "wild":
                return f'plugin "{guest.index}-{guest.name}": cpus', fallen
            elif guest.kind == "pin":
                if pinned:
                    return f'plugins "{guest.index}-{guest.name}" and "{pinned}" both', fallen
                pinned = f"{guest.index}-{guest.name}"
        if any(guest.is_validator for guest in fallen):
            return "validator plugin", fallen
        return "ok", fallen

    async def create(self) -> None:
        self.count += 1
        want, fallen = self.expected()
        marks = {f"BY_{g.name}": g.index for g in self.guests if g.kind == "mark"}
        pinned = any(g.kind == "pin" for g in self.guests)
        spec = replace(SPEC, id=f"c{self.count}")
        result = await self.here.server.create(POD, spec, RESOURCES)
        if want == "ok":
            assert isinstance(result, AdjustedContainer), (result, self.guests)
            assert result.env == marks
            assert result.resources.cpus == ("1" if pinned else "")
            await self.here.server.stopped(POD, state(spec))
            await self.here.server.removed(POD, state(spec))
        else:
            assert isinstance(result, RuntimeFault), (want, result)
            assert result.message.startswith(want)
        for guest in fallen:
            self.guests.remove(guest)
            await _end(guest)
        await self.settle()

    async def update(self, which: int) -> None:
        living = [guest for guest in self.guests if guest.plugin is not None]
        if living:
            plugin = living[which % len(living)].plugin
            assert plugin is not None
            before = len(self.here.applied)
            assert await plugin.update_containers([edits.update("x", cpu_resources("2"))]) == ()
            assert len(self.here.applied) == before + 1


async def _nothing(request: Any) -> None:
    return None


async def _end(guest: ConnectedPlugin) -> None:
    assert guest.task is not None
    guest.task.cancel()
    await asyncio.gather(guest.task, return_exceptions=True)


async def _noise(here: FakeRuntime, data: bytes) -> None:
    """Open a connection that sends no valid registration."""
    reader, writer = await asyncio.open_unix_connection(str(here.server.socket))
    writer.write(data)
    writer.write_eof()
    await reader.read()
    writer.close()


actions = st.lists(
    st.tuples(st.just("come"), st.sampled_from(KINDS), st.integers(0, 99))
    | st.tuples(st.just("go"), st.integers(0, 9))
    | st.tuples(st.just("create"))
    | st.tuples(st.just("update"), st.integers(0, 9))
    | st.tuples(
        st.just("noise"),
        st.binary(max_size=60)
        | st.builds(encode_frame, st.integers(0, 3), st.binary(max_size=60))
        | st.builds(
            lambda channel, kind, rest: encode_frame(
                channel, b"\0\0\0\x05\0\0\0\x01" + bytes([kind, 0]) + rest
            ),
            st.integers(1, 2),
            st.integers(0, 4),
            st.binary(min_size=5, max_size=5),
        ),
    ),
    max_size=14,
)


@settings(deadline=None, max_examples=examples(15))
@given(actions)
def test_misbehaving_plugins_never_leave_a_container_undecided(
    script: list[tuple[Any, ...]],
) -> None:
    async def scenario() -> None:
        async with fake_runtime() as here:
            here.containers = {"x": held("x")}
            party = PluginSet(here)
            try:
                for name, *arguments in script:
                    if name == "noise":
                        await _noise(here, *arguments)
                    else:
                        await getattr(party, name)(*arguments)
                await party.create()
            finally:
                for guest in party.guests:
                    await _end(guest)
            await until(lambda: here.server.plugins() == ())
            assert here.server.known.keys() <= {"x"}
            assert here.server.pending == {}

    virtual_time.run(scenario())


@run_by(virtual_time.run_scenario)
async def test_events_and_plugins_at_once() -> None:
    """Concurrent creations, exits and updates, while plugins connect and disconnect: none of them blocks."""
    async with fake_runtime() as here:
        here.containers = {"x": held("x")}

        async def live(number: int) -> None:
            for turn in range(6):
                spec = replace(SPEC, id=f"c{number}-{turn}")
                made = await here.server.create(POD, spec, RESOURCES)
                if isinstance(made, AdjustedContainer):
                    await here.server.created(POD, state(spec))
                    await here.server.update(POD, state(spec), RESOURCES)
                    await here.server.stopped(POD, state(spec))
                await here.server.removed(POD, state(spec))

        async def visit(number: int) -> None:
            for _ in range(3):
                plugin = NriPlugin(
                    f"p{number}",
                    f"{number:02}",
                    dict.fromkeys(NriEvent, _nothing),
                    socket=here.server.socket,
                    events=NriEvent.CREATE_CONTAINER.bit | NriEvent.STOP_CONTAINER.bit,
                )
                task = asyncio.create_task(plugin.run())
                await until(lambda plugin=plugin: plugin.synchronized)  # type: ignore[misc]
                await plugin.update_containers([edits.update("x", cpu_resources("1"))])
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        await asyncio.gather(*(live(n) for n in range(5)), *(visit(n) for n in range(4)))
        await until(lambda: here.server.plugins() == ())
        assert here.server.pending == {}
        assert here.server.known.keys() <= {"x"}
