"""Network toxics: latency, bandwidth, reset, blackhole, slow close; the registry of active ones.

The words are Toxiproxy's. Nothing here reads a clock or touches a socket: the caller says what time it is, so the
same rules are tried in tests on a clock that jumps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from latdoctor.errors import UsageError

MOST_TOXICS = 64
PIECE_SECONDS = 0.02  # a limited line passes pieces of this much of its rate, so that it flows and does not jump

Seconds = Annotated[float, Meta(ge=0, le=600)]
Direction = Literal["up", "down"]  # up: from client to server


class Latency(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="latency"):
    """Every chunk comes `seconds` later, give or take some jitter. Order is kept, and nothing comes early.

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
    """Nothing passes, nothing is refused. What waits flows when the toxic goes, as after a healed partition."""


class SlowClose(Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="slow-close"):
    """The end of the stream is passed on so many seconds late."""

    seconds: Seconds


class Toxic(Struct, frozen=True, forbid_unknown_fields=True):
    """One thing wrong, addressed by its name. It removes itself after `lifetime` seconds."""

    name: Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
    effect: Latency | Bandwidth | Reset | Blackhole | SlowClose
    lifetime: Annotated[float, Meta(gt=0, le=3600)]
    stream: Direction = "down"
    toxicity: Annotated[float, Meta(ge=0, le=1)] = 1.0  # share of connections that it meets


class ActiveToxic(Struct, frozen=True):
    """A toxic that is in force, and when it goes by itself (seconds of the proxy's clock)."""

    toxic: Toxic
    expires_at: float


class CombinedToxics(Struct, frozen=True):
    """All that bears on one line now. Delays add up; of limits the tightest counts."""

    latency: float = 0.0
    jitter: float = 0.0  # uniform, to both sides
    deviation: float = 0.0  # normal
    bytes_per_second: float | None = None
    reset_after: int | None = None
    blackhole: bool = False
    slow_close: float = 0.0
    changes_at: float | None = None  # when the next toxic goes by itself


class ActiveToxics:
    """The toxics in force. Those whose lifetime is over are gone without anybody removing them."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._active: dict[str, ActiveToxic] = {}
        self._listeners: set[Callable[[], None]] = set()

    def add(self, toxic: Toxic) -> ActiveToxic:
        """Puts it in force, on open connections too. Raises UsageError for a bad value or a name in use."""
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
        """Takes it away at once; False where it is not in force."""
        known = any(found.toxic.name == name for found in self.active())
        if known:
            del self._active[name]
            self._notify()
        return known

    def active(self) -> tuple[ActiveToxic, ...]:
        """Those in force now."""
        now = self._now()
        self._active = {name: found for name, found in self._active.items() if found.expires_at > now}
        return tuple(self._active.values())

    def bearing(self, stream: Direction, lot: Callable[[str], float]) -> CombinedToxics:
        """What bears on a line of a connection. `lot` gives its fixed draw in 0..1 for the toxic of that name."""
        met = [found for found in self.active() if found.toxic.stream == stream]
        hits = [found.toxic.effect for found in met if lot(found.toxic.name) < found.toxic.toxicity]
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
