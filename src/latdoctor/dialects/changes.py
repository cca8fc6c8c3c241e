"""What changed while a server's pages were read: its model, its version, its process, as the pages themselves say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from latdoctor.dialects.model import Rule
from latdoctor.dialects.page import Sample
from latdoctor.dialects.view import View
from latdoctor.evidence.model import Event, Origin
from latdoctor.text import clean

# Texts in labels whose change is an event of its own, and what it is called.
_LABELS = {
    "model.version": ("change.model", "model version"),
    "model.dtype": ("change.config", "number type"),
    "model.attention": ("change.config", "attention"),
    "server.version": ("change.version", "server version"),
    "gpu.driver_version": ("change.version", "driver version"),
}
_BY_VERSION = "version.latency"  # kept apart by the version of the model: a new one shows when it first answers
_STARTED = "process_start_time_seconds"  # of every official Prometheus client
_MAX_STARTS = 16
_SANE = (946684800.0, 4102444800.0)  # the years 2000 to 2100


def told_by(signals: frozenset[str]) -> frozenset[str]:
    """The changes that pages can show which give `signals`; when a process started, any page may tell."""
    return frozenset({"change.process_start", *(change for name, (change, _) in _LABELS.items() if name in signals)})


def changes(view: View) -> Iterator[Event]:
    """The events, each with the time of the page on which it first shows; None where that is not known."""
    for options in view.dialect.rules:
        for rule in options:
            if rule.kind == "label" and rule.signal in _LABELS:
                yield from _of_label(view, rule)
            elif rule.signal == _BY_VERSION and rule.by:
                yield from _of_versions(view, rule)
    yield from _of_starts(view)


def _of_label(view: View, rule: Rule) -> Iterator[Event]:
    signal, what = _LABELS[rule.signal]
    shown: dict[str, str] = {}
    for scrape in view.scrapes:
        for subject, texts in _texts(view, rule, scrape.page.samples).items():
            if len(texts) != 1:  # two at once: a page that contradicts itself, or a rollout on its way
                continue
            now = next(iter(texts))
            before = shown.get(subject, now)
            shown[subject] = now
            if now != before:
                fields = {"what": what, "from": before, "to": now}
                yield Event(signal, subject, Origin(scrape.artifact, f"label {rule.label}"), dict(fields), scrape.at)


def _texts(view: View, rule: Rule, samples: Mapping[str, tuple[Sample, ...]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    wanted = [selector for selector in (view.present(term) for term in rule.terms) if selector]
    for selector in wanted or list(view.selectors()):
        for sample in samples.get(selector.name, ()):
            if not selector.accepts(sample):
                continue
            text = next((clean(value, 200) for name in rule.label.split("|") if (value := sample.label(name))), "")
            subject = view.subject(sample.labels)
            if text and subject is not None:
                found.setdefault(subject, set()).add(text)
    return found


def _of_versions(view: View, rule: Rule) -> Iterator[Event]:
    """A version that no earlier page shows; what the first page shows may be old."""
    names = [f"{option.name}{end}" for term in rule.terms for option in term.options for end in ("_count", "_bucket")]
    known: dict[str, set[str]] = {}
    for number, scrape in enumerate(view.scrapes):
        for sample in (one for name in names for one in scrape.page.samples.get(name, ())):
            version, subject = clean(sample.label(rule.by), 80), view.subject(sample.labels) or view.server
            seen = known.setdefault(subject, set())
            if version and version not in seen:
                seen.add(version)
                if number and len(seen) > 1:
                    fields = {"what": "model version", "to": version}
                    place = f"label {rule.by}, first seen"
                    yield Event("change.model", subject, Origin(scrape.artifact, place), dict(fields), scrape.at)


def _of_starts(view: View) -> Iterator[Event]:
    seen: set[float] = set()
    for scrape in view.scrapes:
        for sample in scrape.page.samples.get(_STARTED, ()):
            if _SANE[0] < sample.value < _SANE[1] and sample.value not in seen and len(seen) < _MAX_STARTS:
                seen.add(sample.value)
                subject = view.subject(sample.labels) or view.server
                yield Event("change.process_start", subject, Origin(scrape.artifact, _STARTED), {}, sample.value)
