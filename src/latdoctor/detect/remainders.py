"""What is left of a whole: a source tells the one part, and rules speak of the other."""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.evidence.model import Evidence, Origin, Reading, is_unknown

GIVES = ("arrival.first_rate", "batch.padding_ratio")


def remainders(evidence: Evidence) -> Evidence:
    """`arrival.first_rate` = arrivals · (1 − share of retries); `batch.padding_ratio` = 1 − 1 / padding factor."""
    return Evidence(readings=(*_first_rates(evidence), *_padding(evidence)))


def _first_rates(evidence: Evidence) -> Iterator[Reading]:
    told = _subjects(evidence, "arrival.first_rate")
    shares = {one.subject: value for one, value in numbers(evidence, "retry.share")}
    for arrivals, rate in numbers(evidence, "arrival.rate"):
        share = shares.get(arrivals.subject)
        if share is not None and arrivals.subject not in told:
            yield _made(arrivals, "arrival.first_rate", rate * max(0.0, 1 - share), "arrival.rate less retries")


def _padding(evidence: Evidence) -> Iterator[Reading]:
    told = _subjects(evidence, "batch.padding_ratio")
    for factor, value in numbers(evidence, "batch.padding_factor"):
        # Below 1 fewer tokens were computed than asked for: the two counters do not speak of the same batches.
        if factor.subject not in told and value >= 1:
            yield _made(factor, "batch.padding_ratio", 1 - 1 / value, "one less 1 / batch.padding_factor")


def _subjects(evidence: Evidence, signal: str) -> frozenset[str]:
    return frozenset(one.subject for one in evidence.readings_by_signal.get(signal, ()))


def numbers(evidence: Evidence, signal: str) -> Iterator[tuple[Reading, float]]:
    """The known readings without labels; of one subject the one whose window ends last."""
    found: dict[str, tuple[Reading, float]] = {}
    for one in evidence.readings_by_signal.get(signal, ()):
        if isinstance(one.value, str) or is_unknown(one.value) or one.labels:
            continue
        known = found.get(one.subject)
        if known is None or (one.window.end or 0.0) > (known[0].window.end or 0.0):
            found[one.subject] = (one, one.value)
    yield from found.values()


def _made(source: Reading, signal: str, value: float, place: str) -> Reading:
    return Reading(signal, source.subject, value, Origin(source.origin.artifact, place), source.window, (), source.note)
