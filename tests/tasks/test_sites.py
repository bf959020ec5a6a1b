import concurrent.futures
import socket
import urllib.error
import urllib.request

import pytest

from openwebrl_jax.tasks import sites


@pytest.fixture
def port():
    served = sites.serve([sites.MINIWOB])
    yield served.ports[sites.MINIWOB]
    served.close()


def get(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
        return answer.headers["Content-Type"], answer.read()


def test_pages_are_served_as_utf8(port):
    kind, body = get(port, "/miniwob/click-test.html")
    assert kind == "text/html; charset=utf-8"
    assert b"Click Test Task" in body
    assert get(port, "/core/core.js")[0] == "text/javascript; charset=utf-8"


def test_many_ask_at_once(port):
    with concurrent.futures.ThreadPoolExecutor(16) as threads:
        asked = threads.map(lambda _: get(port, "/core/core.js"), range(64))
        assert len(set(asked)) == 1


def test_nothing_outside_the_folder_is_served(port):
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(port, "/../../../../etc/passwd")


def test_a_closed_site_gives_its_port_back():
    served = sites.serve([sites.MINIWOB])
    port = served.ports[sites.MINIWOB]
    served.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2)


def test_an_unknown_site_is_refused():
    with pytest.raises(ValueError, match="unknown local site 'shop.test'"):
        sites.serve(["shop.test"])
