"""pytest plugin: tests run in processes that are forked after one collection.

`pytest -p tests.forked_workers --forked 4`. With pytest-xdist (`-n 4`) every worker imports and collects all
tests again, and its controller handles three reports for each test; together that takes more CPU than a tenth
of the tests. Workers take files one after another, the large ones in parts, and keep the fixtures that the
next test needs. A worker that dies fails the test it was running and those left of its part.
"""

from __future__ import annotations

import atexit
import os
import pickle
import random
import selectors
import struct
import sys
import traceback
from collections.abc import Iterator, Sequence
from itertools import groupby
from types import SimpleNamespace
from typing import Any, BinaryIO, NoReturn

import pytest

#: Maximum number of tests that a worker takes at once.
_PART_SIZE = 48
_NUMBER = struct.Struct("I")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forked", type=int, default=0, metavar="N", help="run the tests in N forked processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all tests in workers; without the option the usual loop runs them."""
    count = session.config.getoption("forked")
    if not count or session.testsfailed or session.config.option.collectonly:
        return None
    parts = list(_split(session.items))
    workers = _start_workers(session, parts, count)
    try:
        finished = _collect_reports(session, parts, workers)
    finally:
        for worker in workers:
            worker.end()
    if finished != len(session.items):
        raise session.Failed(f"{len(session.items) - finished} tests were not run")
    return True


def _split(items: Sequence[pytest.Item]) -> Iterator[list[pytest.Item]]:
    """Yield the tests of each file, large ones in parts of equal size."""
    for _, group in groupby(items, key=lambda item: item.path):
        found = list(group)
        parts = -(-len(found) // _PART_SIZE)
        for number in range(parts):
            yield found[number * len(found) // parts : (number + 1) * len(found) // parts]


class _Worker:
    """A worker as its parent sees it."""

    def __init__(self, pid: int, results: int, name: str) -> None:
        self.pid = pid
        self.results = results  #: descriptor of a pipe
        self._data = b""
        #: Tests of the current part that have not ended.
        self.left: list[pytest.Item] = []
        #: As of pytest-xdist: from it the terminal reporter knows that tests run at the same time.
        self.node = SimpleNamespace(
            gateway=SimpleNamespace(id=name),
            workerinfo={
                "id": name,
                "sysplatform": sys.platform,
                "version_info": sys.version_info,
                "executable": sys.executable,
            },
        )

    def end(self) -> None:
        """Kill the worker unless it has ended."""
        os.close(self.results)
        if self.pid:
            os.kill(self.pid, 9)
            self.wait()

    def messages(self) -> Iterator[Any]:
        """Read once, and yield the messages that are complete; None at the end."""
        data = os.read(self.results, 1 << 16)
        if not data:
            yield None
        self._data += data
        while len(self._data) >= _NUMBER.size:
            end = _NUMBER.size + _NUMBER.unpack_from(self._data)[0]
            if len(self._data) < end:
                break
            message, self._data = self._data[_NUMBER.size : end], self._data[end:]
            yield pickle.loads(message)

    def wait(self) -> int:
        pid, self.pid = self.pid, 0
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _start_workers(
    session: pytest.Session, parts: Sequence[Sequence[pytest.Item]], count: int
) -> list[_Worker]:
    # The numbers of all parts wait in a pipe, of which each worker reads the next one.
    queue, writing = os.pipe()
    numbers = b"".join(map(_NUMBER.pack, range(len(parts))))
    assert len(numbers) < 1 << 16, "more parts than a pipe holds"
    os.write(writing, numbers)
    os.close(writing)
    workers: list[_Worker] = []
    sys.stdout.flush()
    sys.stderr.flush()
    for number in range(count):
        reading, results = os.pipe()
        pid = os.fork()
        if not pid:
            for descriptor in (reading, *(worker.results for worker in workers)):
                os.close(descriptor)
            _work(session, parts, queue, os.fdopen(results, "wb"))
        os.close(results)
        workers.append(_Worker(pid, reading, f"w{number}"))
    os.close(queue)
    return workers


# -- in the parent


def _collect_reports(
    session: pytest.Session, parts: Sequence[Sequence[pytest.Item]], workers: Sequence[_Worker]
) -> int:
    """Report all tests until the last worker ends; return their number."""
    finished = 0
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.results, selectors.EVENT_READ, worker)
        while selector.get_map():
            for key, _ in selector.select():
                worker = key.data
                for message in worker.messages():
                    if message is None:
                        selector.unregister(worker.results)
                        finished += len(worker.left)
                        _report_lost(session, worker, worker.wait())
                    elif isinstance(message, int):
                        worker.left = list(parts[message])
                    else:
                        finished += 1
                        _report(session, worker, message)
                    if session.shouldfail:
                        raise session.Failed(session.shouldfail)
                    if session.shouldstop:
                        raise session.Interrupted(session.shouldstop)
    return finished


def _report(session: pytest.Session, worker: _Worker, reports: Sequence[Any]) -> None:
    """Report a test that has ended: its duration if it passed, else reports of pytest."""
    item = worker.left.pop(0)
    hook = session.config.hook
    for each in reports:
        if isinstance(each, float):
            report = pytest.TestReport(item.nodeid, item.location, {}, "passed", None, "call", duration=each)
        else:
            report = hook.pytest_report_from_serializable(config=session.config, data=each)
        report.node = worker.node  # type: ignore[attr-defined]
        item.ihook.pytest_runtest_logreport(report=report)


def _report_lost(session: pytest.Session, worker: _Worker, code: int) -> None:
    """Fail the tests that a worker left when it ended."""
    for number, item in enumerate(list(worker.left)):
        text = f"worker ended with code {code} in this test" if not number else "not run: its worker ended"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", text, "call")
        data = session.config.hook.pytest_report_to_serializable(config=session.config, report=report)
        _report(session, worker, [data])


# -- in a worker


class _ReportCollector:
    """Plugin that keeps the reports of the running test, instead of the terminal reporter."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self.reports: list[Any] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        plain = report.passed and not hasattr(report, "wasxfail")
        if not plain:
            hook = self._config.hook
            self.reports.append(hook.pytest_report_to_serializable(config=self._config, report=report))
        elif report.when == "call":
            self.reports.append(report.duration)


def _work(
    session: pytest.Session, parts: Sequence[Sequence[pytest.Item]], queue: int, results: BinaryIO
) -> NoReturn:
    """Run parts until there are none left, and end this process."""
    code = 1
    try:
        config = session.config
        # The files of the parent's capture would be shared by all workers.
        capture = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        config.pluginmanager.unregister(name="terminalreporter")
        collector = _ReportCollector(config)
        config.pluginmanager.register(collector)
        random.seed()
        number = _take(queue)
        while number is not None:
            items = parts[number]
            _send(results, number)
            for index, item in enumerate(items):
                if index + 1 < len(items):
                    following: pytest.Item | None = items[index + 1]
                else:
                    number = _take(queue)
                    following = parts[number][0] if number is not None else None
                config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                _send(results, collector.reports)
                collector.reports = []
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        results.close()
        atexit._run_exitfuncs()  # ends processes that fixtures started
        os._exit(code)


def _send(results: BinaryIO, message: Any) -> None:
    data = pickle.dumps(message)
    results.write(_NUMBER.pack(len(data)) + data)
    results.flush()


def _take(queue: int) -> int | None:
    data = os.read(queue, _NUMBER.size)
    return _NUMBER.unpack(data)[0] if data else None
