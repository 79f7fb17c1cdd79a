"""Every kubectl verb with `plimsoll up`: it works, or is refused in one clear line, as docs/up.md has it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from plimsoll.client import Client
from plimsoll.client.endpoints import DEPLOYMENTS
from tests.directories import short_directory
from tests.smoke.kubectl import Kubectl, find_kubectl
from tests.smoke.kubectl_verbs import HERE, OBJECTS, VERBS, Verb, format_table
from tests.smoke.up_process import Up
from tests.waiting import until

NAMESPACE = "verbs"
PAGE = Path(__file__).parents[2] / "docs" / "up.md"


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    if not find_kubectl():
        pytest.skip("no kubectl: set KUBEBUILDER_ASSETS to a directory with one, or install it in the PATH")
    with short_directory() as directory:
        running = Up(directory, "--name", HERE, "--nodes", "1", "--no-driver")
        running.start()
        try:
            yield running
        finally:
            running.stop()
        assert "Traceback" not in running.text()


@pytest.fixture(scope="module")
def kubectl(up: Up) -> Kubectl:
    admin = Kubectl(find_kubectl(), up.data / "kubeconfig", up.data.parent)
    admin("create", "namespace", NAMESPACE)
    own = admin.within(NAMESPACE)
    own("apply", "-f", "-", given=OBJECTS)
    return own


async def rolled_out(client: Client) -> None:
    """Wait as `kubectl rollout status` does, without a process for each deployment."""

    async def pending() -> list[str]:
        trees = [json.loads(raw) for raw in (await client.list(DEPLOYMENTS, NAMESPACE)).items]
        return [tree["metadata"]["name"] for tree in trees if not is_complete(tree)]

    await until(pending, lambda names: not names)


def is_complete(deployment: Mapping[str, Any]) -> bool:
    wanted, status = deployment["spec"]["replicas"], deployment.get("status", {})
    counts = [status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")]
    observed = status.get("observedGeneration", 0) >= deployment["metadata"]["generation"]
    return observed and counts == [wanted] * 3


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name.split(" (")[0])
def test_verb(up: Up, kubectl: Kubectl, verb: Verb) -> None:
    up.run_scenario(rolled_out)
    verb.check(kubectl)


def test_the_page_lists_every_verb() -> None:
    section = PAGE.read_text().partition("\n## kubectl\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("|")][2:]
    assert rows == format_table()
