"""Names in the documentation exist: commands and options, metrics, chart values, alert rules."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections.abc import AsyncIterator, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import click
import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from plimsoll.apiserver.metrics import RequestMetrics
from plimsoll.apiserver.storage import Store
from plimsoll.cli.main import plimsoll
from plimsoll.client import Client
from plimsoll.common.counters import Histogram, MetricCounter
from plimsoll.drivers.cpu.process.metrics import SPECS
from plimsoll.drivers.memory.driver import MemoryDriver
from plimsoll.drivers.memory.process import MemoryMetrics
from plimsoll.drivers.memory.settings import MemorySettings
from plimsoll.node.process.metrics import NodeMetrics
from plimsoll.protocols.messages import podresources_v1 as v1
from plimsoll.scheduler.process.configuration import parse_settings
from plimsoll.scheduler.process.context import SchedulerContext
from plimsoll.scheduler.process.shadow.metrics import ShadowMetrics
from plimsoll.scheduler.queue import QueueSettings, SchedulingQueue
from plimsoll.tools.cluster_state import Source, read_cluster_state
from plimsoll.tools.dashboard.service import DashboardService
from plimsoll.tools.podresources.exporter import ExporterHealth, NodeObjects, health_metrics, node_metrics
from tests.structure.documents import FENCE, NAMES, ROOT, read

CHART = ROOT / "deploy" / "helm" / "plimsoll"

INLINE = re.compile(r"`([^`]+)`", re.DOTALL)


# -- commands

START = re.compile(r"(?:^|[|$(&;]\s*|sudo |exec \S+ -- |bin/|kubectl )plimsoll (?=\S)")


def _commands(text: str) -> Iterator[list[str]]:
    """Yield the words of every `plimsoll ...` on a page: in blocks, indented or in backquotes."""
    lines = [part for _, block in FENCE.findall(text) for part in _lines(block)]
    without = FENCE.sub("", text)
    lines += [line for line in without.splitlines() if line.startswith("    ")]
    lines += [" ".join(part.split()) for part in INLINE.findall(without)]
    for line in lines:
        for found in START.finditer(line.strip()):
            yield _words(line.strip()[found.end() :])


def _lines(block: str) -> list[str]:
    return re.sub(r"\\\n\s*", " ", block).splitlines()


def _words(rest: str) -> list[str]:
    """Split a command line up to shell syntax or a comment."""
    rest = re.split(r"\s#|\s[|>&;]|<\(|`|\)$|\s{3,}", rest)[0]
    try:
        return shlex.split(rest)
    except ValueError:
        return rest.split()


def _check(words: list[str]) -> str:
    """Return the error in a command, or an empty string."""
    command: click.Command = plimsoll
    path = ["plimsoll"]
    options = _options(command)
    for word in words:
        name = word.split("=")[0].rstrip(",.:")
        if word.startswith("-") and word != "-":
            if word.startswith("--") and name not in options:
                return f"{' '.join(path)} has no {name}"
            if not word.startswith("--") and word[:2] not in options:
                return f"{' '.join(path)} has no {word[:2]}"
        elif isinstance(command, click.Group) and (name.islower() or command is plimsoll):
            inner = command.get_command(click.Context(command), name)
            if inner is None:
                if command is plimsoll:  # or COMMAND, or dots
                    return f"unknown command {name}" if re.fullmatch(r"[a-z]+", name) else ""
                continue  # an argument of a group that can be run itself
            command = inner
            path.append(name)
            options |= _options(command)
    return ""


def _options(command: click.Command) -> set[str]:
    return {"--help", "-h"}.union(*({*each.opts, *each.secondary_opts} for each in command.params))


@pytest.mark.parametrize("name", NAMES)
def test_commands_and_options_exist(name: str) -> None:
    text = read(name)
    wrong = {" ".join(words): error for words in _commands(text) if (error := _check(words))}
    shown = {
        words: error for words, error in wrong.items() if f"unknown command '{words.split()[0]}'" in text
    }
    assert wrong == shown  # a page may show what a mistake looks like


def test_a_wrong_option_is_detected() -> None:
    page = "`plimsoll audit --nope` and\n```\n$ plimsoll nope -f x\n"
    page += "plimsoll top -f x | plimsoll up --neither\n```\n"
    page += "    plimsoll driver cpu stat -q --quiet --all\n"
    wrong = [error for words in _commands(page) if (error := _check(words))]
    assert wrong == [
        "unknown command nope",
        "plimsoll up has no --neither",
        "plimsoll driver cpu has no -q",
        "plimsoll audit has no --nope",
    ]


# -- metrics

METRIC = re.compile(r"\b(?:plimsoll|scheduler|dra_cpu)_\w+(?:\{[^}]*\})?")
#: Words that look like metrics and are fixtures of pytest, or packages of tests.
FIXTURES = {"plimsoll_cluster", "plimsoll_session_cluster", "scheduler_faults"}


@cache
def metrics() -> dict[str, set[str]]:
    """Return every served metric with its labels."""
    cluster_state, uncounted = (
        read_cluster_state(Source((str(ROOT / "examples" / "top" / name),)))
        for name in ("cluster.yaml", "uncounted.yaml")
    )
    context = SchedulerContext.create(parse_settings({}))
    for thing in cluster_state.objects:
        context.snapshot.set(thing)
    shadow = ShadowMetrics(context.metrics, lambda: 0)
    kubelet = v1.ListPodResourcesResponse().pod_resources
    pages = [
        *_served(context.metrics.expose()),
        *_served(_page_of(DashboardService(cluster_state))),
        *_served(_page_of(DashboardService(uncounted))),
    ]
    families = [
        *NodeMetrics(lambda: ()).collect(),
        *MemoryMetrics(MemoryDriver(cast(Client, None), MemorySettings("n"))).collect(),
        *RequestMetrics(Store.open(None)).collect(),
        *node_metrics("n", kubelet, v1.AllocatableResourcesResponse(), NodeObjects()),
        *health_metrics("n", ExporterHealth(synced=True)),
    ]
    found: dict[str, set[str]] = {spec.name: set(spec.labels) for spec in SPECS}
    for family in families:
        found.setdefault(family.name, set()).update(family.labels)
    for page in pages:
        labels = {label for sample in page.samples for label in sample.labels}
        found.setdefault(page.name, set()).update(labels)
        if page.type == "counter":
            found[f"{page.name}_total"] = found[page.name]
    for each in (*vars(context.metrics).values(), *vars(shadow).values()):
        if isinstance(each, MetricCounter | Histogram):
            found.setdefault(each.name, set()).update(each.labels)
    return found


def _served(page: AsyncIterator[bytes]) -> list[Metric]:
    async def read_all() -> str:
        return b"".join([piece async for piece in page]).decode()

    return list(text_string_to_metric_families(asyncio.run(read_all())))


async def _page_of(board: DashboardService) -> AsyncIterator[bytes]:
    yield (await board.metrics()).body
    await board.close()


def _unknown(text: str) -> set[str]:
    """Metrics and labels of a text that nothing of ours has. `x_` stands for all that begin so, `x|y` for
    names with another end."""
    wrong = set()
    for metric in METRIC.findall(text):
        name, _, labels = metric.partition("{")
        if name in FIXTURES:
            continue
        if name.endswith("_"):
            wrong |= set() if any(each.startswith(name) for each in metrics()) else {name}
            continue
        known = metrics().get(re.sub(r"_(bucket|sum|count)$", "", name), metrics().get(name))
        if known is None:
            wrong.add(name)
            continue
        used = set(
            re.findall(r'(\w+)\s*(?:=|!=|=~|!~|,|\}|$)(?![\w"]*"\s*\|)', re.sub(r'"[^"]*"', '""', labels))
        )
        wrong |= {f"{name}{{{label}}}" for label in used - known}
    return wrong


@pytest.mark.parametrize("name", NAMES)
def test_metrics_exist(name: str) -> None:
    assert not _unknown(read(name))


def test_a_wrong_metric_is_detected() -> None:
    page = (
        'plimsoll_nodes_free, plimsoll_node_free{node, zone}, scheduler_pending_pods{queu="x"}, plimsoll_cpu_'
    )
    assert _unknown(page) == {
        "plimsoll_nodes_free",
        "plimsoll_node_free{zone}",
        "scheduler_pending_pods{queu}",
    }


# -- alerts


def _blocks(name: str, language: str) -> list[str]:
    return [block for found, block in FENCE.findall(read(name)) if found == language]


def _alerts(name: str) -> list[dict[str, Any]]:
    trees = [yaml.safe_load(block) for block in _blocks(name, "yaml") if block.startswith("groups:")]
    return [rule for tree in trees for group in tree["groups"] for rule in group["rules"]]


def test_alert_rules_are_rules() -> None:
    rules = _alerts("docs/operate.md")
    assert len(rules) >= 4
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule
        assert METRIC.search(rule["expr"]), rule
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s")), rule
        assert rule["annotations"]["summary"], rule
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            assert any(
                label in metrics().get(metric.partition("{")[0], ())
                for metric in METRIC.findall(rule["expr"])
            )


def test_queues_that_alerts_name_exist() -> None:
    named = {queue for text in map(read, NAMES) for queue in re.findall(r'queue=~?"([\w|]+)"', text)}
    assert {each for queue in named for each in queue.split("|")} <= set(
        SchedulingQueue(QueueSettings()).lengths()
    )


# -- values of the chart


def _has(path: str) -> bool:
    """Return whether the chart has a value, by its own values or by what their schema allows."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values: Any = yaml.safe_load((CHART / "values.yaml").read_text())
    for step in path.split("."):
        values = values.get(step) if isinstance(values, dict) else None
        schema = schema.get("properties", {}).get(step) or schema.get("additionalProperties") or {}
        if values is None and not schema:
            # what the schema leaves open (type: object) may have any key
            return False
    return True


