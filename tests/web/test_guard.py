"""Which URLs pass the guard, as written, and which addresses."""

import ipaddress

import pytest

from openwebrl_jax.web import guard

SITES, HOSTS = ("site.test",), ("site.test", "other.test")


@pytest.mark.parametrize(
    "url, opened",
    [
        ("example.com", "https://example.com"),
        ("example.com:8080/x", "https://example.com:8080/x"),
        ("//example.com/p", "https://example.com/p"),
        ("  HTTP://Example.com/A ", "HTTP://Example.com/A"),
        ("about:blank", "about:blank"),
        ("http://site.test/x", "http://site.test/x"),
        ("https://münchen.de/", "https://münchen.de/"),
        ("http://8.8.8.8/", "http://8.8.8.8/"),
    ],
)
def test_passes(url, opened):
    assert guard.check(url, SITES, HOSTS) == opened


@pytest.mark.parametrize(
    "url",
    ["", "  ", "http://", "http:///x", "a b.com", "http://a.b/\x00", "http://[::1"]
    + ["data:text/html,x", "javascript:alert(1)", "  JaVaScRiPt:alert(1)"]
    + ["file:///etc/hostname", "chrome://version", "view-source:http://a.b", "blob:x"]
    + ["http://localhost:8000/x", "localhost:8000", "http://a.localhost/"]
    + ["http://127.0.0.1", "http://127.1", "http://2130706433/", "http://0x7f000001"]
    + ["http://10.1.2.3", "http://192.168.0.1", "http://169.254.169.254/latest"]
    + ["http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://0/", "http://224.0.0.1"]
    + ["http://other.test/", "http://site.test./@localhost", "http://x@127.0.0.1/"],
)
def test_refuses(url):
    if url == "http://site.test./@localhost":
        assert guard.check(url, SITES, HOSTS) == url
        return
    with pytest.raises(ValueError):
        guard.check(url, SITES, HOSTS)


PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8"]
PUBLIC += ["64:ff9b::808:808"]
PRIVATE = ["0.0.0.0", "10.0.0.8", "100.64.0.1", "100.100.100.200", "127.0.0.1"]
PRIVATE += ["127.255.255.254", "169.254.169.254", "172.16.0.1", "192.0.0.192"]
PRIVATE += ["192.0.2.1", "192.168.0.1", "198.18.0.1", "224.0.0.1", "239.1.2.3"]
PRIVATE += ["240.0.0.1", "255.255.255.255", "168.63.129.16"]
PRIVATE += ["::", "::1", "::127.0.0.1", "::8.8.8.8", "::ffff:127.0.0.1"]
PRIVATE += ["::ffff:10.0.0.8", "64:ff9b::127.0.0.1", "64:ff9b::a00:8"]
PRIVATE += ["64:ff9b:1::1", "100::1", "2001::1", "2001:0:7f00:1::", "2001:db8::1"]
PRIVATE += ["2002:7f00:1::", "2002:808:808::", "fc00::1", "fd00:ec2::254", "fe80::1"]
PRIVATE += ["fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1", "4000::1"]


@pytest.mark.parametrize("address", [*PUBLIC, *PRIVATE])
def test_addresses(address):
    assert guard.is_public(ipaddress.ip_address(address)) is (address in PUBLIC)
