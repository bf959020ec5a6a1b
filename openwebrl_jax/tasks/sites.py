"""Loopback servers for the local pages that tasks are played on.

A local site has a fixed name, so that no port or worker id ever reaches a prompt; the
browser maps the name to the port that `serve` gives (`{host: port}`).
"""

import functools
import http.server
import importlib.util
import pathlib
import threading
from collections.abc import Iterable, Mapping

MINIWOB = "miniwob.test"
_POLL_S = 0.05  # how soon a server sees that it is to stop


def miniwob_folder() -> pathlib.Path:
    """Where the package `miniwob` keeps its pages; the package is not imported."""
    spec = importlib.util.find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise ValueError("the package miniwob is missing; pip install miniwob==1.1.0")
    return pathlib.Path(spec.origin).with_name("html")


SITES = {MINIWOB: miniwob_folder}  # fixed name -> the folder that is served


class Sites:
    """Running servers, one a site; owns their threads until `close`."""

    def __init__(self, folders: Mapping[str, pathlib.Path]):
        self._servers = {}
        for host, folder in folders.items():
            serve_folder = functools.partial(_Files, directory=str(folder))
            self._servers[host] = _Server(("127.0.0.1", 0), serve_folder)
        for server in self._servers.values():
            threading.Thread(
                target=server.serve_forever, args=(_POLL_S,), daemon=True
            ).start()

    @property
    def ports(self) -> dict[str, int]:
        """Which loopback port answers for which site."""
        return {host: server.server_port for host, server in self._servers.items()}

    def close(self) -> None:
        """Stops all servers and gives their ports back."""
        for server in self._servers.values():
            server.shutdown()
            server.server_close()
        self._servers = {}


def serve(sites: Iterable[str]) -> Sites:
    """Starts a server for each site by its fixed name."""
    return Sites({host: _folder(host) for host in sorted(set(sites))})


def _folder(host: str) -> pathlib.Path:
    if host not in SITES:
        raise ValueError(f"unknown local site {host!r}; known are {sorted(SITES)}")
    return SITES[host]()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # many contexts open their first page at once


class _Files(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keep-alive: a page is a dozen small files
    timeout = 30.0
    extensions_map = {  # the pages are UTF-8 and do not say so
        **http.server.SimpleHTTPRequestHandler.extensions_map,
        ".html": "text/html; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".css": "text/css; charset=utf-8",
    }

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: a line for each file of each page would drown the log."""
