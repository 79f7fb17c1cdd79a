"""The same requests to our server and to a real kube-apiserver: codes and bodies must agree."""

from __future__ import annotations

import json
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from plimsoll.client import ClientConfig
from tests.cluster.kube_apiserver import run_apiserver
from tests.real.api_requests import CASES, Case
from tests.real.programs import ASSETS, missing, skip_before
from tests.smoke.process import ServerProcess

_MISSING = missing("kube-apiserver", "etcd")
pytestmark = pytest.mark.skipif(bool(_MISSING), reason=_MISSING)
_GATES = "DRANodeAllocatableResources=true,DRAListTypeAttributes=true,DRADeviceTaintRules=true"
_GATES += ",DRAResourcePoolStatus=true,GenericWorkload=true"
#: Texts of errors are ours, uids and times differ between any two servers.
_OMITTED = {"managedFields", "message", "continue", "description"}
_VARYING = {"uid", "resourceVersion", "creationTimestamp"}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")

Send = Callable[[Case], tuple[int, Any]]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Send, Send]]:
    """Functions that send a request to kube-apiserver and to our server."""
    skip_before(36, "which has the gates")
    directory = tmp_path_factory.mktemp("servers")
    with ExitStack() as stack:
        (directory / "real").mkdir()
        options = ("--runtime-config=api/all=true",)
        real = stack.enter_context(run_apiserver(ASSETS, directory / "real", _GATES, options))
        ours = ServerProcess(directory, "--no-controllers", durable=False)
        ours.start()
        stack.callback(ours.stop)
        yield _sender(real), _sender(ours.config())


def _sender(config: ClientConfig) -> Send:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    assert config.token is not None
    token = (config.token.data or b"").decode()

    def send(case: Case) -> tuple[int, Any]:
        data = None if case.body is None else json.dumps(case.body).encode()
        headers = {"Authorization": f"Bearer {token}", "Accept": case.accept, "Content-Type": case.media}
        request = urllib.request.Request(config.server + case.path, data, headers, method=case.method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=context) as answer:
                return answer.status, _decode(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _decode(error.read())

    return send


def _decode(raw: bytes) -> Any:
    try:
        return _normalize(json.loads(raw))
    except ValueError:
        events = [_normalize(json.loads(line)) for line in raw.splitlines()] if raw[:1] == b"{" else None
        return raw if events is None else [event for event in events if not _is_periodic(event)]


def _is_periodic(event: Any) -> bool:
    """Report whether an event is a bookmark whose time is up to the server."""
    return event["type"] == "BOOKMARK" and "annotations" not in event["object"]["metadata"]


def _normalize(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        return {key: _normalize(value[key], key) for key in sorted(value) if key not in _OMITTED}
    if isinstance(value, list):
        return [_normalize(item) for item in value]
    if name in _VARYING and value:
        return f"<{name}>"
    return _TIME.sub("<time>", value) if isinstance(value, str) else value


@pytest.mark.parametrize("name", CASES)
def test_responses_agree(name: str, servers: tuple[Send, Send]) -> None:
    for case in CASES[name]:
        real, ours = (send(case) for send in servers)
        assert ours == real, case


def test_the_comparison_can_fail(servers: tuple[Send, Send], tmp_path: Path) -> None:
    real, ours = servers
    assert real(Case("GET", "/version")) != ours(Case("GET", "/version"))
