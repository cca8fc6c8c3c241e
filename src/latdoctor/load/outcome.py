"""How a request ends: statuses of attempts, endings, and when an attempt is repeated."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from latdoctor.load.plan import RetryKind, RetryPolicy


class Ending(StrEnum):
    """How a request or an attempt ended."""

    ANSWERED = "answered"
    REFUSED = "refused"  # 429 or 503: load shedding
    REJECTED = "rejected"  # another 4xx: an error of the request
    FAILED = "failed"  # 5xx, no connection, a broken or wrong response
    TIMED_OUT = "timed_out"
    NOT_SENT = "not_sent"  # the limit of requests in flight was reached


# The outcome of an attempt without an HTTP status.
TIMEOUT, NO_CONNECTION, RESET, BAD_ANSWER = "timeout", "no-connection", "reset", "bad-answer"
WRONG_HISTORY = "wrong-history"  # answered with other turns of the session than the client had sent
_RETRIED = frozenset({Ending.REFUSED, Ending.FAILED, Ending.TIMED_OUT})  # endings that may succeed on a retry


class Reply(Struct, frozen=True, gc=False):
    """The outcome of one attempt: an HTTP status as text or one of the codes above; Retry-After in seconds.

    `content_bytes` is the size of the response body.
    """

    status: str
    retry_after: float | None = None
    content_bytes: int = 0


class RequestOutcome(Struct, frozen=True, gc=False):
    """The outcome of one planned request. `took` and `late` are seconds from its planned time.

    `statuses` has one entry per attempt; empty for a request that was not sent.
    """

    index: int
    took: float
    late: float
    ending: Ending
    statuses: tuple[str, ...] = ()


def ending_of(status: str) -> Ending:
    """Return the ending of an attempt with this status."""
    if status == TIMEOUT:
        return Ending.TIMED_OUT
    if status.startswith("2"):
        return Ending.ANSWERED
    if status in {"429", "503"}:
        return Ending.REFUSED
    return Ending.REJECTED if status.startswith("4") else Ending.FAILED


def retry_delay(policy: RetryPolicy, made: int, reply: Reply, chance: float) -> float | None:
    """Return the seconds until the next attempt after `made` attempts; None: no retry.

    `chance` in [0, 1) is the jitter, drawn by the caller from a seeded generator.
    """
    if policy.kind is RetryKind.NONE or made >= policy.attempts or ending_of(reply.status) not in _RETRIED:
        return None
    if policy.kind is RetryKind.IMMEDIATE:
        return 0.0
    ceiling = min(policy.max_ms, policy.base_ms * 2.0 ** (made - 1)) / 1000
    return max(chance * ceiling, reply.retry_after or 0.0)
