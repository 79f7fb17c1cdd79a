"""Allocated CPU claims in an API server, and calls to prepare them."""

from __future__ import annotations

from typing import Any

from plimsoll.drivers.cpu.settings import CpuSettings
from plimsoll.protocols import rpc
from plimsoll.protocols.messages import dra_v1
from tests.deploy.render import RELEASE
from tests.waiting import DEADLINE

NAME, NODE = f"{RELEASE['Name']}-cpu-driver", "n1"


SHARE = "a671734a-e8e5-11e4-8fde-42010af09327"


def allocated_claim(name: str, device: str, node: str = NODE) -> dict[str, Any]:
    exactly = {"deviceClassName": "dra.cpu", "capacity": {"requests": {"dra.cpu/cpu": "2"}}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"devices": {"requests": [{"name": "cpus", "exactly": exactly}]}},
        "status": {
            "allocation": {
                "devices": {
                    "results": [
                        {
                            "request": "cpus",
                            "driver": "dra.cpu",
                            "pool": node,
                            "device": device,
                            "consumedCapacity": {"dra.cpu/cpu": "2"},
                            "shareID": SHARE,
                        }
                    ]
                },
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
                    ]
                },
            }
        },
    }


async def prepare(settings: CpuSettings, claim: dict[str, Any], what: str = "Prepare") -> Any:
    """As a kubelet asks for it."""
    method = rpc.find_method(dra_v1.DESCRIPTOR, "DRAPlugin", f"Node{what}Resources")
    meta = claim["metadata"]
    asked = dra_v1.Claim(namespace=meta["namespace"], name=meta["name"], uid=meta["uid"])
    request = getattr(dra_v1, f"Node{what}ResourcesRequest")(claims=[asked])
    channel = rpc.dial(settings.plugin_dir / "dra.sock")
    try:
        answer = await rpc.call(channel, method, request, timeout=DEADLINE)
        return answer.claims[meta["uid"]]
    finally:
        await rpc.close(channel)
