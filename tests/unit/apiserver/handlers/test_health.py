"""Health endpoints: names of checks, exclusion, single checks and a store that cannot be written."""

from __future__ import annotations

import pytest

from plimsoll.apiserver.handlers.health import check_names, report_health

VERBOSE = [("verbose", "")]


def lines(endpoint: str, *query: tuple[str, str], error: str = "") -> tuple[int, list[str]]:
    answer = report_health(endpoint, "", query, error)
    assert isinstance(answer.body, bytes)
    return answer.status, answer.body.decode().splitlines()


@pytest.mark.parametrize("endpoint", ["healthz", "livez", "readyz"])
def test_every_check_is_named(endpoint: str) -> None:
    assert lines(endpoint) == (200, ["ok"])
    names = [f"[+]{name} ok" for name in check_names(endpoint)]
    assert lines(endpoint, *VERBOSE) == (200, [*names, f"{endpoint} check passed"])
    for name in ("ping", "log", "etcd", "poststarthook/rbac/bootstrap-roles", "autoregister-completion"):
        assert f"[+]{name} ok" in names


def test_a_store_that_cannot_be_written_is_not_ready() -> None:
    for endpoint in ("healthz", "readyz"):
        status, found = lines(endpoint, error="disk full")
        assert (status, found[-1]) == (503, f"{endpoint} check failed")
        assert "[-]etcd failed: disk full" in found
        assert report_health(endpoint, "etcd", (), "disk full").status == 500
    assert lines("livez", error="disk full") == (200, ["ok"])


def test_checks_can_be_excluded() -> None:
    query = [("exclude", "etcd"), ("exclude", "etcd-readiness"), *VERBOSE]
    status, found = lines("readyz", *query, error="disk full")
    assert status == 200
    assert "[+]etcd excluded: ok" in found
    _, found = lines("healthz", ("exclude", "nosuch"), *VERBOSE)
    assert 'warn: some health checks cannot be excluded: no matches for "nosuch"' in found


def test_one_check() -> None:
    assert report_health("healthz", "poststarthook/rbac/bootstrap-roles", (), "").body == b"ok"
    assert report_health("healthz", "nosuch", (), "").status == 404
    assert report_health("livez", "shutdown", (), "").status == 404
