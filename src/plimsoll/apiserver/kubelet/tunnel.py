"""Tunnel between a client and a kubelet after an upgrade request: bytes are copied in both directions."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from plimsoll.apiserver.kubelet.client import KubeletClient
from plimsoll.apiserver.kubelet.location import KubeletLocation
from plimsoll.common.http_tunnel import copy_streams, forwarded_headers


async def pass_on(
    request: web.BaseRequest,
    kubelets: KubeletClient,
    location: KubeletLocation,
    on_upgraded: Callable[[], None],
) -> web.StreamResponse:
    """Pass a request on and copy bytes until one side ends; ApiError if the kubelet refuses it."""
    upgraded = await kubelets.upgrade(location, request.method, forwarded_headers(request.headers.items()))
    try:
        on_upgraded()
    except BaseException:
        upgraded.writer.close()
        raise
    return await copy_streams(request, upgraded)
