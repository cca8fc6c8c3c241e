"""Evidence from the results of a Prometheus server: readings of the judged window, series of the history, gaps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import structs

from latdoctor.collectors.outage import answers, outage_evidence
from latdoctor.collectors.promql import NAME, label_changes, target_outages
from latdoctor.collectors.promql import query_plan as plans
from latdoctor.collectors.promql.client import QueryResult, QuerySeries
from latdoctor.collectors.promql.pasteable_queries import born_counters, source_queries
from latdoctor.collectors.promql.query_plan import (
    PlannedQuery,
    PrometheusTarget,
    QueryPlan,
    ranked_targets,
    samples_by_target,
    target_names,
)
from latdoctor.collectors.promql.synthetic_pages import PageBuilder, own_labels
from latdoctor.collectors.time_range import format_utc
from latdoctor.dialects.loader import shipped, shipped_signals
from latdoctor.dialects.metrics_page_model import ScrapedPage
from latdoctor.dialects.model import Dialect, join_notes
from latdoctor.dialects.page_series import DialectView
from latdoctor.dialects.to_evidence import read_pages, recognise_dialects
from latdoctor.errors import SourceError
from latdoctor.evidence.model import Evidence, Gap, Origin, Series, Subject, Window
from latdoctor.gap_code import GapCode
from latdoctor.sanitize import clean

_FEWEST = 4  # points of a curve
_NEAR = 0.02  # of the window; a target younger by more gets a note
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class AnsweredQuery:
    """A query and its result."""

    query: PlannedQuery
    answer: QueryResult


def evidence_of(plan: QueryPlan, answered: Sequence[AnsweredQuery], server: str, artifact: str) -> Evidence:
    """`server` names the Prometheus, `artifact` the plan. Raises SourceError if no series belongs to a dialect."""
    samples_found = samples_by_target(_of(answered, plans.FOUND))
    found = ranked_targets(samples_found)
    down = _outages(plan, answered, server, artifact)
    if not found and down.readings:
        gaps = tuple(_gaps(plan, answered, {}, (), server, artifact))
        return Evidence.merge([down, Evidence(gaps=gaps)])
    if not found:
        raise SourceError(
            "has no series of a known dialect within the judged window",
            where=server,
            next_step="check --select, --until and --window, and that Prometheus scrapes the servers",
        )
    scrapes = _scrapes(plan, answered, artifact)
    read, left = found[: plans.MAX_TARGETS], found[plans.MAX_TARGETS :]
    names = target_names(found, server)
    covers = _covers(answered)
    samples = samples_by_target(_of(answered, plans.NAMES))
    born = born_counters(_lines(answered, plans.LAST), _lines(answered, plans.GROWTH))
    parts: list[Evidence] = [down]
    for target in read:
        subject = f"server/{names[target]}"
        pages = scrapes.get(target, [])
        dialects = recognise_dialects(shipped(), [scrape.page for scrape in pages])
        note = _young(plan, covers.get(target, -math.inf))
        for dialect in dialects:
            # The samples in Prometheus no longer depend on the exporter's own refresh schedule.
            parts.append(_noted(read_pages(structs.replace(dialect, cached=False), pages, subject, NAME), note))
            parts.append(_curves(plan, answered, dialect, pages, target, subject))
            present = samples.get(target, frozenset())
            window = min(plan.window, plan.until - covers.get(target, plan.start))
            queries = source_queries(plan, dialect, target, present, subject, window, born.get(target, set()))
            parts.append(Evidence(queries=tuple(queries)))
    parts.append(Evidence(subjects=tuple(Subject(f"server/{names[target]}") for target in read)))
    parts.append(Evidence(services=tuple(_services(answered, samples_found, names))))
    label_answers = [(one.query, one.answer.lines) for one in answered if one.query.role in label_changes.ROLES]
    parts.append(Evidence(events=label_changes.events(plan, label_answers, shipped(), names)))
    parts.append(Evidence(gaps=tuple(_gaps(plan, answered, names, left, server, artifact))))
    return Evidence.merge(parts)


def _of(answered: Sequence[AnsweredQuery], role: str) -> list[QueryResult]:
    return [one.answer for one in answered if one.query.role == role]


def _lines(answered: Sequence[AnsweredQuery], role: str) -> Iterator[QuerySeries]:
    return (line for answer in _of(answered, role) for line in answer.lines)


def _covers(answered: Sequence[AnsweredQuery]) -> dict[PrometheusTarget, float]:
    """When each target was first scraped within the window, or just before it."""
    return _of_targets(answered, plans.COVER)


def _of_targets(answered: Sequence[AnsweredQuery], role: str) -> dict[PrometheusTarget, float]:
    """The one value of each target."""
    return {
        PrometheusTarget.of(line.labels): line.values[-1]
        for line in _lines(answered, role)
        if line.values and math.isfinite(line.values[-1])
    }


def scrape_interval(plan: QueryPlan, answered: Sequence[AnsweredQuery]) -> float:
    """Scrape interval in seconds of the target that is scraped least often, according to `up`."""
    covers, lasts = _covers(answered), _of_targets(answered, plans.ANSWERED)
    paces: list[float] = []
    for target, count in _of_targets(answered, plans.COUNT).items():
        first = covers.get(target, plan.start)
        last = lasts.get(target, plan.until)
        if count >= 1:  # those within the window; the one that was current at its start is not among them
            intervals = count if first < plan.start else count - 1
            paces.append(((last if last > first else plan.until) - first) / max(1, intervals))
    return max(paces, default=plans.PACE)


def _scrapes(
    plan: QueryPlan, answered: Sequence[AnsweredQuery], artifact: str
) -> dict[PrometheusTarget, list[ScrapedPage]]:
    pages = PageBuilder(plan, artifact, _covers(answered))
    for one in answered:
        pages.take(one.query.role, one.answer.lines)
    return pages.scrapes()


def _young(plan: QueryPlan, first: float) -> str:
    late = first - plan.start
    return f"observed for only {plan.until - first:.0f} s" if late > _NEAR * plan.window else ""


def _noted(evidence: Evidence, note: str) -> Evidence:
    if not note:
        return evidence
    return structs.replace(
        evidence,
        readings=tuple(structs.replace(one, note=join_notes(one.note, note)) for one in evidence.readings),
        distributions=tuple(structs.replace(one, note=join_notes(one.note, note)) for one in evidence.distributions),
    )


def _curves(
    plan: QueryPlan,
    answered: Sequence[AnsweredQuery],
    dialect: Dialect,
    pages: Sequence[ScrapedPage],
    target: PrometheusTarget,
    subject: str,
) -> Evidence:
    """The history of the target's signals, one series per subject; ambiguous ones are dropped."""
    view = DialectView(dialect, tuple(pages), subject)
    born = _ups(answered).get(target, -math.inf)
    # A rate over a time before the target existed would look like a change.
    whole = born + plan.reach if born > plan.since - plan.curve_step else -math.inf
    series: list[Series] = []
    for one in answered:
        if one.query.role != plans.CURVE or one.query.dialect != dialect.id:
            continue
        found: dict[str, list[QuerySeries]] = {}
        for line in one.answer.lines:
            owner = view.subject(own_labels(line.labels)) if PrometheusTarget.of(line.labels) == target else None
            if owner is not None:
                found.setdefault(owner, []).append(line)
        for owner, lines in found.items():
            series_of_owner = _series(dialect, one.query, owner, lines[0], whole) if len(lines) == 1 else None
            if series_of_owner is not None:
                series.append(series_of_owner)
    return Evidence(series=tuple(series))


