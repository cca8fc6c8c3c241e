"""Two diagnoses side by side, as plain lines: for `rules diff`, `diagnose --against -v` and `--watch`."""

from __future__ import annotations

from collections.abc import Iterator

from latdoctor.diagnosis.codes import CheckStatus
from latdoctor.diagnosis.comparison import ChangeAction, RulesDifference
from latdoctor.diagnosis.result import Against, Answer, CauseShift, CheckShift, Contrast, Place, Verdict
from latdoctor.evidence.diff import Difference
from latdoctor.report.comparison_screen import shown
from latdoctor.report.subject_names import shortened
from latdoctor.sanitize import clean
from latdoctor.units import percent

_MARK = {ChangeAction.ADDED: "+", ChangeAction.REMOVED: "-", ChangeAction.CHANGED: "~"}
_DETAILS = 6  # of one rule
_CHECKS = 8  # of one incident
_VALUES = 8  # of one comparison


def answered(verdict: Verdict, answer: Answer) -> str:
    """A verdict and its answer in a few words: `critical: app.load.burst`."""
    if answer.kind == "named":
        return f"{verdict.level}: {' + '.join(answer.causes)}"
    if answer.kind == "one-of":
        return f"{verdict.level}: one of {', '.join(answer.causes)}"
    unknown = "no cause of the catalogue explains it" if answer.kind == "unexplained" else "no cause found"
    return f"{verdict.level}: {unknown}"


def lines(contrast: Contrast, *, every: bool = False) -> Iterator[str]:
    """What differs: the answer, then causes, then findings."""
    first, second = (answered(*both) for both in zip(contrast.verdicts, contrast.answers, strict=True))
    yield f"{first} → {second}" if contrast.answer_changed else f"{second}, as before"
    yield from (_cause(shift) for shift in contrast.causes)
    shown = contrast.checks if every else contrast.checks[:_CHECKS]
    yield from (_check(shift) for shift in shown)
    if len(shown) < len(contrast.checks):
        yield f"({len(contrast.checks) - len(shown)} more findings: -v)"


def of_against(against: Against, *, every: bool = False) -> Iterator[str]:
    """The answers and findings that changed, then the values that moved most."""
    yield from lines(against.contrast, every=every)
    both = [one for one in against.values if one.before is not None and one.after is not None]
    both.sort(key=lambda one: isinstance(one.after, str))  # another name or version of something says least
    listed = both if every else both[:_VALUES]
    yield from (_value(one) for one in listed)
    if len(listed) < len(both):
        yield f"({len(both) - len(listed)} more values differ: -v)"
    if not both:
        yield "no value that both show differs by more than a fifth"
    for title, which in ((against.than, "after"), (against.name, "before")):
        names = list(dict.fromkeys(one.signal for one in against.values if getattr(one, which) is None))
        if names:
            more = f" and {len(names) - _VALUES} more" if len(names) > _VALUES and not every else ""
            yield clean(f"only {title} shows {', '.join(names if every else names[:_VALUES])}{more}", 20_000)


def _value(one: Difference) -> str:
    times = "" if one.factor is None else f", {one.factor:.3g} times"
    subject = shortened(clean(one.subject))
    return f"{one.signal}: {shown(one.signal, one.before)} → {shown(one.signal, one.after)}{times} ({subject})"


def _cause(shift: CauseShift) -> str:
    return f"{shift.id}: {_place(shift.before)} → {_place(shift.after)}"


def _place(place: Place | None) -> str:
    if place is None:
        return "not listed"
    return f"{percent(place.probability)} ({'named' if place.named else 'not named'}, rank {place.rank})"


def _check(shift: CheckShift) -> str:
    return f"{shift.id}: {_status(shift.before)} → {_status(shift.after)}"


def _status(status: CheckStatus | None) -> str:
    return "not in the rules" if status is None else status.replace("-", " ")


def of_rules(difference: RulesDifference, *, every: bool = False) -> Iterator[tuple[int, str]]:
    """The lines of `rules diff`, each with how far it is indented."""
    yield 0, f"old: {difference.old}"
    yield 0, f"new: {difference.new}"
    yield 0, ""
    yield 0, "Rules" if difference.rules else "The rules say the same."
    for change in difference.rules:
        yield 2, f"{_MARK[change.action]} {change.kind} {change.id}"
        shown = change.details if every else change.details[:_DETAILS]
        yield from ((6, detail) for detail in shown)
        if len(shown) < len(change.details):
            yield 6, f"({len(change.details) - len(shown)} more: -v)"
    if difference.incidents:
        yield from _incidents(difference, every=every)


def _incidents(difference: RulesDifference, *, every: bool) -> Iterator[tuple[int, str]]:
    yield 0, ""
    yield 0, "Incidents"
    alike = [incident.bundle for incident in difference.incidents if not incident.contrast.any]
    for incident in difference.incidents:
        if incident.contrast.any:
            yield 2, incident.bundle
            yield from ((6, line) for line in lines(incident.contrast, every=every))
        elif every:
            yield 2, f"{incident.bundle}: nothing changes"
    count, changed = len(difference.incidents), difference.answers_changed
    yield 0, ""
    yield (
        0,
        (
            f"{changed} of {count} answers become another; {count - len(alike) - changed} stay and move, "
            f"{len(alike)} stay as they are"
        ),
    )
