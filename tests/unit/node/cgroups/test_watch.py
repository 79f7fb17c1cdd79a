"""Watch for removed cgroups: they are created again and reported."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from plimsoll.node.cgroups import Cgroups, open_cgroups
from plimsoll.node.cgroups.ownership import RootMark
from plimsoll.node.cgroups.values import CgroupFault
from plimsoll.node.cgroups.watch import CgroupWatch
from tests.unit.node.cgroups.stand_in import POD, StandIn, V1StandIn, V2StandIn


@pytest.fixture(params=[1, 2])
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> StandIn:
    mount = tmp_path / "cgroup"
    return V1StandIn(mount) if request.param == 1 else V2StandIn(mount)


class Agent:
    """Fake agent of a watch."""

    def __init__(self, kernel: StandIn, data: Path) -> None:
        self.kernel = kernel
        self.cgroups: Cgroups = open_cgroups("plimsoll", mount=kernel.mount, kernel=kernel, owner="a")
        self.problems: list[str] = []
        self.events: list[tuple[str, str, str]] = []
        self.lost: Sequence[str] = ()
        self.watch = CgroupWatch(
            "n",
            self.cgroups,
            RootMark(data, timeout=0.0),
            restore_root=self._restore_root,
            restore=self._restore,
            set_ready=self.set_ready,
            emit=lambda *event: self.events.append(event),
        )

    async def _restore_root(self) -> tuple[CgroupFault, ...]:
        return self.cgroups.set_up()

    async def _restore(self) -> Sequence[str]:
        return self.lost

    def set_ready(self, problem: str = "") -> None:
        self.problems.append(problem)

    def check(self) -> None:
        asyncio.run(self.watch.check())

    def remove_root(self) -> None:
        for directory in self.cgroups.root_directories():
            shutil.rmtree(directory)


def test_nothing_is_reported_while_all_cgroups_exist(kernel: StandIn, tmp_path: Path) -> None:
    agent = Agent(kernel, tmp_path)
    agent.cgroups.set_up()
    agent.check()
    agent.check()
    assert (agent.events, agent.problems, agent.watch.losses) == ([], [], 0)


def test_a_removed_root_is_recreated_and_reported(kernel: StandIn, tmp_path: Path) -> None:
    agent = Agent(kernel, tmp_path)
    agent.cgroups.set_up()
    agent.check()
    agent.remove_root()
    assert agent.cgroups.lost()
    agent.check()
    assert agent.cgroups.lost() == ()
    assert [event[:2] for event in agent.events] == [
        ("Warning", "CgroupsLost"),
        ("Normal", "CgroupsRestored"),
    ]
    assert str(agent.cgroups.root_directories()[0]) in agent.events[0][2]
    assert agent.problems == [], "the node was Ready all the time"
    assert (agent.watch.losses, agent.watch.restores) == (1, 1)


def test_a_removed_pod_cgroup_is_reported(kernel: StandIn, tmp_path: Path) -> None:
    agent = Agent(kernel, tmp_path)
    agent.cgroups.set_up()
    agent.lost = ("pod a", "pod b", "container c", "container d")
    agent.check()
    assert agent.events[0][2].endswith("pod a, pod b, container c and 1 more")


@pytest.mark.parametrize("gone", ["owner.a", "burstable", "besteffort"])
def test_removed_tiers_are_recreated(kernel: StandIn, tmp_path: Path, gone: str) -> None:
    agent = Agent(kernel, tmp_path)
    agent.cgroups.set_up()
    agent.cgroups.make_pod("g", "Guaranteed", POD)
    for directory in agent.cgroups.root_directories():
        shutil.rmtree(directory / gone)
    agent.check()
    assert agent.cgroups.lost() == ()
    assert agent.cgroups.pods() == ("g",)
    assert agent.watch.restores == 1


def test_the_node_is_not_ready_while_cgroups_cannot_be_created(
    kernel: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Agent(kernel, tmp_path)
    agent.cgroups.set_up()
    agent.remove_root()
    with monkeypatch.context() as patched:
        patched.setattr(kernel, "make", lambda directory: errno.EROFS)
        agent.check()
        agent.check()
        (problem,) = agent.problems
        assert problem.startswith("cgroups cannot be created: ")
        assert "Read-only file system" in problem
        assert [event[1] for event in agent.events] == ["CgroupsLost"], "reported once"
        assert agent.watch.problem
    agent.check()
    assert agent.problems[1:] == [""]
    assert [event[1] for event in agent.events] == ["CgroupsLost", "CgroupsRestored"]
    assert (agent.watch.losses, agent.watch.restores, agent.watch.problem) == (1, 1, "")


def test_the_node_is_not_ready_while_its_root_belongs_to_another_agent(
    kernel: StandIn, tmp_path: Path
) -> None:
    agent = Agent(kernel, tmp_path)
    other = open_cgroups("plimsoll", mount=kernel.mount, kernel=kernel, owner="b")
    other.set_up()
    other.make_pod("u", "Burstable", POD)
    agent.cgroups.set_up()
    agent.check()
    assert "this root belongs to b" in agent.problems[0]
    assert not agent.cgroups.tear_down()
    assert other.pods() == ("u",)


def test_the_node_is_not_ready_while_another_process_uses_its_root(kernel: StandIn, tmp_path: Path) -> None:
    agent = Agent(kernel, tmp_path)
    agent.cgroups.set_up()
    other = RootMark(tmp_path / "other")
    other.take(agent.cgroups.root_directories())
    agent.check()
    assert "in use by another process" in agent.problems[0]
    other.release()
    agent.check()
    assert agent.problems[1:] == [""]
