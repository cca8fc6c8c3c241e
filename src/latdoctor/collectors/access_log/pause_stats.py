"""Whether the first request after a pause is slow again and again: replicas that were scaled to zero or went cold.

A pause is a time without requests of at least PAUSE, and of many times the usual distance. Several pauses are needed,
so that one slow request among many is none of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from latdoctor.collectors.access_log.replica_stats import ReplicaStats
from latdoctor.collectors.access_log.requests import TimeSegment
from latdoctor.evidence.model import Evidence, Reading, Window

TIME, RATIO, PAUSES = "start.after_pause", "start.after_pause_ratio", "start.pauses"
SIGNALS = (TIME, RATIO, PAUSES)
PAUSE = 120.0  # seconds
_OF_USUAL = 10.0  # times the median distance of two requests
_FEWEST, _FEWEST_OTHERS = 3, 6  # pauses; other requests


def pause_evidence(stats: ReplicaStats, segments: Sequence[TimeSegment]) -> Evidence:
    """The first requests after pauses against the others; nothing where there are too few of either.

    `segments`: all of the log. A pause of hours divides it, and other values are of one segment only.
    """
    in_order = all(later.start > before.end for before, later in pairwise(segments))
    rows = stats.timed if stats.past or not in_order else range(len(stats.requests))
    return Evidence(readings=tuple(_readings(stats, rows)))


def _readings(stats: ReplicaStats, read: Sequence[int]) -> Iterator[Reading]:
    requests = stats.requests
    known = [row for row in read if requests.ended[row] >= 0 and stats.is_latency(row)]
    rows = sorted(known, key=lambda row: requests.ended[row] - requests.duration[row])
    if len(rows) < _FEWEST + _FEWEST_OTHERS:
        return
    began = [requests.ended[row] - requests.duration[row] for row in rows]
    usual = median(later - before for before, later in pairwise(began))
    quiet_since = quiet_until = requests.ended[rows[0]]
    firsts: list[float] = []
    others: list[float] = []
    for row, start in zip(rows[1:], began[1:], strict=True):
        after_pause = start - quiet_until >= max(PAUSE, _OF_USUAL * usual)
        (firsts if after_pause else others).append(requests.duration[row])
        quiet_until = max(quiet_until, requests.ended[row])
    if len(firsts) < _FEWEST or len(others) < _FEWEST_OTHERS or not median(others) > 0:
        return
    note = f"{len(firsts)} pauses, {len(others)} other requests"
    # The quickest of the first ones but one in four: all of them have to be slow and not a lucky few.
    slow = sorted(firsts)[len(firsts) // 4]
    values = {PAUSES: float(len(firsts)), TIME: median(firsts), RATIO: slow / median(others)}
    window = Window(quiet_since, quiet_until)
    for signal, value in values.items():
        yield Reading(signal, stats.subject, value, stats.origin, window, (), note)
