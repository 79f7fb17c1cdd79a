"""Events of a case, beside the faults of requests: load, weather, faults of processes and objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from plimsoll.client.endpoints import NODES, RESOURCE_SLICES
from tests.simulation.faults import Dice, Weather
from tests.simulation.processes import LEASE, Supervised
from tests.simulation.workload import Mode

if TYPE_CHECKING:
    from tests.simulation.case import Case

#: About how many pods are created per second, and the share of them that is removed.
_CREATED, _REMOVED = (3.0, 8.0), 0.85


class Event(NamedTuple):
    """Something that happens at a time of a case."""

    at: float
    key: str
    run: Callable[[Dice], str]  #: returns what was done, or "" if nothing was
    fault: str = ""  #: kind of fault; load is none


def plan_events(case: Case) -> list[Event]:
    """Return the events of a case in order."""
    events = [*_load(case), *_weather(case), *_faults(case), *case.features.events()]
    return sorted(events, key=lambda each: (each.at, each.key))


def _load(case: Case) -> Iterator[Event]:
    admin, seconds = case.admin, case.seconds
    created = int(case.dice("load").between(*_CREATED) * seconds)
    for number in range(created):
        at = case.dice(f"create/{number}/at").random() * seconds
        yield Event(at, f"create/{number}", admin.create_pod)
    for number in range(int(_REMOVED * created)):
        at = case.dice(f"remove/{number}/at").between(0.15, 1) * seconds
        yield Event(at, f"remove/{number}", lambda dice: admin.remove_pod(dice, force=False))
    for number in range(int(4 * seconds) if case.nodes is None else 0):
        yield Event(number / 4 + 0.125, f"end/{number}", _finish_deletions(case))


def _finish_deletions(case: Case) -> Callable[[Dice], str]:
    return lambda dice: "; ".join(case.admin.finish_deletions())


def _weather(case: Case) -> Iterator[Event]:
    at, number = 1.0, 0
    # Some kinds only: a fault that needs many of one kind is not found where all are mixed.
    kinds = case.dice("weather").some(tuple(Weather))
    while at < case.seconds:
        dice = case.dice(f"weather/{number}")
        weather = dice.choice(kinds)
        yield Event(at, f"weather/{number}", _change_weather(case, weather))
        at += 1.5 * LEASE if weather is Weather.LEASE_LOST else dice.between(0.5, 2.5)
        number += 1


def _change_weather(case: Case, weather: Weather) -> Callable[[Dice], str]:
    def run(dice: Dice) -> str:
        case.faults.weather = weather
        victim = _leader(case, dice).process
        case.faults.victim = victim.name if victim is not None else ""
        return f"weather: {weather.value}"

    return run


def _faults(case: Case) -> Iterator[Event]:
    kinds: tuple[tuple[str, int, Callable[[Case], Action]], ...] = (
        ("scheduler killed", 5, _kill_scheduler),
        ("leader killed with its writes on their way", 4, _depose),
        ("scheduler stopped", 3, _stop_scheduler),
        ("scheduler paused", 3, _pause),
        ("scheduler suspended", 2, _suspend),
        ("clock jumped", 2, _jump),
        ("controllers killed", 2, _kill_controllers),
        ("server restarted", 3, _restart_server),
        ("history compacted", 4, _compact),
        ("watches cut", 4, _cut),
        ("watches held", 6, _hold),
        ("pod deleted by force", 6, _force),
        ("node cordoned", 2, _cordon),
    )
    if case.mode is Mode.CONTROL_PLANE:
        kinds += (("device tainted", 4, _taint),)
    if case.nodes is not None:
        kinds += tuple((name, weight, _same(action)) for name, weight, action in case.nodes.actions())
    dice = case.dice("faults")
    deck = [kind for kind in dice.some(kinds) for _ in range(kind[1])]
    pause = dice.choice((0.5, 1.2, 4.0))
    number, at = 0, 2.0
    while at < case.seconds:
        dice = case.dice(f"fault/{number}/kind")
        name, _, make = dice.choice(deck)
        yield Event(at, f"fault/{number}", make(case), name)
        at += dice.between(0.1, 2 * pause)
        number += 1


Action = Callable[[Dice], str]


def _same(action: Action) -> Callable[[Case], Action]:
    return lambda case: action


def _victim(case: Case, dice: Dice) -> Supervised:
    return dice.choice(case.schedulers)


def _leader(case: Case, dice: Dice) -> Supervised:
    """Return the scheduler that has the lease, or any."""
    leases = [
        each for each in case.api.list_trees("leases") if each["metadata"]["name"] == "plimsoll-scheduler"
    ]
    holders = {each["spec"].get("holderIdentity") for each in leases}
    for each in case.schedulers:
        if each.process is not None and each.process.name in holders:
            return each
    return _victim(case, dice)


def _depose(case: Case) -> Action:
    """Kill the leader; what it has sent arrives when another one leads, which may see little of the last."""

    def run(dice: Dice) -> str:
        leader = _leader(case, dice)
        if leader.process is None:
            return ""
        seconds = LEASE * dice.between(1.1, 2)
        if dice.random() < 0.7:
            case.network.hold_requests(leader.process.name, seconds)
        if dice.random() < 0.5:
            for stream in case.network.streams:
                if stream.process.name.startswith("scheduler") and stream.process is not leader.process:
                    stream.hold(seconds)
        case.loop.call_at_global(case.loop.now + dice.random(), leader.kill, seconds)
        return f"kill {leader.name}, and hold what it has sent for {seconds:.2f} s"

    return run


def _kill_scheduler(case: Case) -> Action:
    def run(dice: Dice) -> str:
        victim = _victim(case, dice)
        seconds = dice.random() * dice.choice((0.1, 1.0, 5.0))
        victim.kill(seconds)
        return f"kill {victim.name} for {seconds:.2f} s"

    return run


def _stop_scheduler(case: Case) -> Action:
    def run(dice: Dice) -> str:
        victim = _victim(case, dice)
        if victim.process is None or not victim.process.alive:
            return ""
        victim.stop()
        return f"stop {victim.name}"

    return run


def _pause(case: Case) -> Action:
    def run(dice: Dice) -> str:
        victim = _victim(case, dice)
        seconds = LEASE * dice.between(0.2, 2)
        if victim.process is not None:
            victim.process.pause(seconds)
        return f"pause {victim.name} for {seconds:.2f} s"

    return run


def _suspend(case: Case) -> Action:
    def run(dice: Dice) -> str:
        victim = _victim(case, dice)
        seconds = LEASE * dice.between(0.2, 2)
        if victim.process is not None:
            victim.process.suspend(seconds)
        return f"suspend the machine of {victim.name} for {seconds:.2f} s"

    return run


def _jump(case: Case) -> Action:
    def run(dice: Dice) -> str:
        program, seconds = dice.choice(case.programs), dice.between(-3600, 3600)
        if program.process is not None:
            program.process.wall_offset += seconds
        return f"clock of {program.name} jumps by {seconds:.0f} s"

    return run


def _kill_controllers(case: Case) -> Action:
    def run(dice: Dice) -> str:
        program, seconds = case.programs[len(case.schedulers)], dice.random() * 2
        program.kill(seconds)
        return f"kill {program.name} for {seconds:.2f} s"

    return run


def _restart_server(case: Case) -> Action:
    def run(dice: Dice) -> str:
        seconds = dice.random() * 2
        case.network.restart(seconds)
        return f"restart the API server for {seconds:.2f} s"

    return run


def _compact(case: Case) -> Action:
    def run(dice: Dice) -> str:
        case.api.compact(int(dice.random() * 20))
        if dice.random() < 0.7:
            for stream in list(case.network.streams):
                if dice.random() < 0.6:
                    stream.cut("connection reset by peer")
        return "compact the history and cut watches"

    return run


def _cut(case: Case) -> Action:
    def run(dice: Dice) -> str:
        why = dice.choice(("", "connection reset by peer"))
        chosen = [each for each in case.network.streams if dice.random() < 0.5]
        for stream in chosen:
            stream.cut(why)
        return f"cut {len(chosen)} watches"

    return run


def _hold(case: Case) -> Action:
    def run(dice: Dice) -> str:
        seconds = dice.between(0.3, 6)
        chosen = [each for each in case.network.streams if dice.random() < 0.4]
        for stream in chosen:
            stream.hold(seconds)
        return f"hold {len(chosen)} watches for {seconds:.2f} s"

    return run


def _force(case: Case) -> Action:
    return lambda dice: case.admin.remove_pod(dice, force=True)


def _cordon(case: Case) -> Action:
    def run(dice: Dice) -> str:
        tree = dice.choice(case.api.list_trees("nodes"))
        name, closed = tree["metadata"]["name"], not tree["spec"].get("unschedulable")
        case.admin.patch(NODES, name, {"spec": {"unschedulable": closed or None}})
        return f"{'cordon' if closed else 'uncordon'} {name}"

    return run


def _taint(case: Case) -> Action:
    """Taint a device of a slice that no driver publishes, or remove its taint."""

    def run(dice: Dice) -> str:
        tree = dice.choice(
            [each for each in case.api.list_trees("resourceslices") if each["spec"].get("devices")]
        )
        devices = [dict(each) for each in tree["spec"]["devices"]]
        device = dice.choice(devices)
        if device.pop("taints", None) is None:
            device["taints"] = [{"key": "broken", "effect": dice.choice(("NoSchedule", "NoExecute"))}]
        case.admin.patch(RESOURCE_SLICES, tree["metadata"]["name"], {"spec": {"devices": devices}})
        return f"taint or untaint {device['name']} of {tree['metadata']['name']}"

    return run
