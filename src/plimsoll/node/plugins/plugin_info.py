"""Plugin information: validation of a plugin's GetInfo response.

The messages are the kubelet's where it has the case. Pure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from plimsoll.protocols.rpc import MAX_PATH_LENGTH

#: The only supported plugin type.
TYPE = "DRAPlugin"
V1, V1BETA1 = "v1.DRAPlugin", "v1beta1.DRAPlugin"
SERVICES = (V1, V1BETA1)
HEALTH_V1, HEALTH_V1ALPHA1 = "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"
HEALTH_SERVICES = (HEALTH_V1, HEALTH_V1ALPHA1)

#: Maximum length of quoted plugin strings.
MAX_QUOTE_LENGTH = 256
_MAX_VERSIONS = 64
_DRIVER = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_MAX_DRIVER_LENGTH = 63


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """Valid plugin: its driver, endpoint and services."""

    driver: str
    endpoint: str
    service: str
    health_service: str = ""


@dataclass(frozen=True, slots=True)
class RegistrationRefusal:
    """Reason why a plugin was not registered."""

    message: str


def validate_plugin_info(
    type: str, name: str, endpoint: str, versions: Sequence[str], socket: str
) -> PluginInfo | RegistrationRefusal:
    """Validate a plugin's response at this registration socket.

    An endpoint may be anywhere, as in the kubelet: a program that can create a socket in the registration
    directory can create it anywhere. Without an endpoint the registration socket is used.
    """
    if type != TYPE:
        return RegistrationRefusal(
            f"RegisterPlugin error -- no handler registered for plugin type: {truncate(type)}"
            f" at socket {socket}"
        )
    problem = _name_problem(name) or _endpoint_problem(endpoint := endpoint or socket)
    if not problem:
        service = choose_service(versions)
        if isinstance(service, RegistrationRefusal):
            problem = (
                f"invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}:"
                f" {service.message}"
            )
        else:
            return PluginInfo(name, endpoint, service, choose_health(versions))
    return RegistrationRefusal(f"RegisterPlugin error -- plugin validation failed with err: {problem}")


# DIFF: the kubelet accepts any name. Claims and slices can only reference drivers whose names are DNS
# subdomains of 63 characters, and the name becomes a label of metrics: test_refused_registrations.
def _name_problem(name: str) -> str:
    if len(name) > _MAX_DRIVER_LENGTH or not _DRIVER.fullmatch(name):
        return (
            f"{quote(name)} is not the name of a driver:"
            f" a DNS subdomain of at most {_MAX_DRIVER_LENGTH} characters is needed"
        )
    return ""


# DIFF: the kubelet looks for a relative endpoint in its own working directory, and detects invalid ones only
# when it calls: test_refused_registrations.
def _endpoint_problem(endpoint: str) -> str:
    if not endpoint.startswith("/") or endpoint.endswith("/") or "\0" in endpoint:
        return f"endpoint {quote(endpoint)} is not the absolute path of a socket"
    length = len(endpoint.encode("utf-8", "surrogateescape"))
    if length > MAX_PATH_LENGTH:
        return f"endpoint {quote(endpoint)} has {length} bytes, at most {MAX_PATH_LENGTH} are possible"
    return ""


def choose_service(versions: Sequence[str]) -> str | RegistrationRefusal:
    """Return the first supported service of a plugin."""
    if not versions:
        return RegistrationRefusal("empty list of supported gRPC services (aka supported versions)")
    for version in versions[:_MAX_VERSIONS]:
        if version in SERVICES:
            return version
    return RegistrationRefusal(
        f"none of services supported by the plugin ({_list(versions)})"
        f" are supported by the kubelet ({_list(SERVICES)})"
    )


def choose_health(versions: Sequence[str]) -> str:
    """Return the newest health service that the plugin supports, or ""."""
    return next((service for service in HEALTH_SERVICES if service in versions[:_MAX_VERSIONS]), "")


def _list(texts: Sequence[str]) -> str:
    shown = [quote(text) for text in texts[:8]]
    return f"[{' '.join(shown)}{' ...' if len(texts) > 8 else ''}]"


def quote(text: str) -> str:
    """Quote a plugin's string, truncated and without control characters."""
    return json.dumps(truncate(text), ensure_ascii=not text.isprintable())


def truncate(text: str, longest: int = MAX_QUOTE_LENGTH) -> str:
    """Truncate a plugin's string."""
    return text if len(text) <= longest else text[: longest - 3] + "..."
