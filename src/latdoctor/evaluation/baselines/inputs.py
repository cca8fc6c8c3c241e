"""The input of the baselines, second by second: the signals of a recorded run, or the scraped series.

Scraped series keep their own names, for a method without latdoctor's signals: a counter as its rate, a histogram as its
mean and its rate, a gauge as its value; and the values of the other sources (the host's files). They are not combined:
ratios, quantiles, slopes and comparisons of replicas are latdoctor's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from latdoctor.case_from_bundle import seen
from latdoctor.collectors import COLLECTORS, documents
from latdoctor.collectors.prometheus import exposition
from latdoctor.collectors.runner import parse_bundle
from latdoctor.detectors.catalog import derivable_signals
from latdoctor.dialects.loader import shipped
from latdoctor.dialects.metrics_page_model import MetricsPage
from latdoctor.dialects.model import Rule
from latdoctor.evaluation.baselines.learned_cause_mapping import Prior
from latdoctor.evaluation.baselines.methods import Signals
from latdoctor.evaluation.ground_truth import TimeRange
from latdoctor.evaluation.store import RecordedRun
from latdoctor.evaluation.variants import PAGES, slice_bundle
from latdoctor.evidence.bundle import Artifact, Bundle
from latdoctor.evidence.bundle_files import opened
from latdoctor.evidence.diff import values
from latdoctor.evidence.model import Labels

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Values = NDArray[np.float64]


STEP = 1.0  # seconds between two columns of a time series

Numbers = Callable[[Bundle], Mapping[str, float]]  # the numeric values of a slice, by name


def signals(recorded: RecordedRun) -> Mapping[str, tuple[Values, Values]]:
    """Every numeric signal of every subject as `SIGNAL SUBJECT`, second by second."""
    return by_second(recorded, _numbers)


def by_second(recorded: RecordedRun, numbers: Numbers) -> Mapping[str, tuple[Values, Values]]:
    """The time series of `numbers`, one value per second: before the incident, and during it.

    All arrays of one side have the same length and cover the same seconds; NaN where a second lacks the name. Synthetic
    runs have no values before the incident.
    """
    import numpy as np

    context = recorded.context
    with opened(recorded.bundle) as bundle:
        before, incident = (
            [numbers(slice_bundle(bundle, context, second)) for second in _seconds(span)]
            for span in (context.before, context.incident or _whole(bundle))
        )
    keys = sorted({key for step in (*before, *incident) for key in step})

    def column(steps: Sequence[Mapping[str, float]], key: str) -> Values:
        return np.array([step.get(key, np.nan) for step in steps], dtype=np.float64)

    return {key: (column(before, key), column(incident, key)) for key in keys}


def _whole(bundle: Bundle) -> TimeRange:
    times = [artifact.taken_at for artifact in bundle.artifacts]
    return TimeRange(min(times), max(times))


def _seconds(span: TimeRange | None) -> Iterator[TimeRange]:
    """The seconds of `span`, each extended by half a second on both sides: counters need two pages."""
    if span is None:
        return
    for number in range(int(span.seconds / STEP)):
        start = span.start + STEP * number
        yield TimeRange(start - STEP / 2, start + STEP * 1.5)


def _numbers(bundle: Bundle) -> dict[str, float]:
    found = values(seen(bundle)[0])
    return {f"{signal} {subject}": value for (signal, subject), value in found.items() if not isinstance(value, str)}


_OTHERS = tuple(one for one in COLLECTORS if one.name != PAGES)


# Latencies of whole requests get the names by which `inputs.is_latency` recognises them.
_LATENCIES = {"latency": "latency.mean", "client.latency": "client.latency.mean"}


_SPREAD, _PARTS = ("histogram", "summary"), ("sum", "count", "bucket")


Read = Callable[[Artifact], MetricsPage]


def scraped(recorded: RecordedRun) -> Signals:
    """Every series of `recorded` as `METRIC TARGET{LABELS}`, second by second: before the incident, and in it."""
    pages: dict[tuple[str, float], MetricsPage] = {}

    def page(artifact: Artifact) -> MetricsPage:  # each page belongs to two seconds
        key = artifact.source, artifact.taken_at
        if key not in pages:
            pages[key] = exposition.parse(artifact.read(), artifact.source)
        return pages[key]

    return by_second(recorded, lambda bundle: dict(_columns(bundle, page)))


def by_metric(prior: Prior) -> Prior:
    """`prior` by scraped metric: a metric gets the share of the signals made from it and of those that need them.

    Of a ratio only the numerator counts.
    """
    # What only some files of a kind contain is in no recording: stages of requests, output of commands.
    every = frozenset(signal for one in COLLECTORS if one.name != documents.NAME for signal in one.assured)
    whole = _derivable(every)
    found: dict[str, dict[str, float]] = {}
    for name, signals in (_made_of() | {signal: frozenset([signal]) for signal in every}).items():
        own: dict[str, float] = {}
        for signal in signals | (whole - _derivable(every - signals)):
            for cause, share in prior.get(signal, {}).items():
                own[cause] = own.get(cause, 0.0) + share
        if own:
            found[name] = {cause: share / sum(own.values()) for cause, share in own.items()}
    return found


def _derivable(signals: frozenset[str]) -> frozenset[str]:
    """`signals` with what can be derived from them."""
    return signals.union(*derivable_signals(signals).values())


@cache
def _made_of() -> dict[str, frozenset[str]]:
    """Metric → the signals that the dialects derive from it."""
    found: dict[str, set[str]] = {}
    for dialect in shipped():
        rules = [rule for options in dialect.rules for rule in options]
        for rule in (*rules, *(bits.rule for bits in dialect.bits)):
            for name in _metrics(rule):
                found.setdefault(name, set()).add(rule.signal)
    return {name: frozenset(signals) for name, signals in found.items()}


def _metrics(rule: Rule) -> Iterator[str]:
    for term in (*rule.terms, *rule.held):
        yield from (selector.name.removesuffix("_sum") for selector in term.options)


@cache
def _symptoms() -> Mapping[str, str]:
    """Request-latency histograms → the name of their mean."""
    return {
        metric: name
        for metric, signals in _made_of().items()
        for signal, name in _LATENCIES.items()
        if signal in signals or f"{signal}_by_size" in signals
    }


def _columns(bundle: Bundle, read: Read) -> Iterator[tuple[str, float]]:
    yield from _of_pages(bundle, read)
    for (signal, subject), value in values(parse_bundle(_OTHERS, bundle)[0]).items():
        if not isinstance(value, str):
            yield f"{signal} {subject}", value


def _of_pages(bundle: Bundle, read: Read) -> Iterator[tuple[str, float]]:
    """The columns of each target, from its first and last page."""
    targets: dict[str, list[Artifact]] = {}
    for artifact in bundle.artifacts:
        if artifact.collector == PAGES:
            targets.setdefault(artifact.source, []).append(artifact)
    for target, artifacts in targets.items():
        first, *_, last = artifacts if len(artifacts) > 1 else (artifacts[0], artifacts[0])
        for metric, labels, value in _shown(read(first), read(last), last.taken_at - first.taken_at):
            inside = ",".join(f"{key}={text}" for key, text in labels)
            yield f"{_symptoms().get(metric, metric)} {target}{{{inside}}}", value


def _shown(first: MetricsPage, last: MetricsPage, seconds: float) -> Iterator[tuple[str, Labels, float]]:
    """Metric, labels and value of each series; no rates where the pages have the same time."""
    for name, samples in last.samples.items():
        family, _, part = name.rpartition("_")
        if last.kinds.get(family) in _SPREAD and part in _PARTS:
            if part == "count":
                yield from _spread(first, last, family, seconds)
        elif last.kinds.get(name) == "counter":
            if seconds > 0:
                yield from ((name, labels, more / seconds) for labels, more in _grown(first, last, name).items())
        else:
            yield from ((name, sample.labels, sample.value) for sample in samples)


def _spread(first: MetricsPage, last: MetricsPage, family: str, seconds: float) -> Iterator[tuple[str, Labels, float]]:
    sums, counts = (_grown(first, last, f"{family}_{part}") for part in ("sum", "count"))
    for labels, count in counts.items():
        if seconds > 0:
            yield f"{family}_count", labels, count / seconds
        if count > 0 and labels in sums:
            yield family, labels, sums[labels] / count


def _grown(first: MetricsPage, last: MetricsPage, name: str) -> dict[Labels, float]:
    """The increase of each series of `name`; one that was reset between the pages is left out."""
    then = {sample.labels: sample.value for sample in first.samples.get(name, ())}
    now = {sample.labels: sample.value for sample in last.samples.get(name, ())}
    return {labels: value - then[labels] for labels, value in now.items() if value >= then.get(labels, float("inf"))}
