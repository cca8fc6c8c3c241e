"""How long requests take at a server that counts none: `latency.mean` by Little's law, where requests queue.

llama.cpp's server counts tokens and shows how many requests run and wait, but no request and no time of one. Its
prompts say how many requests are taken up: prompt tokens per second over the tokens of a prompt, which its log has.
What is in the server over that is the mean time in it, and what begins and the growth of the queue together is what
arrives. Only where some wait at all times: there the limit, and not the
clients, sets the pace, and an error of a few in the number of requests changes little.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from latdoctor.detectors.derived_readings import latest_numbers, latest_values
from latdoctor.evidence.model import Evidence, Origin, Reading
from latdoctor.units import format_value

RUNNING, QUEUE, INPUT, LENGTH = "requests.running", "queue.depth", "input.token_rate", "input.length.mean"
MEAN, ARRIVALS, ANSWERS = "latency.mean", "arrival.rate", "completion.rate"
MEASURED = (MEAN, ARRIVALS, ANSWERS, "latency.p50", "latency.p95", "latency.p99", "ttft.mean")
DERIVED = (MEAN, ARRIVALS, ANSWERS)
_WAITING = 1.0  # requests, on average
_TAKEN_UP = 5.0  # requests within the window


def latency_estimates(evidence: Evidence) -> Evidence:
    """Derive mean latency, arrivals and answers of the servers that have a queue and count no request."""
    measured = {one.subject for name in MEASURED for one in evidence.readings_by_signal.get(name, ())}
    lengths, queues = latest_values(evidence, LENGTH), latest_values(evidence, QUEUE)
    taken_up = {one.subject: one for one, _ in latest_numbers(evidence, INPUT)}
    pages = [one for one, _ in latest_numbers(evidence, RUNNING) if one.subject in taken_up and one.subject in queues]
    found: list[Reading] = []
    for running in pages:
        length = _length(running.subject, lengths, alone=len(pages) == 1)
        if running.subject not in measured and length > 0:
            growth = _growth(evidence, running.subject)
            found += _of_one(running, queues[running.subject], growth, taken_up[running.subject], length)
    return Evidence(readings=tuple(found))


def _length(subject: str, lengths: Mapping[str, float], *, alone: bool) -> float:
    """Tokens of a prompt: the server's own, or those of the only log where there is one server; 0 where not known."""
    if subject in lengths:
        return lengths[subject]
    return next(iter(lengths.values())) if alone and len(lengths) == 1 else 0.0


def _growth(evidence: Evidence, subject: str) -> float:
    """Requests by which the queue grew over its series; 0 where there is none."""
    found = [one for one in evidence.series if one.signal == QUEUE and one.subject == subject and not one.labels]
    return found[0].values[-1] - found[0].values[0] if found and found[0].values else 0.0


def _of_one(running: Reading, queue: float, growth: float, tokens: Reading, length: float) -> Iterator[Reading]:
    start, end = tokens.window.start, tokens.window.end
    if isinstance(running.value, str) or isinstance(tokens.value, str) or start is None or end is None:
        return
    rate, inside = tokens.value / length, running.value + queue
    if queue >= _WAITING and rate * (end - start) >= _TAKEN_UP:
        note = (
            f"estimated: {inside:.3g} requests in the server, {format_value(rate, 'rate')} of {length:.3g} tokens begin"
        )
        origin = Origin(tokens.origin.artifact, "Little's law")
        arriving = max(0.0, rate + growth / (end - start))
        for signal, value in ((MEAN, inside / rate), (ARRIVALS, arriving), (ANSWERS, rate)):
            yield Reading(signal, running.subject, value, origin, tokens.window, (), note)
