"""How an attempt and a request end, and whether a client asks again."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from latdoctor.load.plan import RetryPolicy

Ending = Literal["answered", "refused", "rejected", "failed", "timed_out", "not_sent"]

# What an attempt may end with beside the number of an HTTP status.
TIMEOUT, NO_CONNECTION, RESET, BAD_ANSWER = "timeout", "no-connection", "reset", "bad-answer"
_TIMES_OVER = frozenset({"refused", "failed", "timed_out"})  # what a client may hope will go better


class Reply(Struct, frozen=True, gc=False):
    """How one attempt ended: an HTTP status as text or one of the words above; Retry-After in seconds.

    `content_bytes` is the size of the answer's body.
    """

    status: str
    retry_after: float | None = None
    content_bytes: int = 0


class RequestOutcome(Struct, frozen=True, gc=False):
    """What became of one planned request. `took` and `late` are seconds from its planned instant.

    `statuses` has one entry an attempt; it is empty for a request that was not sent.
    """

    index: int
    took: float
    late: float
    ending: Ending
    statuses: tuple[str, ...] = ()


def ending_of(status: str) -> Ending:
    """An attempt's ending. 429 and 503 are a server that protects itself; other 4xx blame the request."""
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
    """Seconds to wait before asking again after `made` attempts; None: the client gives up.

    `chance` in [0, 1) is the jitter, drawn by the caller from a seeded generator.
    """
    if policy.kind == "none" or made >= policy.attempts or ending_of(reply.status) not in _TIMES_OVER:
        return None
    if policy.kind == "immediate":
        return 0.0
    ceiling = min(policy.max_ms, policy.base_ms * 2.0 ** (made - 1)) / 1000
    return max(chance * ceiling, reply.retry_after or 0.0)
