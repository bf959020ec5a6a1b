"""Which URLs the tool goto_url may open: http(s), public, or the task's own sites.

A name is judged as it is written: what it resolves to, redirects, subresources and
the clicks that navigate are not seen here. Those need the forward proxy that resolves
a name, checks the address and connects to that very address; until it is there, live
runs belong behind a firewall that keeps private addresses out.
"""

import ipaddress
import re
import socket
import urllib.parse
from collections.abc import Collection


def check(url: str, sites: Collection[str], hosts: Collection[str]) -> str:
    """The URL to open, or a ValueError that says why it is refused.

    `sites` are the local sites of this task; `hosts` all that this worker serves.
    Example: " Example.com/a" -> "https://Example.com/a"; "file:///etc" is refused.
    """
    url = url.strip()
    if url.lower() == "about:blank":
        return "about:blank"
    if not url or re.search(r"\s|[\x00-\x1f]", url):
        raise ValueError("the URL is empty or has spaces in it")
    if url.startswith("//"):
        url = "https:" + url
    elif not _scheme(url):
        url = "https://" + url
    try:
        parts = urllib.parse.urlsplit(url)
        host = (parts.hostname or "").rstrip(".")
        _ = parts.port
    except ValueError as error:
        raise ValueError(f"it is no URL: {error}") from None
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"{parts.scheme}: is not allowed, only http and https")
    if not host:
        raise ValueError("the URL has no host")
    if host not in sites and (host in hosts or is_private(host)):
        raise ValueError(f"{host} is a private address")
    return url


def is_private(host: str) -> bool:
    """True iff the host is, as written, an address that is not on the open internet.

    Example: "localhost", "127.1", "0x7f.1", "10.0.0.8" and "::1" are private.
    """
    host = host.lower().strip("[]")
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    address = _address(host)
    return address is not None and (not address.is_global or address.is_multicast)


def _scheme(url: str) -> str:
    """The scheme that is written; "" for host:port, which only looks like one."""
    found = re.match(r"([a-z][a-z0-9+.-]*):(.*)", url, re.IGNORECASE)
    if not found or re.match(r"\d+(/|$|\?|#)", found[2]):
        return ""
    return found[1].lower()


def _address(host: str):
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        try:  # browsers also take the old forms: 127.1, 0x7f000001, 2130706433
            return ipaddress.ip_address(socket.inet_ntoa(socket.inet_aton(host)))
        except OSError:
            return None
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address
