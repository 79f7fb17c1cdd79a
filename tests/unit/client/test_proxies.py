"""Proxy selection from the environment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.client.proxies import bypasses, check_proxy, find_proxy
from plimsoll.errors import ConfigError

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, ""),
        ({"HTTPS_PROXY": PROXY}, PROXY),
        ({"https_proxy": PROXY}, PROXY),
        ({"HTTPS_PROXY": PROXY, "https_proxy": "http://other:1"}, PROXY),
        ({"HTTP_PROXY": PROXY}, ""),
        ({"HTTPS_PROXY": "proxy.example:3128"}, PROXY),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "example.com"}, ""),
        ({"HTTPS_PROXY": PROXY, "no_proxy": "example.com"}, ""),
        ({"HTTPS_PROXY": PROXY, "NO_PROXY": "other.com"}, PROXY),
    ],
)
def test_the_environment_names_a_proxy(environ: dict[str, str], wanted: str) -> None:
    assert find_proxy("https://api.example.com:6443", environ) == wanted


def test_http_servers_use_http_proxy() -> None:
    assert find_proxy("http://api.example.com", {"HTTP_PROXY": PROXY}) == PROXY
    assert find_proxy("http://api.example.com", {"HTTPS_PROXY": PROXY}) == ""
    assert find_proxy("http://api.example.com", {"HTTP_PROXY": PROXY, "REQUEST_METHOD": "GET"}) == ""


@pytest.mark.parametrize(
    ("rules", "host", "port", "wanted"),
    [
        ("", "example.com", 443, False),
        ("*", "example.com", 443, True),
        ("example.com", "example.com", 443, True),
        ("example.com", "api.example.com", 443, True),
        ("example.com", "badexample.com", 443, False),
        (".example.com", "example.com", 443, False),
        (".example.com", "api.example.com", 443, True),
        ("*.example.com", "api.example.com", 443, True),
        ("example.com:6443", "example.com", 6443, True),
        ("example.com:6443", "example.com", 443, False),
        (" other , EXAMPLE.com ", "example.COM", 443, True),
        ("10.0.0.0/8", "10.1.2.3", 443, True),
        ("10.0.0.0/8", "11.1.2.3", 443, False),
        ("10.0.0.0/8", "example.com", 443, False),
        ("10.1.2.3", "10.1.2.3", 443, True),
        ("10.1.2.3:80", "10.1.2.3", 443, False),
        ("fd00::/8", "fd00::1", 443, True),
        ("fd00::1", "fd00::1", 443, True),
        ("[fd00::1]:443", "fd00::1", 443, True),
        ("[fd00::1]:80", "fd00::1", 443, False),
        ("10.0.0.0/99", "10.1.2.3", 443, False),
        ("2.3", "10.1.2.3", 443, False),
        ("", "localhost", 443, True),
        ("", "127.0.0.1", 443, True),
        ("", "::1", 443, True),
    ],
)
def test_hosts_excluded_by_no_proxy(rules: str, host: str, port: int, wanted: bool) -> None:
    assert bypasses(host, port, rules) == wanted


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("socks5://proxy:1080", "SOCKS proxies are not supported"),
        ("socks5h://proxy:1080", "SOCKS"),
        ("ftp://proxy", "write http://HOST:PORT"),
        ("http://", "has no host"),
        ("http://proxy:99999", "not a proxy URL"),
        ("http://[::1", "not a proxy URL"),
    ],
)
def test_unsupported_proxies(url: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        check_proxy(url, "cluster 'c': proxy-url")
    assert str(caught.value).startswith("cluster 'c': proxy-url: ")


@given(st.text("ab.*:/[]0129,- ", max_size=20), st.sampled_from(["a.b", "10.0.0.1", "fd00::1", ""]))
def test_any_no_proxy_rule_is_read(rules: str, host: str) -> None:
    assert bypasses(host, 443, rules) in (True, False)
