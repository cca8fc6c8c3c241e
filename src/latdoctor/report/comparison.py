"""Two diagnoses side by side, as plain lines: for `rules diff`, `diagnose --against` and a look that goes on."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from latdoctor.conditions.evaluator import show
from latdoctor.diagnosis.comparison import ADDED, CHANGED, REMOVED, RulesDifference
from latdoctor.diagnosis.result import Against, Answer, CauseShift, CheckShift, Contrast, Place, Verdict
from latdoctor.evidence.catalogue import catalogue
from latdoctor.evidence.diff import Difference
from latdoctor.evidence.model import Value
from latdoctor.report.presenter import shortened
from latdoctor.sanitize import clean
from latdoctor.units import percent

_MARK = {ADDED: "+", REMOVED: "-", CHANGED: "~"}
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


# Quantities that decide whether a service is faster, the first that both show.
_SPEED = ("latency.p99", "client.latency.p99", "latency.mean", "ttft.p99", "ttft.mean", "compute.time.mean")
_SPEED_NAMES = {"latency.p99": "P99", "client.latency.p99": "P99 at the client", "latency.mean": "mean latency"}
_MORE_IS_BETTER = ("completion.rate", "gpu.sm_clock_ratio", "session.hit_ratio", "prefix_cache.hit_ratio")
_HEADLINES = 5
# What an engineer asks about first; everything else follows by how much it moved.
_FIRST = {
    "error.ratio",
    "arrival.rate",
    "completion.rate",
    "queue.depth",
    "queue.time.mean",
    "compute.time.mean",
    "batch.size.mean",
    "kv.usage",
}


def headline(against: Against) -> tuple[str, ...]:
    """Faster, slower or the same, by how much; then what else moved, as signed percentages."""
    both = [one for one in against.values if one.factor is not None]
    speed = next((one for name in _SPEED for one in both if one.signal == name), None)
    than = against.than
    if speed is None or speed.factor is None:
        moved = "latency is the same within a fifth, or not shown by both"
        first = f"NO DIFFERENCE IN SPEED against {than}: {moved}"
    else:
        word = "SLOWER" if speed.factor > 1 else "FASTER"
        name = _SPEED_NAMES.get(speed.signal) or _title(speed.signal)
        values = f"{_shown(speed.signal, speed.before)} → {_shown(speed.signal, speed.after)}"
        first = f"{word} than {than}: {name} {values} ({_signed(speed.factor)})"
    others = sorted((one for one in both if one is not speed), key=lambda one: one.signal not in _FIRST)[:_HEADLINES]
    return (first, *(_moved(one) for one in others))


def _moved(one: Difference) -> str:
    values = f"{_shown(one.signal, one.before)} → {_shown(one.signal, one.after)}"
    return f"{_signed(one.factor or 1.0):>8}{_mark(one)}  {values}  {_title(one.signal)}"


def _signed(factor: float) -> str:
    return f"{(factor - 1) * 100:+.0f} %" if factor < 100 else f"×{factor:.0f}"


def _mark(one: Difference) -> str:
    """Whether the change is one for the better or the worse, where that is known."""
    known = catalogue().get(one.signal)
    grew = (one.factor or 1.0) > 1
    if one.signal in _MORE_IS_BETTER:
        return " better" if grew else " worse "
    if known and known.unit.dimension == "time":
        return " worse " if grew else " better"
    return "       "


def _title(signal: str) -> str:
    """The quantity in the catalogue's words, up to its first bracket."""
    known = catalogue().get(signal)
    words = (known.description if known else signal).partition(" (")[0]
    return textwrap.shorten(words, 42, placeholder=" …")


def of_against(against: Against, *, every: bool = False) -> Iterator[str]:
    """What a person compares with: first what is said, then the values that moved most."""
    yield from lines(against.contrast, every=every)
    both = [one for one in against.values if one.before is not None and one.after is not None]
    both.sort(key=lambda one: isinstance(one.after, str))  # another name or version of something tells least
    shown = both if every else both[:_VALUES]
    yield from (_value(one) for one in shown)
    if len(shown) < len(both):
        yield f"({len(both) - len(shown)} more values differ: -v)"
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
    return f"{one.signal}: {_shown(one.signal, one.before)} → {_shown(one.signal, one.after)}{times} ({subject})"


def _shown(signal: str, value: Value | None) -> str:
    if value is None:
        return "not seen"
    known = signal in catalogue()
    return clean(show(signal, value) if known else str(value), 200)


def _cause(shift: CauseShift) -> str:
    return f"{shift.id}: {_place(shift.before)} → {_place(shift.after)}"


def _place(place: Place | None) -> str:
    if place is None:
        return "not listed"
    return f"{percent(place.probability)} ({'named' if place.named else 'not named'}, rank {place.rank})"


def _check(shift: CheckShift) -> str:
    return f"{shift.id}: {_status(shift.before)} → {_status(shift.after)}"


def _status(status: str | None) -> str:
    return "not in the rules" if status is None else status.replace("-", " ")


def of_rules(difference: RulesDifference, *, every: bool = False) -> Iterator[tuple[int, str]]:
    """The lines of `rules diff`, each with how far it is indented."""
    yield 0, f"old: {difference.old}"
    yield 0, f"new: {difference.new}"
    yield 0, ""
    yield 0, "Rules" if difference.rules else "The rules say the same."
    for change in difference.rules:
        yield 2, f"{_MARK[change.what]} {change.kind} {change.id}"
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