def _outages(plan: QueryPlan, answered: Sequence[AnsweredQuery], server: str, artifact: str) -> Evidence:
    """The servers that answered within the history: whether they still do."""
    known = {**samples_by_target(_of(answered, plans.PAST)), **samples_by_target(_of(answered, plans.FOUND))}
    servers = {target for target, samples in known.items() if plans.serves_requests(samples)}
    names = target_names(known, server)
    scraping = any(line.values and line.values[-1] > 0 for line in _lines(answered, plans.SCRAPING))
    states = target_outages.states_of(
        list(_lines(answered, plans.UP)), _of_targets(answered, plans.ANSWERED), scraping=scraping
    )
    origin, window = Origin(artifact), Window(plan.start, plan.until)
    lost = [outage_evidence(one, origin, window) for one in target_outages.outages(plan, states, servers, names)]
    alive = [answers(name, origin, window) for name in target_outages.answering(plan, states, servers, names)]
    return Evidence.merge([*lost, *alive])


# The labels that name a service, the most specific first; `job` is on every target.
_SERVICE_LABELS = ("inferenceservice", "deployment", "app_kubernetes_io_name", "app", "service", "job")


def _services(
    answered: Sequence[AnsweredQuery],
    found: Mapping[PrometheusTarget, frozenset[str]],
    names: Mapping[PrometheusTarget, str],
) -> Iterator[tuple[str, str]]:
    """Each inference server with the name of the service that it belongs to, by the labels of its `up`."""
    reported: set[PrometheusTarget] = set()
    for one in answered:
        for line in one.answer.lines if one.query.role == plans.UP else ():
            target = PrometheusTarget.of(line.labels)
            label = next((label for label in _SERVICE_LABELS if line.labels.get(label)), "")
            if label and target in names and target not in reported and plans.serves_requests(found[target]):
                reported.add(target)
                yield f"server/{names[target]}", clean(line.labels[label], 100)


