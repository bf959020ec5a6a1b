"""Which URLs the tool goto_url may open, and which addresses the browser may reach.

`check` judges a URL as it is written, before it is opened: http(s), public, or one of
the task's own sites. What names resolve to, redirects, subresources and the clicks
that navigate are judged by `is_public`, at the browser's one way out (`web.proxy`).
"""

import ipaddress
import re
import socket
import urllib.parse
from collections.abc import Collection

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # the last 32 bits are an IPv4 address
# Public by their look: protocol assignments (Oracle's metadata), Azure's metadata.
_SPECIAL = ("192.0.0.0/24", "168.63.129.16/32")
_SPECIAL_V4 = [ipaddress.IPv4Network(network) for network in _SPECIAL]


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
    host = host.lower().strip("[]").rstrip(".")
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        return True
    address = _address(host)
    return address is not None and not is_public(address)


def is_public(address: Address) -> bool:
    """True iff the address is on the open internet, whatever form it hides in.

    Example: 8.8.8.8 and 64:ff9b::8.8.8.8 are public; 169.254.169.254, fd00::1,
    ::ffff:127.0.0.1, 2002:7f00:1:: and 64:ff9b::10.0.0.8 are not.
    """
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return is_public(address.ipv4_mapped)
        if address in _NAT64:
            return is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address not in _GLOBAL_V6 or address.sixtofour or address.teredo:
            return False
    is_special = any(address in network for network in _SPECIAL_V4)
    is_single = not (address.is_multicast or address.is_reserved)
    return address.is_global and is_single and not is_special


def _scheme(url: str) -> str:
    """The scheme that is written; "" for host:port, which only looks like one."""
    found = re.match(r"([a-z][a-z0-9+.-]*):(.*)", url, re.IGNORECASE)
    if not found or re.match(r"\d+(/|$|\?|#)", found[2]):
        return ""
    return found[1].lower()


def _address(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        try:  # browsers also take the old forms: 127.1, 0x7f000001, 2130706433
            return ipaddress.ip_address(socket.inet_ntoa(socket.inet_aton(host)))
        except OSError:
            return None
