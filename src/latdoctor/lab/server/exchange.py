"""One request on its way through the server, filled in by the stages it passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from latdoctor.lab.server.asked import Asked
from latdoctor.lab.server.work import Timing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Token ids of a text, or feature frames of audio.
Input: TypeAlias = "Sequence[int] | NDArray[np.float32]"


class Computed(Struct, frozen=True):
    """What the worker found for one request. Times are seconds of the server's monotonic clock."""

    intent: int
    score: float
    version: str
    batched: float
    computed: float
    standby: bool = False


class Answer(Struct, frozen=True):
    """The body of a 200. `source` is model, standby or fallback; times are those of the server's monotonic clock."""

    intent: str
    score: float
    model_version: str
    request_id: str
    source: str
    timing: Timing


@dataclass(slots=True)
class Exchange:
    """A request and what became of it so far: a stage reads what it needs and writes what it found."""

    asked: Asked
    request_id: str
    received: float  # when the body was whole: seconds of the server's monotonic clock, as are all times here
    entered: float  # at its first line: seconds of Unix time, for the access log
    content_bytes: int = 0  # of its body
    own: Sequence[int] = ()  # token ids of the text
    input: Input = ()
    tokens: int = 0  # the length the scheduler sees: the request's own and its history's
    feature: tuple[float, ...] | None = None  # what the dependency knows
    queued: float = 0.0
    computed: Computed | None = None
    intent: str = ""
    source: str = "model"
    sent: float = 0.0
    body: bytes = b""
