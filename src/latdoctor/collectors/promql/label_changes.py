"""Changes in the history of a Prometheus server: starts, versions, models, configurations, replicas.

The queries cover labels with versions, process start times, build and configuration information, and the number of
targets of a job that were up, from half an hour before the history on, because a change precedes its effect. All
targets of a job are queried, because a new version often appears as new targets (pods) next to the old ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from latdoctor.collectors.promql.client import QuerySeries
from latdoctor.collectors.promql.query_plan import PlannedQuery, PrometheusTarget, QueryPlan
from latdoctor.collectors.promql.synthetic_pages import own_labels
from latdoctor.dialects import promql
from latdoctor.dialects.changes import MAX_STARTS, STARTED, ChangeLabel, change_labels, is_plausible_start
from latdoctor.dialects.model import Dialect
from latdoctor.dialects.page_series import DialectView
from latdoctor.evidence.model import Event, Origin, Value
from latdoctor.sanitize import clean

HOLE = 3  # steps; a shorter absence of a text is a failed scrape, not a change
HOLD = 3  # steps that a number must last to count


@dataclass(frozen=True, slots=True)
class LabelHistory:
    """The texts of one subject by step. `key` is the subject without its target (`model/m`)."""

    job: str
    key: str = ""
    steps: dict[int, set[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LabelChange:
    """From step `index` on a subject has `text`; `before` is the previous text, empty if there were several."""

    subject: str
    index: int
    before: str
    text: str


def label_changes(found: Mapping[str, LabelHistory]) -> Iterator[LabelChange]:
    """Yield where a subject changes to another text, and where a new target of a job has a text that none of the job
    had.

    Texts of the first step may be old and are not changes.
    """
    for subject, history in found.items():
        yield from _within(subject, history.steps)
    families: dict[tuple[str, str], list[LabelHistory]] = {}
    for history in found.values():
        families.setdefault((history.job, history.key), []).append(history)
    first = min((index for history in found.values() for index in history.steps), default=0)
    for (job, key), members in families.items():
        yield from _first_shown_by_new_targets("/".join(part for part in ("service", job, key) if part), members, first)


def _within(subject: str, steps: Mapping[int, set[str]]) -> Iterator[LabelChange]:
    current: set[str] = set()
    last: dict[str, int] = {}
    for index in sorted(steps):
        for text in sorted(steps[index] - current) if current else ():
            if index - last.get(text, index - HOLE - 1) > HOLE:
                yield LabelChange(subject, index, next(iter(current)) if len(current) == 1 else "", text)
        current = steps[index]
        last.update(dict.fromkeys(current, index))


def _first_shown_by_new_targets(subject: str, members: Sequence[LabelHistory], first: int) -> Iterator[LabelChange]:
    """Texts that targets younger than the first step had from the start, and no other target before."""
    known: dict[str, int] = {}  # when each text was first shown
    for history in members:
        for index, texts in history.steps.items():
            for text in texts:
                known[text] = min(known.get(text, index), index)
    reported: set[str] = set()
    for history in members:
        born = min(history.steps)
        for text in sorted(history.steps[born]) if born > first + 1 else ():
            before = _latest(members, born)
            if before and known[text] == born and text not in reported:
                reported.add(text)
                yield LabelChange(subject, born, next(iter(before)) if len(before) == 1 else "", text)


def _latest(members: Sequence[LabelHistory], before: int) -> set[str]:
    """The texts at the latest step before `before` at which any member had one."""
    latest = max((index for history in members for index in history.steps if index < before), default=None)
    return set() if latest is None else {text for history in members for text in history.steps.get(latest, ())}


def step_changes(values: Mapping[int, float]) -> Iterator[tuple[int, float, float]]:
    """Yield (step, before, after) for each change of a number that lasts HOLD steps, or two at the end."""
    runs: list[tuple[int, float, int]] = []  # first step, value, how many steps
    for index in sorted(values):
        if runs and runs[-1][1] == values[index]:
            runs[-1] = (runs[-1][0], values[index], runs[-1][2] + 1)
        else:
            runs.append((index, values[index], 1))
    believed: float | None = None
    for place, (index, value, length) in enumerate(runs):
        if length < (2 if place == len(runs) - 1 else HOLD):
            continue
        if believed is not None and value != believed:
            yield index, believed, value
        believed = value


LABEL, START, BUILD, CONFIG, RELOAD, REPLICAS = "label", "start", "build", "config", "reload", "replicas"
ROLES = frozenset({LABEL, START, BUILD, CONFIG, RELOAD, REPLICAS})
STEPS = 240  # finer than curves: a minute matters between a change and its effect, and these are few series
BEFORE = 1800.0  # seconds; the range of "shortly before"
_MOST = 50  # events per query; the newest are kept
_MAX_LABELS, _SHOWN = 64, 3  # labels of a configuration

_PATTERNS = {
    BUILD: ".+_build_info|python_info",
    CONFIG: ".+_config_hash|.+[:_]config_info",
    RELOAD: ".+_config_last_reload_success(ful)?_timestamp_seconds",
}
_VERSIONS = ("version", "revision", "commit", "git_commit")
_ENDINGS = tuple(_PATTERNS[RELOAD].removeprefix(".+").replace("(ful)?", part) for part in ("", "ful"))
_ENDINGS += ("_build_info", "_config_hash", "_config_info", ":config_info", "_info")


def change_queries(
    plan: QueryPlan, dialects: Sequence[Dialect], jobs: Iterable[str], select: Sequence[str]
) -> Iterator[PlannedQuery]:
    """Yield the queries about all targets of `jobs`."""
    extra = (*select, promql.name_matcher(sorted(set(jobs)), "job"))

    def over(role: str, expression: str, dialect: str = "", signal: str = "") -> PlannedQuery:
        return PlannedQuery(role, expression, plan.until, _begins(plan), _step(plan), (), dialect, signal)

    for dialect in dialects:
        for mark in change_labels(dialect):
            by = ", ".join(dict.fromkeys(("job", "instance", *mark.labels, *_subject_labels(dialect))))
            named = ",".join((promql.name_matcher(sorted(mark.names)), *extra))
            yield over(LABEL, f"group by ({by}) ({{{named}}})", dialect.id, mark.signal)
    yield over(START, promql.format_selector(STARTED, extra))
    matched = {role: ",".join((f'__name__=~"{pattern}"', *extra)) for role, pattern in _PATTERNS.items()}
    yield over(BUILD, f"group by (__name__, job, instance, {', '.join(_VERSIONS)}) ({{{matched[BUILD]}}})")
    yield over(CONFIG, f"{{{matched[CONFIG]}}}")
    yield over(RELOAD, f"{{{matched[RELOAD]}}}")
    yield over(REPLICAS, f"sum by (job) ({promql.format_selector('up', extra)})")


def _begins(plan: QueryPlan) -> float:
    return plan.since - BEFORE


def _step(plan: QueryPlan) -> float:
    return (plan.until - _begins(plan)) / STEPS


def _subject_labels(dialect: Dialect) -> tuple[str, ...]:
    return tuple(label for subject in dialect.subjects for label in subject.labels)


def events(
    plan: QueryPlan,
    answered: Iterable[tuple[PlannedQuery, Sequence[QuerySeries]]],
    dialects: Sequence[Dialect],
    names: Mapping[PrometheusTarget, str],
) -> tuple[Event, ...]:
    """Return the changes in the results. `names` are the names of the targets that are read."""
    known = {dialect.id: dialect for dialect in dialects}
    found: list[Event] = []
    for query, lines in answered:
        reader = _Reader(plan, names, Origin(query.artifact, clean(query.expression, 200)))
        dialect = known.get(query.dialect) if query.role == LABEL else None
        text = reader.of_labels(dialect, query.signal, lines) if dialect else reader.of_role(query.role, lines)
        found.extend(sorted(text, key=lambda event: event.time or 0.0)[-_MOST:])
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Converts the series of one result to events."""

    plan: QueryPlan
    names: Mapping[PrometheusTarget, str]
    origin: Origin

    def of_labels(self, dialect: Dialect, signal: str, lines: Sequence[QuerySeries]) -> Iterator[Event]:
        for mark in (one for one in change_labels(dialect) if one.signal == signal):
            history = self._marked(dialect, mark, lines)
            yield from (self._event(mark.change, mark.what, turn) for turn in label_changes(history))

    def of_role(self, role: str, lines: Sequence[QuerySeries]) -> Iterator[Event]:
        """The changes in series that any target may have; none for an unknown role."""
        if role == REPLICAS:
            yield from self._replicas(lines)
            return
        families: dict[str, list[QuerySeries]] = {}
        for line in lines:
            families.setdefault(line.labels.get("__name__", ""), []).append(line)
        for name, own in families.items():
            if role == START:
                yield from self._starts(own)
            elif role == BUILD:
                history = self._histories(own, lambda line, _: _version(line.labels))
                yield from (
                    self._event("change.version", f"{_stem(name)} version", turn) for turn in label_changes(history)
                )
            elif role == CONFIG:
                yield from self._configurations(name, own)
            elif role == RELOAD:
                yield from self._reloads(name, own)

    def _marked(self, dialect: Dialect, mark: ChangeLabel, lines: Sequence[QuerySeries]) -> dict[str, LabelHistory]:
        views: dict[str, DialectView] = {}
        found: dict[str, LabelHistory] = {}
        for line in lines:
            server, text = self._server(line), mark.text(line.labels)
            # Without pages, so that a version is never part of the subject that changes to it.
            view = views.setdefault(server, DialectView(dialect, (), server))
            subject = server if mark.of_server else view.subject(own_labels(line.labels))
            if text and subject is not None:
                self._note(found, subject, line, _always(text))
        return found

    def _histories(
        self, lines: Sequence[QuerySeries], text: Callable[[QuerySeries, float], str]
    ) -> dict[str, LabelHistory]:
        """The texts that `text` derives from each series and value, per server."""
        found: dict[str, LabelHistory] = {}
        for line in lines:
            self._note(found, self._server(line), line, text)
        return found

    def _note(
        self, found: dict[str, LabelHistory], subject: str, line: QuerySeries, text: Callable[[QuerySeries, float], str]
    ) -> None:
        key = "" if subject.startswith("server/") else subject.partition("@")[0]
        for time, value in self._points(line):
            if shown := text(line, value):
                history = found.setdefault(subject, LabelHistory(clean(line.labels.get("job", ""), 100), key))
                history.steps.setdefault(self._index(time), set()).add(shown)

    def _points(self, line: QuerySeries) -> Iterator[tuple[float, float]]:
        """The times and values within the requested range."""
        for time, value in zip(line.times, line.values, strict=True):
            if _begins(self.plan) <= time <= self.plan.until + _step(self.plan):
                yield time, value

    def _server(self, line: QuerySeries) -> str:
        target = PrometheusTarget.of(line.labels)
        return f"server/{self.names.get(target) or clean(target.instance or target.job, 200)}"

    def _index(self, time: float) -> int:
        return round((time - _begins(self.plan)) / _step(self.plan))

    def _time(self, index: int) -> float:
        return _begins(self.plan) + index * _step(self.plan)

    def _event(self, signal: str, what: str, turn: LabelChange, *, shows: bool = True) -> Event:
        """`shows`: the texts are meaningful to a person."""
        versions = {"from": turn.before, "to": turn.text} if shows else {}
        text = {"what": clean(what, 300), **versions}
        fields: dict[str, Value] = {name: text for name, text in text.items() if text}
        return Event(signal, turn.subject, self.origin, fields, self._time(turn.index))

    def _starts(self, lines: Sequence[QuerySeries]) -> Iterator[Event]:
        starts: dict[str, set[float]] = {}
        for line in lines:
            starts.setdefault(self._server(line), set()).update(filter(is_plausible_start, line.values))
        for subject, found in starts.items():
            for start in sorted(found)[-MAX_STARTS:]:
                yield Event("change.process_start", subject, self.origin, {}, start)

    def _configurations(self, name: str, lines: Sequence[QuerySeries]) -> Iterator[Event]:
        """A hash is a value; an information metric has the configuration in its labels."""
        if name.endswith("_hash"):
            history = self._histories(lines, lambda _, value: f"{value:.17g}" if math.isfinite(value) else "")
            yield from (self._event("change.config", _stem(name), turn, shows=False) for turn in label_changes(history))
            return
        for turn in label_changes(self._histories(lines, lambda line, _: _labels(line))):
            what = f"{_stem(name)} {_difference(turn)}"
            yield self._event("change.config", what.strip(), turn, shows=False)

    def _reloads(self, name: str, lines: Sequence[QuerySeries]) -> Iterator[Event]:
        for line in lines:
            for at in sorted(set(line.values)):
                if _begins(self.plan) <= at <= self.plan.until:
                    fields: dict[str, Value] = {"what": f"{_stem(name)} reloaded"}
                    yield Event("change.config", self._server(line), self.origin, fields, at)

    def _replicas(self, lines: Sequence[QuerySeries]) -> Iterator[Event]:
        for line in lines:
            values = {self._index(time): value for time, value in self._points(line) if math.isfinite(value)}
            subject = f"service/{clean(line.labels.get('job', ''), 100)}"
            for index, before, after in step_changes(values):
                turn = LabelChange(subject, index, f"{before:g}", f"{after:g}")
                yield self._event("change.replicas", "replicas", turn)


