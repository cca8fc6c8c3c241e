"""Requests and batches as the scheduler sees them, and the scheduler interface."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from latdoctor.load.mix import FRAMES_PER_SECOND


class Lane(StrEnum):
    """The lane of a request: short and long ones may have queues of their own."""

    ALL = "all"
    SHORT = "short"
    LONG = "long"


class ReleaseReason(StrEnum):
    """Why a batch was released."""

    FULL = "full"
    TOKENS = "tokens"
    WASTE = "waste"
    IDLE = "idle"
    AGE = "age"
    TIMEOUT = "timeout"
    ALONE = "alone"
    ARRIVAL = "arrival"
    SECONDS = "seconds"
    BUCKET = "bucket"


class Work(Struct, frozen=True):
    """One request as the scheduler sees it. Times are seconds of one monotonic clock."""

    id: int
    tokens: int
    arrived: float
    deadline: float | None = None
    lane: Lane = Lane.ALL

    @property
    def seconds(self) -> float:
        """Length in seconds of audio, the unit of the limits `long_seconds` and `total_seconds`."""
        return self.tokens / FRAMES_PER_SECOND


class Batch(Struct, frozen=True):
    """Requests to compute together, and why they are released now."""

    works: tuple[Work, ...]
    reason: ReleaseReason

    @property
    def size(self) -> int:
        return len(self.works)

    @property
    def tokens(self) -> int:
        """Tokens of the requests, without padding."""
        return sum(work.tokens for work in self.works)

    @property
    def padded_tokens(self) -> int:
        """Tokens that are computed: every request is padded to the longest."""
        return max(work.tokens for work in self.works) * len(self.works)


class Scheduler(Protocol):
    """A request queue with a batching rule. No clock: the caller passes the time."""

    def add(self, work: Work) -> None: ...

    def drop(self, ids: frozenset[int]) -> None:
        """Removes requests whose clients have disconnected."""

    def take(self, now: float) -> Batch | None:
        """The batch to compute now by an idle worker, or None if it should wait."""

    def wake_at(self, now: float) -> float | None:
        """When to call `take` again without a new arrival; None: not before one."""

    @property
    def pending(self) -> Sequence[Work]: ...
