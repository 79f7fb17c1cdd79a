"""What a plugin says of itself when it is asked, and whether it can be used.

Owns the judgement, with the kubelet's texts where the kubelet has the case. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll.protocols.rpc import LONGEST_PATH

#: The only kind of plugin an agent works with.
TYPE = "DRAPlugin"
V1, V1BETA1 = "v1.DRAPlugin", "v1beta1.DRAPlugin"
SERVICES = (V1, V1BETA1)
HEALTH_V1, HEALTH_V1ALPHA1 = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"
HEALTH_SERVICES = (HEALTH_V1, HEALTH_V1ALPHA1)

#: Longer texts of plugins are cut where they are repeated.
LONGEST_QUOTE = 256
_MOST_VERSIONS = 64
_DRIVER = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_LONGEST_DRIVER = 63


@dataclass(frozen=True, slots=True)
class Offer:
    """A plugin that can be used: which driver, where, and by which services."""

    driver: str
    endpoint: str
    service: str
    health_service: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a plugin was not registered; `told` if the plugin was there to hear it."""

    message: str
    told: bool = False


def judge_offer(type: str, name: str, endpoint: str, versions: Sequence[str], socket: str) -> Offer | Refusal:
    """Whether a plugin can be used that answered like this at this registration socket.

    An endpoint may be anywhere, as for the kubelet: who can put a socket into the registration folder can
    put it anywhere. Without an endpoint the registration socket is meant.
    """
    if type != TYPE:
        return Refusal(
            f"RegisterPlugin error -- no handler registered for plugin type: {cut(type)} at socket {socket}"
        )
    trouble = _name_trouble(name) or _endpoint_trouble(endpoint := endpoint or socket)
    if not trouble:
        service = choose_service(versions)
        if isinstance(service, Refusal):
            trouble = (
                f"invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}:"
                f" {service.message}"
            )
        else:
            return Offer(name, endpoint, service, choose_health(versions))
    return Refusal(f"RegisterPlugin error -- plugin validation failed with err: {trouble}")


# DIFF: the kubelet takes any name. Claims and slices can only name drivers whose names are DNS subdomains of
# 63 characters, and the name becomes a label of metrics: test_what_is_refused.
def _name_trouble(name: str) -> str:
    if len(name) > _LONGEST_DRIVER or not _DRIVER.fullmatch(name):
        return (
            f"{quote(name)} is not the name of a driver:"
            f" a DNS subdomain of at most {_LONGEST_DRIVER} characters is needed"
        )
    return ""


# DIFF: the kubelet looks for a relative endpoint in its own working folder, and finds out about impossible
# ones only when it calls: test_what_is_refused.
def _endpoint_trouble(endpoint: str) -> str:
    if not endpoint.startswith("/") or endpoint.endswith("/") or "\0" in endpoint:
        return f"endpoint {quote(endpoint)} is not the absolute path of a socket"
    length = len(endpoint.encode("utf-8", "surrogateescape"))
    if length > LONGEST_PATH:
        return (
            f"endpoint {quote(endpoint)} has {length} bytes, a socket's path has at most {LONGEST_PATH} bytes"
        )
    return ""


def choose_service(versions: Sequence[str]) -> str | Refusal:
    """The first of a plugin's services that we know."""
    if not versions:
        return Refusal("empty list of supported gRPC services (aka supported versions)")
    for version in versions[:_MOST_VERSIONS]:
        if version in SERVICES:
            return version
    return Refusal(
        f"none of services supported by the plugin ({_list(versions)})"
        f" are supported by the kubelet ({_list(SERVICES)})"
    )


def choose_health(versions: Sequence[str]) -> str:
    """The newest health service that the plugin has too, or none."""
    return next((service for service in HEALTH_SERVICES if service in versions[:_MOST_VERSIONS]), "")


def _list(texts: Sequence[str]) -> str:
    shown = [quote(text) for text in texts[:8]]
    return f"[{' '.join(shown)}{' ...' if len(texts) > 8 else ''}]"


def quote(text: str) -> str:
    """A text of a plugin in quotes, cut, without control characters."""
    return json.dumps(cut(text), ensure_ascii=not text.isprintable())


def cut(text: str, longest: int = LONGEST_QUOTE) -> str:
    """A text of a plugin, no longer than that."""
    return text if len(text) <= longest else text[: longest - 3] + "..."
