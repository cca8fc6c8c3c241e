"""The outcomes of attempts and requests, and the retry decision."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from latdoctor.load.plan import RetryPolicy

Ending = Literal["answered", "refused", "rejected", "failed", "timed_out", "not_sent"]

# The outcome of an attempt without an HTTP status.
TIMEOUT, NO_CONNECTION, RESET, BAD_ANSWER = "timeout", "no-connection", "reset", "bad-answer"
_RETRIED = frozenset({"refused", "failed", "timed_out"})  # outcomes that may succeed on a retry


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
    """The ending of an attempt. 429 and 503 are load shedding; other 4xx are errors of the request."""
    if status == TIMEOUT:
        return "timed_out"
    if not status.isdigit():
        return "failed"
    if status.startswith("2"):
        return "answered"
    if status in {"429", "503"}:
        return "refused"
    return "rejected" if status.startswith("4") else "failed"


def retry_delay(policy: RetryPolicy, made: int, reply: Reply, chance: float) -> float | None:
    """Seconds until the next attempt after `made` attempts; None: no retry.

    `chance` in [0, 1) is the jitter, drawn by the caller from a seeded generator.
    """
    if policy.kind == "none" or made >= policy.attempts or ending_of(reply.status) not in _RETRIED:
        return None
    if policy.kind == "immediate":
        return 0.0
    ceiling = min(policy.max_ms, policy.base_ms * 2.0 ** (made - 1)) / 1000
    return max(chance * ceiling, reply.retry_after or 0.0)
