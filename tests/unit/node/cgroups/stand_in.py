"""Directory that behaves as a cgroup file system: its files, and the writes that the kernel refuses."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path

from plimsoll.node.cgroup_plans import PodPlan
from plimsoll.node.cgroups.kernel import LinuxKernel

V1 = {
    "cpu": {"cpu.shares": "1024", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "-1"},
    "cpuacct": {"cpuacct.usage": "0"},
    "cpuset": {"cpuset.cpus": "", "cpuset.mems": ""},
    "memory": {
        "memory.limit_in_bytes": str(2**63 - 4096),
        "memory.usage_in_bytes": "0",
        "memory.stat": "cache 0\ntotal_inactive_file 0",
        "memory.use_hierarchy": "1",
    },
    "pids": {"pids.max": "max", "pids.current": "0"},
    "hugetlb": {"hugetlb.2MB.limit_in_bytes": str(2**63 - 4096)},
    "freezer": {"freezer.state": "THAWED"},
}
V2 = {
    "cpu": {"cpu.weight": "100", "cpu.max": "max 100000"},
    "cpuset": {"cpuset.cpus": "", "cpuset.mems": "", "cpuset.cpus.effective": "0-3"},
    "memory": {
        "memory.max": "max",
        "memory.min": "0",
        "memory.low": "0",
        "memory.high": "max",
        "memory.oom.group": "0",
        "memory.current": "0",
        "memory.stat": "anon 0\ninactive_file 0",
    },
    "pids": {"pids.max": "max", "pids.current": "0"},
    "hugetlb": {"hugetlb.2MB.max": "max", "hugetlb.2MB.rsvd.max": "max"},
}
PROCS = "cgroup.procs"


def cpus_of(text: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


class StandIn(LinuxKernel):
    """Fake kernel with files below `mount`; `ended` are the killed processes, `writes` the files written."""

    def __init__(self, mount: Path, controllers: Iterable[str], *, immortal: Iterable[int] = ()) -> None:
        self.mount = mount
        self.controllers = tuple(controllers)
        self.ended: list[int] = []
        self.writes: list[tuple[str, str]] = []
        self.waited = 0.0
        self.dying: set[int] = set()  #: killed, but gone only after a wait
        self.slow = False
        self.immortal = set(immortal)

    def put(self, file: Path, text: str) -> None:
        """Change a file as the kernel does."""
        file.write_text(text)

    def wait(self, seconds: float) -> None:
        self.waited += seconds
        for pid in self.dying:
            self._vanish(pid)
        self.dying.clear()

    def end(self, pid: int) -> None:
        self.ended.append(pid)
        if pid in self.immortal:
            return
        if self.slow:
            self.dying.add(pid)
        else:
            self._vanish(pid)

    def _vanish(self, pid: int) -> None:
        for file in self.mount.rglob(PROCS):
            left = [text for text in file.read_text().split() if text != str(pid)]
            file.write_text("\n".join(left))

    def remove(self, directory: Path) -> int:
        if not directory.is_dir():
            return 0
        if (directory / PROCS).read_text().split() or self.subdirectories(directory):
            return errno.EBUSY
        shutil.rmtree(directory)
        return 0

    def write(self, file: Path, value: str) -> int:
        self.writes.append((str(file.relative_to(self.mount)), value))
        if not file.is_file():
            return errno.ENOENT
        refused = self.refuse(file, value)
        if refused:
            return refused
        self.store(file, value)
        return 0

    def refuse(self, file: Path, value: str) -> int:
        raise NotImplementedError

    def store(self, file: Path, value: str) -> None:
        if file.name == PROCS:
            for other in self.mount_of(file).rglob(PROCS):
                left = [text for text in other.read_text().split() if text != value]
                other.write_text("\n".join(left))
            value = "\n".join([*file.read_text().split(), value])
        file.write_text(value)

    def mount_of(self, file: Path) -> Path:
        return self.mount


class V1StandIn(StandIn):
    """Fake cgroup v1: one directory per controller; `memory_used` is the usage of new memory cgroups."""

    def __init__(self, mount: Path, controllers: Iterable[str] = V1, **settings: Iterable[int]) -> None:
        super().__init__(mount, controllers, **settings)
        for name in self.controllers:
            (mount / name).mkdir(parents=True)
            self._fill(mount / name)
        if "cpuset" in self.controllers:
            (mount / "cpuset" / "cpuset.cpus").write_text("0-3")
            (mount / "cpuset" / "cpuset.mems").write_text("0")

    def _fill(self, directory: Path) -> None:
        (directory / PROCS).write_text("")
        name = directory.relative_to(self.mount).parts[0]
        for controller in name.split(","):
            for file, text in V1[controller].items():
                (directory / file).write_text(text)

    def mount_of(self, file: Path) -> Path:
        return self.mount / file.relative_to(self.mount).parts[0]

    def make(self, directory: Path) -> int:
        if directory.is_dir():
            return 0
        number = super().make(directory)
        if not number:
            self._fill(directory)
        return number

    def refuse(self, file: Path, value: str) -> int:
        directory = file.parent
        match file.name:
            case "cpu.cfs_quota_us" | "cpu.cfs_period_us":
                return self._refuse_quota(directory, file.name, int(value))
            case "cpuset.cpus":
                if not value:
                    return errno.ENOSPC
                if directory != self.mount_of(file) and not (
                    cpus_of(value) <= cpus_of((directory.parent / file.name).read_text())
                ):
                    return errno.EACCES
            case "memory.limit_in_bytes":
                if 0 <= int(value) < int((directory / "memory.usage_in_bytes").read_text()):
                    return errno.EBUSY
            case "cgroup.procs" if self.mount_of(file).name == "cpuset":
                if not all((directory / name).read_text() for name in ("cpuset.cpus", "cpuset.mems")):
                    return errno.ENOSPC
        return 0

    def _ratio(self, directory: Path, **changed: int) -> Fraction | None:
        quota = changed.get("quota", int((directory / "cpu.cfs_quota_us").read_text()))
        period = changed.get("period", int((directory / "cpu.cfs_period_us").read_text()))
        return None if quota < 0 else Fraction(quota, period)

    def _above(self, directory: Path) -> Fraction | None:
        """Return the ratio of the nearest ancestor that has one."""
        while directory.parent != self.mount:
            directory = directory.parent
            ratio = self._ratio(directory)
            if ratio is not None:
                return ratio
        return None

    def _refuse_quota(self, directory: Path, name: str, value: int) -> int:
        key = "quota" if name.endswith("quota_us") else "period"
        if (key == "period" and not 1000 <= value <= 1_000_000) or (key == "quota" and 0 <= value < 1000):
            return errno.EINVAL
        ratio = self._ratio(directory, **{key: value})
        if ratio is None:
            return 0
        above = self._above(directory)
        if above is not None and ratio > above:
            return errno.EINVAL
        for inner in directory.rglob("cpu.cfs_quota_us"):
            below = self._ratio(inner.parent)
            if inner.parent != directory and below is not None and below > ratio:
                return errno.EINVAL
        return 0


class V2StandIn(StandIn):
    """Fake cgroup v2: one directory, whose files follow the controllers that the parent delegates."""

    def __init__(
        self, mount: Path, controllers: Iterable[str] = V2, *, can_kill: bool = True, crowded: bool = False
    ) -> None:
        super().__init__(mount, controllers)
        self.can_kill = can_kill
        mount.mkdir(parents=True, exist_ok=True)
        (mount / "cgroup.controllers").write_text(" ".join(self.controllers))
        (mount / "cgroup.subtree_control").write_text("")
        (mount / PROCS).write_text("1" if crowded else "")
        self.crowded = crowded

    def make(self, directory: Path) -> int:
        if directory.is_dir():
            return 0
        number = super().make(directory)
        if number:
            return number
        given = (directory.parent / "cgroup.subtree_control").read_text().split()
        (directory / "cgroup.controllers").write_text(" ".join(given))
        (directory / "cgroup.subtree_control").write_text("")
        (directory / PROCS).write_text("")
        if self.can_kill:
            (directory / "cgroup.kill").write_text("")
        self._fill(directory, given)
        return 0

    def _fill(self, directory: Path, controllers: Iterable[str]) -> None:
        for name in controllers:
            for file, text in V2[name].items():
                if not (directory / file).exists():
                    (directory / file).write_text(text)

    def refuse(self, file: Path, value: str) -> int:
        directory = file.parent
        if file.name == "cgroup.subtree_control":
            if value.removeprefix("+") not in (directory / "cgroup.controllers").read_text().split():
                return errno.ENOENT
            if (directory / PROCS).read_text():
                return errno.EBUSY
        if file.name == PROCS and (directory / "cgroup.subtree_control").read_text():
            return errno.EBUSY
        return 0

    def store(self, file: Path, value: str) -> None:
        if file.name == "cgroup.subtree_control":
            names = [*file.read_text().split(), value.removeprefix("+")]
            file.write_text(" ".join(dict.fromkeys(names)))
            for name in self.subdirectories(file.parent):
                (file.parent / name / "cgroup.controllers").write_text(" ".join(names))
                self._fill(file.parent / name, names)
        elif file.name == "cgroup.kill":
            for inner in file.parent.rglob(PROCS):
                for pid in inner.read_text().split():
                    self.end(int(pid))
        else:
            super().store(file, value)


POD = PodPlan(cpu_shares=512, cpu_quota=50_000, cpu_period=100_000, memory=64 << 20)
