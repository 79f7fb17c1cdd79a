"""Request info: resource and verb of a path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.apiserver.request_info import parse_request_info
from plimsoll.errors import ApiError
from tests.unit.apiserver.build import refused


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/api/v1/pods", ("pods", "list", "", "", "")),
        ("GET", "/api/v1/namespaces/a/pods", ("pods", "list", "a", "", "")),
        ("GET", "/api/v1/namespaces/a/pods/p", ("pods", "get", "a", "p", "")),
        ("PATCH", "/api/v1/namespaces/a/pods/p/status", ("pods", "patch", "a", "p", "status")),
        ("POST", "/api/v1/namespaces/a/pods/p/binding", ("pods", "create", "a", "p", "binding")),
        ("POST", "/api/v1/namespaces/a/bindings", ("bindings", "create", "a", "", "")),
        ("GET", "/api/v1/namespaces", ("namespaces", "list", "", "", "")),
        ("GET", "/api/v1/namespaces/a", ("namespaces", "get", "", "a", "")),
        ("PUT", "/api/v1/namespaces/a/finalize", ("namespaces", "update", "", "a", "finalize")),
        ("PUT", "/api/v1/namespaces/a/status", ("namespaces", "update", "", "a", "status")),
        (
            "DELETE",
            "/apis/resource.k8s.io/v1/resourceslices",
            ("resourceslices", "deletecollection", "", "", ""),
        ),
        ("DELETE", "/apis/resource.k8s.io/v1beta2/deviceclasses/c", ("deviceclasses", "delete", "", "c", "")),
        ("GET", "/api/v1/watch/pods", ("pods", "watch", "", "", "")),
    ],
)
def test_routes(method: str, path: str, expected: tuple[str, ...]) -> None:
    info = parse_request_info(method, path)
    assert info is not None
    assert (info.plural, info.verb, info.namespace, info.name, info.subresource) == expected


@pytest.mark.parametrize("path", ["/", "/api", "/api/v1", "/apis", "/apis/apps", "/apis/apps/v1", "/healthz"])
def test_other_paths_are_not_resources(path: str) -> None:
    assert parse_request_info("GET", path) is None


@pytest.mark.parametrize(
    ("method", "path", "code"),
    [
        ("GET", "/api/v1/nothing", 404),
        ("GET", "/api/v2/pods", 404),
        ("GET", "/api/v1/pods/p", 404),
        ("GET", "/api/v1/namespaces/a/nodes", 404),
        ("GET", "/api/v1/namespaces/a/pods/p/nothing", 404),
        ("GET", "/api/v1/namespaces/a/pods/p/status/x", 404),
        ("POST", "/api/v1/namespaces/a/pods/p", 405),
        ("PUT", "/api/v1/pods", 405),
        ("GET", "/api/v1/namespaces/a/pods/p/binding", 405),
        ("DELETE", "/api/v1/namespaces/a/pods/p/status", 405),
        ("DELETE", "/api/v1/namespaces", 405),
        ("TRACE", "/api/v1/nodes", 405),
    ],
)
def test_refusals(method: str, path: str, code: int) -> None:
    with pytest.raises(ApiError) as caught:
        parse_request_info(method, path)
    assert caught.value.code == code


@given(
    st.sampled_from(["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "BREW"]),
    st.lists(
        st.sampled_from(["api", "apis", "v1", "apps", "namespaces", "pods", "a", "status", "watch", ""])
    ),
    st.booleans(),
)
def test_any_path_is_a_resource_refused_or_ignored(method: str, parts: list[str], watches: bool) -> None:
    code = refused(lambda: parse_request_info(method, "/" + "/".join(parts), watches=watches))
    assert code in (0, 404, 405)
