"""Whether a server that has requests gives anything out: `stall.requests`, `stall.duration`.

Where not one token and not one request came out over a time, and the server holds requests or received some, it stands
still. How long a request took before says how much that means: a server whose requests take a minute completes none in
most seconds. Tokens come all the time, so for a server that counts them the time alone is enough. A server without
requests gives nothing out either, and of that nothing is said.

What has no answer yet is in no count of latencies, and what was answered before was quick. But of the requests that
came or waited while nothing came out, half have waited for half of that time: P99 is no less.

An engine in a process of its own may be frozen while the HTTP layer before it goes on. Requests then never reach the
engine's counts, and end with a good status when their clients give up; so what the HTTP layer ended counts as arrived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import structs

from latdoctor.detectors.derived_readings import latest_numbers
from latdoctor.evidence.model import AT_LEAST, Evidence, Gap, Origin, Reading
from latdoctor.gap_code import GapCode

TOKENS = ("output.token_count", "output.token_rate")
REQUESTS = ("completion.count", "completion.rate", "requests.in_server")
INPUT = ("input.token_count", "input.token_rate")  # a long prompt is computed before the first token comes out
HELD = ("requests.running", "queue.depth")
TIMEOUT, TIMEOUTS = "log.engine_timeout", 3
ARRIVED, PAST_MEAN, PASSED = "arrival.count", "latency.past_mean", "http.answer_count"
ANSWERING = "server.answering"
_STALE = 60.0  # seconds
SOURCES = (*TOKENS, *REQUESTS)
LATENCY = "latency.p99"
_FEWEST_HELD = 3  # requests without an answer that say how long requests take
DERIVED = ("stall.requests", "stall.arrivals", "stall.duration", "stall.lengths", LATENCY)


def standstill(evidence: Evidence) -> Evidence:
    """Derive the `stall.*` readings, and a bound of P99, of every subject that counts its output and has requests."""
    known: dict[str, dict[str, Reading]] = {}
    for name in (*SOURCES, *INPUT, *HELD, ARRIVED, PAST_MEAN, LATENCY):
        for one, _ in latest_numbers(evidence, name):
            known.setdefault(one.subject, {})[name] = one
    # A server logs the status of a streamed answer when it begins. Where its engine reports again and again that it
    # waits in vain, such lines are no answers that came out.
    timeouts = Counter(one.subject for one in evidence.events_by_signal.get(TIMEOUT, ()))
    for subject, readings in known.items():
        if timeouts[subject] >= TIMEOUTS and not readings.keys() & set(TOKENS):
            for name in REQUESTS:
                readings.pop(name, None)
    end = evidence.time.end
    behind = _frozen_behind_http(evidence, known)
    return Evidence(
        readings=tuple(
            piece
            for subject, readings in known.items()
            for piece in _of_one({**readings, **behind.get(subject, {})}, end)
        ),
        gaps=tuple(_silent(evidence, known.keys())),
    )


def _silent(evidence: Evidence, counting: Collection[str]) -> Iterator[Gap]:
    """A gap for each server that does not answer: what comes out of its siblings says nothing of it."""
    for answering, value in latest_numbers(evidence, ANSWERING):
        if not value and answering.subject not in counting:
            reason = "it does not answer, so that what it gives out is not known"
            yield Gap("derived", reason, ("stall.requests",), answering.subject, code=GapCode.ABSENT)


def _frozen_behind_http(
    evidence: Evidence, known: Mapping[str, Mapping[str, Reading]]
) -> dict[str, dict[str, Reading]]:
    """`arrival.count` of the subjects of servers whose HTTP layer ended requests while no model gave anything out."""
    found: dict[str, dict[str, Reading]] = {}
    for passed, count in latest_numbers(evidence, PASSED):
        host = passed.subject.removeprefix("server/")
        models = {name: own for name, own in known.items() if name.endswith(f"@{host}")}
        outputs = [own[name] for own in models.values() for name in (*TOKENS, *REQUESTS, *INPUT) if name in own]
        of_one_time = all(one.window == passed.window for one in outputs)
        if count >= _FEWEST_HELD and outputs and of_one_time and not any(_number(one) for one in outputs):
            arrived = structs.replace(passed, signal=ARRIVED, note="ended by the HTTP layer")
            found |= {name: {ARRIVED: arrived} for name in models}
    return found


def _of_one(known: Mapping[str, Reading], end: float | None) -> Iterator[Reading]:
    tokens, requests, taken = (_first(known, names) for names in (TOKENS, REQUESTS, INPUT))
    output = tokens or requests
    if output is None:
        return
    # Requests are the output where no tokens are counted, or none can be (embeddings); in a log they may be counted
    # over another time than the tokens.
    of_one_time = [one for one in (tokens, requests, taken) if one is not None and one.window == output.window]
    if any(_number(one) for one in of_one_time):
        if end is not None and output.window.end is not None and end - output.window.end > _STALE:
            return  # of the time since then nothing is known: a log in which the statistics stop
        yield _reading(output, "stall.requests", 0.0)
        yield _reading(output, "stall.arrivals", 0.0)
        return
    arrived = _number(known[ARRIVED]) if ARRIVED in known else None
    waiting = max(sum(_number(known[name]) for name in HELD if name in known), arrived or 0.0)
    if not waiting:
        return
    yield _reading(output, "stall.requests", waiting)
    if arrived is not None:
        yield _reading(output, "stall.arrivals", arrived)
    length = _length(output)
    if length is not None and waiting >= _FEWEST_HELD and LATENCY not in known:
        origin = Origin(output.origin.artifact, "the time without an answer")
        note = f"{waiting:.3g} requests without an answer"
        yield Reading(LATENCY, output.subject, length / 2, origin, output.window, (), note, AT_LEAST)
    past = _number(known[PAST_MEAN]) if PAST_MEAN in known else 0.0
    if length is not None and tokens is not None:
        yield _reading(output, "stall.duration", length)
    if length is not None and past > 0:
        yield _reading(output, "stall.lengths", length / past)


def _first(known: Mapping[str, Reading], names: Sequence[str]) -> Reading | None:
    return next((known[name] for name in names if name in known), None)


def _number(reading: Reading) -> float:
    return reading.value if not isinstance(reading.value, str) else 0.0


def _length(source: Reading) -> float | None:
    start, end = source.window.start, source.window.end
    return end - start if start is not None and end is not None and end > start else None


def _reading(source: Reading, signal: str, value: float) -> Reading:
    origin = Origin(source.origin.artifact, "what came out and what was in it")
    return Reading(signal, source.subject, value, origin, source.window)
