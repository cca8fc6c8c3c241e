"""What passes through the server: a request's work as the scheduler sees it, batches, and the timing of an answer."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from latdoctor.load.protocol import FRAMES_PER_SECOND

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

if TYPE_CHECKING:
    pass


class Work(Struct, frozen=True):
    """One request as the scheduler sees it. Times are seconds of one monotonic clock."""

    id: int
    tokens: int
    arrived: float
    deadline: float | None = None
    lane: str = "all"  # all | short | long

    @property
    def seconds(self) -> float:
        """Length in seconds of audio, by which the field's rules are written."""
        return self.tokens / FRAMES_PER_SECOND


class Batch(Struct, frozen=True):
    """Requests to compute together, and why they are released now.

    `reason`: full | tokens | waste | idle | age | timeout | alone | arrival | seconds | bucket.
    """

    works: tuple[Work, ...]
    reason: str

    @property
    def size(self) -> int:
        return len(self.works)

    @property
    def tokens(self) -> int:
        """Tokens that somebody asked for."""
        return sum(work.tokens for work in self.works)

    @property
    def padded_tokens(self) -> int:
        """Tokens that are computed: every request is padded to the longest."""
        return max(work.tokens for work in self.works) * len(self.works)


class Scheduler(Protocol):
    """A queue and a rule. Nothing here reads a clock: the caller says what time it is."""

    def add(self, work: Work) -> None: ...

    def drop(self, ids: frozenset[int]) -> None:
        """Forgets works whose clients have gone."""

    def take(self, now: float) -> Batch | None:
        """The batch to compute now by an idle worker, or None if it should wait."""

    def wake_at(self, now: float) -> float | None:
        """When to ask again though nothing arrives; None: only an arrival changes the answer."""

    @property
    def pending(self) -> Sequence[Work]: ...


class RequestTiming(Struct, frozen=True):
    """Where the time of one answer went, in seconds of the server's monotonic clock; `received`: the body was whole."""

    received: float
    queued: float
    batched: float
    computed: float
    sent: float

    def stages(self) -> dict[str, float]:
        """Seconds in each: before the queue, in it, in the model, and after it."""
        parts = {
            "prepare": self.queued - self.received,
            "queue": self.batched - self.queued,
            "compute": self.computed - self.batched,
            "finish": self.sent - self.computed,
        }
        return {name: round(max(0.0, seconds), 6) for name, seconds in parts.items()}


VOCABULARY = 8192  # as the model has it; its module loads torch, this one does not


RESERVED = 4  # padding, separator, unknown, mask


SEPARATOR = 1


_PIECE = 16  # a longer word is read in pieces of so many characters


_WORDS = re.compile(r"\w+|[^\w\s]")


def text_tokens(text: str) -> list[int]:
    """Ids of the words and signs of `text`, long words in pieces: the same text gives the same ids everywhere.

    A hash stands in for a trained vocabulary (the hashing trick, Weinberger et al., ICML 2009).
    """
    words = _WORDS.findall(text.lower())
    pieces = (word[start : start + _PIECE] for word in words for start in range(0, len(word), _PIECE))
    return [RESERVED + zlib.crc32(piece.encode("utf-8", "replace")) % (VOCABULARY - RESERVED) for piece in pieces]


def audio_length(seconds: float) -> int:
    """Frames in `seconds` of audio; at least one."""
    return max(1, round(seconds * FRAMES_PER_SECOND))


def audio_frames(seconds: float, features: int) -> NDArray[np.float32]:
    """Frames of synthetic features for `seconds` of audio, seeded by the length: (frames, features)."""
    import numpy as np

    frames = audio_length(seconds)
    return np.random.default_rng(frames).standard_normal((frames, features), dtype=np.float32)
