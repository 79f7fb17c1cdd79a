"""A real helm: the one in KUBEBUILDER_ASSETS or in the PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from typing import Any

import yaml

from tests.deploy.render import CHART, RELEASE


def find_helm() -> str | None:
    assets = os.environ.get("KUBEBUILDER_ASSETS", "")
    return shutil.which("helm", path=os.pathsep.join([assets, os.environ.get("PATH", "")]))


def run_helm(*words: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command about the chart, such as `lint`, with some values changed."""
    helm = find_helm()
    assert helm is not None
    command = [helm, *words, str(CHART), "--namespace", RELEASE["Namespace"], "--values", "-"]
    text = yaml.safe_dump(dict(values or {}))
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False)


def run_helm_version() -> str:
    done = subprocess.run(
        [str(find_helm()), "version", "--short"], capture_output=True, text=True, check=True
    )
    return done.stdout
