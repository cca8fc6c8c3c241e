"""Changes visible on metrics pages: process starts, versions, models and settings in labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from latdoctor.dialects.metrics_page_model import MetricSample
from latdoctor.dialects.model import Dialect, Rule, RuleKind
from latdoctor.dialects.page_series import DialectView
from latdoctor.evidence.model import Event, Origin
from latdoctor.sanitize import clean

# Texts in labels whose change is an event of its own, and what it is called.
_LABELS = {
    "model.version": ("change.model", "model version"),
    "model.dtype": ("change.config", "number type"),
    "model.attention": ("change.config", "attention"),
    "server.version": ("change.version", "server version"),
    "gpu.driver_version": ("change.version", "driver version"),
}
_BY_VERSION = "version.latency"  # kept apart by the version of the model: a new one shows when it first answers
STARTED = "process_start_time_seconds"  # of every official Prometheus client
MAX_STARTS = 16
_SANE = (946684800.0, 4102444800.0)  # the years 2000 to 2100
_MODEL = "model/"  # begins the subjects that are models


class ChangeLabel(Struct, frozen=True):
    """Labels whose change is an event of its own: that of the first label that a sample has.

    `change` is the event's signal and `what` its description; the samples `names` carry the labels, as far as present.
    `of_server`: the label belongs to the server, whatever model the sample is of.
    """

    signal: str
    change: str
    what: str
    labels: tuple[str, ...]
    names: tuple[str, ...]
    of_server: bool = False

    def text(self, labels: Mapping[str, str]) -> str:
        return next((text for name in self.labels if (text := clean(labels.get(name, ""), 200).strip())), "")


def change_labels(dialect: Dialect) -> tuple[ChangeLabel, ...]:
    """The labels of `dialect` that indicate changes, including names and versions of its models."""
    found = [
        ChangeLabel(rule.signal, *_LABELS[rule.signal], tuple(rule.label.split("|")), _names(rule) or dialect.recognise)
        for options in dialect.rules
        for rule in options
        if rule.kind == RuleKind.LABEL and rule.signal in _LABELS
    ]
    versions = any(mark.signal == "model.version" for mark in found)
    for subject in (one for one in dialect.subjects if one.id.startswith(_MODEL)):
        found.append(ChangeLabel("model", "change.model", "model", subject.labels, dialect.recognise, of_server=True))
        apart = tuple(label for label in subject.apart if "version" in label.lower())
        if apart and not versions:
            found.append(ChangeLabel("model.version", *_LABELS["model.version"], apart, dialect.recognise))
    return tuple(found)


def _names(rule: Rule) -> tuple[str, ...]:
    return tuple(option.name for term in rule.terms for option in term.options)


def is_plausible_start(start: float) -> bool:
    """Whether a number can be a process start time, unix seconds."""
    return _SANE[0] < start < _SANE[1]


def change_signals(signals: frozenset[str]) -> frozenset[str]:
    """The change events that pages with `signals` can yield; any page may have a process start."""
    return frozenset({"change.process_start", *(change for name, (change, _) in _LABELS.items() if name in signals)})


def changes(view: DialectView) -> Iterator[Event]:
    """Yield the events with the time of the page on which each first appears; None if unknown."""
    for options in view.dialect.rules:
        for rule in options:
            if rule.kind == RuleKind.LABEL and rule.signal in _LABELS:
                yield from _of_label(view, rule)
            elif rule.signal == _BY_VERSION and rule.by:
                yield from _of_versions(view, rule)
    yield from _of_starts(view)


def _of_label(view: DialectView, rule: Rule) -> Iterator[Event]:
    signal, what = _LABELS[rule.signal]
    current: dict[str, str] = {}
    for scrape in view.scrapes:
        for subject, texts in _texts(view, rule, scrape.page.samples).items():
            if len(texts) != 1:  # two at once: a contradictory page, or a rollout in progress
                continue
            now = next(iter(texts))
            before = current.get(subject, now)
            current[subject] = now
            if now != before:
                fields = {"what": what, "from": before, "to": now}
                yield Event(signal, subject, Origin(scrape.artifact, f"label {rule.label}"), dict(fields), scrape.at)


def _texts(view: DialectView, rule: Rule, samples: Mapping[str, tuple[MetricSample, ...]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    selectors = [selector for selector in (view.present(term) for term in rule.terms) if selector]
    for selector in selectors or list(view.selectors()):
        for sample in samples.get(selector.name, ()):
            if not selector.accepts(sample):
                continue
            text = next((clean(value, 200) for name in rule.label.split("|") if (value := sample.label(name))), "")
            subject = view.subject(sample.labels)
            if text and subject is not None:
                found.setdefault(subject, set()).add(text)
    return found


def _of_versions(view: DialectView, rule: Rule) -> Iterator[Event]:
    """A version that no earlier page has; versions of the first page may be old."""
    names = [f"{name}{end}" for name in _names(rule) for end in ("_count", "_bucket")]
    known: dict[str, set[str]] = {}
    for number, scrape in enumerate(view.scrapes):
        for sample in (one for name in names for one in scrape.page.samples.get(name, ())):
            version, subject = clean(sample.label(rule.by), 80), view.subject(sample.labels) or view.server
            reported = known.setdefault(subject, set())
            if version and version not in reported:
                reported.add(version)
                if number and len(reported) > 1:
                    fields = {"what": "model version", "to": version}
                    place = f"label {rule.by}, first observed"
                    yield Event("change.model", subject, Origin(scrape.artifact, place), dict(fields), scrape.at)


def _of_starts(view: DialectView) -> Iterator[Event]:
    reported: set[float] = set()
    for scrape in view.scrapes:
        for sample in scrape.page.samples.get(STARTED, ()):
            if is_plausible_start(sample.value) and sample.value not in reported and len(reported) < MAX_STARTS:
                reported.add(sample.value)
                subject = view.subject(sample.labels) or view.server
                yield Event("change.process_start", subject, Origin(scrape.artifact, STARTED), {}, sample.value)
