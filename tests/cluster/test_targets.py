"""Servers that the suite runs against."""

from __future__ import annotations

import json

import pytest

from plimsoll.client import Client
from tests.cluster.conftest import REAL
from tests.cluster.target import Target
from tests.coroutines import run_by


@pytest.mark.skipif(not REAL, reason="KUBEBUILDER_ASSETS names no directory with etcd and kube-apiserver")
def test_a_real_kube_apiserver_is_among_the_targets() -> None:
    assert REAL


@run_by(Target.run_scenario, "target")
async def test_targets_report_their_version(client: Client, namespace: str) -> None:
    version = json.loads((await client.call("GET", "/version")).body)
    assert version["major"] == "1"
    assert version["gitVersion"].startswith("v1.")
    assert (await client.call("GET", "/readyz", accept="*/*")).body == b"ok"
