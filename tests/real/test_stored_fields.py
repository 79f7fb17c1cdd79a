"""Probe of the fields that a real kube-apiserver stores."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from plimsoll.api import codec
from plimsoll.api.core import Pod
from plimsoll.client import Client
from plimsoll.client.endpoints import PODS
from plimsoll.client.stored_fields import CHARGES_GATE, StoredFields, probe_stored_fields
from tests.cluster.kube_apiserver import run_apiserver
from tests.manifests import pod
from tests.real.programs import ASSETS, emulate, minor_version, missing, skip_before
from tests.waiting import DEADLINE

_MISSING = missing("kube-apiserver", "etcd")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)


@pytest.mark.parametrize(
    ("gates", "release"),
    [("", ""), (f"{CHARGES_GATE}=true", ""), ("", "1.35"), ("", "1.34")],
    ids=["default", "alpha", "1.35", "1.34"],
)
def test_probe_agrees_with_the_gates(tmp_path: Path, gates: str, release: str) -> None:
    if gates:
        skip_before(36, "which has the gate")
    has_charges = bool(gates)
    expected = StoredFields(has_charges, has_charges, not release and minor_version() >= 36)

    async def scenario(client: Client) -> None:
        assert await probe_stored_fields(client, ()) == expected, "by the metrics"
        created = await client.create(PODS, pod("p"), "default")
        found = codec.convert(created, Pod)
        assert await probe_stored_fields(client.unlimited(), [found]) == expected
        after = await client.get(PODS, "p", "default")
        assert after["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]

    with run_apiserver(ASSETS, tmp_path, gates, emulate(release)) as config:

        async def run() -> None:
            async with asyncio.timeout(2 * DEADLINE), Client.connect(config) as client:
                await scenario(client)

        asyncio.run(run())