PATHS = re.compile(r"(?<![\w./-])((?:image|driver|scheduler|dashboard)\.[a-z]\w*(?:\.\w+)*)(?![\w(/-])")


@pytest.mark.parametrize("name", ["docs/operate.md", "docs/deploy.md", "deploy/helm/plimsoll/README.md"])
def test_values_of_the_chart_exist(name: str) -> None:
    text = read(name)
    parts = [*INLINE.findall(text), *(block for _, block in FENCE.findall(text))]
    paths = {
        path for part in parts for path in PATHS.findall(part) if not path.endswith((".yaml", ".md", ".com"))
    }
    assert paths, "the page names values"
    assert {path for path in paths if not _has(path)} == set()


def test_the_table_of_the_driver_s_values() -> None:
    rows = (
        read("docs/deploy.md").partition("| value below `driver` |")[2].partition("\n\n")[0].splitlines()[2:]
    )
    names = {name for row in rows for name in re.findall(r"`([\w.]+)`", row.split("|")[1])}
    assert len(names) > 10
    assert {name for name in names if not _has(f"driver.{name}")} == set()


def test_a_wrong_value_is_detected() -> None:
    for path in ("driver.config.groupBy", "scheduler.config.wireForm", "image.tag"):
        assert _has(path)
    for path in ("driver.config.groupedBy", "dashboard.replicas", "scheduler.name"):
        assert not _has(path)


