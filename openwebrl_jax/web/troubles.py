"""What a trouble means: a cause at reset, a line for the policy later.

At reset the site is answerable, so the episode is void with the cause that Chromium
names. Later the policy may have brought it about, so it is told and goes on.
"""

from openwebrl_jax.core.causes import Cause
from openwebrl_jax.web.page import Trouble

# The beginning of a net:: code -> cause at reset; the first that fits counts.
_NET_CAUSES = {
    "ERR_NAME_": Cause.DNS,
    "ERR_DNS_": Cause.DNS,
    "ERR_CERT_": Cause.TLS,
    "ERR_SSL_": Cause.TLS,
    "ERR_BAD_SSL_": Cause.TLS,
    "ERR_INVALID_AUTH_CREDENTIALS": Cause.LOGIN_REQUIRED,
    "ERR_TIMED_OUT": Cause.SITE_TIMEOUT,
    "ERR_CONNECTION_TIMED_OUT": Cause.SITE_TIMEOUT,
    "ERR_CONNECTION_": Cause.REFUSED,
    "ERR_ADDRESS_": Cause.REFUSED,
    "ERR_EMPTY_RESPONSE": Cause.REFUSED,
    "ERR_UNSAFE_PORT": Cause.REFUSED,
    "ERR_INTERNET_": Cause.NETWORK_DOWN,
    "ERR_NETWORK_": Cause.NETWORK_DOWN,
    "ERR_PROXY_": Cause.NETWORK_DOWN,
}
_HTTP_CAUSES = {401: Cause.LOGIN_REQUIRED, 403: Cause.BLOCKED, 429: Cause.BLOCKED}
_TOLD = {
    "hung": "the page did not answer in time",
    "crashed": "the page crashed",
    "closed": "the page closed itself",
}
STAYED = "the page stayed"
OPENED = "the last page was opened again"
STARTED = "the task's first page was opened instead"
EMPTY = "the tab is empty now"


def cause_of(trouble: Trouble, status: int = 0) -> Cause:
    """The cause of a reset that came to nothing; `status` = the answer's, 0 = none."""
    if status >= 400:
        return cause_of_status(status)
    if trouble.kind == "net":
        for start, cause in _NET_CAUSES.items():
            if trouble.code.startswith(start):
                return cause
        return Cause.HTTP_ERROR
    if trouble.kind == "download":
        return Cause.HTTP_ERROR
    return Cause.SITE_TIMEOUT if trouble.kind == "hung" else Cause.PAGE_CRASH


def cause_of_status(status: int) -> Cause:
    """The cause of a reset that was answered by an HTTP error."""
    return _HTTP_CAUSES.get(status, Cause.HTTP_ERROR)


def stays(trouble: Trouble) -> bool:
    """True iff the page that was there is still there: ERR_ABORTED is no new page."""
    return trouble.kind == "download" or trouble.code == "ERR_ABORTED"


def told(trouble: Trouble, status: int, outcome: str) -> str:
    """The trouble in words; `outcome` = what is in the tab now, in words too."""
    if stays(trouble):
        answered = f"the answer was HTTP {status} without a page, " if status else ""
        return f"{answered}{outcome}"
    if status == 401:
        text = "login required (HTTP 401)"
    elif trouble.kind == "net":
        code = f"HTTP {status}" if status >= 400 else trouble.code
        text = f"the address cannot be opened ({code})"
    else:
        text = _TOLD.get(trouble.kind, "the page broke")
    return f"{text}, {outcome}"
