"""Environment variables of Services, and their reader."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from plimsoll.api import codec
from plimsoll.client.endpoints import SERVICES, Endpoint
from plimsoll.client.responses import ObjectList
from plimsoll.errors import ApiError, InputError
from plimsoll.node.pods.service_reader import ServiceReader
from plimsoll.node.pods.service_variables import service_variables


def service(name: str, ip: str, *ports: dict[str, Any], namespace: str = "n") -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"metadata": metadata, "spec": {"clusterIP": ip, "ports": list(ports)}}


API = service("kubernetes", "10.0.0.1", {"name": "https", "port": 443}, namespace="default")
REDIS = service(
    "redis-main", "10.0.0.9", {"name": "db", "port": 6379}, {"name": "dns-udp", "port": 53, "protocol": "UDP"}
)


def test_variables_are_those_of_a_kubelet() -> None:
    headless, elsewhere = service("h", "None", {"port": 1}), service("e", "10.0.0.3", namespace="other")
    assert service_variables([API, REDIS, headless, elsewhere], "n", links=True) == {
        "KUBERNETES_SERVICE_HOST": "10.0.0.1",
        "KUBERNETES_SERVICE_PORT": "443",
        "KUBERNETES_SERVICE_PORT_HTTPS": "443",
        "KUBERNETES_PORT": "tcp://10.0.0.1:443",
        "KUBERNETES_PORT_443_TCP": "tcp://10.0.0.1:443",
        "KUBERNETES_PORT_443_TCP_PROTO": "tcp",
        "KUBERNETES_PORT_443_TCP_PORT": "443",
        "KUBERNETES_PORT_443_TCP_ADDR": "10.0.0.1",
        "REDIS_MAIN_SERVICE_HOST": "10.0.0.9",
        "REDIS_MAIN_SERVICE_PORT": "6379",
        "REDIS_MAIN_SERVICE_PORT_DB": "6379",
        "REDIS_MAIN_SERVICE_PORT_DNS_UDP": "53",
        "REDIS_MAIN_PORT": "tcp://10.0.0.9:6379",
        "REDIS_MAIN_PORT_6379_TCP": "tcp://10.0.0.9:6379",
        "REDIS_MAIN_PORT_6379_TCP_PROTO": "tcp",
        "REDIS_MAIN_PORT_6379_TCP_PORT": "6379",
        "REDIS_MAIN_PORT_6379_TCP_ADDR": "10.0.0.9",
        "REDIS_MAIN_PORT_53_UDP": "udp://10.0.0.9:53",
        "REDIS_MAIN_PORT_53_UDP_PROTO": "udp",
        "REDIS_MAIN_PORT_53_UDP_PORT": "53",
        "REDIS_MAIN_PORT_53_UDP_ADDR": "10.0.0.9",
    }


def test_without_links_only_the_api_server_is_named() -> None:
    names = service_variables([API, REDIS], "n", links=False)
    assert {name.split("_")[0] for name in names} == {"KUBERNETES"}


class Services:
    """API server with Services and the endpoints of its own."""

    def __init__(self) -> None:
        self.failing = False

    async def get(self, endpoint: Endpoint, name: str, namespace: str = "") -> dict[str, Any]:
        assert (name, namespace) == ("kubernetes", "default")
        addresses = {"addresses": [{"ip": "192.0.2.7"}], "ports": [{"name": "https", "port": 6443}]}
        return API if endpoint == SERVICES else {"subsets": [addresses]}

    async def list(self, endpoint: Endpoint, namespace: str | None = None) -> ObjectList:
        if self.failing:
            raise ApiError(503, "ServiceUnavailable", "down")
        return ObjectList([codec.encode(REDIS)], "1")


@pytest.mark.parametrize(("direct", "address"), [(True, "192.0.2.7:6443"), (False, "10.0.0.1:443")])
def test_the_api_server_is_named_by_its_own_address(direct: bool, address: str) -> None:
    reader = ServiceReader(Services(), direct=direct)
    found = asyncio.run(reader.variables("n", links=True))
    assert f"{found['KUBERNETES_SERVICE_HOST']}:{found['KUBERNETES_SERVICE_PORT']}" == address
    assert found["REDIS_MAIN_SERVICE_HOST"] == "10.0.0.9"


def test_known_services_are_used_while_the_server_does_not_respond() -> None:
    api = Services()
    reader = ServiceReader(api, direct=False)
    known = asyncio.run(reader.variables("n", links=True))
    api.failing = True
    assert asyncio.run(reader.variables("n", links=True)) == known
    with pytest.raises(InputError, match="cannot construct envvars"):
        asyncio.run(reader.variables("other", links=True))