# -- names of Python

IMPORT = re.compile(r"^ *from (plimsoll[\w.]*) import (\([^)]*\)|[^\n#]*)", re.MULTILINE)
DOTTED = re.compile(r"`(plimsoll(?:\.\w+)+)(?:\(|`)")


def _is_there(path: str) -> bool:
    """Return whether a module, or a name in one, exists."""
    try:
        import_module(path)
    except ImportError:
        home, _, name = path.rpartition(".")
        return bool(home) and hasattr(import_module(home), name)
    return True


@pytest.mark.parametrize("name", [name for name in NAMES if name != "CHANGELOG.md"])
def test_imported_names_exist(name: str) -> None:
    text = read(name)
    taken = [(home, re.sub(r" as \w+", "", names)) for home, names in IMPORT.findall(text)]
    paths = {f"{home}.{each}" for home, names in taken for each in re.findall(r"\w+", names)}
    paths |= {path for path in DOTTED.findall(text) if not path.endswith((".md", ".yaml", ".dev"))}
    assert {path for path in paths if not _is_there(path)} == set()


# -- the pages themselves

LINK = re.compile(r"\]\(([^)#:\s]*)#([^)\s]+)\)")


def _anchors(path: Path) -> set[str]:
    """Return the anchors of headings, as Markdown viewers create them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", path.read_text()), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("name", NAMES)
def test_links_into_pages_end_at_a_heading(name: str) -> None:
    path = ROOT / name
    wrong = [
        f"{target}#{anchor}"
        for target, anchor in LINK.findall(path.read_text())
        if anchor not in _anchors((path.parent / target) if target else path)
    ]
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_lines_have_at_most_120_characters(name: str) -> None:
    lines = FENCE.sub("", read(name)).splitlines()
    wide = [line for line in lines if len(line) > 120 and not line.startswith(("|", "    ", "<!--"))]
    assert wide == []


def test_every_page_is_reached_from_the_front_page() -> None:
    """In any number of steps."""
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        waiting += [
            (page.parent / target).resolve() for target in re.findall(r"\]\(([^)#:\s]+)", page.read_text())
        ]
    assert set((ROOT / "docs").rglob("*.md")) - seen == set()
