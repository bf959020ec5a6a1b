"""Certificates that nobody vouches for (OpenHands#10592, agent-browser#1124)."""

import datetime
import ssl
import threading

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from openwebrl_jax.core.causes import Cause, Failure
from openwebrl_jax.core.types import Task
from openwebrl_jax.web import browser, env
from tests.web import toys
from tests.web.conftest import Site

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="session")]

URL = "https://site.test/page"


def write_certificate(path):
    """A key with a certificate that it has signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, toys.HOST)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(toys.HOST)]), False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))


@pytest.fixture(scope="module")
def secure(tmp_path_factory):
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    write_certificate(path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    server = Site()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.pages["/page"] = "<title>Secret</title><p>x</p>"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


async def test_https_on_a_plain_port_is_feedback_then_a_cause(surf):
    await surf.open("<title>start</title>")
    state, text = await surf.do("goto_url", url=URL)
    assert state == "failed" and "ERR_SSL_PROTOCOL_ERROR" in text
    assert surf.seen.tabs[0].title == "start" and surf.step.cause is None
    with pytest.raises(Failure) as caught:
        await surf.env.reset(
            Task(id="t", intent="", start_url=URL, max_turns=1, sites=(toys.HOST,))
        )
    assert caught.value.cause is Cause.TLS


async def test_a_self_signed_certificate_is_refused_unless_that_is_switched_off(
    config, secure, chromium
):
    pool = browser.Pool(config, {toys.HOST: secure.server_port})
    slot = env.make_env(pool)
    task = Task(id="t", intent="", start_url=URL, max_turns=1, sites=(toys.HOST,))
    try:
        for _ in range(2):  # the first failure is not held against the site for ever
            with pytest.raises(Failure, match="ERR_CERT_AUTHORITY_INVALID") as caught:
                await slot.reset(task)
            assert caught.value.cause is Cause.TLS
        with config.unlocked():
            config.verify_tls = False
        _, seen = await slot.reset(task)
        assert seen.tabs[0].title == "Secret"
    finally:
        with config.unlocked():
            config.verify_tls = True
        await slot.close()
        await pool.close()