def _always(text: str) -> Callable[[QuerySeries, float], str]:
    return lambda *_: text


def _stem(name: str) -> str:
    """`prometheus_build_info` → `prometheus`."""
    ending = next((one for one in _ENDINGS if name.endswith(one)), "")
    return clean(name.removesuffix(ending), 100)


def _version(labels: Mapping[str, str]) -> str:
    text = [clean(labels.get(name, ""), 60) for name in _VERSIONS]
    return " ".join(dict.fromkeys([text[0], *(one[:12] for one in text[1:])])).strip()


def _labels(line: QuerySeries) -> str:
    """The labels of an information metric, one per line: `clean` leaves no line breaks in them."""
    return "\n".join(f"{clean(name, 60)}={clean(value, 80)}" for name, value in own_labels(line.labels)[:_MAX_LABELS])


def _difference(turn: LabelChange) -> str:
    """`block_size 16 → 32`: the labels whose values differ."""
    before, after = (dict(one.split("=", 1) for one in text.split("\n") if one) for text in (turn.before, turn.text))
    differing = [f"{name} {before.get(name, 'none')} → {value}" for name, value in after.items()
                 if before and before.get(name) != value]  # fmt: skip
    more = f" and {len(differing) - _SHOWN} more" if len(differing) > _SHOWN else ""
    return ", ".join(differing[:_SHOWN]) + more
