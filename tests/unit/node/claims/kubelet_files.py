"""Encoder of the kubelet's checkpoint of prepared claims, byte for byte as the kubelet writes it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence

from plimsoll.api.go_text import quote_json
from plimsoll.node.claims.kubelet_checkpoint import KubeletClaim, KubeletDevice

KIND, API_VERSION = "DRACheckpoint", "checkpoint.dra.kubelet.k8s.io/v1"


def encode(claims: Sequence[KubeletClaim] | None) -> bytes:
    """Encode the file that a kubelet writes for these claims, in this order."""
    data = (
        f'{{"kind":{quote_json(KIND)},"apiVersion":{quote_json(API_VERSION)},'
        f'"ClaimInfoStateList":{_format_list(None if claims is None else map(_format_claim, claims))}}}'
    )
    return f'{{"Data":{quote_json(data)},"Checksum":{zlib.crc32(data.encode())}}}'.encode()


def _format_claim(claim: KubeletClaim) -> str:
    pods = None if claim.pods is None else dict.fromkeys(claim.pods, "{}")
    drivers = None
    if claim.drivers is not None:
        drivers = {
            driver: _format_driver(devices, claim.skipped.get(driver, ()))
            for driver, devices in claim.drivers.items()
        }
    return (
        f'{{"ClaimUID":{quote_json(claim.uid)},"ClaimName":{quote_json(claim.name)},'
        f'"Namespace":{quote_json(claim.namespace)},"PodUIDs":{_format_map(pods)},"DriverState":{_format_map(drivers)}}}'
    )


def _format_driver(devices: Iterable[KubeletDevice] | None, skipped: Sequence[str]) -> str:
    listed = _format_list(None if devices is None else map(_format_device, devices))
    more = f',"skipNodeOperations":{_format_strings(skipped)}' if skipped else ""
    return f'{{"Devices":{listed}{more}}}'


def _format_device(device: KubeletDevice) -> str:
    share = "null" if device.share_id is None else quote_json(device.share_id)
    return (
        f'{{"PoolName":{quote_json(device.pool)},"DeviceName":{quote_json(device.device)},"ShareID":{share},'
        f'"RequestNames":{_format_strings(device.requests)},"CDIDeviceIDs":{_format_strings(device.cdi)}}}'
    )


def _format_strings(texts: Iterable[str] | None) -> str:
    return _format_list(None if texts is None else map(quote_json, texts))


def _format_list(items: Iterable[str] | None) -> str:
    return "null" if items is None else f"[{','.join(items)}]"


def _format_map(members: Mapping[str, str] | None) -> str:
    if members is None:
        return "null"
    # Go sorts by bytes; the code points of valid strings sort the same.
    return "{" + ",".join(f"{quote_json(key)}:{members[key]}" for key in sorted(members)) + "}"
