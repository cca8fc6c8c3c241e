"""The pages of one server as seen by one dialect: sample series and their subjects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct, structs

from latdoctor.dialects.metrics_page_model import MetricSample, ScrapedPage
from latdoctor.dialects.model import (
    PLACEHOLDER,
    SERVER,
    Dialect,
    LabelMatch,
    Rule,
    Selector,
    SubjectRule,
    Term,
    Unusable,
)
from latdoctor.evidence.model import Labels, Subject
from latdoctor.evidence.redaction.documents import field_without_secrets
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

# Further values of a label that is kept separate are left out.
MAX_VALUES = 16
_SUFFIXES = ("", "_bucket")
# Metrics of the exporter's own process, which change although its readings do not.
_RUNTIME = ("go_", "process_", "promhttp_", "python_", "dcgm_exporter_")


class SampleSeries(Struct, frozen=True):
    """One series over the pages: its sample on each page, None if absent."""

    name: str
    labels: Labels
    samples: tuple[MetricSample | None, ...]


@dataclass(frozen=True)
class DialectView:
    """`server` is the subject of the server itself."""

    dialect: Dialect
    scrapes: tuple[ScrapedPage, ...]
    server: str
    _apart: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    _parents: dict[str, str | None] = field(default_factory=dict)
    _known: dict[Labels, str | None] = field(default_factory=dict)
    _series: dict[tuple[Selector, str], dict[str, tuple[SampleSeries, ...]]] = field(default_factory=dict)
    _beyond: set[str] = field(default_factory=set)
    cut: dict[str, int] = field(default_factory=dict)  # signal → number of omitted label values

    def __post_init__(self) -> None:
        for name in dict.fromkeys(s.name + suffix for s in self.selectors() for suffix in ("", "_bucket")):
            for scrape in self.scrapes:
                for sample in scrape.page.samples.get(name, ()):
                    self._note(sample)

    @property
    def left_out(self) -> int:
        """Number of subjects beyond those that the dialect reads."""
        return len(self._beyond)

    @property
    def window(self) -> float | None:
        """Seconds between the first and the last page; None if unknown."""
        first, last = self.scrapes[0].at, self.scrapes[-1].at
        return None if first is None or last is None or last <= first else last - first

    @property
    def lone(self) -> bool:
        return len(self.scrapes) == 1

    def declared(self, subject: str) -> Subject:
        return Subject(subject, self._parents.get(subject))

    def present(self, term: Term) -> Selector | None:
        """The first name of the term that any page has a sample of."""
        for option in term.options:
            for scrape in self.scrapes:
                if any(option.accepts(sample) for sample in scrape.page.samples.get(option.name, ())):
                    return option
        return None

    def place(self, terms: Sequence[Term]) -> str:
        """The sample names of a sum, as the origin of a reading."""
        names = [str(self.present(term) or term) for term in terms]
        return names[0] if len(names) == 1 else f"({' + '.join(names)})"

    def is_declared(self, term: Term) -> bool:
        """Whether some page declares the family (`# TYPE`) without a sample of it."""
        names = [option.name for option in term.options]
        return any(
            name in scrape.page.kinds and name not in scrape.page.samples for name in names for scrape in self.scrapes
        )

    def kept_apart(self, options: tuple[Rule, ...]) -> Iterator[tuple[Labels, tuple[Rule, ...]]]:
        """Yield a signal's rules unchanged, or narrowed to each value of the label that they keep separate."""
        by = options[0].by
        if not by:
            yield (), options
            return
        names = {option.name + suffix for term in options[0].terms for option in term.options for suffix in _SUFFIXES}
        samples = (one for scrape in self.scrapes for name in names for one in scrape.page.samples.get(name, ()))
        values = sorted({value for one in samples if (value := one.label(by))})
        if len(values) > MAX_VALUES:
            self.cut[options[0].signal] = len(values) - MAX_VALUES
        for value in values[:MAX_VALUES]:
            yield ((by, clean(value, 80)),), tuple(_narrowed(rule, by, value) for rule in options)
        if not values:
            yield (), options

    def series(self, selector: Selector, suffix: str = "") -> dict[str, tuple[SampleSeries, ...]]:
        """The selector's series by subject; `suffix` as in `_bucket`."""
        if (selector, suffix) not in self._series:
            self._series[selector, suffix] = self._gathered(selector, selector.name + suffix)
        return self._series[selector, suffix]

    def _gathered(self, selector: Selector, name: str) -> dict[str, tuple[SampleSeries, ...]]:
        found: dict[Labels, list[MetricSample | None]] = {}
        for index, scrape in enumerate(self.scrapes):
            for sample in scrape.page.samples.get(name, ()):
                if selector.accepts(sample):
                    places = found.setdefault(sample.labels, [None] * len(self.scrapes))
                    places[index] = sample
        grouped: dict[str, list[SampleSeries]] = {}
        for labels, samples in found.items():
            subject = self.subject(labels)
            if subject is not None:
                grouped.setdefault(subject, []).append(SampleSeries(name, labels, tuple(samples)))
        return {subject: tuple(series) for subject, series in grouped.items()}

    def subject(self, labels: Labels) -> str | None:
        """The subject of a series: the first subject rule all of whose labels it has, else the server.

        The server's name ends it, as in `model/m:version=1@localhost:8000`.
        None for a subject beyond the most that the dialect reads.
        """
        if labels not in self._known:
            self._known[labels] = self._named(labels)
        return self._known[labels]

    def _named(self, labels: Labels) -> str | None:
        values = {key: field_without_secrets(key, value) for key, value in labels if value}
        for rule in self.dialect.subjects:
            if all(label in values for label in rule.labels):
                base = _fill(rule.id, values)
                several = [name for name in rule.apart if name in values and len(self._apart.get((base, name), ())) > 1]
                split = "".join(f":{name}={clean(values[name], 80)}" for name in several)
                subject = f"{base}{split}@{self.server.removeprefix('server/')}"  # two servers may serve one model
                if subject not in self._parents and len(self._parents) >= self.dialect.most_subjects:
                    self._beyond.add(subject)
                    return None
                self._parents.setdefault(subject, self._parent(rule, values))
                return subject
        return self.server

    def _parent(self, rule: SubjectRule, values: dict[str, str]) -> str | None:
        if rule.parent == SERVER:
            return self.server
        return _fill(rule.parent, values) or None

    def _note(self, sample: MetricSample) -> None:
        """Remembers which values of the labels that split a subject are in use."""
        values = {key: value for key, value in sample.labels if value}
        for rule in self.dialect.subjects:
            if all(label in values for label in rule.labels):
                base = _fill(rule.id, values)
                for name in rule.apart:
                    if name in values:
                        self._apart.setdefault((base, name), set()).add(values[name])
                return

    def selectors(self) -> Iterator[Selector]:
        rules = [rule for options in self.dialect.rules for rule in options]
        rules += [bits.rule for bits in self.dialect.bits]
        for rule in rules:
            for term in (*rule.terms, *rule.over, *rule.less, *rule.held):
                yield from term.options

    def idle(self) -> frozenset[str]:
        """Subjects whose `idle` samples are zero on every page: loaded perhaps, but unused."""
        busy: dict[str, bool] = {}
        for term in self.dialect.idle:
            selector = self.present(term)
            for subject, series in self.series(selector).items() if selector else ():
                used = any(sample is not None and sample.value != 0 for one in series for sample in one.samples)
                busy[subject] = busy.get(subject, False) or used
        return frozenset(subject for subject, used in busy.items() if not used)

    def unrefreshed(self) -> bool:
        """Whether a caching exporter returned the same page each time, so that its counters did not advance."""
        if not self.dialect.cached or self.lone:
            return False
        pages = [
            {name: samples for name, samples in scrape.page.samples.items() if not name.startswith(_RUNTIME)}
            for scrape in self.scrapes
        ]
        return all(page == pages[0] for page in pages[1:])

    def number(self, rule: Rule, name: str, sample: MetricSample) -> float | Unusable:
        """The sample's value; Unusable for NaN, infinity, or the exporter's marker for "no value"."""
        value = sample.value
        if not math.isfinite(value):
            return Unusable(f"{name} is {value}", GapCode.UNREADABLE)
        blank = any(blank.low <= value <= blank.high for blank in self.dialect.blanks)
        if blank or (rule.blank_from is not None and value >= rule.blank_from):
            return Unusable(
                f"{name} is {value:.0f}, which means no value (not supported, not permitted or blank)",
                GapCode.UNSUPPORTED,
            )
        if not rule.percent_or_ratio or value == 0:
            return value
        if sample.whole and value == 1:
            return Unusable(
                f"{name} is 1, which may mean 1 % or all (the exporter changed from percent to ratio)",
                GapCode.AMBIGUOUS,
            )
        return value / 100 if sample.whole or value > 1 else value


def _fill(template: str, values: dict[str, str]) -> str:
    return PLACEHOLDER.sub(lambda found: clean(values[found[1]], 120), template)


def _narrowed(rule: Rule, label: str, value: str) -> Rule:
    """Restrict the terms of `rule` to one label value; its denominator stays unrestricted."""
    match = LabelMatch(label, (value,))
    terms = tuple(
        Term(tuple(Selector(option.name, (*option.matches, match)) for option in term.options)) for term in rule.terms
    )
    return structs.replace(rule, terms=terms, by="")
