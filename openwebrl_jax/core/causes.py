"""Why an episode ended, and who caused it.

A `Cause` is set where the error is raised, never by reading a message. Endings that
the policy caused are scored; all others make the slot void: it leaves the baseline,
the gradient, the success rate and the curriculum, and is counted.
"""

import enum


class Owner(enum.StrEnum):
    """Who is answerable for an ending."""

    POLICY = "policy"
    SITE = "site"
    INFRA = "infra"
    JUDGE = "judge"
    OPERATOR = "operator"


class Cause(enum.StrEnum):
    """Every way in which an episode can end."""

    DONE = "done"
    PAGE_DONE = "page_done"  # the page itself ended the task
    GAVE_UP = "gave_up"
    FORMAT_ERROR = "format_error"
    MAX_TURNS = "max_turns"
    CONTEXT_FULL = "context_full"  # after at least one turn
    RESPONSE_TRUNCATED = "response_truncated"
    DAWDLED = "dawdled"  # the task's time ran out, and mostly by the policy's doing

    DNS = "dns"
    TLS = "tls"
    REFUSED = "refused"
    HTTP_ERROR = "http_error"
    BLOCKED = "blocked"
    LOGIN_REQUIRED = "login_required"
    SITE_TIMEOUT = "site_timeout"
    PAGE_CRASH = "page_crash"

    BROWSER_CRASH = "browser_crash"
    WORKER_LOST = "worker_lost"
    SAMPLER_UNAVAILABLE = "sampler_unavailable"
    SAMPLER_PROTOCOL = "sampler_protocol"
    ENV_TIMEOUT = "env_timeout"
    NETWORK_DOWN = "network_down"  # neither the site nor another one could be opened

    JUDGE_UNAVAILABLE = "judge_unavailable"
    JUDGE_UNPARSEABLE = "judge_unparseable"

    CANCELLED = "cancelled"
    PROMPT_TOO_LONG = "prompt_too_long"  # at turn 0: a fault of the configuration

    @property
    def owner(self) -> Owner:
        """Who is answerable for this ending."""
        return _OWNERS[self]

    @property
    def is_scored(self) -> bool:
        """True iff the policy caused it, so that it counts for or against it."""
        return self.owner is Owner.POLICY


_OWNERS = {
    **dict.fromkeys(
        (
            Cause.DONE,
            Cause.PAGE_DONE,
            Cause.GAVE_UP,
            Cause.FORMAT_ERROR,
            Cause.MAX_TURNS,
            Cause.CONTEXT_FULL,
            Cause.RESPONSE_TRUNCATED,
            Cause.DAWDLED,
        ),
        Owner.POLICY,
    ),
    **dict.fromkeys(
        (
            Cause.DNS,
            Cause.TLS,
            Cause.REFUSED,
            Cause.HTTP_ERROR,
            Cause.BLOCKED,
            Cause.LOGIN_REQUIRED,
            Cause.SITE_TIMEOUT,
            Cause.PAGE_CRASH,
        ),
        Owner.SITE,
    ),
    **dict.fromkeys(
        (
            Cause.BROWSER_CRASH,
            Cause.WORKER_LOST,
            Cause.SAMPLER_UNAVAILABLE,
            Cause.SAMPLER_PROTOCOL,
            Cause.ENV_TIMEOUT,
            Cause.NETWORK_DOWN,
        ),
        Owner.INFRA,
    ),
    Cause.JUDGE_UNAVAILABLE: Owner.JUDGE,
    Cause.JUDGE_UNPARSEABLE: Owner.JUDGE,
    Cause.CANCELLED: Owner.OPERATOR,
    Cause.PROMPT_TOO_LONG: Owner.OPERATOR,
}


class Failure(Exception):
    """Ends an episode with a typed cause; caught in `rollout.episode` alone.

    Example: `raise Failure(Cause.DNS, "net::ERR_NAME_NOT_RESOLVED at http://a.b/")`.
    """

    def __init__(self, cause: Cause, detail: str):
        super().__init__(f"{cause}: {detail}")
        self.cause = cause
        self.detail = detail

    def __reduce__(self):
        return Failure, (self.cause, self.detail)
