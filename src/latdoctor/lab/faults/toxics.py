"""Network toxics (latency, bandwidth, reset, blackhole, slow close), the active ones, and their effect on a stream.

The terms are Toxiproxy's. Nothing here reads a clock or uses a socket: the caller passes the time, so tests use a clock
of their own.
"""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from latdoctor.errors import UsageError

MOST_TOXICS = 64
PIECE_SECONDS = 0.02  # a limited line passes pieces of this much of its rate, so that it flows and does not jump

Seconds = Annotated[float, Meta(ge=0, le=600)]


class Direction(StrEnum):
    """UP is from client to server."""

    UP = "up"
    DOWN = "down"


class Latency(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="latency"):
    """Every chunk is delayed by `seconds`, with jitter. Order is kept, and nothing arrives early.

    `uniform` draws the jitter evenly from ±`jitter_seconds`; `normal` takes that as the standard deviation, as tc-netem
    does.
    """

    seconds: Seconds
    jitter_seconds: Seconds = 0.0
    distribution: Literal["uniform", "normal"] = "uniform"


class Bandwidth(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="bandwidth"):
    """At most this many bytes pass in a second, for each connection."""

    bytes_per_second: Annotated[float, Meta(ge=1, le=1e12)]


class Reset(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="reset"):
    """The connection is reset (RST to both sides) once so many bytes have passed in it; 0: at once."""

    after_bytes: Annotated[int, Meta(ge=0)] = 0


class Blackhole(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="blackhole"):
    """Nothing passes, nothing is refused. Held data passes when the toxic ends, as after a network partition."""


class SlowClose(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="slow-close"):
    """The end of the stream is passed on with this delay."""

    seconds: Seconds


