"""Default service accounts and the published root CA of every namespace."""

from __future__ import annotations

from plimsoll.client.endpoints import CONFIG_MAPS, NAMESPACES, SERVICE_ACCOUNTS
from plimsoll.controllers import ControllerSettings
from tests.coroutines import run_by
from tests.unit.controllers.cluster import Cluster, run_scenario

ACCOUNTS = ["serviceaccount-controller"]
PUBLISHER = ["root-ca-certificate-publisher-controller"]
AUTHORITY = "-----BEGIN CERTIFICATE-----\n"


@run_by(run_scenario, only=ACCOUNTS)
async def test_every_namespace_gets_an_account(cluster: Cluster) -> None:
    await cluster.client.create(NAMESPACES, {"metadata": {"name": "more"}})
    await cluster.settle()
    for namespace in ("n", "more"):
        assert await cluster.client.get(SERVICE_ACCOUNTS, "default", namespace)
    await cluster.client.delete(SERVICE_ACCOUNTS, "default", "more")
    await cluster.settle()
    assert await cluster.client.get(SERVICE_ACCOUNTS, "default", "more")


@run_by(run_scenario, only=ACCOUNTS)
async def test_a_terminating_namespace_gets_none(cluster: Cluster) -> None:
    await cluster.settle()
    await cluster.client.delete(NAMESPACES, "n")
    await cluster.client.delete(SERVICE_ACCOUNTS, "default", "n")
    await cluster.settle()
    assert await cluster.names(SERVICE_ACCOUNTS) == []


def test_the_root_ca_is_published_and_restored() -> None:
    async def scenario(cluster: Cluster) -> None:
        name = "kube-root-ca.crt"

        async def published() -> object:
            await cluster.settle()
            return (await cluster.client.get(CONFIG_MAPS, name, "n"))["data"]

        assert await published() == {"ca.crt": AUTHORITY}
        await cluster.client.delete(CONFIG_MAPS, name, "n")
        assert await published() == {"ca.crt": AUTHORITY}
        await cluster.client.patch(CONFIG_MAPS, name, {"data": {"ca.crt": ""}}, "n")
        assert await published() == {"ca.crt": AUTHORITY}

    run_scenario(scenario, only=PUBLISHER, settings=ControllerSettings(root_ca=AUTHORITY))


@run_by(run_scenario, only=PUBLISHER)
async def test_without_a_root_ca_nothing_is_published(cluster: Cluster) -> None:
    await cluster.settle()
    assert await cluster.names(CONFIG_MAPS) == []
