"""Device class and selectors of a claim's requests, by the names refusals use (`req` or `req/subrequest`)."""

from __future__ import annotations

from dataclasses import dataclass

from plimsoll.allocator.reasons.refusal import RequestRefusal
from plimsoll.api.pod_claims import device_requests
from plimsoll.api.resource import DeviceSelector, DeviceSubRequest, ExactDeviceRequest
from plimsoll.tools.explain.pod_view import PodView


@dataclass(frozen=True, slots=True)
class RequestSelectors:
    """Class and CEL expressions of one request or subrequest."""

    name: str
    device_class: str = ""
    class_selectors: tuple[str, ...] = ()
    selectors: tuple[str, ...] = ()


def read_request_selectors(
    view: PodView, name: str, body: ExactDeviceRequest | DeviceSubRequest
) -> RequestSelectors:
    found = view.snapshot.classes.get(body.device_class_name)
    of_class = found.spec.selectors if found is not None else ()
    return RequestSelectors(
        name, body.device_class_name, _expressions(of_class), _expressions(body.selectors)
    )


def find_request_selectors(view: PodView, refused: RequestRefusal) -> RequestSelectors:
    """Return the selectors of the request that was refused."""
    for claim in view.pod_info.claims:
        if claim.metadata.full_name == refused.claim:
            for name, body in device_requests(claim):
                if name == refused.request:
                    return read_request_selectors(view, name, body)
    return RequestSelectors(refused.request)


def _expressions(selectors: tuple[DeviceSelector, ...]) -> tuple[str, ...]:
    return tuple(selector.cel.expression if selector.cel is not None else "" for selector in selectors)
