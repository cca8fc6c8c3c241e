"""The replay of recorded requests: the same order, gaps, sessions and lengths, at another speed."""

from __future__ import annotations

import math

from msgspec import Struct

from latdoctor.errors import UsageError
from latdoctor.load.arrivals import Replay
from latdoctor.load.mix import Mix
from latdoctor.load.plan import LoadPhase, LoadPlan
from latdoctor.load.recording.requests import RecordedRequest, Recording

_LONGEST = 100_000  # tokens of a request


class ReplayPlan(Struct, frozen=True):
    """The plan, and how many requests of the chosen part it leaves out because they are too many."""

    plan: LoadPlan
    requests: int
    left_out: int
    sessions: int


def cut(recording: Recording, begin: float, end: float) -> Recording:
    """The requests from `begin` to `end` (seconds into the recording). Raises UsageError for none."""
    end = min(end, recording.seconds)
    whole = end == recording.seconds  # with its last request
    chosen = [one for one in recording.requests if begin <= one.at and (one.at < end or (whole and one.at == end))]
    if not chosen:
        what = f"no request from {begin:g} s to {end:g} s: the log has {recording.seconds:g} s"
        raise UsageError(what, where="--from, --to")
    moved = tuple(_moved(one, begin) for one in chosen)
    return Recording(moved, end - begin, recording.coarse)


def replay_plan(recording: Recording, speed: float, most: int) -> ReplayPlan:
    """Replay the first `most` requests. Lengths and sessions that the recording lacks are those of the default mix."""
    chosen = recording.requests[:most]
    left = len(recording.requests) - len(chosen)
    numbers: dict[str, int] = {}
    sessions = tuple(numbers.setdefault(one.session, len(numbers)) if one.session else -1 for one in chosen)
    tokens = tuple(min(one.tokens or 0, _LONGEST) for one in chosen)
    arrivals = Replay(
        tuple(one.at for one in chosen), speed, sessions if numbers else (), tokens if any(tokens) else ()
    )
    seconds = max(0.001, math.nextafter(chosen[-1].at / speed, math.inf))  # with the last request in it
    mix = Mix(audio_share=0.0) if any(tokens) else Mix()
    plan = LoadPlan((LoadPhase("replay", seconds, arrivals, mix),))
    return ReplayPlan(plan, len(chosen), left, len(numbers))


def _moved(one: RecordedRequest, begin: float) -> RecordedRequest:
    ended = None if one.ended is None else one.ended - begin
    return RecordedRequest(one.at - begin, ended, one.status, one.session, one.tokens, one.route)