def _ups(answered: Sequence[AnsweredQuery]) -> dict[PrometheusTarget, float]:
    """When each target was first seen within the history, or shortly before."""
    lines = (line for one in answered if one.query.role == plans.UP for line in one.answer.lines)
    return {PrometheusTarget.of(line.labels): line.times[0] for line in lines if line.times}


def _series(dialect: Dialect, query: PlannedQuery, subject: str, line: QuerySeries, first: float) -> Series | None:
    def label_answers(time: float, value: float) -> bool:
        blank = any(blank.low <= value <= blank.high for blank in dialect.blanks)
        return time >= first and math.isfinite(value) and not blank

    reported_points = [
        (time, value) for time, value in zip(line.times, line.values, strict=True) if label_answers(time, value)
    ]
    points = [(time, value * query.factor) for time, value in reported_points]
    if len(points) < _FEWEST:
        return None
    times, values = zip(*points, strict=True)
    origin = Origin(query.artifact, clean(query.expression, 200))
    return Series(query.signal, subject, times, values, origin)


def _gaps(
    plan: QueryPlan,
    answered: Sequence[AnsweredQuery],
    names: Mapping[PrometheusTarget, str],
    left: Sequence[PrometheusTarget],
    server: str,
    artifact: str,
) -> Iterator[Gap]:
    origin = Origin(artifact)
    hidden = tuple(sorted(server_signals()))
    if left:
        reason = f"{server}: {len(left)} more targets were not read, among them {names[left[0]]}"
        yield Gap(NAME, reason, hidden, None, "narrow it: --select '{job=\"…\"}'", code=GapCode.TOO_LARGE)
    if plan.window < plans.FEWEST * plan.pace:
        reason = f"{server}: the scrape interval is {plan.pace:.0f} s, so {plan.window:.0f} s contain few samples"
        next_step = f"use a longer window: --window {plans.FEWEST * plan.pace:.0f}s"
        yield Gap(NAME, reason, (), None, next_step, origin, GapCode.INSUFFICIENT)
    for target, reason in _down(plan, answered):
        # A target without a dialect matters only if the user selected it.
        if target in names or plan.select:
            name = names.get(target) or target_names([target], server)[target]
            is_read = target in names
            subject = None if is_read else f"server/{name}"
            signals = () if is_read else hidden
            next_step = "check that its process is running"
            yield Gap(NAME, f"{name} {reason}", signals, subject, next_step, code=GapCode.STOPPED)
    warned = dict.fromkeys(warning for one in answered for warning in one.answer.warnings)
    if warned:
        reason = f"{server} warns: {'; '.join(list(warned)[:_SHOWN])}"
        next_step = "part of the result may be missing: check the stores behind it"
        yield Gap(NAME, reason, (), None, next_step, origin, GapCode.UNREADABLE)


def server_signals() -> frozenset[str]:
    """The signals without another source; an unread target does not hide hardware signals."""
    return frozenset(signal for signal in shipped_signals() if not signal.startswith(("gpu.", "host.")))


def _down(plan: QueryPlan, answered: Sequence[AnsweredQuery]) -> Iterator[tuple[PrometheusTarget, str]]:
    """Targets that Prometheus could not scrape at the end, and since when."""
    for one in answered:
        if one.query.role != plans.UP:
            continue
        for line in one.answer.lines:
            if not line.times:
                continue
            ups = [time for time, value in zip(line.times, line.values, strict=True) if value == 1]
            if line.values[-1] == 0 and line.times[-1] >= plan.until - 2 * plan.curve_step:
                since = f"since {format_utc(ups[-1])} or shortly after" if ups else "throughout"
                yield PrometheusTarget.of(line.labels), f"could not be scraped {since}"
            elif line.times[-1] < plan.until - 2 * plan.curve_step and ups:
                yield PrometheusTarget.of(line.labels), f"is no longer a target since {format_utc(line.times[-1])}"
