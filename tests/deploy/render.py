"""Default rendering of the chart as plain manifests; `python -m tests.deploy.render` writes them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.templates import Chart

HOME = Path(__file__).parents[2]
DEPLOY = HOME / "deploy"
CHART = DEPLOY / "helm" / "plimsoll"
MANIFESTS = DEPLOY / "manifests"
RELEASE = {"Name": "plimsoll", "Namespace": "kube-system", "Service": "manifest"}
_HEAD = "# Generated from the Helm chart by `python -m tests.deploy.render`.\n"


def values() -> dict[str, Any]:
    """Return the chart's default values."""
    tree: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return tree


def render(changes: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the manifests by file, such as `cpu-driver/daemonset.yaml`, with some values changed; no empty
    ones.
    """
    directory = CHART / "templates"
    paths = sorted(path for path in directory.rglob("*") if path.is_file())
    files = {path.relative_to(directory).as_posix(): path.read_text() for path in paths}
    meta = yaml.safe_load((CHART / "Chart.yaml").read_text())
    root = {
        "Values": _merge(values(), changes or {}),
        "Release": RELEASE,
        "Chart": {"Name": meta["name"], "Version": meta["version"], "AppVersion": meta["appVersion"]},
    }
    chart = Chart(files)
    made = {name: chart.render(name, root).strip() + "\n" for name in files if name.endswith(".yaml")}
    return {name: _HEAD + text for name, text in made.items() if text.strip()}


def objects(changes: Mapping[str, Any] | None = None, part: str = "") -> list[dict[str, Any]]:
    """Return the rendered objects of all components or of one: cpu-driver, scheduler, dashboard."""
    texts = [text for name, text in render(changes).items() if name.startswith(part)]
    return [tree for text in texts for tree in yaml.safe_load_all(text) if tree]


def _merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    made = dict(old)
    for name, value in new.items():
        both = isinstance(value, Mapping) and isinstance(made.get(name), Mapping)
        made[name] = _merge(made[name], value) if both else value
    return made


def manifests() -> dict[str, str]:
    """Return the plain manifests: the default values, and the optional components in their own directories.

    A token in a file would be known to everyone: the dashboard's Secret is created by hand.
    """
    secret = {"tokenSecret": "plimsoll-dashboard"}
    return render({"memoryDriver": {"enabled": True}, "dashboard": {"enabled": True, **secret}})


def main() -> None:
    MANIFESTS.mkdir(exist_ok=True)
    made = manifests()
    for old in MANIFESTS.rglob("*.yaml"):
        if old.relative_to(MANIFESTS).as_posix() not in made:
            old.unlink()
    for name, text in made.items():
        path = MANIFESTS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
