"""IP addresses, networks and URLs."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plimsoll.cel.functions import cidr, ip, urls
from plimsoll.errors import CelRuntimeError
from tests.unit.cel.evaluation import fails, value


@given(st.integers(0, 2**128 - 1) | st.integers(0, 2**40 - 1).map(lambda n: n * 2**88))
def test_ipv6_text_agrees_with_the_standard_library(number: int) -> None:
    address = ipaddress.IPv6Address(number)
    if address.ipv4_mapped is not None:
        return
    parsed = ip.parse(address.exploded)
    assert parsed.number == number
    assert ip.format_ip(parsed) == address.compressed
    assert ip.parse(ip.format_ip(parsed)) == parsed


@given(st.integers(0, 2**32 - 1))
def test_ipv4_text_agrees_with_the_standard_library(number: int) -> None:
    text = str(ipaddress.IPv4Address(number))
    assert ip.format_ip(ip.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1.2.3",
        "1.2.3.4.5",
        "1.2.3.256",
        "1.2.3.04",
        "1.2.3.",
        "a.b.c.d",
        ":",
        ":::",
        "1::2::3",
        "1:2:3:4:5:6:7:8:9",
        "12345::",
        "::ffff:1.2.3.4",
        "fe80::1%eth0",
        "fe80::1%",
        "1:2:3:4:5:6:7::8",
        "1.2.3.4%e",
        "::1.2.3",
        "１.2.3.4",
    ],
)
def test_invalid_addresses(text: str) -> None:
    assert not ip.is_ip(text)


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.0",
        "10.0.0.0/",
        "10.0.0.0/33",
        "::/129",
        "10.0.0.0/08",
        "10.0.0.0/-1",
        "10.0.0.0/+8",
        "fe80::%e/64",
        "/8",
    ],
)
def test_invalid_networks(text: str) -> None:
    with pytest.raises(CelRuntimeError):
        cidr.parse(text)


@pytest.mark.parametrize(
    "expression",
    [
        "ip('10.0.0.1').family() == 4 && ip('::1').family() == 6 && ip('::1.2.3.4').family() == 6",
        "ip('0.0.0.0').isUnspecified() && ip('::').isUnspecified() && !ip('::1').isUnspecified()",
        "ip('127.1.2.3').isLoopback() && ip('::1').isLoopback() && !ip('128.0.0.1').isLoopback()",
        "ip('224.0.0.9').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast()",
        "!ip('224.0.1.1').isLinkLocalMulticast() && !ip('ff05::1').isLinkLocalMulticast()",
        "ip('169.254.0.1').isLinkLocalUnicast() && ip('febf::1').isLinkLocalUnicast()",
        "ip('10.0.0.1').isGlobalUnicast() && ip('fd00::1').isGlobalUnicast()",
        "!ip('255.255.255.255').isGlobalUnicast()",
        "!ip('224.1.1.1').isGlobalUnicast() && !ip('::').isGlobalUnicast()",
        "ip.isCanonical('::1') && !ip.isCanonical('0::1') && !ip.isCanonical('FE80::1')",
        "string(ip('2001:DB8:0:0:1:0:0:1')) == '2001:db8::1:0:0:1' && ip('::1') == ip('0:0::1')",
        "cidr('10.0.0.0/8').containsIP('10.255.0.1') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))",
        "!cidr('10.0.0.0/8').containsIP('::1') && cidr('0.0.0.0/0').containsIP('8.8.8.8')",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8')",
        "cidr('10.0.0.0/8').containsCIDR(cidr('10.0.0.0/8')) && !cidr('::/0').containsCIDR('10.0.0.0/8')",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.1.2.3/8') != cidr('10.0.0.0/8')",
        "cidr('10.1.2.3/8').ip() == ip('10.1.2.3') && cidr('::/64').prefixLength() == 64",
        "string(cidr('2001:db8::/32')) == '2001:db8::/32' && isCIDR('::/0') && !isCIDR('::')",
        "url('https://u:p@h.example:8443/a/b?x=1&x=2&y#f').getHost() == 'h.example:8443'",
        "url('https://h.example:8443/').getPort() == '8443' && url('https://h/').getPort() == ''",
        "url('https://[fe80::1%25eth0]:1/').getHostname() == 'fe80::1%eth0'",
        "url('HTTP://h').getScheme() == 'http'",
        "url('https://h/a?x=1&x=2&y#f').getQuery() == {'x': ['1', '2'], 'y': ['']}",
        "url('https://h/?a=b+c%20d&e;f=1&%zz=1&g=%2b').getQuery() == {'a': ['b c d'], 'g': ['+']}",
        "url('https://h/a b').getEscapedPath() == '/a%20b'",
        "url('https://h/a%2Fb!').getEscapedPath() == '/a%2Fb!'",
        "url('https://h/a') == url('HTTPS://h/a') && url('https://h/a') != url('https://h/a?')",
        "url('/abs/path?q').getEscapedPath() == '/abs/path' && url('/abs').getHost() == ''",
        "url('mailto:a@b').getScheme() == 'mailto' && url('mailto:a@b').getHost() == ''",
        "isURL('*') && isURL('/x#y') && isURL('s:')",
    ],
)
def test_holds(expression: str) -> None:
    assert value(expression)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "relative",
        "../up",
        "//h/x:y\x01",
        "https://h:port/",
        "https://h:1:2/",
        "https://a b/",
        "https://[::1/",
        ":x",
        "https://[1.2.3.4]/",
        "https://x[::1]/",
        "https://h/%zz",
        "https://h%41/",
        "https://u^@h/",
        "https://[::1]x/",
    ],
)
def test_invalid_urls(text: str) -> None:
    with pytest.raises(CelRuntimeError):
        urls.parse(text)


def test_wrong_types_fail() -> None:
    assert fails("isURL(dyn(1))")
    assert fails("ip(dyn(1)) == ip('::1')")
    assert fails("cidr('::/0').containsIP(dyn(1))")
    assert fails("dyn('10.0.0.0/8').containsIP('10.0.0.1')")
    assert fails("dyn(ip('::1')) == 1")
    assert value("!(dyn(1) == ip('::1'))")
