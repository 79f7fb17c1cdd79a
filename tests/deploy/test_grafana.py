"""Grafana dashboard: valid, and every metric and label it uses is exposed."""

from __future__ import annotations

import json
import re
from pathlib import Path

from plimsoll.tools.dashboard.devices import DeviceCache
from plimsoll.tools.dashboard.metrics import show_metrics
from plimsoll.tools.dashboard.nodes import NodeRowCache
from tests.dumps import big_cluster, make_cluster_state

TREE = json.loads((Path(__file__).parents[2] / "deploy/grafana/plimsoll.json").read_text())


def test_queries_use_exposed_metrics() -> None:
    state = make_cluster_state(big_cluster(2))
    text = show_metrics(state, NodeRowCache(), DeviceCache()).decode()
    exposed = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    queries = [target["expr"] for panel in TREE["panels"] for target in panel["targets"]]
    queries += [one["query"]["query"] for one in TREE["templating"]["list"] if one["name"] == "node"]
    used = {name for query in queries for name in re.findall(r"plimsoll_[a-z_]+", query)}
    assert used
    assert used <= exposed
    for name, label in re.findall(r"(plimsoll_[a-z_]+)\{[^}]*?([a-z_]+)=~?", "\n".join(queries)):
        series = re.findall(rf"^{name}\{{(.*)\}}", text, re.MULTILINE)
        assert not series or all(f'{label}="' in each for each in series), (name, label)


def test_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in TREE["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells, panel["title"]
        cells |= own
    assert len({panel["id"] for panel in TREE["panels"]}) == len(TREE["panels"])
