"""Whether a server that has requests gives anything out: `stall.requests`, `stall.duration`.

Where not one token and not one request came out over a time, and the server holds requests or received some, it stands
still. How long a request took before says how much that means: a server whose requests take a minute completes none in
most seconds. Tokens come all the time, so for a server that counts them the time alone is enough. A server without
requests gives nothing out either, and of that nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.detectors.derived_readings import latest_numbers
from latdoctor.evidence.model import Evidence, Origin, Reading

TOKENS = ("output.token_count", "output.token_rate")
REQUESTS = ("completion.count", "completion.rate")
INPUT = ("input.token_count", "input.token_rate")  # a long prompt is computed before the first token comes out
HELD = ("requests.running", "queue.depth")
ARRIVED, PAST_MEAN = "arrival.count", "latency.past_mean"
SOURCES = (*TOKENS, *REQUESTS)
DERIVED = ("stall.requests", "stall.arrivals", "stall.duration", "stall.lengths")


def standstill(evidence: Evidence) -> Evidence:
    """Derive the `stall.*` readings of every subject whose output is counted and that has requests."""
    values = {name: dict(_by_subject(evidence, name)) for name in (*SOURCES, *INPUT, *HELD, ARRIVED, PAST_MEAN)}
    sources = {one.subject: one for name in SOURCES for one, _ in latest_numbers(evidence, name)}
    found = [piece for source in sources.values() for piece in _of_one(source, values)]
    return Evidence(readings=tuple(found))


def _by_subject(evidence: Evidence, signal: str) -> Iterator[tuple[str, float]]:
    return ((one.subject, value) for one, value in latest_numbers(evidence, signal))


def _of_one(source: Reading, values: dict[str, dict[str, float]]) -> Iterator[Reading]:
    subject = source.subject

    def first(names: tuple[str, ...]) -> float | None:
        return next((values[name][subject] for name in names if subject in values[name]), None)

    tokens, requests, taken = first(TOKENS), first(REQUESTS), first(INPUT)
    moved = any(value for value in (tokens, requests, taken))
    held = [values[name][subject] for name in HELD if subject in values[name]]
    arrived = values[ARRIVED].get(subject)
    if moved or not (held or arrived is not None):
        if moved:
            yield _reading(source, "stall.requests", 0.0)
            yield _reading(source, "stall.arrivals", 0.0)
        return
    waiting = max(sum(held), arrived or 0.0)
    if not waiting:
        return
    yield _reading(source, "stall.requests", waiting)
    if arrived is not None:
        yield _reading(source, "stall.arrivals", arrived)
    past = values[PAST_MEAN].get(subject)
    length = _length(source)
    if length is not None and tokens is not None:
        yield _reading(source, "stall.duration", length)
    if length is not None and past:
        yield _reading(source, "stall.lengths", length / past)


def _length(source: Reading) -> float | None:
    start, end = source.window.start, source.window.end
    return end - start if start is not None and end is not None and end > start else None


def _reading(source: Reading, signal: str, value: float) -> Reading:
    origin = Origin(source.origin.artifact, "what came out and what was in it")
    return Reading(signal, source.subject, value, origin, source.window)
