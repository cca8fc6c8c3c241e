"""Evidence from the pages of one server by one dialect."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from latdoctor.dialects.changes import changes
from latdoctor.dialects.derived_rules import counting_rules, past_rules, share_rules, spread_rules
from latdoctor.dialects.evaluate import evaluate, page_by_page
from latdoctor.dialects.gauges import bit_values
from latdoctor.dialects.metrics_page_model import MetricsPage, ScrapedPage
from latdoctor.dialects.model import Dialect, Histogram, MissingSamples, Rule, RuleKind, RuleResult, RuleValue, Unusable
from latdoctor.dialects.page_series import DialectView
from latdoctor.evidence.model import (
    AT_LEAST,
    Bucket,
    Distribution,
    Evidence,
    Gap,
    Labels,
    Origin,
    Reading,
    Series,
    Subject,
    Window,
)
from latdoctor.gap_code import GapCode

_NAMES_SHOWN = 5
_UNUSED = "it has no sample before its first use"  # instead of how to switch it on
_LONE = Unusable("how much a number varies needs two pages", GapCode.INSUFFICIENT)


def recognise_dialects(dialects: Iterable[Dialect], pages: Sequence[MetricsPage]) -> tuple[Dialect, ...]:
    """The dialects that some page belongs to; a page may belong to several."""
    return tuple(dialect for dialect in dialects if any(dialect.speaks(page) for page in pages))


def read_pages(dialect: Dialect, scrapes: Sequence[ScrapedPage], server: str, source: str = "metrics") -> Evidence:
    """Return the evidence of a server's pages, oldest first. `server` is its subject, such as server/127.0.0.1:8000;
    subjects of what it serves carry its name, such as model/m@127.0.0.1:8000. `source` is the source of the gaps.

    With two pages or more, counters and histograms cover the time between the first and the last; with one page they
    cover the server's lifetime (note "lifetime average") and rates are gaps. Gauges are averaged over the pages.
    Unreadable values are gaps; an unused subject yields nothing.
    """
    gathering = _EvidenceBuilder(DialectView(dialect, tuple(scrapes), server), source)
    for options in dialect.rules:
        for labels, narrowed in gathering.view.kept_apart(options):
            gathering.take(narrowed, labels)
    for options in (*counting_rules(dialect), *share_rules(dialect)):
        gathering.take(options)
    for options in spread_rules(dialect):
        gathering.take_spread(options)
    before = DialectView(dialect, tuple(scrapes[:1]), server)
    for options in past_rules(dialect):
        gathering.take(options, view=before)
    for bits in dialect.bits:
        if gathering.view.present(bits.rule.terms[0]) is None:
            names = (str(bits.rule.terms[0]),)
            for signal, _ in bits.masks:
                gathering.missing(signal, names, bits.rule.hint)
            continue
        for signal, mask in bits.masks:
            gathering.put(signal, bits.rule, bit_values(gathering.view, bits, signal, mask))
    return gathering.evidence()


class _EvidenceBuilder:
    """Collects the results of the rules; gaps with the same reason become one gap."""

    def __init__(self, view: DialectView, source: str) -> None:
        self.view = view
        self._source = source
        self._idle = view.idle()
        self._readings: list[Reading] = []
        self._series: list[Series] = []
        self._distributions: list[Distribution] = []
        self._troubles: dict[tuple[str, GapCode, str | None, str], list[str]] = {}
        self._unused: dict[str, tuple[list[str], list[str]]] = {}  # reason → signals, subjects

    def take(self, options: Sequence[Rule], labels: Labels = (), view: DialectView | None = None) -> None:
        """Use the first alternative with a value for a subject; otherwise report the first reason for its absence.

        `view`: some of the pages, where a rule is about these alone.
        """
        merged: dict[str | None, tuple[RuleValue | Unusable, Rule]] = {}
        absent: list[str] = []
        declared = False
        for rule in options:
            outcome = evaluate(view or self.view, rule)
            if isinstance(outcome, MissingSamples):
                absent.extend(outcome.names)
                declared = declared or outcome.declared
                continue
            for subject, result in outcome.items():
                if subject not in merged or (
                    isinstance(merged[subject][0], Unusable) and not isinstance(result, Unusable)
                ):
                    merged[subject] = (result, rule)
        if any(isinstance(result, RuleValue) for result, _ in merged.values()):
            merged.pop(None, None)
        for subject, (result, rule) in merged.items():
            self.put(rule.signal, rule, {subject: result}, labels)
        if not merged and absent:
            self.missing(options[0].signal, absent, _UNUSED if declared else options[0].hint)

    def take_spread(self, options: Sequence[Rule]) -> None:
        """Use rules that reduce several pages to their mean or their most; a lone page has no such spread."""
        if self.view.lone:
            self.put(options[0].signal, options[0], {None: _LONE})
        else:
            self.take(options)

    def missing(self, signal: str, names: Iterable[str], hint: str) -> None:
        listed = _listed(list(dict.fromkeys(names)))
        if all(scrape.page.cut for scrape in self.view.scrapes):
            self._trouble(
                signal,
                f"not on the page, which is truncated: {listed}",
                GapCode.UNREADABLE,
                None,
                "fetch the page again",
            )
        else:
            self._trouble(signal, f"not exported: {listed}", GapCode.ABSENT, None, hint or self.view.dialect.hint)

    def put(self, signal: str, rule: Rule, outcome: RuleResult, labels: Labels = ()) -> None:
        for subject, result in outcome.items():
            if subject in self._idle:
                continue
            if isinstance(result, RuleValue) and result.is_finite:
                self._found(signal, rule, subject or self.view.server, result, labels)
            elif isinstance(result, RuleValue):
                self._trouble(signal, f"{result.place} is not a finite number", GapCode.UNREADABLE, subject, "")
            elif result.code is GapCode.NOTHING_COUNTED:
                signals, subjects = self._unused.setdefault(result.reason, ([], []))
                signals.extend([signal] if signal not in signals else [])
                subjects.extend([subject] if subject and subject not in subjects else [])
            else:
                # The rule's hint is for samples that the page lacks altogether.
                self._trouble(signal, result.reason, result.code, subject, result.next_step)

    def _trouble(self, signal: str, reason: str, code: GapCode, subject: str | None, hint: str) -> None:
        signals = self._troubles.setdefault((reason, code, subject, hint), [])
        if signal not in signals:
            signals.append(signal)

    def _found(self, signal: str, rule: Rule, subject: str, found: RuleValue, labels: Labels) -> None:
        first, last = self.view.scrapes[found.first], self.view.scrapes[found.last]
        since = "" if first is last else f", since {first.artifact}"
        origin = Origin(last.artifact, found.place + since)
        covers_window = rule.kind not in (RuleKind.GAUGE, RuleKind.SUMMARY, RuleKind.LABEL)
        lifetime = self.view.lone and covers_window
        window = Window(None if lifetime else first.at, last.at)
        if isinstance(found.value, Histogram):
            buckets = tuple(
                Bucket(bucket.low * rule.factor, bucket.high * rule.factor, bucket.count)
                for bucket in found.value.buckets
            )
            total = None if found.value.total is None else found.value.total * rule.factor
            self._distributions.append(
                Distribution(signal, subject, buckets, origin, total, window, labels, found.note)
            )
        else:
            bound = AT_LEAST if rule.at_least else ""
            self._readings.append(Reading(signal, subject, found.value, origin, window, labels, found.note, bound))
        if rule.series:
            self._series.extend(page_by_page(self.view, rule, subject, origin, labels))

    def evidence(self) -> Evidence:
        subjects = dict.fromkeys(
            [
                self.view.server,
                *(reading.subject for reading in self._readings),
                *(distribution.subject for distribution in self._distributions),
                *(subject for _, _, subject, _ in self._troubles if subject is not None),
            ]
        )
        return Evidence(
            subjects=tuple(self._subjects(subjects)),
            readings=tuple(self._readings),
            series=tuple(self._series),
            distributions=tuple(self._distributions),
            events=tuple(changes(self.view)),
            gaps=tuple(self._gaps()),
        )

    def _subjects(self, subjects: Iterable[str]) -> Iterable[Subject]:
        for subject in subjects:
            yield self.view.declared(subject)

    def _gaps(self) -> Iterable[Gap]:
        source, title = self._source, self.view.dialect.title
        origin = Origin(self.view.scrapes[-1].artifact)
        for (reason, code, subject, hint), signals in self._troubles.items():
            yield Gap(source, f"{title}: {reason}", tuple(signals), subject, hint, origin, code)
        for reason, (signals, subjects) in self._unused.items():
            # Without a subject: nothing was measured, so nothing is hidden and no check becomes "unknown".
            yield Gap(
                source,
                f"{title}: {reason} for {_listed(subjects)}",
                tuple(signals),
                None,
                "",
                origin,
                GapCode.NOTHING_COUNTED,
            )
        if self._idle:
            reason = f"{title}: no requests, therefore not evaluated: {_listed(sorted(self._idle))}"
            yield Gap(source, reason, (), None, "", origin, GapCode.EMPTY)
        for signal, more in self.view.cut.items():
            reason = f"{title}: {more} more values of a label were left unread"
            yield Gap(source, reason, (signal,), None, "", origin, GapCode.TOO_LARGE)
        if self.view.left_out:
            reason = f"{title}: {self.view.left_out} more models or GPUs were left unread"
            yield Gap(source, reason, tuple(sorted(self.view.dialect.signals)), None, "", origin, GapCode.TOO_LARGE)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more
