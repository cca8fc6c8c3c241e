"""Requests that arrive and get no successful answer: `unanswered.share`, `unanswered.lengths`, a bound of P99.

Those that were answered may be fast, so that no latency shows the others: they wait, are refused, fail, or their
clients have given up. Malformed requests are left out, as far as the server counts them. A difference between the two
rates that chance may bring counts as none. Where requests take long, few of those that arrive in a window are answered
within it, so the window is also given as a multiple of the time that a request took before.

Where hardly any is answered, P99 is not that of the few: more than one in a hundred of those that arrived in the window
has no answer at its end, and half of them arrived in its first half.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec.structs import replace

from latdoctor.detectors.derived_readings import latest_numbers, latest_values
from latdoctor.evidence.model import AT_LEAST, Evidence, Origin, Reading, Window

ARRIVALS, ANSWERS, MALFORMED, PAST_MEAN = "arrival.rate", "completion.rate", "reject.rate", "latency.past_mean"
SHARE, LENGTHS = "unanswered.share", "unanswered.lengths"
P99, TOKENS = "latency.p99", "output.token_rate"
_CHANCE = 3.0  # standard deviations by which two counts of the same rate differ, at most
_SAME_TIME = 0.1  # of a window, by which the windows of the two rates may differ
_HARDLY_ANY, _ENOUGH_LENGTHS = 0.95, 1.5  # as in the finding hardly-any-request-answered


def unanswered_requests(evidence: Evidence) -> Evidence:
    """Derive share and lengths of every subject whose arrivals and answers are known exactly, over the same time."""
    answers, malformed, past = (dict(_exact(evidence, signal)) for signal in (ANSWERS, MALFORMED, PAST_MEAN))
    derived = latest_values(evidence, SHARE)
    found: list[Reading] = []
    for subject, arrivals in _exact(evidence, ARRIVALS):
        if subject in answers and subject not in derived:
            wrong = malformed[subject][1] if subject in malformed else 0.0
            mean = past[subject][1] if subject in past else 0.0
            found.extend(_of_one(arrivals, answers[subject], wrong, mean))
    return Evidence(readings=tuple(found))


def bound_latency_of_outages(evidence: Evidence) -> Evidence:
    """`evidence` with P99 as a lower bound for each subject of which hardly any request is answered."""
    bounds = dict(_bounds(evidence))
    if not bounds:
        return evidence
    kept = tuple(one for one in evidence.readings if one.signal != P99 or one.labels or one.subject not in bounds)
    return replace(evidence, readings=(*kept, *bounds.values()))


def _bounds(evidence: Evidence) -> Iterator[tuple[str, Reading]]:
    lengths, tokens = latest_values(evidence, LENGTHS), latest_values(evidence, TOKENS)
    measured = latest_values(evidence, P99)
    for reading, share in latest_numbers(evidence, SHARE):
        subject, seconds = reading.subject, reading.window.seconds or 0.0
        slow = lengths.get(subject, math.inf) <= _ENOUGH_LENGTHS
        if share > _HARDLY_ANY and not slow and not tokens.get(subject):
            origin = Origin(reading.origin.artifact, "the time without an answer")
            least = max(seconds / 2, measured.get(subject, 0.0))
            note = "hardly any request is answered"
            yield subject, Reading(P99, subject, least, origin, reading.window, (), note, AT_LEAST)


def _exact(evidence: Evidence, signal: str) -> Iterator[tuple[str, tuple[Reading, float]]]:
    """By subject: the latest number that is no bound, with its reading."""
    for reading, value in latest_numbers(evidence, signal):
        if not reading.bound:
            yield reading.subject, (reading, value)


def _of_one(
    arrivals: tuple[Reading, float], answers: tuple[Reading, float], malformed: float, past_mean: float
) -> Iterator[Reading]:
    (source, arrived), (other, answered) = arrivals, answers
    seconds = source.window.seconds
    if not seconds or not _same_time(source.window, other.window, seconds):
        return
    due = max(0.0, arrived - malformed)
    lacking = due - answered
    beyond_chance = lacking * seconds > _CHANCE * math.sqrt(2 * due * seconds)
    origin = Origin(source.origin.artifact, "arrivals less answers")
    share = lacking / due if beyond_chance else 0.0
    yield Reading(SHARE, source.subject, share, origin, source.window)
    if past_mean > 0:
        yield Reading(LENGTHS, source.subject, seconds / past_mean, origin, source.window)


def _same_time(one: Window, other: Window, seconds: float) -> bool:
    pairs = ((one.start, other.start), (one.end, other.end))
    return all(a is not None and b is not None and abs(a - b) <= _SAME_TIME * seconds for a, b in pairs)
