"""How means and shares were before: the level before the change of a series, and the length of answers by counts.

A series counts as changed where its last part is apart from its first (`level_shift.highest_run` for long series; each
value after the split beyond each before it for short ones), and stays so to the end: what recovered is not compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from latdoctor.detectors.derived_readings import latest_numbers, latest_values
from latdoctor.detectors.level_change import SHAPES
from latdoctor.detectors.level_shift import MIN_RATIO, MIN_STEPS, highest_run
from latdoctor.evidence.model import Evidence, Origin, Reading, Series

QUEUE, MOST = "queue.depth", "queue.most"
LENGTH, TOKENS, REQUESTS = "output.length.mean", "output.token_count", "completion.count"
# The signal of the past of each; `level_change.SHAPES` says how a value is mapped so that worse is higher.
PAST: Mapping[str, str] = {
    LENGTH: "output.length.before",
    "ttft.mean": "ttft.before",
    "kv.usage": "kv.usage_before",
    "output.token_rate": "output.token_before",
    "prefix_cache.hit_ratio": "prefix_cache.hit_before",
}
_FEWEST_REQUESTS = 20  # for a mean by counts: tokens of requests that still run are counted too
_FEWEST_STEPS, _FEWEST_SIDE = 8, 3  # values of a short series, and of each side of its split


def past_levels(evidence: Evidence) -> Evidence:
    """Derive the past of PAST and the longest queue from series, and the length of answers from counts."""
    return Evidence(readings=(*_lengths(evidence), *_before(evidence), *_longest_queues(evidence)))


def _longest_queues(evidence: Evidence) -> Iterator[Reading]:
    reported = {one.subject for one in evidence.readings_by_signal.get(MOST, ())}
    current = {one.subject: one for one, _ in latest_numbers(evidence, QUEUE)}
    for series in evidence.series:
        known = [value for value in series.values if math.isfinite(value)]
        if series.signal == QUEUE and not series.labels and series.subject in current.keys() - reported and known:
            yield _reading(current[series.subject], MOST, max(known), f"the most of {len(known)} samples")


def _lengths(evidence: Evidence) -> Iterator[Reading]:
    reported = {one.subject for one in evidence.readings_by_signal.get(LENGTH, ())}
    requests = latest_values(evidence, REQUESTS)
    for tokens, value in latest_numbers(evidence, TOKENS):
        count = requests.get(tokens.subject, 0.0)
        if tokens.subject not in reported and count >= _FEWEST_REQUESTS:
            yield _reading(tokens, LENGTH, value / count, f"{value:.6g} tokens over {count:.6g} requests")


def _before(evidence: Evidence) -> Iterator[Reading]:
    for signal, past in PAST.items():
        reported = {one.subject for one in evidence.readings_by_signal.get(past, ())}
        current = {one.subject: one for one, _ in latest_numbers(evidence, signal)}
        for series in evidence.series:
            source = current.get(series.subject)
            if series.signal != signal or series.labels or series.subject in reported or source is None:
                continue
            first = _changed(series)
            if first:
                yield _reading(source, past, median(series.values[:first]), "before it changed")


def _changed(series: Series) -> int:
    """The step at which the level that lasts to the end begins; 0 if there is none."""
    shape = SHAPES.get(series.signal)
    shaped = [shape(value) for value in series.values] if shape else series.values
    if len(shaped) < MIN_STEPS:
        return _split(shaped)
    run = highest_run(shaped)
    return run.first if run is not None and run.last == len(shaped) - 1 else 0


def _split(shaped: Sequence[float]) -> int:
    for first in range(_FEWEST_SIDE, len(shaped) - _FEWEST_SIDE + 1) if len(shaped) >= _FEWEST_STEPS else ():
        early, late = shaped[:first], shaped[first:]
        if min(late) > max(early) and median(late) >= MIN_RATIO * median(early):
            return first
    return 0


def _reading(source: Reading, signal: str, value: float, note: str) -> Reading:
    return Reading(signal, source.subject, value, Origin(source.origin.artifact, signal), source.window, (), note)
