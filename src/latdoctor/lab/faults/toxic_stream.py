"""One direction of a proxied connection: buffered chunks, and what the toxics do to the next one."""

from __future__ import annotations

import random
from collections import deque

from msgspec import Struct

from latdoctor.lab.faults.toxics import PIECE_SECONDS, CombinedToxics


class ForwardBytes(Struct, frozen=True):
    """These bytes go on now."""

    data: bytes


class WaitUntil(Struct, frozen=True):
    """Nothing to do before `until`, unless something arrives or the toxics change; None: only then."""

    until: float | None


class EndStream(Struct, frozen=True):
    """The stream's end goes on now."""


class ResetConnection(Struct, frozen=True):
    """The whole connection is reset now."""


class _Chunk(Struct):
    data: bytes
    arrived: float
    luck: float  # its part of the uniform jitter, −1..1
    normal: float  # its part of the normal one, in standard deviations


class ToxicStream:
    """One direction of one connection: chunks in order, and what happens to the first of them next."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._chunks: deque[_Chunk] = deque()
        self._ended: float | None = None
        self._bearing = CombinedToxics()
        self._since = 0.0  # when that bearing was first seen
        self._free_at = 0.0  # when a limited line has finished the piece before
        self.held = 0  # bytes that have arrived and not passed
        self.passed = 0

    def arrive(self, data: bytes, now: float) -> None:
        self._chunks.append(_Chunk(data, now, self._draw.uniform(-1, 1), self._draw.gauss()))
        self.held += len(data)

    def end(self, now: float) -> None:
        """The sender has said all."""
        self._ended = now

    def step(self, now: float, bearing: CombinedToxics) -> ForwardBytes | WaitUntil | EndStream | ResetConnection:
        """What to do now."""
        if bearing != self._bearing:
            self._bearing, self._since = bearing, now
        if bearing.reset_after is not None and self.passed >= bearing.reset_after:
            return ResetConnection()
        if bearing.blackhole:
            return WaitUntil(bearing.changes_at)
        if self._chunks:
            return self._step_chunk(now, bearing, self._chunks[0])
        if self._ended is None:
            return WaitUntil(None)
        due = self._ended + bearing.latency + bearing.slow_close
        return EndStream() if now >= due else _wait(due, bearing)

    def _step_chunk(self, now: float, bearing: CombinedToxics, chunk: _Chunk) -> ForwardBytes | WaitUntil:
        due = chunk.arrived + max(0.0, bearing.latency + bearing.jitter * chunk.luck + bearing.deviation * chunk.normal)
        size = len(chunk.data)
        if bearing.reset_after is not None:
            size = min(size, bearing.reset_after - self.passed)
        rate = bearing.bytes_per_second
        if rate is not None:
            size = min(size, max(1, int(rate * PIECE_SECONDS)))
            # From when the limit came: a chunk that was held before owes the line nothing.
            due = max(due, self._free_at, self._since) + size / rate
        if now < due:
            return _wait(due, bearing)
        # A caller that comes late may catch up by one piece, so that timers do not lower the rate.
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


def _wait(due: float, bearing: CombinedToxics) -> WaitUntil:
    return WaitUntil(due if bearing.changes_at is None else min(due, bearing.changes_at))
