"""A request on its way through the stages: what is known so far, and where its time went."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from latdoctor.lab.server.request_parser import IntentRequest

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# Token ids of a text, or feature frames of audio.
ModelInput: TypeAlias = "Sequence[int] | NDArray[np.float32]"


class ModelAnswer(Struct, frozen=True):
    """The model's answer for one request. Times are seconds of the server's monotonic clock."""

    intent: int
    score: float
    version: str
    batched: float
    computed: float
    standby: bool = False


class IntentResponse(Struct, frozen=True):
    """The body of a 200. `source` is model, standby or fallback; times are those of the server's monotonic clock."""

    intent: str
    score: float
    model_version: str
    request_id: str
    source: str
    timing: RequestTiming


@dataclass(slots=True)
class RequestContext:
    """A request in progress: stages read what they need and store their results."""

    intent_request: IntentRequest
    request_id: str
    received: float  # when the body was whole: seconds of the server's monotonic clock, as are all times here
    entered: float  # at its first line: seconds of Unix time, for the access log
    content_bytes: int = 0  # of its body
    own: Sequence[int] = ()  # token ids of the text
    input: ModelInput = ()
    tokens: int = 0  # the length the scheduler sees: the request's own and its history's
    feature: tuple[float, ...] | None = None  # what the dependency knows
    queued: float = 0.0
    computed: ModelAnswer | None = None
    intent: str = ""
    source: str = "model"
    sent: float = 0.0
    body: bytes = b""


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