class Toxic(Struct, frozen=True, forbid_unknown_fields=True):
    """One network fault, addressed by its name. It removes itself after `lifetime` seconds."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
    effect: Latency | Bandwidth | Reset | Blackhole | SlowClose
    lifetime: Annotated[float, Meta(gt=0, le=3600)]
    stream: Direction = Direction.DOWN
    toxicity: Annotated[float, Meta(ge=0, le=1)] = 1.0  # share of connections that it affects


class ActiveToxic(Struct, frozen=True):
    """A toxic that is active, and when it expires (seconds of the proxy's clock)."""

    toxic: Toxic
    expires_at: float


class CombinedToxics(Struct, frozen=True):
    """The combined effect of toxics on one stream. Delays add up; of limits the lowest counts."""

    latency: float = 0.0
    jitter: float = 0.0  # uniform, to both sides
    deviation: float = 0.0  # normal
    bytes_per_second: float | None = None
    reset_after: int | None = None
    blackhole: bool = False
    slow_close: float = 0.0
    changes_at: float | None = None  # when the next toxic expires


class ActiveToxics:
    """The active toxics. Each is gone after its lifetime."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._active: dict[str, ActiveToxic] = {}
        self._listeners: set[Callable[[], None]] = set()

    def add(self, toxic: Toxic) -> ActiveToxic:
        """Activates it, on open connections too. Raises UsageError for a bad value or a name in use."""
        try:
            toxic = msgspec.convert(msgspec.to_builtins(toxic), Toxic)
        except msgspec.ValidationError as error:
            raise UsageError(f"the toxic is not valid: {error}") from error
        active = {found.toxic.name for found in self.active()}
        if toxic.name in active:
            raise UsageError(f"there is a toxic {toxic.name!r} already", next_step="remove it first")
        if len(active) >= MOST_TOXICS:
            raise UsageError(f"there are {MOST_TOXICS} toxics already", next_step="remove one first")
        added = ActiveToxic(toxic, self._now() + toxic.lifetime)
        self._active[toxic.name] = added
        self._notify()
        return added

    def remove(self, name: str) -> bool:
        """Removes it at once; False where it is not active."""
        known = any(found.toxic.name == name for found in self.active())
        if known:
            del self._active[name]
            self._notify()
        return known

    def active(self) -> tuple[ActiveToxic, ...]:
        """Those whose lifetime is not over."""
        now = self._now()
        self._active = {name: found for name, found in self._active.items() if found.expires_at > now}
        return tuple(self._active.values())

    def combined(self, stream: Direction, draw: Callable[[str], float]) -> CombinedToxics:
        """The combined effect on one direction of a connection. `draw` is its fixed random number in 0..1 by toxic."""
        met = [found for found in self.active() if found.toxic.stream == stream]
        hits = [found.toxic.effect for found in met if draw(found.toxic.name) < found.toxic.toxicity]
        delays = [effect for effect in hits if isinstance(effect, Latency)]
        return CombinedToxics(
            latency=sum(effect.seconds for effect in delays),
            jitter=sum(effect.jitter_seconds for effect in delays if effect.distribution == "uniform"),
            deviation=math.hypot(*(effect.jitter_seconds for effect in delays if effect.distribution == "normal")),
            bytes_per_second=min((e.bytes_per_second for e in hits if isinstance(e, Bandwidth)), default=None),
            reset_after=min((effect.after_bytes for effect in hits if isinstance(effect, Reset)), default=None),
            blackhole=any(isinstance(effect, Blackhole) for effect in hits),
            slow_close=sum(effect.seconds for effect in hits if isinstance(effect, SlowClose)),
            changes_at=min((found.expires_at for found in met), default=None),
        )

    def listen(self, listener: Callable[[], None]) -> None:
        """Calls `listener` at every addition and removal; for expiry see `CombinedToxics.changes_at`."""
        self._listeners.add(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        self._listeners.discard(listener)

    def _notify(self) -> None:
        for listener in tuple(self._listeners):
            listener()


class ForwardBytes(Struct, frozen=True):
    """These bytes are passed on now."""

    data: bytes


class WaitUntil(Struct, frozen=True):
    """Nothing to do before `until`, unless something arrives or the toxics change; None: only then."""

    until: float | None


class EndStream(Struct, frozen=True):
    """The end of the stream is passed on now."""


class ResetConnection(Struct, frozen=True):
    """The whole connection is reset now."""


class _Chunk(Struct):
    data: bytes
    arrived: float
    uniform: float  # its draw of the uniform jitter, −1..1
    normal: float  # its draw of the normal jitter, in standard deviations


class ToxicStream:
    """One direction of one connection: chunks in order, and what happens to the first of them next."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._chunks: deque[_Chunk] = deque()
        self._ended: float | None = None
        self._effect = CombinedToxics()
        self._since = 0.0  # when that combination was first applied
        self._free_at = 0.0  # when a limited line has finished the piece before
        self.held = 0  # bytes that have arrived and not passed
        self.passed = 0

    def arrive(self, data: bytes, now: float) -> None:
        self._chunks.append(_Chunk(data, now, self._draw.uniform(-1, 1), self._draw.gauss()))
        self.held += len(data)

    def end(self, now: float) -> None:
        """The sender has closed its side."""
        self._ended = now

    def step(self, now: float, effect: CombinedToxics) -> ForwardBytes | WaitUntil | EndStream | ResetConnection:
        """What to do now."""
        if effect != self._effect:
            self._effect, self._since = effect, now
        if effect.reset_after is not None and self.passed >= effect.reset_after:
            return ResetConnection()
        if effect.blackhole:
            return WaitUntil(effect.changes_at)
        if self._chunks:
            return self._step_chunk(now, effect, self._chunks[0])
        if self._ended is None:
            return WaitUntil(None)
        due = self._ended + effect.latency + effect.slow_close
        return EndStream() if now >= due else _wait(due, effect)

    def _step_chunk(self, now: float, effect: CombinedToxics, chunk: _Chunk) -> ForwardBytes | WaitUntil:
        due = chunk.arrived + max(0.0, effect.latency + effect.jitter * chunk.uniform + effect.deviation * chunk.normal)
        size = len(chunk.data)
        if effect.reset_after is not None:
            size = min(size, effect.reset_after - self.passed)
        rate = effect.bytes_per_second
        if rate is not None:
            size = min(size, max(1, int(rate * PIECE_SECONDS)))
            # From when the limit began: a chunk that was held before is not delayed by it.
            due = max(due, self._free_at, self._since) + size / rate
        if now < due:
            return _wait(due, effect)
        # A late caller may catch up by one piece, so that timers do not lower the rate.
        self._free_at = max(due, now - PIECE_SECONDS)
        return ForwardBytes(self._shift(chunk, size))

    def _shift(self, chunk: _Chunk, size: int) -> bytes:
        data = chunk.data[:size]
        if size == len(chunk.data):
            self._chunks.popleft()
        else:
            chunk.data = chunk.data[size:]
        self.held -= size
        self.passed += size
        return data


def _wait(due: float, effect: CombinedToxics) -> WaitUntil:
    return WaitUntil(due if effect.changes_at is None else min(due, effect.changes_at))
